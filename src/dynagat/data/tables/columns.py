"""Columns: how the columns of a table become features; fitted on training rows, applied to any.

- Numbers are standardised: minus their mean, divided by their standard deviation. Dates are
  standardised as days.
- Booleans, and numbers that are only 0 and 1, become 0 and 1, even if all are equal.
- Word counts are recognised as MIN_WORDS or more columns of non-negative numbers that are mostly 0
  and not all 0 or 1. They are all divided by one number, the root mean square of the non-zero
  counts. Zeros stay zero, and rare words do not become large.
- Categories are one-hot encoded, over the values in training rows. Other values become zeros.
- Empty cells become 0, the mean. If training rows have some, one more feature of 0 and 1 marks
  them.
- Any other column that is constant or empty in the training rows gives no feature.
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
from dynagat.data.tables.table_file import Locate, TableFile


@dataclass(frozen=True)
class Column:
    """One column: (number - mean) / scale, or the one-hot encoding of a category."""

    name: str
    kind: str  # "number", "boolean", "date" or "category"
    mean: float = 0.0
    scale: float = 1.0
    values: tuple[str, ...] = ()
    missing: bool = False  # whether a feature marks empty cells

    @property
    def features(self) -> list[str]:
        """The names of its features."""
        own = [f"{self.name} = {value}" for value in self.values]
        own = own if self.kind == CATEGORY else [self.name]
        return own + [f"{self.name} is missing"] * self.missing

    def knows(self, cells: pa.Array) -> bool:
        """Whether any cell is a category of the training rows, or all cells are empty."""
        text = as_text(cells)
        known = compute.is_in(text, value_set=pa.array(self.values, pa.string()))
        return text.null_count == len(text) or bool(compute.any(known).as_py())

    def encode_(self, cells: pa.Array, features: np.ndarray, locate: Locate) -> None:
        """Write into [rows, features], which must hold zeros."""
        if self.kind == CATEGORY:
            text = as_category(cells, self.name, locate)
            codes = compute.index_in(text, pa.array(self.values, pa.string()))
            empty = np.asarray(text.is_null())
            known = np.flatnonzero(np.asarray(codes.is_valid()))
            features[known, np.asarray(codes.drop_null())] = 1
        else:
            numbers = read_cells(cells, self.kind, self.name, locate)
            empty = np.isnan(numbers)
            features[:, 0] = np.where(empty, 0, (numbers - self.mean) / self.scale)
        if self.missing:
            features[:, -1] = empty


@dataclass(frozen=True)
class Columns:
    """All columns in the order of their features; `left_out` says why others give no feature."""

    columns: tuple[Column, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return [feature for column in self.columns for feature in column.features]

    def encode(self, block: pa.RecordBatch | pa.Table, place: Locate | None = None) -> np.ndarray:
        """[rows, features] float32. `place` gives the position of a row for error messages."""
        locate = place or (lambda row: f"row {row + 1}")
        block = pa.Table.from_batches([block]) if isinstance(block, pa.RecordBatch) else block
        features = np.zeros((block.num_rows, len(self.features)), np.float32)
        start = 0
        with np.errstate(over="ignore"):  # checked below
            for column in self.columns:
                stop = start + len(column.features)
                cells = block.column(column.name).combine_chunks()
                column.encode_(cells, features[:, start:stop], locate)
                _check_finite(features[:, start:stop], cells, column.name, locate)
                start = stop
        return features

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that can be stored as JSON."""
        columns = [{**asdict(each), "values": list(each.values)} for each in self.columns]
        return {"columns": columns, "left_out": dict(self.left_out)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Columns:
        columns = [
            Column(**{**each, "values": tuple(each["values"])}) for each in values["columns"]
        ]
        return cls(tuple(columns), dict(values["left_out"]))


def read_cells(cells: pa.Array, kind: str, name: str, locate: Locate) -> np.ndarray:
    """Float64 with nan for empty cells; an error for an infinite cell or one of another kind."""
    read = READERS[kind]
    numbers = read(cells)
    if numbers is None or not is_sound(numbers):
        row = first_unsound(cells, read)
        finite = "finite " if _is_infinite(cells.slice(row, 1), kind) else ""
        raise TableError(
            f"{locate(row)}: column {name!r} must hold {finite}{NOUNS[kind]}, "
            f"but holds {shown(cells[row].as_py())}"
        )
    return numbers


def _is_infinite(cell: pa.Array, kind: str) -> bool:
    number = READERS[kind](cell)
    return number is not None and bool(np.isinf(number).any())


def _check_finite(features: np.ndarray, cells: pa.Array, name: str, locate: Locate) -> None:
    if not np.isfinite(features).all():
        row = int((~np.isfinite(features)).any(1).argmax())
        raise TableError(
            f"{locate(row)}: column {name!r} must hold numbers that fit into float32, "
            f"but holds {shown(cells[row].as_py())}"
        )


def as_category(cells: pa.Array, name: str, locate: Locate) -> pa.Array:
    if types.is_timestamp(cells.type):
        raise TableError(f"{locate(0)}: column {name!r} must hold categories, but holds dates")
    return as_text(cells)


def check_has_columns(file: TableFile, names: Sequence[str]) -> None:
    """Check that the table has the columns to which an encoding was fitted."""
    known = set(file.names)
    for name in names:
        if name not in known:
            raise TableError(
                f"{file.path} has no column {name!r}, which the table used for training has"
            )
