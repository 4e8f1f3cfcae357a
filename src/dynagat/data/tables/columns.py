"""Columns: how the columns of a table become features; fitted on training rows, applied to any.

- Numbers: less their mean and divided by their standard deviation. Dates: the same of their days.
- Numbers that are only 0 and 1, and booleans: 0 and 1, also if all are the same.
- Words, which are WORDS or more columns of numbers that are mostly 0 and never less, not all of
  them of 0 and 1: divided by one number for all, the root mean square of what is not 0. So what is
  0 stays 0, and a word that few training rows have is not blown up.
- Categories: a feature of 0 and 1 for each value that training rows have; others give zeros.
- Empty cells: the mean, 0. If training rows have some, one more feature of 0 and 1 tells of them.
- Any other column that is the same, or empty, in all training rows gives no feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from dynagat.data.tables.cells import READERS, as_text, compute, first_unsound, is_sound
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.kinds import CATEGORY, NOUNS
from dynagat.data.tables.table_file import Place, TableFile


@dataclass(frozen=True)
class Column:
    """One column: (number - mean) / scale, or a feature for each of the values."""

    name: str
    kind: str  # "number", "boolean", "date" or "category"
    mean: float = 0.0
    scale: float = 1.0
    values: tuple[str, ...] = ()
    missing: bool = False  # whether a feature tells that the cell is empty

    @property
    def features(self) -> list[str]:
        """Their names."""
        own = [f"{self.name} = {value}" for value in self.values]
        own = own if self.kind == CATEGORY else [self.name]
        return own + [f"{self.name} is missing"] * self.missing

    def knows(self, cells: pa.Array) -> bool:
        """Whether one of them is a category that training rows have, or all are empty."""
        text = as_text(cells)
        known = compute.is_in(text, value_set=pa.array(self.values, pa.string()))
        return text.null_count == len(text) or bool(compute.any(known).as_py())

    def encode_(self, cells: pa.Array, features: np.ndarray, place: Place) -> None:
        """Write into [rows, features], which holds zeros."""
        if self.kind == CATEGORY:
            text = as_category(cells, self.name, place)
            codes = compute.index_in(text, pa.array(self.values, pa.string()))
            empty = np.asarray(text.is_null())
            known = np.flatnonzero(np.asarray(codes.is_valid()))
            features[known, np.asarray(codes.drop_null())] = 1
        else:
            numbers = read_cells(cells, self.kind, self.name, place)
            empty = np.isnan(numbers)
            features[:, 0] = np.where(empty, 0, (numbers - self.mean) / self.scale)
        if self.missing:
            features[:, -1] = empty


@dataclass(frozen=True)
class Columns:
    """All of them, in the order of their features; `left_out` says why others give none."""

    columns: tuple[Column, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return [feature for column in self.columns for feature in column.features]

    def encode(self, block: pa.RecordBatch | pa.Table, place: Place | None = None) -> np.ndarray:
        """[rows, features] float32. `place` says where a row of the block is, for a sentence."""
        place = place or (lambda row: f"row {row + 1}")
        block = pa.Table.from_batches([block]) if isinstance(block, pa.RecordBatch) else block
        features = np.zeros((block.num_rows, len(self.features)), np.float32)
        start = 0
        with np.errstate(over="ignore"):  # told below
            for column in self.columns:
                stop = start + len(column.features)
                cells = block.column(column.name).combine_chunks()
                column.encode_(cells, features[:, start:stop], place)
                start = stop
        self._check_finite(features, place)
        return features

    def _check_finite(self, features: np.ndarray, place: Place) -> None:
        if not np.isfinite(features).all():
            row, at = np.argwhere(~np.isfinite(features))[0].tolist()
            raise TableError(f"{place(row)}: {self.features[at]!r} is too large a number")

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        columns = [{**asdict(each), "values": list(each.values)} for each in self.columns]
        return {"columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Columns:
        columns = [Column(**{**each, "values": tuple(each["values"])}) for each in told["columns"]]
        return cls(tuple(columns), dict(told["left_out"]))


def read_cells(cells: pa.Array, kind: str, name: str, place: Place) -> np.ndarray:
    """Float64 with nan for empty cells; a cell of another kind, or an infinite one, is told."""
    read = READERS[kind]
    numbers = read(cells)
    if numbers is None or not is_sound(numbers):
        row = first_unsound(cells, read)
        finite = "finite " if is_infinite(cells.slice(row, 1), kind) else ""
        raise TableError(
            f"{place(row)}: column {name!r} must hold {finite}{NOUNS[kind]}, "
            f"but holds {shown(cells[row].as_py())}"
        )
    return numbers


def is_infinite(cell: pa.Array, kind: str) -> bool:
    number = READERS[kind](cell)
    return number is not None and bool(np.isinf(number).any())


def as_category(cells: pa.Array, name: str, place: Place) -> pa.Array:
    if types.is_timestamp(cells.type):
        raise TableError(f"{place(0)}: column {name!r} must hold categories, but holds dates")
    return as_text(cells)


def check_has_columns(file: TableFile, names: Sequence[str]) -> None:
    """The table has the columns that an encoding was fitted on."""
    known = set(file.names)
    for name in names:
        if name not in known:
            raise TableError(
                f"{file.path} has no column {name!r}, which the tables that were learned from have"
            )
