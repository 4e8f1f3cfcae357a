"""The kind of a column, inferred from all of its cells: numbers, booleans, dates or categories.

- If more than half of the non-empty cells are numbers, it is a column of numbers, and a cell that
  is not a number is an error. The same holds for dates and booleans.
- Else it holds categories, if there are few distinct values: at most MAX_CATEGORIES, and at most
  half as many as there are non-empty cells (FEW_CATEGORIES are always allowed).
- Else it is free text, which can't become features: an error that says to ignore the column.
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
MAX_CATEGORIES = 200  # of a column; each is a feature
FEW_CATEGORIES = 20  # allowed whatever the number of rows


@dataclass
class Tally:
    """The number of cells of each kind in a column, and the first cell of each kind."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(len(KINDS), np.int64))
    first: dict[int, tuple[int, str]] = field(default_factory=dict)  # row and value, by kind
    values: set[str] = field(
        default_factory=set
    )  # distinct texts; at least all up to MAX_CATEGORIES + 1

    def add(self, cells: pa.Array, row: int) -> None:
        """Count the cells of a block that starts at this row."""
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
        distinct, positions = np.unique(kinds, return_index=True)
        for kind, position in zip(distinct.tolist(), positions.tolist(), strict=True):
            if kind >= 0:
                self.counts[kind] += np.count_nonzero(kinds == kind)
                self.first.setdefault(kind, (row + position, cells[position].as_py()))
        if len(self.values) <= MAX_CATEGORIES:
            self.values.update(coded.dictionary.slice(0, 2 * MAX_CATEGORIES).to_pylist())

    @property
    def kind(self) -> str:
        total = int(self.counts.sum())
        main = int(self.counts.argmax())
        if not total:
            return NOTHING
        return KINDS[main] if 2 * self.counts[main] > total else CATEGORY

    def check(self, file: TableFile, name: str) -> None:
        """Raise an error for cells of another kind than their column, and for free text."""
        kind, total = self.kind, int(self.counts.sum())
        exceptions = [self.first[n] for n in self.first if KINDS[n] != kind]
        if kind in FORMS and exceptions:
            row, value = min(exceptions)
            others = f"{self.counts[KINDS.index(kind)]:,} other {file.unit}s"
            raise TableError(
                f"{file.locate(row)}: column {name!r} must hold {NOUNS[kind]}, as in {others}, "
                f"but holds {shown(value)}"
            )
        if kind == CATEGORY and len(self.values) > min(
            MAX_CATEGORIES, max(FEW_CATEGORIES, total // 2)
        ):
            row, value = min(self.first.values())
            raise free_text(file.locate(row), name, value)


def free_text(place: str, name: str, value: str) -> TableError:
    return TableError(
        f"{place}: column {name!r} holds free text such as {shown(value)}, which can't be used as "
        f"a feature; leave it out with ignore (--ignore {name})"
    )


def count_cells(tallies: dict[str, Tally], block: pa.RecordBatch, row: int) -> None:
    for name, tally in tallies.items():
        tally.add(block.column(name), row)


def kinds_of_columns(file: TableFile, tallies: dict[str, Tally]) -> dict[str, str]:
    """The kind of each column; an error if a column is inconsistent."""
    for name, tally in tallies.items():
        tally.check(file, name)
    return {name: tally.kind for name, tally in tallies.items()}
