"""How sharp is attention, on what does it lie, and do heads rank alike?

entropy_i = -Σ_j α_ij log α_ij, at most log degree_i
effective_i = exp(entropy_i), at most degree_i: a number of neighbours
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.analysis.order import Comparisons
from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows, numbered
from dynagat.analysis.table import LayerAttention


@dataclass(frozen=True)
class Mass:
    """The share of attention that lies on some edges, and their share if all weighed alike."""

    attention: Estimate
    uniform: float


def entropy(rows: Rows) -> Tensor:  # [Q, H]
    return rows.sum(-torch.special.xlogy(rows.weight, rows.weight)).clamp_min(0)


def sharpness(rows: Rows, draws: Resampling) -> tuple[list[Estimate], list[Estimate], float]:
    """Of queries with two keys or more, per head: the mean of entropy_i / log degree_i, the mean of
    effective_i; and their mean degree."""
    degree = rows.degree[:, None].float()
    chooses = (degree >= 2).float()
    one = chooses.expand(-1, rows.num_heads)
    found = entropy(rows)
    relative = found / degree.log().where(degree >= 2, torch.ones(()))
    mean_degree = float((degree * chooses).sum() / chooses.sum())
    return draws.ratio(relative * one, one), draws.ratio(found.exp() * one, one), mean_degree


def mass_on(
    views: Sequence[LayerAttention],
    marks: Sequence[Tensor],
    among: Sequence[Tensor],
    draws: Resampling,
) -> list[Mass]:
    """Per head, on the edges with a mark [E], among those that count at all [E], of each view."""
    query = numbered([view.query.cpu() for view in views])[0]
    weight = torch.cat([view.weight.cpu() for view in views])
    mark, counts = (torch.cat(list(each)).cpu().float()[:, None] for each in (marks, among))
    even = torch.bincount(query, minlength=draws.num_queries)[query, None].float().reciprocal()

    def total(values: Tensor) -> Tensor:
        return torch.zeros(draws.num_queries, values.shape[1]).index_add(0, query, values)

    shares = draws.ratio(total(weight.float() * mark * counts), total(weight.float() * counts))
    uniform = float((even * mark * counts).sum() / (even * counts).sum())
    return [Mass(share, uniform) for share in shares]


def alike(
    rows: Rows, comparisons: Comparisons, draws: Resampling
) -> dict[tuple[int, int], Estimate]:
    """For every two heads: τ between their rankings of the same query's keys, over all queries."""
    signs = comparisons.signs(rows).float()
    pairs = torch.combinations(torch.arange(rows.num_heads))  # [pairs, 2]
    if not len(pairs):
        return {}
    both = signs[:, pairs[:, 0]] * signs[:, pairs[:, 1]] * comparisons.share[:, None]
    zeros = torch.zeros(rows.num_queries, len(pairs))
    above, below = (zeros.index_add(0, comparisons.query, each) for each in (both, both.abs()))
    found = draws.ratio(above, below)
    return {(a, b): each for (a, b), each in zip(pairs.tolist(), found, strict=True)}
