"""Ids: the names of nodes, and the index of the node with a given name.

A name is text: "01" is not "1". If all names are written like integers, they are held as integers,
so that 1 in CSV, "1" in Parquet and 1 in Parquet are the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types

from dynagat.data.tables.cells import compute, try_cast
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.table_file import TableFile
from dynagat.data.texts import Texts


@dataclass(frozen=True, eq=False)
class Ids:
    """The name of node n is values[n]."""

    values: pa.Array  # int64 or large_string, without nulls

    @classmethod
    def of(cls, blocks: Sequence[pa.Array]) -> Ids:
        """From blocks of `read_names`."""
        whole = all(types.is_integer(block.type) for block in blocks)
        kind = pa.int64() if whole else pa.large_string()
        return cls(pa.concat_arrays([block.cast(kind) for block in blocks]))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def array(self) -> np.ndarray | Texts:
        """For the store: integers, or texts that share memory."""
        if types.is_integer(self.values.type):
            return np.asarray(self.values)
        _, offsets, text = self.values.buffers()
        ends = np.frombuffer(offsets, np.int64)[: len(self) + 1]
        return Texts(np.frombuffer(text, np.uint8)[: ends[-1]], ends)

    def find(self, cells: Sequence[pa.Array]) -> pa.ChunkedArray | None:
        """The index of the node of each name, int32, null for unknown names. Types may differ.

        None if the names of nodes are integers and some cell holds something else.
        """
        kind = self.values.type
        chunks = [read_names(chunk) for chunk in cells]
        if types.is_integer(kind) and not all(types.is_integer(each.type) for each in chunks):
            return None
        named = pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind)
        return compute.index_in(named, value_set=self.values)

    def check(self, file: TableFile, column: str) -> None:
        """Each name must be unique."""
        codes = np.asarray(self.values.dictionary_encode().indices)
        wrong = np.flatnonzero(codes != np.arange(len(codes), dtype=codes.dtype))
        if len(wrong):
            row = int(wrong[0])
            name, other = shown(self.values[row].as_py()), file.locate(int(codes[row]))
            line = other.removeprefix(f"{file.path}, ")
            raise TableError(
                f"{file.locate(row)}: column {column!r} must hold each id once, "
                f"but {name} is in {line} as well"
            )


def read_names(cells: pa.Array) -> pa.Array:
    """Integers if all are written like integers, else text; null stays null."""
    kind = cells.type
    if types.is_integer(kind) and not types.is_uint64(kind):
        return cells.cast(pa.int64())
    if types.is_floating(kind):
        return read_names(_integers_of_floats(cells))
    text = cells if types.is_string(kind) else cells.cast(pa.string())
    whole = try_cast(text, pa.int64())
    return whole if whole is not None and whole.cast(pa.string()).equals(text) else text


def first_empty(cells: pa.Array) -> int | None:
    """The row of the first empty name, or None."""
    empty = cells.is_null(nan_is_null=True)
    if types.is_string(cells.type):
        empty = compute.or_kleene(empty, compute.equal(cells, ""))
    row = compute.index(empty, True).as_py()
    return None if row < 0 else row


def _integers_of_floats(cells: pa.Array) -> pa.Array:
    """Pandas stores integers as floats if one of them is missing."""
    whole = try_cast(cells, pa.int64())
    return cells.cast(pa.string()) if whole is None else whole
