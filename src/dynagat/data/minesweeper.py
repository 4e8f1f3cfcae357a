"""Minesweeper: a made graph of two classes, 80 to 20, whose labels depend on the neighbours.

Nodes are the cells of a square grid, edges join each cell with its up to eight neighbours, and a
cell is a mine with probability 0.2. The features are a one-hot encoding of the number of mines next
to the cell, and a flag: for half of the cells the number is hidden, and the flag is set instead.
The construction is that of the dataset of Platonov et al., "A critical look at the evaluation of
GNNs under heterophily" (ICLR 2023); the mines are drawn anew.
"""

from __future__ import annotations

import numpy as np

from dynagat.data.elements import EDGE, NODE, Edges, Nodes
from dynagat.data.store import GraphData

MINES = 0.2
HIDDEN = 0.5
PARTS = {"train": 0.5, "valid": 0.25, "test": 0.25}
STEPS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]


def minesweeper(size: int = 100, seed: int = 0, name: str = "minesweeper") -> GraphData:
    """A grid of size × size cells."""
    if size < 3:
        raise ValueError(f"size must be at least 3, but is {size}")
    rng = np.random.default_rng(seed)
    count = size * size
    mine = np.zeros(count, dtype=np.int64)
    mine[rng.permutation(count)[: round(MINES * count)]] = 1
    key, query = _grid(size)
    near = np.bincount(query, weights=mine[key], minlength=count).astype(np.int64)
    x = np.zeros((count, len(STEPS) + 2), dtype=np.float32)
    x[np.arange(count), near] = 1
    x[rng.permutation(count)[: round(HIDDEN * count)]] = np.eye(x.shape[1], dtype=np.float32)[-1]
    ends = np.round(np.cumsum([0, *PARTS.values()]) * count).astype(np.int64)
    order = rng.permutation(count)
    split = {part: np.sort(order[ends[n] : ends[n + 1]]) for n, part in enumerate(PARTS)}
    task = {"kind": "classification", "classes": ["free", "mine"], "target": "mine"}
    return GraphData(
        name,
        {NODE: Nodes(count, {"x": x, "y": mine})},
        {EDGE: Edges(key, query)},
        split,
        {"task": task, "source": f"made: a grid of {size} × {size} cells, seed {seed}"},
    )


def _grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Key and query of every edge between neighbouring cells."""
    row, column = np.divmod(np.arange(size * size), size)
    keys, queries = [], []
    for down, right in STEPS:
        below, beside = row + down, column + right
        is_inside = (np.minimum(below, beside) >= 0) & (np.maximum(below, beside) < size)
        queries.append(np.flatnonzero(is_inside))
        keys.append(queries[-1] + down * size + right)
    return np.concatenate(keys), np.concatenate(queries)
