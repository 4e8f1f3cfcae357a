"""Scratch tables: in memory up to a limit, beyond it in unnamed files of the cache folder.

The system writes pages of a mapped file to disk when memory runs low, which it can't do with other
memory. DYNAGAT_MEMORY sets the limit.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import tempfile

import torch
from torch import Tensor

from dynagat.data.store import cache_folder

DEFAULT_LIMIT = 1 << 30
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZE = re.compile(r"(\d{1,15})([KMG]?)")


def memory_limit() -> int:
    """DYNAGAT_MEMORY in bytes: arrays computed from a graph that are larger are kept in files."""
    text = os.environ.get("DYNAGAT_MEMORY", "")
    match = SIZE.fullmatch(text.upper())
    if text and match is None:
        raise ValueError(
            f"DYNAGAT_MEMORY must be a number of bytes such as 500M or 2G, but is {text!r}"
        )
    return int(match[1]) * UNITS[match[2]] if match else DEFAULT_LIMIT


def new_table(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An empty tensor; above the limit, it is mapped from a file that vanishes with it.

    Disk space is allocated first, since a full disk would otherwise kill the process.
    """
    size = math.prod(shape) * dtype.itemsize
    if size <= memory_limit():
        return torch.empty(shape, dtype=dtype)
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        mapped = mmap.mmap(file.fileno(), size)
    return torch.frombuffer(mapped, dtype=dtype).reshape(shape)
