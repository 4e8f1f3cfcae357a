"""The environment of a run: versions, the commit, and the peak memory of the process."""

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

from dynagat.native import kernels
from dynagat.ops.devices import choose
from dynagat.placement import CPU, describe, module_of

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def versions(device: torch.device = CPU) -> dict[str, str]:
    """Of the packages, the machine, and the device if it is not the CPU."""
    known = {
        "dynagat": _version("dynagat") or "0+unknown",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernels": kernels.instruction_set if kernels is not None else "reference",
        "threads": str(torch.get_num_threads()),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    if device.type != "cpu":
        known |= {"device": describe(device), "backend": choose(device)}
    pyg = _version("torch_geometric")
    return known | ({"torch_geometric": pyg} if pyg else {})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def commit() -> str:
    """The commit of the source tree that this package lies in; "+" if the tree is changed."""
    here = Path(__file__).parent.parent
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
    """Peak memory in bytes, set when the block ends."""

    bytes: int = 0


@contextmanager
def peak_memory(device: torch.device = CPU) -> Iterator[Peak]:
    """Peak memory of the process within the block; since its start where it can't be reset.

    On CUDA, ROCm and XPU devices, the peak of what torch allocates there.
    """
    peak, there = Peak(), module_of(device.type) if device.type in ("cuda", "xpu") else None
    if there is not None:
        there.reset_peak_memory_stats(device)
    elif RESET.exists():
        with suppress(OSError):
            RESET.write_text("5")  # Linux: reset the peak
    try:
        yield peak
    finally:
        peak.bytes = _peak_so_far() if there is None else there.max_memory_allocated(device)


def _peak_so_far() -> int:
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
