"""`kernels` is the native module, or None (with a warning) if it was not built."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (imported first, so that the native module shares torch's OpenMP threads)

BACKENDS = ("fused", "reference", "streamed", "triton")
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")
KEPT_FRACTION = 8  # freed memory of up to an eighth of the machine's is kept for the next call


def _read_variable(name: str, known: tuple[str, ...]) -> str:
    """The value of an environment variable: empty or one of the known values."""
    value = os.environ.get(name, "")
    if value not in ("", *known):
        raise ValueError(f"{name} must be one of {', '.join(known)}, but is {value!r}")
    return value


def _load() -> Any:  # Any, because type checkers can't see the names of a compiled module
    """The native module; None if DYNAGAT_BACKEND=reference or the module was not built."""
    _read_variable("DYNAGAT_ISA", INSTRUCTION_SETS)  # checked here, read by the native module
    if FORCED == "reference":
        return None
    try:
        module = importlib.import_module("dynagat._native")
        module.keep_memory(_memory_to_keep())
        return module
    except ImportError as error:
        if FORCED == "fused":
            raise
        warnings.warn(
            f"dynagat runs without its native kernels, on the slower reference path ({error}); "
            "reinstall it with a C++17 compiler, or set DYNAGAT_BACKEND=reference "
            "to silence this warning",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _memory_to_keep() -> int:
    keeps = not os.environ.get("DYNAGAT_KEEP_MEMORY", "").startswith("0")
    return memory_limit() // KEPT_FRACTION if keeps else 0


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes of memory that this process can use: those of the machine, or fewer in a cgroup."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not on Linux
        return limits[0]
    for line in lines:  # "0::/path" in version 2, "4:memory:/path" in version 1
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = _in_parents(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            files = _in_parents(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
        else:
            continue
        texts = [file.read_text().strip() for file in files if file.is_file()]
        limits += [int(text) for text in texts if text != "max"]
    return min(limits)


def _in_parents(top: Path, path: str, name: str) -> list[Path]:
    """The file of this name in the folder of a cgroup and in all folders above it."""
    folder = Path(path.lstrip("/"))
    return [top / parent / name for parent in (folder, *folder.parents)]


FORCED = _read_variable("DYNAGAT_BACKEND", BACKENDS)  # empty: none is
kernels = _load()
