"""Target: what is predicted for each node, from one or several columns of a table.

A column of text is for classification, and so is one of at most MAX_CLASSES distinct integers;
other numbers are for regression. Several columns of 0 and 1 are labels, of which a node may have
any; so is one column of names separated by ; or |, if the task is "multilabel". A node with an
empty cell is unlabelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dynagat.data.tables.cells import NUMBER, as_text, compute
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.table_file import TableFile

TASKS = ("auto", "classification", "multilabel", "regression")
MAX_CLASSES = 50  # distinct integers; more are for regression
BITS = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0, "0.0": 0.0, "1.0": 1.0}


@dataclass
class Coding:
    """Collects a column block by block, as its distinct texts and the index of each cell's text."""

    file: TableFile
    name: str
    blocks: list[pa.DictionaryArray] = field(default_factory=list)

    def add(self, cells: pa.Array) -> None:
        self.blocks.append(as_text(cells).dictionary_encode())

    def finish(self) -> Coded:
        kind = pa.dictionary(pa.int32(), pa.string())
        chunks = pa.chunked_array(self.blocks, kind).unify_dictionaries().chunks
        self.blocks.clear()
        texts = chunks[-1].dictionary if chunks else pa.array([], pa.string())
        codes = [np.asarray(chunk.indices.fill_null(-1)) for chunk in chunks]
        return Coded(self.file, self.name, texts, np.concatenate(codes))


@dataclass(frozen=True, eq=False)
class Coded:
    """Cell n holds texts[codes[n]], or is empty if codes[n] is -1."""

    file: TableFile
    name: str
    texts: pa.Array
    codes: np.ndarray  # [N] int32

    def error(self, text: str | None, expected: str, advice: str = "") -> TableError:
        """An error about the first cell that holds this text."""
        code = self.texts.index(text).as_py()
        place = self.file.locate(int((self.codes == code).argmax()))
        return TableError(
            f"{place}: column {self.name!r} {expected}, but holds {shown(text)}{advice}"
        )

    def expand(self, of_texts: np.ndarray, empty: Any) -> np.ndarray:
        """[texts, ...] -> [N, ...], with `empty` for empty cells."""
        nothing = np.full((1, *of_texts.shape[1:]), empty, of_texts.dtype)
        return np.concatenate([of_texts, nothing])[self.codes]  # -1 is the last


@dataclass(frozen=True, eq=False)
class Target:
    """y in the form of GraphData, and its task."""

    file: TableFile
    name: str | list[str]
    kind: str
    y: np.ndarray
    classes: list[str] | None = None

    @property
    def labelled(self) -> np.ndarray:  # [N] bool
        if self.kind == "classification":
            return self.y >= 0
        known = ~np.isnan(self.y.reshape(len(self.y), -1))
        return np.asarray(known.any(axis=1))

    @property
    def metadata(self) -> dict[str, Any]:
        """The value of about["task"]."""
        classes = {} if self.classes is None else {"classes": self.classes}
        return {"kind": self.kind, "node_type": "node", "target": self.name, **classes}

    def check_training(self, training: np.ndarray) -> None:
        """Every class or label must occur in a training row."""
        if self.kind == "classification":
            assert self.classes is not None
            seen = np.zeros(len(self.classes) + 1, bool)
            seen[self.y[training]] = True
            seen[-1] = True  # unlabelled nodes
            wrong = ~seen[self.y]
        elif self.kind == "multilabel":
            wrong = (self.y[:, ~(self.y[training] == 1).any(0)] == 1).any(1)
        else:
            return
        if wrong.any():
            row = int(wrong.argmax())
            raise TableError(
                f"{self.file.locate(row)}: {self._label(row, training)}, which no training row "
                "has; add a training row with it, or leave this cell empty"
            )

    def _label(self, row: int, training: np.ndarray) -> str:
        assert self.classes is not None
        if self.kind == "classification":
            return f"column {self.name!r} holds the label {shown(self.classes[self.y[row]])}"
        unseen = ~(self.y[training] == 1).any(0) & (self.y[row] == 1)
        label = self.classes[int(unseen.argmax())]
        if isinstance(self.name, list):
            return f"column {label!r} holds 1"
        return f"column {self.name!r} holds the label {shown(label)}"


