"""Rows: the scores and weights of a layer, one row of keys per query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dynagat.analysis.table import LayerAttention


@dataclass(frozen=True, eq=False)
class Rows:
    """Query i ranks the keys key[rowptr[i] : rowptr[i + 1]], which are sorted and distinct.

    The same node in another call of the layer is a different query and a different key, because its
    representation may differ. Parallel edges are merged: their highest score and summed weight are
    kept. Half precision is converted to float32, to keep sums accurate.
    """

    rowptr: Tensor  # [Q + 1]
    key: Tensor  # [E], in 0 .. K - 1
    score: Tensor  # [E, H]: orders the keys
    weight: Tensor  # [E, H]
    times: Tensor  # [E]: number of parallel edges
    query_id: Tensor  # [Q]: node id
    key_id: Tensor  # [K]

    @property
    def num_queries(self) -> int:
        return len(self.query_id)

    @property
    def num_keys(self) -> int:
        return len(self.key_id)

    @property
    def num_heads(self) -> int:
        return self.score.shape[1]

    @cached_property
    def degree(self) -> Tensor:  # [Q]
        return self.rowptr.diff()

    @cached_property
    def query(self) -> Tensor:  # [E]
        return torch.arange(self.num_queries).repeat_interleave(self.degree)

    @cached_property
    def code(self) -> Tensor:
        """query · K + key, ascending, [E]; used to look up edges."""
        return self.query * self.num_keys + self.key

    @cached_property
    def is_first(self) -> Tensor:  # [E, H]
        """Is this the key that its query ranks first? True for all keys tied for the first rank."""
        return self.score >= self.to_edges(highest(self.score, self.query, self.num_queries))

    def to_edges(self, values: Tensor) -> Tensor:
        """[Q, ...] -> [E, ...]: each edge gets the value of its query"""
        return values.index_select(0, self.query)

    def sum(self, values: Tensor) -> Tensor:
        """[E, ...] -> [Q, ...]: sum over the edges of each query"""
        zeros = values.new_zeros(self.num_queries, *values.shape[1:])
        return zeros.index_add(0, self.query, values)


def rows_of(views: Sequence[LayerAttention]) -> Rows:
    """The rows of all calls of one layer, on the CPU."""
    query, query_id = renumber([view.query.cpu() for view in views])
    key, key_id = renumber([view.key.cpu() for view in views])
    code, order = torch.sort(query * max(1, len(key_id)) + key)
    score, weight = (
        torch.cat([getattr(view, name).cpu() for view in views]).index_select(0, order)
        for name in ("ranked", "weight")
    )
    score, weight = (each.to(_wide(each.dtype)) for each in (score, weight))
    unique, index, times = torch.unique_consecutive(code, return_inverse=True, return_counts=True)
    if len(unique) < len(code):
        weight = weight.new_zeros(len(unique), weight.shape[1]).index_add(0, index, weight)
        score = highest(score, index, len(unique))
    row = unique // max(1, len(key_id))
    rowptr = torch.searchsorted(row, torch.arange(len(query_id) + 1))
    key = unique - row * max(1, len(key_id))
    return Rows(rowptr, key, score, weight, times, query_id, key_id)


def renumber(ids: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Consecutive indices for the node ids of all calls, [E]; and the id behind each index."""
    indices, nodes, count = [], [], 0
    for each in ids:
        is_used = torch.zeros(int(each.max()) + 1 if len(each) else 0, dtype=torch.bool)
        is_used[each] = True
        indices.append(count + (is_used.cumsum(0) - 1)[each])
        nodes.append(is_used.nonzero()[:, 0])
        count += len(nodes[-1])
    return torch.cat(indices), torch.cat(nodes)


def highest(values: Tensor, index: Tensor, count: int) -> Tensor:
    """[E, H] -> [count, H]: the largest value at each index, -inf if there is none."""
    lowest = values.new_full((count, values.shape[1]), -torch.inf)
    return lowest.scatter_reduce(0, index[:, None].expand_as(values), values, "amax")


def signs(left: Tensor, right: Tensor) -> Tensor:
    """1 where `left` is higher, -1 where `right` is, 0 where they are equal, also if infinite."""
    return (left > right).float() - (left < right).float()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
