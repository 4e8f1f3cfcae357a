"""`kernels` is the native module, or None (with a warning) if it was not built."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import torch  # noqa: F401  (imported first, so that the native module shares torch's OpenMP threads)

BACKENDS = ("fused", "reference")
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")


def _read_variable(name: str, known: tuple[str, ...]) -> str:
    """The value of an environment variable: empty or one of the known values."""
    value = os.environ.get(name, "")
    if value not in ("", *known):
        raise ValueError(f"{name} must be one of {', '.join(known)}, but is {value!r}")
    return value


def _load() -> Any:  # Any, because type checkers can't see the names of a compiled module
    """The native module; None if DYNAGAT_BACKEND=reference or the module was not built."""
    backend = _read_variable("DYNAGAT_BACKEND", BACKENDS)
    _read_variable("DYNAGAT_ISA", INSTRUCTION_SETS)  # checked here, read by the native module
    if backend == "reference":
        return None
    try:
        return importlib.import_module("dynagat._native")
    except ImportError as error:
        if backend == "fused":
            raise
        warnings.warn(
            f"dynagat runs without its native kernels, on the slower reference path ({error}); "
            "reinstall it with a C++17 compiler, or set DYNAGAT_BACKEND=reference "
            "to silence this warning",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


kernels = _load()
