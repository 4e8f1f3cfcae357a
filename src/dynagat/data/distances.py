"""Degrees and diameters: of one large graph by breadth-first searches, of many small ones exactly.

Both are those of the simple graph: without directions, self-loops and repeated edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dynagat.data.molecules import GRAPH
from dynagat.data.store import NODE, GraphData

STARTS = 8  # nodes from which the diameter of a large graph is estimated
SWEEPS = 3  # searches from each, every one from a node farthest from the one before
AT_ONCE = 2_000  # small graphs whose distances are computed together


def row_places(rowptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The positions rowptr[row] .. rowptr[row + 1] - 1 of all given rows, in their order."""
    starts, counts = rowptr[rows], rowptr[rows + 1] - rowptr[rows]
    before = counts.cumsum() - counts
    return np.arange(counts.sum()) + np.repeat(starts - before, counts)


@dataclass(frozen=True, eq=False)
class SimpleGraph:
    """Each pair of neighbours once: first[e] < second[e]."""

    num_nodes: int
    first: np.ndarray  # [E] int64
    second: np.ndarray  # [E]

    @classmethod
    def of(cls, data: GraphData) -> SimpleGraph:
        """Nodes of all types are numbered one type after the other.

        Of link prediction, the links of all parts of the split are edges too.
        """
        start, total = {}, 0
        for kind, nodes in data.nodes.items():
            start[kind], total = total, total + nodes.count
        codes = [np.empty(0, np.int64)]
        for (key_kind, _, query_kind), edges in data.edges.items():
            key = np.asarray(edges.key_index).astype(np.int64) + start[key_kind]
            query = np.asarray(edges.query_index).astype(np.int64) + start[query_kind]
            codes.append(_codes(key, query, total))
        for name, links in data.split.items():
            if name in ("train/edge", "valid/edge", "test/edge"):
                first, second = np.asarray(links).astype(np.int64).T
                codes.append(_codes(first, second, total))
        both = np.unique(np.concatenate(codes))
        return cls(total, *np.divmod(both, max(1, total)))

    @property
    def degree(self) -> float:
        """Mean number of neighbours."""
        return 2 * len(self.first) / max(1, self.num_nodes)

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """rowptr [N + 1] and neighbours [2 E]: each pair at both of its ends."""
        ends = np.concatenate([self.first, self.second])
        order = np.argsort(ends, kind="stable")
        count = np.bincount(ends, minlength=self.num_nodes)
        rowptr = np.concatenate([[0], count.cumsum()])
        return rowptr, np.concatenate([self.second, self.first])[order]

    def levels(self, start: int) -> Iterator[np.ndarray]:
        """The nodes at distance 0, 1, 2, ... from the start."""
        rowptr, neighbours = self.rows
        is_new = np.ones(self.num_nodes, bool)
        level = np.array([start])
        while len(level):
            is_new[level] = False
            yield level
            is_reached = np.zeros(self.num_nodes, bool)
            is_reached[neighbours[row_places(rowptr, level)]] = True
            level = np.flatnonzero(is_reached & is_new)


def _codes(first: np.ndarray, second: np.ndarray, total: int) -> np.ndarray:
    """One number for each pair without self-loops, whatever its direction."""
    other = first != second
    first, second = first[other], second[other]
    return np.minimum(first, second) * total + np.maximum(first, second)


def least_diameter(graph: SimpleGraph, seed: int = 0) -> int:
    """A lower bound of the largest distance of two nodes that are connected.

    From each of STARTS random nodes, SWEEPS searches go to the farthest node that the search before
    found; the longest distance of all searches is the bound, which is often reached.
    """
    if not len(graph.first):
        return 0
    draw = np.random.default_rng(seed)
    nodes = draw.choice(graph.first, STARTS)  # an edge at random: large components are likelier
    best = 0
    for node in nodes.tolist():
        for _ in range(SWEEPS):
            levels = list(graph.levels(node))
            best, node = max(best, len(levels) - 1), int(levels[-1][0])
    return best


def molecule_diameters(data: GraphData) -> np.ndarray:  # [G]
    """The exact diameter of each small graph: the largest distance of two connected nodes."""
    graphs = data.nodes[GRAPH].arrays
    num_nodes = np.asarray(graphs["num_nodes"]).astype(np.int64)
    first_node = num_nodes.cumsum() - num_nodes
    graph_of = np.repeat(np.arange(len(num_nodes)), num_nodes)
    (edges,) = (each for kind, each in data.edges.items() if kind[0] == kind[2] == NODE)
    a, b = (np.asarray(index).astype(np.int64) for index in (edges.key_index, edges.query_index))
    graph = graph_of[a]
    width = int(num_nodes.max(initial=0))
    diameters = np.zeros(len(num_nodes), np.int64)
    for low in range(0, len(num_nodes), AT_ONCE):
        high = min(low + AT_ONCE, len(num_nodes))
        here = (graph >= low) & (graph < high)
        first = first_node[graph[here]]
        place = graph[here] - low, a[here] - first, b[here] - first
        diameters[low:high] = _diameters(place, high - low, width)
    return diameters


def _diameters(place: tuple[np.ndarray, ...], count: int, width: int) -> np.ndarray:
    """By powers of the adjacency matrices: a pair is at the distance at which it is first 1."""
    step = np.zeros((count, width, width), np.float32)
    step[place] = step[place[0], place[2], place[1]] = 1
    step[:, np.arange(width), np.arange(width)] = 1
    reached, diameters = step, np.where((step.sum((1, 2)) > width), 1, 0)
    for distance in range(2, width):
        further = np.minimum(reached @ step, 1)
        is_new = (further != reached).any((1, 2))
        if not is_new.any():
            break
        diameters[is_new], reached = distance, further
    return diameters
