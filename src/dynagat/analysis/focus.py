"""How sharp is attention, on which edges is it, and do heads rank keys in the same order?

entropy_i = -Σ_j α_ij log α_ij, at most log degree_i
effective_i = exp(entropy_i), at most degree_i: the effective number of neighbours

Parallel edges count separately, because uniform weights are uniform over edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dynagat.analysis.order import Comparisons
from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows, renumber
from dynagat.analysis.table import LayerAttention


@dataclass(frozen=True)
class Mass:
    """The fraction of attention on a set of edges, and what uniform weights would give."""

    attention: Estimate
    uniform: float

    def __str__(self) -> str:
        return f"{self.attention.value:.2f} ({self.uniform:.2f})"


def entropy(rows: Rows) -> Tensor:  # [Q, H]
    """Entropy of the weights, normalised again because half precision rounds their sum."""
    is_simple = bool((rows.times == 1).all())
    per_edge = rows.weight if is_simple else rows.weight / rows.times[:, None]  # if parallel
    total = rows.sum(rows.weight).clamp_min(torch.finfo(rows.weight.dtype).tiny)
    mean_log = rows.sum(torch.special.xlogy(rows.weight, per_edge)) / total
    return (total.log() - mean_log).clamp_min(0)


class Sharpness(NamedTuple):
    """Over queries with at least two keys; one entry per head."""

    entropy: list[Estimate]  # mean of entropy_i / log degree_i
    effective: list[Estimate]  # mean of effective_i
    uniformity: list[Estimate]  # Σ effective_i / Σ degree_i
    degree: float  # mean, the same for all heads


def sharpness(rows: Rows, resampling: Resampling) -> Sharpness:
    """How sharp the attention of each head is."""
    degree = rows.sum(rows.times)[:, None].float()
    chooses = (rows.degree[:, None] >= 2).float()
    one = chooses.expand(-1, rows.num_heads)
    entropies = entropy(rows)
    relative = entropies / degree.log().where(degree >= 2, torch.ones(()))
    mean_degree = float((degree * chooses).sum() / chooses.sum())
    effective = entropies.exp() * one
    return Sharpness(
        resampling.ratio(relative * one, one),
        resampling.ratio(effective, one),
        resampling.ratio(effective, degree * one),
        mean_degree,
    )


def mass_on(
    views: Sequence[LayerAttention],
    marks: Sequence[Tensor],
    among: Sequence[Tensor],
    resampling: Resampling,
) -> list[Mass]:
    """Per head: attention on the edges in `marks` out of those in `among`, [E] masks per view."""
    query = renumber([view.query.cpu() for view in views])[0]
    weight = torch.cat([view.weight.cpu() for view in views])
    mark, counts = (torch.cat(list(each)).cpu() for each in (marks, among))
    uniform = torch.bincount(query, minlength=resampling.num_queries)[query].float().reciprocal()

    def total(mask: Tensor) -> Tensor:  # [E] -> [Q, H]
        zeros = torch.zeros(resampling.num_queries, weight.shape[1])
        if mask.all():
            return zeros.index_add(0, query, weight.float())
        index = mask.nonzero()[:, 0]
        return zeros.index_add(0, query[index], weight[index].float())

    attention = resampling.ratio(total(mark & counts), total(counts))
    expected = float(uniform[mark & counts].sum() / uniform[counts].sum())
    return [Mass(estimate, expected) for estimate in attention]


def mass_by_relation(
    views: Sequence[LayerAttention], resampling: Resampling
) -> list[tuple[Mass, ...]]:
    """Per head: attention on the edges of each relation; empty if the layer has only one."""
    if views[0].relation is None:
        return [()] * views[0].num_heads
    relations = [view.relation for view in views if view.relation is not None]
    every = [torch.ones_like(each, dtype=torch.bool) for each in relations]
    by_relation = (
        mass_on(views, [each == r for each in relations], every, resampling)
        for r in range(views[0].num_relations)
    )
    return list(zip(*by_relation, strict=True))


def alike(
    rows: Rows, comparisons: Comparisons, resampling: Resampling
) -> dict[tuple[int, int], Estimate]:
    """For each pair of heads: τ between their rankings of a query's keys, over all queries."""
    signs = comparisons.signs(rows).float()
    pairs = torch.combinations(torch.arange(rows.num_heads))  # [pairs, 2]
    if not len(pairs):
        return {}
    both = signs[:, pairs[:, 0]] * signs[:, pairs[:, 1]] * comparisons.share[:, None]
    zeros = torch.zeros(rows.num_queries, len(pairs))
    above, below = (zeros.index_add(0, comparisons.query, each) for each in (both, both.abs()))
    taus = resampling.ratio(above, below)
    return {(a, b): tau for (a, b), tau in zip(pairs.tolist(), taus, strict=True)}
