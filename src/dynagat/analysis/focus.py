"""How sharp is attention, on what does it lie, and do heads rank alike?

entropy_i = -Σ_j α_ij log α_ij, at most log degree_i
effective_i = exp(entropy_i), at most degree_i: a number of neighbours

A neighbour counts as often as it has an edge, for uniform weights are uniform over edges.
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
    """Of weights divided by their total, which is one but for rounding to half precision."""
    is_simple = bool((rows.times == 1).all())
    share = rows.weight if is_simple else rows.weight / rows.times[:, None]  # of parallel edges
    total = rows.sum(rows.weight).clamp_min(torch.finfo(rows.weight.dtype).tiny)
    spent = rows.sum(torch.special.xlogy(rows.weight, share)) / total
    return (total.log() - spent).clamp_min(0)


def sharpness(rows: Rows, draws: Resampling) -> tuple[list[Estimate], list[Estimate], float]:
    """Of queries with two keys or more, per head: the mean of entropy_i / log degree_i, the mean of
    effective_i; and their mean degree."""
    degree = rows.sum(rows.times)[:, None].float()
    chooses = (rows.degree[:, None] >= 2).float()
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
    mark, counts = (torch.cat(list(each)).cpu() for each in (marks, among))
    even = torch.bincount(query, minlength=draws.num_queries)[query].float().reciprocal()

    def total(there: Tensor) -> Tensor:  # [E] -> [Q, H]
        zeros = torch.zeros(draws.num_queries, weight.shape[1])
        if there.all():
            return zeros.index_add(0, query, weight.float())
        some = there.nonzero()[:, 0]
        return zeros.index_add(0, query[some], weight[some].float())

    shares = draws.ratio(total(mark & counts), total(counts))
    uniform = float(even[mark & counts].sum() / even[counts].sum())
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
