"""fit_columns: an encoding fitted to the training rows, by mean and deviation or by categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from dynagat.data.tables.cells import compute
from dynagat.data.tables.columns import Column, Columns, as_category, read_cells
from dynagat.data.tables.csv_lines import TableError
from dynagat.data.tables.kinds import CATEGORY, MAX_CATEGORIES, NOTHING, free_text
from dynagat.data.tables.table_file import Locate, TableFile

MIN_WORDS = 32  # number of columns of mostly zeros from which on they are word counts


@dataclass
class Numbers:
    """Statistics of a column of numbers, updated block by block."""

    name: str
    kind: str
    count: int = 0
    empty: int = 0
    zeros: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared deviations from the mean
    low: float = np.inf
    high: float = -np.inf
    is_flag: bool = True  # only 0 and 1

    def add(self, cells: pa.Array, training: np.ndarray, locate: Locate) -> None:
        numbers = read_cells(cells, self.kind, self.name, locate)[training]
        known = numbers[~np.isnan(numbers)]
        self.empty += len(numbers) - len(known)
        if not len(known):
            return
        zeros, total = len(known) - np.count_nonzero(known), self.count + len(known)
        self.is_flag = self.is_flag and np.count_nonzero(known == 1) + zeros == len(known)
        self.zeros += zeros
        self.low, self.high = min(self.low, known.min()), max(self.high, known.max())
        with np.errstate(over="ignore", invalid="ignore"):  # `column` checks the result
            step = known.mean() - self.mean
            self.squares += np.square(known - known.mean()).sum()
            self.squares += step * step * self.count * len(known) / total
            self.mean += step * len(known) / total
        self.count = total

    def column(self, file: TableFile) -> Column | str:
        """The encoding of the column, or the reason why it gives no feature."""
        missing = self.empty > 0
        if self.count and self.is_flag:
            return Column(self.name, self.kind, missing=missing)
        if not self.count or (self.low == self.high and not missing):
            return "constant" if self.count else "empty"
        scale = np.sqrt(self.squares / self.count)
        if not np.isfinite(scale):
            raise TableError(
                f"{file.path}: column {self.name!r} holds numbers from {self.low:g} to "
                f"{self.high:g}, which is too large a range to standardise; scale or ignore it "
                f"(--ignore {self.name})"
            )
        return Column(self.name, self.kind, float(self.mean), float(scale) or 1.0, missing=missing)

    @property
    def is_word(self) -> bool:
        return self.count > 0 and self.low >= 0 and 2 * self.zeros >= self.count

    @property
    def raw_squares(self) -> float:
        return self.squares + self.mean * self.mean * self.count


@dataclass
class Values:
    """The distinct values of a column of categories."""

    name: str
    distinct: set[str | None] = field(default_factory=set)

    def add(self, cells: pa.Array, training: np.ndarray, locate: Locate) -> None:
        text = as_category(cells, self.name, locate)
        values = compute.unique(text.filter(pa.array(training)))
        self.distinct.update(values.slice(0, 2 * MAX_CATEGORIES).to_pylist())
        if len(self.distinct) > MAX_CATEGORIES + 1:
            row = int(training.argmax())
            raise free_text(locate(row), self.name, cells[row].as_py())

    def column(self, file: TableFile) -> Column | str:
        values = sorted(value for value in self.distinct if value is not None)
        if len(self.distinct) < 2:
            return "constant" if values else "empty"
        return Column(self.name, CATEGORY, values=tuple(values), missing=None in self.distinct)


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
            locate = file.locate_from(first)
            for learner in learners:
                learner.add(block.column(learner.name), rows, locate)
    fitted = {learner.name: learner.column(file) for learner in learners}
    fitted |= _words([each for each in learners if isinstance(each, Numbers)])
    left_out |= {name: why for name, why in fitted.items() if isinstance(why, str)}
    columns = tuple(each for each in fitted.values() if isinstance(each, Column))
    return Columns(columns, left_out)


def _words(learners: list[Numbers]) -> dict[str, Column]:
    """The columns of word counts, all with the same scale, if there are enough of them."""
    words = [each for each in learners if each.kind == "number" and each.is_word]
    counted = [each for each in words if not each.is_flag]
    if len(words) < MIN_WORDS or not counted:
        return {}
    present = sum(each.count - each.zeros for each in counted)
    scale = float(np.sqrt(sum(each.raw_squares for each in counted) / present))
    columns = [Column(each.name, each.kind, missing=each.empty > 0) for each in words]
    flags = [each.is_flag and each.zeros < each.count for each in words]
    return {
        column.name: column if flag else replace(column, scale=scale)
        for column, flag in zip(columns, flags, strict=True)
    }
