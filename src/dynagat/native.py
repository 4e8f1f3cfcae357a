"""The native module: `kernels` is it, or None if it was not built, and then one warning says so."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import torch  # noqa: F401  (first: the native module then shares torch's OpenMP threads)

BACKENDS = ("fused", "reference")
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")


def _setting(name: str, known: tuple[str, ...]) -> str:
    """An environment variable: empty, or one of the known values."""
    value = os.environ.get(name, "")
    if value not in ("", *known):
        raise ValueError(f"{name} must be one of {', '.join(known)}, but is {value!r}")
    return value


def _load() -> Any:  # a module whose names no type checker sees, or None
    """The compiled kernels, unless DYNAGAT_BACKEND=reference or nothing was built."""
    wanted = _setting("DYNAGAT_BACKEND", BACKENDS)
    _setting("DYNAGAT_ISA", INSTRUCTION_SETS)  # the native module reads it
    if wanted == "reference":
        return None
    try:
        return importlib.import_module("dynagat._native")
    except ImportError as error:
        if wanted == "fused":
            raise
        warnings.warn(
            f"dynagat runs without its native kernels, on the slower reference path ({error}); "
            "reinstall it where a C++17 compiler is found, or set DYNAGAT_BACKEND=reference "
            "to silence this warning",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


kernels = _load()
