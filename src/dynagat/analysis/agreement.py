"""Do two queries rank their shared keys in the same order? Kendall's τ, weighted by attention and
plain, and the same first choice.

For two queries and the keys they share, τ = (concordant - discordant) / (concordant + discordant)
over comparisons of keys that are tied in neither ranking. The plain τ counts comparisons. The
weighted τ adds up the attention at stake in them: for queries i and i' and keys a and b,

    stake = |α_ia - α_ib| · |α_i'a - α_i'b|

so that the order of keys with nearly equal weights hardly matters. A pair of queries counts in the
mean of weighted τ by √(largest stake of its comparisons), in the mean of plain τ like every other.
Static attention has no discordant comparison, so both τ are exactly 1.
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
MAX_SHARED = 32  # keys compared per pair; a random subset if it shares more
TINY = torch.finfo(torch.float32).tiny


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

    weighted: list[Estimate]  # mean weighted τ over pairs of queries
    num_pairs: list[int]  # effective number of pairs behind it
    plain: list[Estimate]  # mean τ
    same_choice: list[Estimate]  # see `_choices`


def agreement(rows: Rows, pairs: Pairs, resampling: Resampling) -> Agreement:
    """Compare the rankings of the two queries of each pair."""
    weighted, stake, plain, is_comparable = _taus(rows, pairs)
    is_same, could_be = _choices(rows, pairs)
    share = pairs.share[:, None]
    stake, is_comparable, could_be = (each * share for each in (stake, is_comparable, could_be))

    def mean(values: Tensor, weights: Tensor) -> list[Estimate]:
        return resampling.pairs(values * weights, weights, pairs.first, pairs.second)

    return Agreement(
        mean(weighted, stake),
        _effective_count(stake),
        mean(plain, is_comparable),
        mean(is_same, could_be),
    )


def _effective_count(stake: Tensor) -> list[int]:
    """(Σ stake)² / Σ stake² per head: the number of pairs if all have the same stake."""
    relative = (stake / stake.amax(0).clamp_min(TINY)).double() if len(stake) else stake
    count = relative.sum(0).square() / relative.square().sum(0).clamp_min(1)
    return count.round().long().tolist()


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
    """At most MAX_PAIRS pairs, with at most MAX_SHARED compared keys each."""
    is_exact = pairs.is_exact
    if len(pairs) > MAX_PAIRS:
        chosen = torch.randperm(len(pairs), generator=generator)[:MAX_PAIRS].sort().values
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


def _taus(rows: Rows, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per pair and head, [P, H]: weighted τ and its stake; plain τ, and whether any comparison is
    not a tie. A τ is 0 if it is undefined."""
    count = torch.bincount(pairs.pair[pairs.compared], minlength=len(pairs))
    begin = count.cumsum(0) - count
    result = torch.zeros(4, len(pairs), rows.num_heads)
    for size in count.unique().tolist():
        upper = torch.triu_indices(size, size, 1)
        for some in (count == size).nonzero()[:, 0].split(max(1, 1_000_000 // size**2)):
            at = pairs.compared[begin[some, None] + torch.arange(size)]  # [p, size]
            sides = [_compare(rows, pairs.edge[side, at], upper) for side in (0, 1)]
            (left, left_gap), (right, right_gap) = sides
            both, gaps = left * right, left_gap * right_gap  # [p, comparisons, H]
            stakes = gaps * both.abs()
            total, staked = both.abs().sum(1), stakes.sum(1)
            result[0, some] = torch.where(staked > 0, (both * gaps).sum(1) / staked, 0)
            result[1, some] = stakes.amax(1).sqrt()
            result[2, some] = both.sum(1) / total.clamp_min(1)
            result[3, some] = (total > 0).float()
    weighted, stake, plain, is_comparable = result
    return weighted, stake, plain, is_comparable


def _compare(rows: Rows, edge: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The comparisons of some edges of a query, [p, size] -> [p, comparisons, H]: which key has
    the higher score, and the difference of the weights."""
    score, weight = rows.score[edge], rows.weight[edge].float()
    gap = (weight[:, upper[0]] - weight[:, upper[1]]).abs_()
    return signs(score[:, upper[0]], score[:, upper[1]]), gap


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