def read_target(columns: Sequence[Coded], task: str) -> Target:
    """The target in one or several columns."""
    if len(columns) > 1:
        return _labels_of_columns(columns, task)
    (column,) = columns
    if not (column.codes >= 0).any():
        raise TableError(f"{column.file.path}: column {column.name!r} is empty in every row")
    if task == "multilabel":
        return _labels_of_lists(column)
    numbers = _numbers(column, task)
    _check_varies(column, numbers)
    if task == "auto":
        task = "classification" if numbers is None or _are_classes(numbers) else "regression"
    if task == "classification":
        return _classes(column, numbers)
    assert numbers is not None
    return _regression(column, numbers)


def check_task(task: str, targets: int) -> None:
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, but is {task!r}")
    if targets > 1 and task not in ("auto", "multilabel"):
        raise ValueError(f"task {task!r} needs one target column, but {targets} are given")


def _numbers(column: Coded, task: str) -> np.ndarray | None:
    """The texts as numbers; None if they are names of classes."""
    is_number = np.asarray(compute.match_substring_regex(column.texts, NUMBER), bool)
    if is_number.all():
        return np.asarray(column.texts.cast(pa.float64()))
    cells = np.bincount(column.codes[column.codes >= 0], minlength=len(is_number))
    mostly = 2 * cells[is_number].sum() > cells.sum()
    if task == "regression" or (task == "auto" and mostly):
        text = column.texts[int((~is_number).argmax())].as_py()
        is_regression = task == "regression"
        advice = "" if is_regression else "; for text classes, set task to classification"
        raise column.error(text, "must hold numbers", advice)
    return None


def _are_classes(numbers: np.ndarray) -> bool:
    distinct = np.unique(numbers)
    return len(distinct) <= MAX_CLASSES and bool((distinct == np.floor(distinct)).all())


def _check_varies(column: Coded, numbers: np.ndarray | None) -> None:
    distinct = len(column.texts) if numbers is None else len(np.unique(numbers))
    if distinct < 2:
        value = shown(column.texts[0].as_py())
        raise TableError(
            f"{column.file.path}: column {column.name!r} holds {value} in every row, "
            "so there is nothing to learn"
        )


def _classes(column: Coded, numbers: np.ndarray | None) -> Target:
    if numbers is None:
        names, code = np.unique(np.array(column.texts.to_pylist(), object), return_inverse=True)
        classes = names.tolist()
    else:
        distinct, code = np.unique(numbers, return_inverse=True)
        classes = [f"{int(each)}" if each.is_integer() else f"{each}" for each in distinct.tolist()]
    y = column.expand(code.astype(np.int64), -1)
    return Target(column.file, column.name, "classification", y, classes)


def _regression(column: Coded, numbers: np.ndarray) -> Target:
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(numbers.astype(np.float32))
    if not is_finite.all():
        text = column.texts[int((~is_finite).argmax())].as_py()
        raise column.error(text, "must hold numbers below 1e38")
    return Target(column.file, column.name, "regression", column.expand(numbers, np.nan))


def _labels_of_lists(column: Coded) -> Target:
    """Labels separated by ; or |; a separator alone means that the node has none of them."""
    sets = [
        {label.strip() for label in re.split(r"[;|]", text)} - {""}
        for text in column.texts.to_pylist()
    ]
    labels = sorted(set().union(*sets))
    index = {label: n for n, label in enumerate(labels)}
    bits = np.zeros((len(sets), len(labels)), np.float32)
    for row, each in enumerate(sets):
        bits[row, [index[label] for label in each]] = 1
    if len(np.unique(bits, axis=0)) < 2:
        _check_varies(Coded(column.file, column.name, column.texts[:1], column.codes), None)
    return Target(column.file, column.name, "multilabel", column.expand(bits, np.nan), labels)


def _labels_of_columns(columns: Sequence[Coded], task: str) -> Target:
    names = [column.name for column in columns]
    y = np.stack([_bits(column) for column in columns], axis=1)
    if np.isnan(y).all():
        raise TableError(f"{columns[0].file.path}: columns {names} are empty in every row")
    for column, labels in zip(columns, y.T, strict=True):
        known = labels[~np.isnan(labels)]
        if not len(known) or known.min() == known.max():
            _check_varies(Coded(column.file, column.name, column.texts[:1], column.codes), None)
    return Target(columns[0].file, names, "multilabel", y, names)


def _bits(column: Coded) -> np.ndarray:
    texts = column.texts.to_pylist()
    for text in texts:
        if text.lower() not in BITS:
            raise column.error(text, "must hold 0 or 1, as one of several targets")
    bits = np.array([BITS[text.lower()] for text in texts], np.float32)
    return column.expand(bits, np.nan)


def known_targets(target: str | Sequence[str] | None) -> list[str]:
    return [] if target is None else [target] if isinstance(target, str) else list(target)
