"""Rows: what a layer's queries gave to their keys, row by row, ready to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dynagat.analysis.table import LayerAttention


@dataclass(frozen=True, eq=False)
class Rows:
    """Query i ranks the keys key[rowptr[i] : rowptr[i + 1]], sorted, each once.

    A node in another call of the layer is another query and another key, for there it may have
    another representation. Of parallel edges the highest score and the summed weight are kept.
    Half precision is widened, for sums would be rounded to it.
    """

    rowptr: Tensor  # [Q + 1]
    key: Tensor  # [E], in 0 .. K - 1
    score: Tensor  # [E, H]: what ranks the keys
    weight: Tensor  # [E, H]
    times: Tensor  # [E]: of how many parallel edges
    query_id: Tensor  # [Q]: the node
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
        """query · K + key, ascending, [E]: where to look an edge up."""
        return self.query * self.num_keys + self.key

    @cached_property
    def is_first(self) -> Tensor:  # [E, H]
        """Is it the key that its query ranks first? More than one, where the best are tied."""
        return self.score >= self.spread(highest(self.score, self.query, self.num_queries))

    def spread(self, values: Tensor) -> Tensor:
        """[Q, ...] -> [E, ...]: to each edge what its query has"""
        return values.index_select(0, self.query)

    def sum(self, values: Tensor) -> Tensor:
        """[E, ...] -> [Q, ...]"""
        zeros = values.new_zeros(self.num_queries, *values.shape[1:])
        return zeros.index_add(0, self.query, values)


def rows_of(views: Sequence[LayerAttention]) -> Rows:
    """Of all calls of one layer, on the CPU."""
    query, query_id = numbered([view.query.cpu() for view in views])
    key, key_id = numbered([view.key.cpu() for view in views])
    code, order = torch.sort(query * max(1, len(key_id)) + key)
    score, weight = (
        torch.cat([getattr(view, name).cpu() for view in views]).index_select(0, order)
        for name in ("ranked", "weight")
    )
    score, weight = (each.to(_wide(each.dtype)) for each in (score, weight))
    single, place, times = torch.unique_consecutive(code, return_inverse=True, return_counts=True)
    if len(single) < len(code):
        weight = weight.new_zeros(len(single), weight.shape[1]).index_add(0, place, weight)
        score = highest(score, place, len(single))
    row = single // max(1, len(key_id))
    rowptr = torch.searchsorted(row, torch.arange(len(query_id) + 1))
    key = single - row * max(1, len(key_id))
    return Rows(rowptr, key, score, weight, times, query_id, key_id)


def numbered(ids: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The nodes of each call numbered on, [E]; and the id that each number stands for."""
    numbers, names, count = [], [], 0
    for each in ids:
        there = torch.zeros(int(each.max()) + 1 if len(each) else 0, dtype=torch.bool)
        there[each] = True
        numbers.append(count + (there.cumsum(0) - 1)[each])
        names.append(there.nonzero()[:, 0])
        count += len(names[-1])
    return torch.cat(numbers), torch.cat(names)


def highest(values: Tensor, place: Tensor, count: int) -> Tensor:
    """[E, H] -> [count, H]: the largest of the values at each place, -inf where there is none."""
    lowest = values.new_full((count, values.shape[1]), -torch.inf)
    return lowest.scatter_reduce(0, place[:, None].expand_as(values), values, "amax")


def signs(left: Tensor, right: Tensor) -> Tensor:
    """1 where the left is higher, -1 where the right is, 0 where neither: of infinities too."""
    return (left > right).float() - (left < right).float()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
