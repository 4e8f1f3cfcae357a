"""Arrays of .npz files, checked before memory is allocated for them.

numpy trusts the header of an array: 200 bytes can ask for terabytes. Here a header must agree with
the size of its array in the file, arrays must fit into memory, and nothing is unpickled.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

ENDING = ".npy"
BLOCK = 1 << 24  # bytes read at a time
HEADERS: dict[tuple[int, int], Callable] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Header:
    """Of an array of booleans, integers or floats."""

    shape: tuple[int, ...]
    dtype: np.dtype
    is_fortran: bool

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def native(self) -> np.dtype:
        """In the byte order of this machine, which torch needs."""
        return self.dtype.newbyteorder("=")


def array_names(path: Path) -> list[str]:
    """The names of all arrays; an error if the file is not an .npz file."""
    with _explain_errors(path), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return [name.removesuffix(ENDING) for name in names if name.endswith(ENDING)]


def read_arrays(path: Path, wanted: Callable[[str], object]) -> dict[str, np.ndarray]:
    """The arrays whose names are wanted, in the byte order of this machine."""
    names = [name for name in array_names(path) if wanted(name)]
    with _explain_errors(path):
        total = 0
        for name in names:
            with _open(path, name) as (_, header):
                total += math.prod(header.shape) * header.dtype.itemsize
        check_memory(f"{path}: {', '.join(names)}", total)
        return {name: _read(path, name) for name in names}


def read_header(path: Path, name: str) -> Header:
    with _explain_errors(path), _open(path, name) as (_, header):
        return header


def read_rows(
    path: Path, name: str, start: int, count: int, row_shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
    """Blocks of rows of an array that is read as [any, *row_shape], in C order."""
    with _explain_errors(path), _open(path, name) as (file, header):
        row_bytes = math.prod(row_shape) * header.dtype.itemsize
        check_memory(f"{path}: a row of {name}", row_bytes)
        skipped = start * row_bytes
        while skipped > 0:
            skipped -= len(file.read(min(skipped, BLOCK))) or skipped
        rows = max(1, BLOCK // max(1, row_bytes))
        for first in range(0, count, rows):
            wanted = min(rows, count - first)
            content = _read_bytes(file, wanted * row_bytes)
            block = content.view(header.dtype).reshape(wanted, *row_shape)
            yield block.astype(header.native, copy=False)


def check_memory(what: str, size: int) -> None:
    """Refuse what would not fit into the memory of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        needed = f"would take {size / 1e9:.1f} GB of memory"
        raise _Explained(f"{what} {needed}, but this machine has {memory / 1e9:.1f} GB")


def _read(path: Path, name: str) -> np.ndarray:
    with _open(path, name) as (file, header):
        content = _read_bytes(file, math.prod(header.shape) * header.dtype.itemsize)
        order = "F" if header.is_fortran else "C"
        array = content.view(header.dtype).reshape(header.shape, order=order)
        return array.astype(header.native, copy=False)


def _read_bytes(file: IO[bytes], size: int) -> np.ndarray:
    content, done = np.empty(size, np.uint8), 0
    while done < size:
        block = file.read(min(BLOCK, size - done))
        if not block:
            raise EOFError(f"an array ends after {done} of {size} bytes")
        content[done : done + len(block)] = np.frombuffer(block, np.uint8)
        done += len(block)
    return content


@contextmanager
def _open(path: Path, name: str) -> Iterator[tuple[IO[bytes], Header]]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}{ENDING}") as file:
        header = _read_header(path, name, file)
        size = archive.getinfo(f"{name}{ENDING}").file_size - file.tell()
        if math.prod(header.shape) * header.dtype.itemsize != size:
            expected = f"{header.dtype} of shape {header.shape}"
            raise ValueError(f"{name} has {size} bytes, but its header says {expected}")
        yield file, header


def _read_header(path: Path, name: str, file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"{name} is of the unknown format {version}")
    shape, is_fortran, dtype = HEADERS[version](file)
    if min(shape, default=0) < 0:
        raise ValueError(f"{name} has the impossible shape {shape}")
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise _Explained(f"{path}: {name} must be numbers, but is {str(dtype)[:80]}")
    return Header(shape, dtype, is_fortran)


class _Explained(ValueError):
    """The message names the file already."""


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        if not zipfile.is_zipfile(path):
            path.stat()  # an error if it is missing
            raise ValueError("it is not an .npz file")
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, _Explained):
        raise
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from None
    except Exception as error:  # a damaged file may raise anything
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{path} was cut short or altered: {why}") from None
