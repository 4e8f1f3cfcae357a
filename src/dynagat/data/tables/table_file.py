"""A CSV or Parquet file as blocks of rows, of which one is in memory at a time.

Cells of CSV are read as text, so that no type is guessed from a single block; cells of Parquet have
their types. Errors name the file and the line, or the row of a Parquet file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
from pyarrow import compute, types

from dynagat.data.tables.csv_lines import (
    TableError,
    check_distinct,
    check_num_columns,
    explain_errors,
    is_gzip,
    line_of,
    open_bytes,
    read_header,
    read_records,
)

BLOCK_BYTES = 1 << 20
COLUMN_BYTES = 1 << 13  # added per column, since each column costs some time in every block
PARQUET = b"PAR1"  # first bytes of such a file

Locate = Callable[[int], str]  # the position of a row, for error messages


@dataclass(frozen=True)
class TableFile:
    """A table: the names of its columns, and its rows, which can be read several times."""

    path: Path
    names: tuple[str, ...]
    separator: str | None  # None for Parquet

    @classmethod
    def open(cls, path: Path | str) -> TableFile:
        path = Path(path)
        if path.is_dir():
            raise TableError(f"{path} must be a CSV or Parquet file, but is a folder")
        if path.exists() and not path.is_file():
            raise TableError(f"{path} must be a regular file, since it is read more than once")
        with explain_errors(path), open(path, "rb") as file:
            start = file.read(len(PARQUET))
        if start == PARQUET:
            return cls(path, _parquet_names(path), None)
        if path.suffix in (".parquet", ".pq"):
            raise TableError(f"{path} is not a Parquet file: it starts with {start!r}")
        separator, names = read_header(path)
        return cls(path, tuple(names), separator)

    @property
    def unit(self) -> str:
        """How rows are counted in error messages."""
        return "row" if self.separator is None else "line"

    def blocks(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The index of the first row of each block, and the block with these columns."""
        first = 0
        read = self._parquet_blocks if self.separator is None else self._csv_blocks
        for block in read(list(columns)):
            yield first, block
            first += block.num_rows
        pa.default_memory_pool().release_unused()  # else Arrow keeps the memory

    def locate(self, row: int) -> str:
        """The position of a row, for error messages."""
        number = row + 1 if self.separator is None else line_of(self.path, self.separator, row)
        return f"{self.path}, {self.unit} {number}"

    def locate_from(self, first: int) -> Locate:
        """The positions of the rows of a block that starts at this row."""
        return lambda row: self.locate(first + row)

    def check_columns(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.names:
                known = ", ".join(map(repr, self.names[:20])) + (", ..." * (len(self.names) > 20))
                raise TableError(f"{self.path} has no column {name!r}; it has {known}")

    def _csv_blocks(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        assert self.separator is not None
        with explain_errors(self.path):
            try:
                quotes = _count_quotes(self.path)
                yield from _open_csv(self.path, self.separator, columns)
            except (pa.ArrowInvalid, _NulByte) as error:
                self._diagnose()
                why = str(error).splitlines()[0]
                raise TableError(f"{self.path} can't be read as CSV: {why}") from None
            if quotes % 2:  # Arrow accepts a quote that is never closed
                self._diagnose()

    def _diagnose(self) -> None:
        """Raise an error for the first bad row, or if there are no rows."""
        assert self.separator is not None
        rows = sum(1 for _ in read_records(self.path, self.separator)) - 1
        if rows < 1:
            raise TableError(f"{self.path} has a header, but no rows")

    def _parquet_blocks(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            with parquet.ParquetFile(self.path, pre_buffer=False) as file:
                for name in columns:
                    _check_type(self.path, name, file.schema_arrow.field(name).type)
                rows = COLUMN_BYTES // 8 + BLOCK_BYTES // (8 * len(columns))
                for block in file.iter_batches(rows, columns=columns):
                    arrays = [_plain(block.column(name)) for name in columns]
                    yield pa.RecordBatch.from_arrays(arrays, names=columns)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from None


class _NulByte(Exception):
    pass


def _count_quotes(path: Path) -> int:
    """The number of quotes; also refuses NUL bytes. Arrow ignores both."""
    quotes = 0
    with open_bytes(path) as file:
        while block := file.read(BLOCK_BYTES):
            if b"\0" in block:
                raise _NulByte("it contains a NUL byte")
            quotes += block.count(b'"')
    return quotes


def _open_csv(path: Path, separator: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    as_text = dict.fromkeys(columns, pa.string())
    convert = arrow_csv.ConvertOptions(
        column_types=as_text, include_columns=columns, strings_can_be_null=False
    )
    parse = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    read = arrow_csv.ReadOptions(block_size=BLOCK_BYTES + COLUMN_BYTES * len(columns))
    # A file of Arrow's own: its threads read ahead, and a process that ends while one of them
    # calls Python is aborted.
    file: Any = pa.OSFile(str(path), "rb")
    if is_gzip(path):
        file = pa.CompressedInputStream(file, "gzip")
    yield from arrow_csv.open_csv(file, read, parse, convert)


def _parquet_names(path: Path) -> tuple[str, ...]:
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None
    if not names:
        raise TableError(f"{path} has no columns")
    check_num_columns(str(path), names)
    check_distinct(str(path), names)
    return tuple(names)


def _damaged(path: Path, error: Exception) -> TableError:
    why = str(error).splitlines()[0]
    return TableError(f"{path} was cut short or altered: it is not a complete Parquet file ({why})")


def _check_type(path: Path, name: str, kind: pa.DataType) -> None:
    inner = kind.value_type if types.is_dictionary(kind) else kind
    plain = [types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_date]
    plain += [types.is_timestamp, types.is_null, types.is_string, types.is_large_string]
    if not any(known(inner) for known in (*plain, types.is_string_view)):
        raise TableError(
            f"{path}: column {name!r} must hold numbers, text, booleans or dates, "
            f"but holds {kind}; leave it out with ignore (--ignore {name})"
        )


def _plain(cells: pa.Array) -> pa.Array:
    """Convert to text, booleans, integers, floats or timestamps, whichever is nearest."""
    kind = cells.type
    if types.is_dictionary(kind):
        return _plain(cells.dictionary_decode())
    if types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        return cells.cast(pa.string())
    if types.is_decimal(kind):
        return cells.cast(pa.float64())
    if types.is_date(kind) or types.is_timestamp(kind):
        return compute.cast(cells, pa.timestamp("us"), safe=False)
    return cells
