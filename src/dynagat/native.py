"""The native module, if it was built: `kernels` is that module, or None, and then one warning says so."""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType

import torch  # noqa: F401  (first: the native module then shares torch's OpenMP threads)

BACKENDS = ("fused", "reference")


def _load() -> ModuleType | None:
    """The compiled kernels, unless DYNAGAT_BACKEND=reference or nothing was built."""
    wanted = os.environ.get("DYNAGAT_BACKEND", "")
    if wanted not in ("", *BACKENDS):
        raise ValueError(f"DYNAGAT_BACKEND must be one of {', '.join(BACKENDS)}, but is {wanted!r}")
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
