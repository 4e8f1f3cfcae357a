"""Locality: an order of the nodes in which neighbours are close to each other in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.int64]
Rows = tuple[Array, Array]  # offsets [N + 1] and neighbours: those of node i are at offsets[i] ..
AnyGraph = TypeVar("AnyGraph")  # Graph, which is defined above this file


@final
@dataclass(frozen=True, eq=False)
class Reordered(Generic[AnyGraph]):
    """A graph with renumbered nodes, and the way there and back for values of nodes.

    Node i of `graph` is the caller's node order[i], and the caller's node j is node place[j]. Edge
    ids are the caller's, so edge features are given in the caller's order.
    """

    graph: AnyGraph
    order: Tensor  # [N] int64
    place: Tensor  # [N] int64

    def permute(self, values: Tensor, dim: int = 0) -> Tensor:
        """Values of the caller's nodes, such as x or labels, in the order of `graph`."""
        return self._select(values, dim, self.order)

    def restore(self, values: Tensor, dim: int = 0) -> Tensor:
        """Values in the order of `graph`, such as a model's output, in the caller's order."""
        return self._select(values, dim, self.place)

    def restore_weights(self, edges: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The edges [2, E] and weights [*, E, H] that a layer returned, with the caller's nodes.

        The weights of the caller's edges are in the caller's order already. The self-loops that the
        layer added come after them, in the order of the caller's nodes.
        """
        num_nodes = len(self.order)
        node = torch.arange(num_nodes, dtype=edges.dtype, device=edges.device)
        num_others = edges.shape[1] - num_nodes
        restored = self.order.to(edges.dtype)[edges.long()]
        if num_others < 0 or not bool((edges[:, num_others:] == node).all()):
            return restored, weights
        restored[:, num_others:] = node
        loops = weights[..., num_others:, :].index_select(-2, self.place)
        return restored, torch.cat([weights[..., :num_others, :], loops], -2)

    def _select(self, values: Tensor, dim: int, index: Tensor) -> Tensor:
        if not -values.dim() <= dim < values.dim() or values.shape[dim] != len(index):
            raise ValueError(
                f"values must have one entry for each of the {len(index)} nodes on axis {dim}, "
                f"but have shape {list(values.shape)}"
            )
        if values.layout == torch.sparse_csr:  # torch selects rows of the layout COO only
            return values.to_sparse_coo().index_select(dim, index).to_sparse_csr()
        return values.index_select(dim, index)


def breadth_first_order(by_query: Rows, by_key: Rows) -> Array:
    """The nodes, breadth first: first the connected component of the node with most edges, from
    that node on; then the other components, in the order of their first nodes.

    The new neighbours of a node follow each other, those with most edges first (the order of
    Cuthill and McKee, from hubs instead of from the border). Edges count in both directions. The
    work is one vectorised step for each level of the search.
    """
    search = _Search(by_query, by_key)
    if not len(search.degree):
        return np.empty(0, np.int64)
    parts = [search.run(np.argmax(search.degree, keepdims=True))]
    left = np.flatnonzero(~search.is_done)
    component = search.components(left)
    by_degree = left[np.lexsort((-search.degree[left], component[left]))]
    rest = search.run(by_degree[_is_first(component[by_degree])])
    return np.concatenate([*parts, rest[np.argsort(component[rest], kind="stable")]])


class _Search:
    """A breadth-first search from several roots at once, which can be continued."""

    def __init__(self, by_query: Rows, by_key: Rows) -> None:
        self.rows = (by_query, by_key)
        self.degree: Array = np.diff(by_query[0]) + np.diff(by_key[0])
        self.is_done = np.zeros(len(self.degree), bool)
        self._first = np.empty(len(self.degree), np.int64)

    def run(self, roots: Array) -> Array:
        """All nodes that can be reached from the roots, level by level."""
        levels = [roots]
        self.is_done[roots] = True
        while len(levels[-1]):
            neighbour, parent = self._neighbours(levels[-1], is_new=True)
            position = np.arange(len(neighbour))
            self._first[neighbour[::-1]] = position[::-1]  # the last one assigned stays
            is_first = self._first[neighbour] == position
            level, parent = neighbour[is_first], parent[is_first]
            levels.append(level[np.lexsort((-self.degree[level], parent))])
            self.is_done[level] = True
        return np.concatenate(levels)

    def components(self, nodes: Array) -> Array:
        """[N]: the smallest node of the component of each of these nodes, which must be whole
        components; other nodes have their own number."""
        label = np.arange(len(self.degree))
        nodes = nodes[self.degree[nodes] > 0]
        if not len(nodes):
            return label
        neighbour, parent = self._neighbours(nodes)
        begin = np.flatnonzero(_is_first(parent))
        while True:  # as many rounds as the logarithm of the longest path, not its length
            low = label[nodes]
            low = np.minimum(low, np.minimum.reduceat(label[neighbour], begin))
            new = label.copy()
            np.minimum.at(new, label[nodes], low)
            new[nodes] = np.minimum(new[nodes], low)
            new = new[new]
            if np.array_equal(new, label):
                return label
            label = new

    def _neighbours(self, nodes: Array, *, is_new: bool = False) -> tuple[Array, Array]:
        """The neighbours of all these nodes, and for each the position in `nodes` of the node whose
        neighbour it is, in ascending order. With is_new, only neighbours not yet done."""
        neighbours, parents = [], []
        for offsets, column in self.rows:
            begin, count = offsets[nodes], offsets[nodes + 1] - offsets[nodes]
            parent = np.repeat(np.arange(len(nodes)), count)
            shift = begin - np.cumsum(count) + count
            neighbour = column[shift[parent] + np.arange(len(parent))]
            if is_new:
                is_kept = ~self.is_done[neighbour]
                neighbour, parent = neighbour[is_kept], parent[is_kept]
            neighbours.append(neighbour)
            parents.append(parent)
        parent = np.concatenate(parents)
        order = np.argsort(parent, kind="stable")
        return np.concatenate(neighbours)[order], parent[order]


def _is_first(values: Array) -> NDArray[np.bool_]:
    """Which entries of an array differ from the one before."""
    return np.diff(values, prepend=values[:1] - 1) != 0
