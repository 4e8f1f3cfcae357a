"""The machine, the versions and the commit of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from dynagat.native import kernels
from dynagat.placement import describe

ROOT = Path(__file__).parent.parent
NOT_INSTALLED = "not installed as a package"
MEASURED = ("src", "csrc", "bench")  # the folders that the numbers depend on


def describe_session(command: str, device: torch.device | None = None) -> dict[str, str]:
    """What a reader needs to judge the numbers, under the names of the report."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "command": command,
        "CPU": _field("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": str(os.cpu_count()),
        "caches": _caches(),
        "memory": f"{_kilobytes('MemTotal') / 2**20:.1f} GiB",
        "huge pages": _huge_pages(),
        "kernel": f"{platform.system()} {platform.release()}",
        "load before the run": f"{os.getloadavg()[0]:.2f}",
        "threads": str(torch.get_num_threads()),
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "PyG": _version("torch_geometric"),
        "DGL": _version("dgl"),
        "dynagat": _version("dynagat"),
        "instruction set": kernels.instruction_set
        if kernels
        else "none (reference implementation)",
        **({"device": describe(device), "Triton": _version("triton")} if device else {}),
    }


def available_bytes() -> float:
    """Memory available without swapping; infinity if it is unknown."""
    return _kilobytes("MemAvailable") * 1024 or float("inf")


def _kilobytes(name: str) -> int:
    return int((_field("/proc/meminfo", name) or "0").split()[0])


def _field(path: str, name: str) -> str | None:
    """The value of the first line `name : value` of a file in /proc."""
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _caches() -> str:
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / n).read_text().strip() for n in ("level", "type", "size"))
        if kind != "Instruction":
            caches.append(f"L{level} {size}")
    return ", ".join(caches) or "unknown"


def _huge_pages() -> str:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return path.read_text().split("[")[-1].split("]")[0] if path.exists() else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def _commit() -> str:
    """The commit, marked if measured files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "none"
    changed = _git("--no-optional-locks", "status", "--porcelain", "--", *MEASURED)
    return f"{head}, with changes" if changed else head


def _git(*arguments: str) -> str | None:
    try:
        run = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()
