"""What the training rows tell of each column: mean and deviation, or the values there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from dynagat.data.tables.cells import compute
from dynagat.data.tables.columns import Column, Columns, as_category, read_cells
from dynagat.data.tables.csv_lines import TableError
from dynagat.data.tables.kinds import CATEGORY, MANY, NOTHING, free_text
from dynagat.data.tables.table_file import Place, TableFile

WORDS = 32  # columns, from which on those that are mostly 0 are taken for words


@dataclass
class Numbers:
    """Count, mean and sum of squares about it, merged block by block; and what else is asked."""

    name: str
    kind: str
    count: int = 0
    empty: int = 0
    zeros: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    is_flag: bool = True  # only 0 and 1

    def add(self, cells: pa.Array, training: np.ndarray, place: Place) -> None:
        numbers = read_cells(cells, self.kind, self.name, place)[training]
        found = numbers[~np.isnan(numbers)]
        self.empty += len(numbers) - len(found)
        if not len(found):
            return
        zeros, total = len(found) - np.count_nonzero(found), self.count + len(found)
        self.is_flag = self.is_flag and np.count_nonzero(found == 1) + zeros == len(found)
        self.zeros += zeros
        self.low, self.high = min(self.low, found.min()), max(self.high, found.max())
        with np.errstate(over="ignore", invalid="ignore"):  # `column` tells
            step = found.mean() - self.mean
            self.squares += np.square(found - found.mean()).sum()
            self.squares += step * step * self.count * len(found) / total
            self.mean += step * len(found) / total
        self.count = total

    def column(self, file: TableFile) -> Column | str:
        """How it becomes a feature, or why it does not."""
        missing = self.empty > 0
        if self.count and self.is_flag:
            return Column(self.name, self.kind, missing=missing)
        if not self.count or (self.low == self.high and not missing):
            return "constant" if self.count else "empty"
        scale = np.sqrt(self.squares / self.count)
        if not np.isfinite(scale):
            span = f"from {self.low:g} to {self.high:g}"
            raise TableError(f"{file.path}: column {self.name!r} spans too much, {span}")
        return Column(self.name, self.kind, float(self.mean), float(scale) or 1.0, missing=missing)

    @property
    def is_word(self) -> bool:
        return self.count > 0 and self.low >= 0 and 2 * self.zeros >= self.count

    @property
    def raw_squares(self) -> float:
        return self.squares + self.mean * self.mean * self.count


@dataclass
class Values:
    """The categories there are."""

    name: str
    found: set[str | None] = field(default_factory=set)

    def add(self, cells: pa.Array, training: np.ndarray, place: Place) -> None:
        text = as_category(cells, self.name, place)
        values = compute.unique(text.filter(pa.array(training)))
        self.found.update(values.slice(0, 2 * MANY).to_pylist())
        if len(self.found) > MANY + 1:
            row = int(training.argmax())
            raise free_text(place(row), self.name, cells[row].as_py())

    def column(self, file: TableFile) -> Column | str:
        values = sorted(value for value in self.found if value is not None)
        if len(self.found) < 2:
            return "constant" if values else "empty"
        return Column(self.name, CATEGORY, values=tuple(values), missing=None in self.found)


def fit_columns(file: TableFile, kinds: Mapping[str, str], training: np.ndarray) -> Columns:
    """Fit an encoding to the rows for which `training` [N] is true."""
    left_out = {name: "empty" for name, kind in kinds.items() if kind == NOTHING}
    learners = [
        Values(name) if kind == CATEGORY else Numbers(name, kind)
        for name, kind in kinds.items()
        if kind != NOTHING
    ]
    for first, block in file.blocks([learner.name for learner in learners]):
        rows = training[first : first + block.num_rows]
        if rows.any():
            place = file.places_from(first)
            for learner in learners:
                learner.add(block.column(learner.name), rows, place)
    found = {learner.name: learner.column(file) for learner in learners}
    found |= _words([each for each in learners if isinstance(each, Numbers)])
    left_out |= {name: why for name, why in found.items() if isinstance(why, str)}
    columns = tuple(each for each in found.values() if isinstance(each, Column))
    return Columns(columns, left_out)


def _words(learners: list[Numbers]) -> dict[str, Column]:
    """Those that are words, if there are enough: all divided by the same."""
    words = [each for each in learners if each.kind == "number" and each.is_word]
    counted = [each for each in words if not each.is_flag]
    if len(words) < WORDS or not counted:
        return {}
    present = sum(each.count - each.zeros for each in counted)
    scale = float(np.sqrt(sum(each.raw_squares for each in counted) / present))
    columns = [Column(each.name, each.kind, missing=each.empty > 0) for each in words]
    flags = [each.is_flag and each.zeros < each.count for each in words]
    return {
        column.name: column if flag else replace(column, scale=scale)
        for column, flag in zip(columns, flags, strict=True)
    }
