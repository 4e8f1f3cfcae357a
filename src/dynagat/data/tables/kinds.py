"""What a column holds: numbers, booleans, dates or categories, told by all of its cells.

- If more than half of the cells that hold something are numbers, it is a column of numbers, and all
  others must be; so for dates and booleans.
- Else it holds categories, if there are few: at most MANY, and at most as many as every second row.
- Else it is free text, of which no feature is made: an error that says to leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyarrow import types

from dynagat.data.tables.cells import FORMS, NOUNS, kinds_of, read_numbers
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.table_file import TableFile

CATEGORY, NOTHING = "category", "nothing"
KINDS = (*FORMS, CATEGORY)
MANY = 200  # categories; each is a feature
FEW = 20  # that are never too many for the number of rows


@dataclass
class Tally:
    """How many cells of a column are of each kind, and the first of each."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(len(KINDS), np.int64))
    first: dict[int, tuple[int, str]] = field(default_factory=dict)  # by kind: row and value
    values: set[str] = field(default_factory=set)  # that are not all numbers; MANY + 1 at most

    def add(self, cells: pa.Array, row: int) -> None:
        """Count a block's cells, of which the first is in this row."""
        if not types.is_string(cells.type):
            kind = "boolean" if types.is_boolean(cells.type) else "number"
            kind = "date" if types.is_timestamp(cells.type) else kind
            self.counts[KINDS.index(kind)] += len(cells) - cells.null_count
        elif (numbers := read_numbers(cells)) is not None:
            self.counts[KINDS.index("number")] += np.count_nonzero(~np.isnan(numbers))
        else:
            self._add_text(cells, row)

    def _add_text(self, cells: pa.Array, row: int) -> None:
        coded = cells.dictionary_encode()
        kinds = kinds_of(coded.dictionary)[np.asarray(coded.indices)]
        found, at = np.unique(kinds, return_index=True)
        for kind, place in zip(found.tolist(), at.tolist(), strict=True):
            if kind >= 0:
                self.counts[kind] += np.count_nonzero(kinds == kind)
                self.first.setdefault(kind, (row + place, cells[place].as_py()))
        room = MANY + 1 - len(self.values)
        self.values.update(coded.dictionary.slice(0, 2 * MANY).to_pylist() if room > 0 else [])

    @property
    def kind(self) -> str:
        total = int(self.counts.sum())
        main = int(self.counts.argmax())
        if not total:
            return NOTHING
        return KINDS[main] if 2 * self.counts[main] > total else CATEGORY

    def check(self, file: TableFile, name: str) -> None:
        """Raise if cells are of another kind than their column, or if it holds free text."""
        kind, total = self.kind, int(self.counts.sum())
        others = [self.first[n] for n in self.first if KINDS[n] != kind]
        if kind in FORMS and others:
            row, value = min(others)
            like = f"{self.counts[KINDS.index(kind)]:,} other {file.unit}s"
            raise TableError(
                f"{file.place(row)}: column {name!r} must hold {NOUNS[kind]}, as in {like}, "
                f"but holds {shown(value)}"
            )
        if kind == CATEGORY and len(self.values) > min(MANY, max(FEW, total // 2)):
            row, value = min(self.first.values())
            raise free_text(file.place(row), name, value)


def free_text(place: str, name: str, value: str) -> TableError:
    return TableError(
        f"{place}: column {name!r} holds free text such as {shown(value)}, of which no "
        f"feature is made; leave it out with ignore (--ignore {name})"
    )


def count_cells(tallies: dict[str, Tally], block: pa.RecordBatch, row: int) -> None:
    for name, tally in tallies.items():
        tally.add(block.column(name), row)


def kinds_of_columns(file: TableFile, tallies: dict[str, Tally]) -> dict[str, str]:
    """The kind of each column, in the file's order."""
    for name, tally in tallies.items():
        tally.check(file, name)
    return {name: tally.kind for name, tally in tallies.items()}
