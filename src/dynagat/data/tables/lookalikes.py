"""Columns that look like a split or an id: they must not become features by accident.

- A column that holds only train, valid and test (or other words for them) looks like a split, and
  so does one that is named like a mask: train_mask, is_test.
- A column of whole numbers looks like an id if it numbers the rows of a table of MIN_ROWS or more,
  or if it is named like an id and all its numbers are different.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyarrow import types

from dynagat.data.tables.cells import compute, present, read_numbers
from dynagat.data.tables.csv_lines import TableError
from dynagat.data.tables.split import WORDS
from dynagat.data.tables.table_file import TableFile

MIN_ROWS = 50  # fewer may number the rows by chance
PART = r"(train|training|val|valid|validation|test)"
MASK = re.compile(rf"is_{PART}|{PART}_mask", re.IGNORECASE)
ID = re.compile(r"(.*[ _.-])?(id|index|uuid|nr|no)|unnamed: ?\d+", re.IGNORECASE)


@dataclass
class Lookalike:
    """One column, updated block by block."""

    name: str
    words: set[str] = field(default_factory=set)
    may_split: bool = True
    may_number: bool = True
    first: float | None = None
    rows: int = 0
    numbers: list[np.ndarray] = field(default_factory=list)  # if it is named like an id

    def add(self, cells: pa.Array, row: int) -> None:
        self.rows += len(cells)
        if self.may_split:
            self._add_words(cells)
        if self.may_number or self.numbers:
            self._add_numbers(cells, row)

    def check(self, file: TableFile) -> None:
        if self.may_split and len(self.words) > 1:
            raise self._error(file, "looks like a split", f"split (--split {self.name})")
        if MASK.fullmatch(self.name):
            raise self._error(file, "is named like a part of a split", "split, as one column")
        if self.may_number and self.rows >= MIN_ROWS:
            raise self._error(file, "numbers the rows", f"id (--id {self.name})")
        distinct = len(np.unique(np.concatenate(self.numbers))) if self.numbers else 0
        if distinct == self.rows and ID.fullmatch(self.name):
            raise self._error(file, "looks like an id", f"id (--id {self.name})")

    def _error(self, file: TableFile, why: str, role: str) -> TableError:
        return TableError(
            f"{file.path}: column {self.name!r} {why}, so it is not used as a feature without "
            f"asking: name it as {role}, or leave it out with ignore (--ignore {self.name})"
        )

    def _add_words(self, cells: pa.Array) -> None:
        if not types.is_string(cells.type):
            self.may_split = False
            return
        words = compute.unique(compute.utf8_lower(present(cells)))
        found = {word for word in words.slice(0, len(WORDS) + 2).to_pylist() if word is not None}
        self.may_split = found <= WORDS.keys()
        self.words |= found

    def _add_numbers(self, cells: pa.Array, row: int) -> None:
        numbers = read_numbers(cells)
        if numbers is None or not len(numbers) or not (numbers == np.floor(numbers)).all():
            self.may_number, self.numbers = False, []
            return
        first = numbers[0] if self.first is None else self.first
        expected = first + np.arange(row, row + len(numbers))
        self.may_number = self.may_number and bool((numbers == expected).all())
        self.first = first
        if ID.fullmatch(self.name):
            self.numbers.append(numbers)
