"""Rows of numbers, block by block, from .csv.gz files and from arrays in .npz files.

An array larger than memory can thus be copied from its file into a stored folder. Errors name the
file and the line.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.npz_file import read_header, read_rows

CSV_BLOCK = 1 << 20  # bytes of text; larger blocks are not faster


@dataclass(eq=False)
class Rows:
    """Blocks of shape [any, *row_shape], which can be read once.

    `lines` says whether the file has a line per row.
    """

    source: Path
    dtype: np.dtype
    row_shape: tuple[int, ...]
    blocks: Iterator[np.ndarray]
    lines: bool = True

    def whole(self) -> np.ndarray:
        blocks = list(self.blocks)
        return np.concatenate(blocks) if blocks else np.empty((0, *self.row_shape), self.dtype)


def csv_rows(path: Path, dtype: Any, *, columns: int | None = None, nan: bool = False) -> Rows:
    """The rows of a .csv.gz of numbers, without a header.

    Args:
        path: the file.
        dtype: the type of the array: int64, float32, ...
        columns: the expected number of columns; None takes that of the first line. A file of one
            column gives a vector.
        nan: whether empty cells are allowed; they are read as nan.
    """
    width = _num_columns(path)
    if columns is not None and width != columns:
        raise ValueError(f"{path}, line 1: expected {columns} columns, but there are {width}")
    dtype = np.dtype(dtype)
    row_shape = () if width == 1 else (width,)
    return Rows(path, dtype, row_shape, _csv_blocks(path, dtype, width, nan))


def csv_numbers(path: Path) -> np.ndarray:
    """All numbers of a .csv.gz: int64 if all are integers, else float32, as OGB's loader does."""
    try:
        return csv_rows(path, np.int64).whole()
    except ValueError:
        return csv_rows(path, np.float32).whole()


def _num_columns(path: Path) -> int:
    with reading(path), gzip.open(path, "rt", encoding="utf-8") as file:
        line = file.readline()
    return line.count(",") + 1


def _csv_blocks(path: Path, dtype: np.dtype, columns: int, nan: bool) -> Iterator[np.ndarray]:
    import pyarrow as pa
    from pyarrow import csv as pacsv

    if path.stat().st_size == 0 or not _has_text(path):
        return
    names = [str(each) for each in range(columns)]
    # Arrow reports line numbers only when it uses one thread.
    read = pacsv.ReadOptions(column_names=names, use_threads=False, block_size=CSV_BLOCK)
    kinds = dict.fromkeys(names, pa.from_numpy_dtype(dtype))
    convert = pacsv.ConvertOptions(column_types=kinds)
    line = 1
    with reading(path), pacsv.open_csv(path, read_options=read, convert_options=convert) as batches:
        for batch in batches:
            block = np.empty((batch.num_rows, columns), dtype)
            for position, column in enumerate(batch.columns):
                if column.null_count and not nan:
                    row = int(np.nonzero(column.is_null().to_numpy(zero_copy_only=False))[0][0])
                    raise _Explained(
                        f"{path}, line {line + row}: a cell is empty or nan, but must be a number"
                    )
                block[:, position] = column.to_numpy(zero_copy_only=False)
            line += len(block)
            yield block[:, 0] if columns == 1 else block


def _has_text(path: Path) -> bool:
    with reading(path), gzip.open(path, "rb") as file:
        return bool(file.read(1))


def csv_table(path: Path) -> list[list[str]]:
    """The rows of a small .csv.gz of text."""
    with reading(path), gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return [row for row in csv.reader(file) if row]


def npz_rows(path: Path, name: str, *, row: int | None = None) -> Rows:
    """The rows of an array in an .npz file; with `row`, the values of this row only."""
    header = read_header(path, name)
    shape, num_axes = header.shape, len(header.shape)
    if num_axes == 0 or (header.is_fortran and num_axes > 1):
        actual = "is in Fortran order" if num_axes else "is one number"
        raise ValueError(f"{path}: {name} must have rows, in C order, but {actual}")
    if row is None:
        start, count, row_shape = 0, shape[0], shape[1:]
    else:
        start, count, row_shape = row * shape[1], shape[1], ()
    blocks = read_rows(path, name, start, count, row_shape)
    return Rows(path, header.native, row_shape, blocks, lines=False)


class _Explained(ValueError):
    """The message names the file already."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into ValueErrors with its name and, if known, the line."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, _Explained):
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} was cut short or altered: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except (ValueError, csv.Error) as error:  # pyarrow's are "... Row #3: CSV conversion error ..."
        match = re.search(r"Row #(\d+): (.*)", str(error), re.DOTALL)
        place, why = (f", line {match[1]}", match[2]) if match else ("", str(error))
        why = why.removeprefix("CSV conversion error to ").strip().splitlines()[0][:200]
        raise ValueError(f"{path}{place}: {why}") from None
