"""Do two queries rank their shared keys in the same order? Agreement weighted by attention,
Kendall's τ, and the same first choice.

For two queries i and i' with weights α over the keys they share,

    weighted agreement = Σ_j (α_ij - mean α_i) (α_i'j - mean α_i') / the same with both α sorted

is the covariance of their attention relative to the covariance if both ranked the keys in the same
order, which is the largest possible. The mean over pairs of queries is the ratio of the sums, so
that keys with nearly equal weights, and pairs with hardly any attention on shared keys, hardly
count. It is 1 if all queries have the same order, and 0 if their attention is unrelated.

τ = (concordant - discordant) / (concordant + discordant) counts all comparisons of two keys that
are tied in neither ranking. Static attention has no discordant comparison: both are exactly 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows, signs

MAX_WEDGES = 1_000_000  # up to this many (query, key, query) triples, all pairs are used
MAX_PAIRS = 20_000  # sample size otherwise
MAX_SHARED = 32  # keys compared for τ per pair; a random subset if it shares more
MAX_KEYS = 2_000_000  # shared keys of all pairs; fewer pairs are used if they share more


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of queries that share at least two keys, and their edges to the shared keys."""

    first: Tensor  # [P]: query index
    second: Tensor  # [P]
    share: Tensor  # [P]: weight that corrects for uneven sampling of pairs
    pair: Tensor  # [S]: index of the pair that shares a key, ascending
    edge: Tensor  # [2, S]: the edge of each query to the shared key
    compared: Tensor  # [C]: indices into S whose order is compared
    is_exact: bool

    def __len__(self) -> int:
        return len(self.first)


class Agreement(NamedTuple):
    """One entry per head."""

    weighted: list[Estimate]
    num_pairs: list[int]  # effective number of pairs of queries behind `weighted`
    tau: list[Estimate]  # mean over pairs of queries
    same_choice: list[Estimate]  # see `_choices`


def agreement(rows: Rows, pairs: Pairs, resampling: Resampling) -> Agreement:
    """Compare the rankings of the two queries of each pair."""
    share = pairs.share[:, None]

    def mean(above: Tensor, below: Tensor) -> list[Estimate]:
        return resampling.pairs(above * share, below * share, pairs.first, pairs.second)

    covariance, largest = _covariances(rows, pairs)
    return Agreement(
        mean(covariance, largest),
        _effective_count(largest * share),
        mean(*_taus(rows, pairs)),
        mean(*_choices(rows, pairs)),
    )


def _effective_count(weight: Tensor) -> list[int]:
    """(Σ weight)² / Σ weight² per head: the number of pairs if all have the same weight."""
    count = weight.sum(0).square() / weight.square().sum(0)
    return count.nan_to_num(0).round().long().tolist()


