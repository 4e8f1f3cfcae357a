"""Checks of every graph that is read; the errors name the file, and the line where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynagat.npz_file import check_memory

MAX_CLASS = 100_000  # highest class, unless there are more nodes


def check_count(count: int, source: Any) -> None:
    """A number of nodes that a file claims must fit into memory."""
    if count < 0:
        raise ValueError(f"{source}: the number of nodes must not be negative, but is {count}")
    check_memory(f"{source}: {count:,} nodes", 8 * count)


def check_ends(
    index: np.ndarray, count: int, source: Any, *, first_line: int | None = None
) -> None:
    """Edges must connect existing nodes. `first_line` is the line of the first edge in the file."""
    wrong = (index < 0) | (index >= count)
    if wrong.any():
        row = int(np.nonzero(wrong.reshape(len(index), -1).any(1))[0][0])
        place = f"edge {row}" if first_line is None else f"line {first_line + row}"
        value = index[row] if index.ndim == 1 else index[row][wrong[row]][0]
        raise ValueError(
            f"{source}, {place}: nodes are 0 to {count - 1}, but the edge has node {value}"
        )


def check_finite(x: np.ndarray, source: Any, *, first_line: int | None = None) -> None:
    """Features must be finite numbers; the error names the first row with nan or infinity."""
    if x.dtype.kind != "f":
        return
    wrong = ~np.isfinite(x).reshape(len(x), -1).all(1)
    if wrong.any():
        row = int(np.nonzero(wrong)[0][0])
        place = f"row {row}" if first_line is None else f"line {first_line + row}"
        value = x[row][~np.isfinite(x[row])][0] if x.ndim > 1 else x[row]
        raise ValueError(f"{source}, {place}: features must be finite numbers, but one is {value}")


def check_split(split: Mapping[str, np.ndarray], count: int, source: Any) -> None:
    """The parts of a split must hold existing nodes, each node once and in one part only."""
    part_of = np.full(count, -1, np.int8)
    names = list(split)
    for number, (name, index) in enumerate(split.items()):
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise ValueError(f"{source}: {name} must be a vector of node indices")
        wrong = (index < 0) | (index >= count)
        if wrong.any():
            value = index[wrong][0]
            raise ValueError(f"{source}: {name} has {value}, but nodes are 0 to {count - 1}")
        other = part_of[index]
        if (other >= 0).any():
            first = int(np.argmax(other >= 0))
            more = int((other == other[first]).sum()) - 1
            overlap = f"node {index[first]} is in {names[other[first]]} and in {name}"
            raise ValueError(f"{source}: {overlap}" + (f", and {more} more are" if more else ""))
        if len(np.unique(index)) != len(index):
            raise ValueError(f"{source}: {name} holds a node twice")
        part_of[index] = number


def check_labels(y: np.ndarray, source: Any) -> None:
    """Classes are numbered from 0; -1 is an unknown class."""
    if len(y) and int(y.min()) < -1:
        raise ValueError(f"{source}: classes must be 0 or more, but one is {y.min()}")
    if len(y) and int(y.max()) > max(MAX_CLASS, len(y)):
        raise ValueError(f"{source}: classes must be numbered from 0, but one is {y.max()}")


def index_dtype(count: int) -> type:
    """The smallest integer type for the indices of `count` nodes."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64
