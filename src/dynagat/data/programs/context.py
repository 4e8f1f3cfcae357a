"""GraphArrays: the edges of a whole program as arrays, and the part of it around a slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dynagat.data.distances import row_places
from dynagat.data.programs.layout import EDGE_TYPES

NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """Edge e leads from source[e] to target[e] and is of type EDGE_TYPES[kind[e]].

    `rowptr`, `neighbours` and `edge` list each edge at both of its ends.
    """

    num_nodes: int
    source: np.ndarray  # [E] int64
    target: np.ndarray  # [E]
    kind: np.ndarray  # [E]
    rowptr: np.ndarray  # [num_nodes + 1]
    neighbours: np.ndarray  # [2 E]
    edge: np.ndarray  # [2 E]

    @classmethod
    def of(cls, num_nodes: int, edges: Mapping[str, Sequence[tuple[int, int]]]) -> GraphArrays:
        """Duplicates of an edge are dropped."""
        codes = [
            np.unique(_pairs(edges.get(kind, ())) @ np.array([num_nodes, 1])) for kind in EDGE_TYPES
        ]
        kind = np.repeat(np.arange(len(codes)), [len(each) for each in codes])
        source, target = np.divmod(np.concatenate(codes), max(1, num_nodes))
        ends = np.concatenate([source, target])
        order = np.argsort(ends, kind="stable")
        rowptr = np.concatenate([[0], np.bincount(ends, minlength=num_nodes).cumsum()])
        edge = np.concatenate([np.arange(len(source))] * 2)[order]
        return cls(
            num_nodes, source, target, kind, rowptr, np.concatenate([target, source])[order], edge
        )

    def edges_of(self, node: int) -> np.ndarray:
        """The numbers of the edges at a node."""
        return self.edge[self.rowptr[node] : self.rowptr[node + 1]]

    def named(self, edge: int) -> tuple[str, int, int]:
        """Type, source and target of an edge."""
        return EDGE_TYPES[self.kind[edge]], int(self.source[edge]), int(self.target[edge])

    def find(self, kind: str, source: int, target: int) -> int:
        """The number of an edge that exists."""
        edges = self.edges_of(source)
        is_it = (self.source[edges] == source) & (self.target[edges] == target)
        return int(edges[is_it & (self.kind[edges] == EDGE_TYPES.index(kind))][0])

    def within(
        self, start: int, near: Sequence[int], distance: int, removed: np.ndarray
    ) -> np.ndarray:
        """Which nodes are at most `distance` edges from the start, in any direction: [N] bool.

        `near` are nodes at distance 1, by edges that are not part of the graph; `removed` are the
        edges without which the distance is measured.
        """
        inside = np.zeros(self.num_nodes, bool)
        for step, level in enumerate(self.levels(start, near, removed)):
            if step > distance:
                break
            inside[level] = True
        return inside

    def levels(
        self, start: int, near: Sequence[int] = (), removed: np.ndarray = NONE
    ) -> Iterator[np.ndarray]:
        """The nodes at distance 0, 1, 2, ... from the start, as `within` measures it."""
        seen = np.zeros(self.num_nodes, bool)
        is_removed = np.zeros(len(self.source), bool)
        is_removed[removed] = True
        level, added = np.array([start]), np.asarray(near, np.int64)
        while len(level):
            seen[level] = True
            yield level
            places = self._places(level)
            is_next = np.zeros(self.num_nodes, bool)
            is_next[self.neighbours[places[~is_removed[self.edge[places]]]]] = True
            is_next[added] = True
            level, added = np.flatnonzero(is_next & ~seen), NONE

    def _places(self, nodes: np.ndarray) -> np.ndarray:
        """Where `neighbours` lists the edges of some nodes."""
        return row_places(self.rowptr, nodes)

    def edges_inside(self, inside: np.ndarray, removed: np.ndarray) -> np.ndarray:
        """The numbers of the edges between nodes that are inside, in order."""
        edges = self.edge[self._places(np.flatnonzero(inside))]
        is_inside = np.zeros(len(self.source), bool)
        is_inside[edges] = inside[self.source[edges]] & inside[self.target[edges]]
        is_inside[removed] = False
        return np.flatnonzero(is_inside)


def _pairs(edges: Sequence[tuple[int, int]]) -> np.ndarray:
    ends = chain.from_iterable(edges)
    return np.fromiter(ends, np.int64, 2 * len(edges)).reshape(-1, 2)