def find_pairs(rows: Rows, seed: int = 0) -> Pairs:
    """All pairs of queries that share at least two keys, or a sample of them in a large graph."""
    generator = torch.Generator().manual_seed(seed)
    by_key = torch.sort(rows.key, stable=True).indices  # the edges of each key
    key_degree = torch.bincount(rows.key, minlength=rows.num_keys)  # [K]: number of queries per key
    num_wedges = int((key_degree * (key_degree - 1) // 2).sum())
    is_small = num_wedges <= MAX_WEDGES
    first, second = (
        _all_wedges(key_degree, by_key)
        if is_small
        else _sample_wedges(key_degree, by_key, generator)
    )
    query = rows.query
    code, times = torch.unique(query[first] * rows.num_queries + query[second], return_counts=True)
    ends = code // max(1, rows.num_queries), code % max(1, rows.num_queries)
    kept = ends[0] != ends[1]
    pairs = _find_shared(rows, ends[0][kept], ends[1][kept], times[kept], is_small)
    return _subsample(pairs, generator)


def _all_wedges(key_degree: Tensor, by_key: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of edges with the same key, lower index first: their queries share the key."""
    start = key_degree.cumsum(0) - key_degree
    rank = torch.arange(len(by_key)) - start.repeat_interleave(
        key_degree
    )  # among the edges of its key
    later = by_key.repeat_interleave(rank)
    base = start.repeat_interleave(key_degree).repeat_interleave(rank)
    offset = torch.arange(len(later)) - (rank.cumsum(0) - rank).repeat_interleave(rank)
    return by_key[base + offset], later


def _sample_wedges(
    key_degree: Tensor, by_key: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A random sample of the pairs of `_all_wedges`."""
    wedges = (key_degree.double() * (key_degree - 1) / 2).cumsum(0)
    drawn = torch.rand(8 * MAX_PAIRS, generator=generator, dtype=torch.double) * wedges[-1]
    key = torch.searchsorted(wedges, drawn, right=True).clamp_max(len(key_degree) - 1)
    one = (
        (torch.rand(len(key), generator=generator) * key_degree[key])
        .long()
        .clamp_max(key_degree[key] - 1)
    )
    step = (torch.rand(len(key), generator=generator) * (key_degree[key] - 1)).long()
    other = (one + 1 + step.clamp_max(key_degree[key] - 2)) % key_degree[key]
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    start = (key_degree.cumsum(0) - key_degree)[key]
    return by_key[start + low], by_key[start + high]


def _find_shared(rows: Rows, first: Tensor, second: Tensor, times: Tensor, is_exact: bool) -> Pairs:
    """Look up the keys of the query with fewer keys among those of the other query."""
    degree, code = rows.degree, rows.code
    swap = degree[first] > degree[second]
    few, many = torch.where(swap, second, first), torch.where(swap, first, second)
    width = degree[few]
    pair = torch.arange(len(few)).repeat_interleave(width)
    offset = torch.arange(len(pair)) - (width.cumsum(0) - width).repeat_interleave(width)
    edge = rows.rowptr[few].repeat_interleave(width) + offset
    target = many[pair] * rows.num_keys + rows.key[edge]
    other = torch.searchsorted(code, target).clamp_max(max(0, len(code) - 1))
    is_shared = code[other] == target
    pair, edge, other = pair[is_shared], edge[is_shared], other[is_shared]
    shared = torch.bincount(pair, minlength=len(few))
    # A pair may be sampled once for each key it shares; the weight corrects for this.
    share = torch.ones(len(few)) if is_exact else times / shared.clamp_min(1)
    compared = torch.arange(len(pair))
    pairs = Pairs(few, many, share.float(), pair, torch.stack([edge, other]), compared, is_exact)
    return _take(pairs, (shared >= 2).nonzero()[:, 0])


def _subsample(pairs: Pairs, generator: torch.Generator) -> Pairs:
    """At most MAX_PAIRS pairs and MAX_KEYS shared keys, at most MAX_SHARED of them compared."""
    is_exact = pairs.is_exact
    if len(pairs) > MAX_PAIRS or len(pairs.pair) > MAX_KEYS:
        chosen = torch.randperm(len(pairs), generator=generator)[:MAX_PAIRS]
        shared = torch.bincount(pairs.pair, minlength=len(pairs))[chosen]
        chosen = chosen[shared.cumsum(0) <= MAX_KEYS].sort().values
        pairs, is_exact = _take(pairs, chosen), False
    order = torch.rand(len(pairs.pair), generator=generator).argsort()
    order = order[torch.sort(pairs.pair[order], stable=True).indices]  # by pair, shuffled within
    count = torch.bincount(pairs.pair, minlength=len(pairs))
    rank = torch.arange(len(order)) - (count.cumsum(0) - count)[pairs.pair[order]]
    kept = order[rank < MAX_SHARED].sort().values
    is_exact = is_exact and len(kept) == len(order)
    return replace(pairs, compared=kept, is_exact=is_exact)


def _take(pairs: Pairs, chosen: Tensor) -> Pairs:
    index = torch.full((len(pairs),), -1)
    index[chosen] = torch.arange(len(chosen))
    kept = index[pairs.pair] >= 0
    first, second, share = (each[chosen] for each in (pairs.first, pairs.second, pairs.share))
    pair, edge = index[pairs.pair[kept]], pairs.edge[:, kept]
    return Pairs(first, second, share, pair, edge, torch.arange(len(pair)), pairs.is_exact)


def _covariances(rows: Rows, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Per pair and head, [P, H]: the covariance of the two queries' attention over the keys they
    share, times the number of these keys; and the largest possible one."""
    count = torch.bincount(pairs.pair, minlength=len(pairs))
    begin = count.cumsum(0) - count
    per_edge = rows.weight / rows.times[:, None]  # of parallel edges, the mean
    result = torch.zeros(2, len(pairs), rows.num_heads, dtype=torch.double)
    for size in count.unique().tolist():
        for some in (count == size).nonzero()[:, 0].split(max(1, 1_000_000 // size)):
            edge = pairs.edge[:, begin[some, None] + torch.arange(size)]  # [2, p, size]
            score, weight = rows.score[edge], per_edge[edge].double()  # [2, p, size, H]
            weight -= weight.mean(2, keepdim=True)
            by_second = score[1].argsort(dim=1, stable=True)
            first, second = (each.gather(1, by_second) for each in weight)
            # Ties of the first query are in the order of the second.
            order = score[0].gather(1, by_second).argsort(dim=1, stable=True)
            first, moved = (each.gather(1, order) for each in (first, second))
            most = (first * second).sum(1).clamp_min(0)
            actual = torch.minimum((first * moved).sum(1), most)
            result[0, some] = torch.where(_is_ascending(score[1], by_second, order), most, actual)
            result[1, some] = most
    covariance, largest = result
    return covariance, largest


def _is_ascending(score: Tensor, *orders: Tensor) -> Tensor:
    """[p, size, H] -> [p, H]: are the scores ascending in this order? Then both queries have the
    same order, whatever the rounding of their weights."""
    for order in orders:
        score = score.gather(1, order)
    return (score[:, 1:] >= score[:, :-1]).all(1)


def _taus(rows: Rows, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """τ of each pair and head, [P, H]; and whether any comparison is not a tie (else τ is 0)."""
    count = torch.bincount(pairs.pair[pairs.compared], minlength=len(pairs))
    begin = count.cumsum(0) - count
    tau = torch.zeros(len(pairs), rows.num_heads)
    is_comparable = torch.zeros(len(pairs), rows.num_heads)
    for size in count.unique().tolist():
        for some in (count == size).nonzero()[:, 0].split(max(1, 4_000_000 // size**2)):
            at = pairs.compared[begin[some, None] + torch.arange(size)]  # [p, size]
            left, right = (rows.score[pairs.edge[side, at]] for side in (0, 1))  # [p, size, H]
            upper = torch.triu_indices(size, size, 1)
            both = signs(left[:, upper[0]], left[:, upper[1]])
            both *= signs(right[:, upper[0]], right[:, upper[1]])
            total = both.abs().sum(1)
            tau[some] = both.sum(1) / total.clamp_min(1)
            is_comparable[some] = (total > 0).float()
    return tau, is_comparable


def _choices(rows: Rows, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Do both queries rank the same key first, among pairs in which each has the other's first
    choice as a key? [P, H] each: is it the same, and is this such a pair?"""
    is_first = rows.is_first
    # Over all shared keys: in a subset, equal choices would be over-represented.
    kept = is_first.any(1)[pairs.edge].any(0)
    left, right = (is_first[pairs.edge[side, kept]] for side in (0, 1))  # [firsts, H]
    counted = torch.zeros(len(pairs), rows.num_heads)
    either, other, both = (
        counted.index_add(0, pairs.pair[kept], each.float()) > 0
        for each in (left, right, left & right)
    )
    could_be = either & other
    return (both & could_be).float(), could_be.float()
