"""What a run ran on: versions, the commit, and the peak of the process's memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

import dynagat
from dynagat.native import kernels

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def versions() -> dict[str, str]:
    found = {
        "dynagat": dynagat.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernels": kernels.instruction_set if kernels is not None else "reference",
        "threads": str(torch.get_num_threads()),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    with suppress(PackageNotFoundError):
        found["torch_geometric"] = version("torch_geometric")
    return found


@cache
def commit() -> str:
    """That of the source tree this package was installed from, if it lies inside of it."""
    here = Path(dynagat.__file__).parent
    root = next((p for p in here.parents if (p / "src/dynagat/__init__.py").exists()), None)
    head = None if root is None else _git(root, "rev-parse", "--short=12", "HEAD")
    if root is None or head is None:
        return "unknown"
    return f"{head}+" if _git(root, "status", "--porcelain", "--", "src", "csrc") else head


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@dataclass
class Peak:
    """The most memory that was resident, in bytes; known when the block ends."""

    bytes: int = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """The process's peak within the block, where the system can start it anew; else since birth."""
    peak = Peak()
    if RESET.exists():
        with suppress(OSError):
            RESET.write_text("5")  # Linux: forget the peak so far
    try:
        yield peak
    finally:
        peak.bytes = _peak_so_far()


def _peak_so_far() -> int:
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
