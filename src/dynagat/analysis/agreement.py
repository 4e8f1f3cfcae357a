"""Do two queries rank the keys they share alike? Kendall's τ, and whether they choose the same key.

For queries i, i' and the keys they share, τ = (concordant - discordant) / (concordant + discordant)
over pairs of keys that neither ranks equal. Static attention has no discordant pair: τ = 1 exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows, signs

MAX_WEDGES = 1_000_000  # up to so many (query, key, query) all pairs are looked at
MAX_PAIRS = 20_000
MAX_SHARED = 32  # keys of a pair that are compared, drawn if it shares more


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of queries that share two keys or more, and the edges at which they share them."""

    first: Tensor  # [P]: a query
    second: Tensor  # [P]
    share: Tensor  # [P]: how much each counts, if pairs were not drawn evenly
    pair: Tensor  # [S]: the pair that shares, ascending
    edge: Tensor  # [2, S]: the edge of each of the two to the shared key
    compared: Tensor  # [C]: those of the S whose order is compared
    is_exact: bool

    def __len__(self) -> int:
        return len(self.first)


def agreement(rows: Rows, pairs: Pairs, draws: Resampling) -> tuple[list[Estimate], list[Estimate]]:
    """Per head: the mean τ over pairs; and the share of pairs that choose the same key, of those
    in which either could have had the other's choice."""
    tau, is_comparable = _taus(rows, pairs)
    is_same, could_be = _choices(rows, pairs)
    share = pairs.share[:, None]
    ends = pairs.first, pairs.second
    return (
        draws.pairs(tau * share, is_comparable * share, *ends),
        draws.pairs(is_same * share, could_be * share, *ends),
    )


def find_pairs(rows: Rows, seed: int = 0) -> Pairs:
    """All pairs of queries that share two keys or more, or a sample of them in a large graph."""
    generator = torch.Generator().manual_seed(seed)
    by_key = torch.sort(rows.key, stable=True).indices  # the edges of each key
    fan = torch.bincount(rows.key, minlength=rows.num_keys)  # [K]
    num_wedges = int((fan * (fan - 1) // 2).sum())
    is_small = num_wedges <= MAX_WEDGES
    first, second = _all(fan, by_key) if is_small else _drawn(fan, by_key, generator)
    query = rows.query
    code, times = torch.unique(query[first] * rows.num_queries + query[second], return_counts=True)
    ends = code // max(1, rows.num_queries), code % max(1, rows.num_queries)
    kept = ends[0] != ends[1]
    pairs = _meet(rows, ends[0][kept], ends[1][kept], times[kept], is_small)
    return _thinned(pairs, generator)


def _all(fan: Tensor, by_key: Tensor) -> tuple[Tensor, Tensor]:
    """Every two edges of the same key, the lower first: both end at queries that share it."""
    start = fan.cumsum(0) - fan
    turn = torch.arange(len(by_key)) - start.repeat_interleave(fan)  # place among the key's edges
    later = by_key.repeat_interleave(turn)
    base = start.repeat_interleave(fan).repeat_interleave(turn)
    count = torch.arange(len(later)) - (turn.cumsum(0) - turn).repeat_interleave(turn)
    return by_key[base + count], later


def _drawn(fan: Tensor, by_key: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """So many of them at random, ordered as above."""
    wedges = (fan.double() * (fan - 1) / 2).cumsum(0)
    where = torch.rand(8 * MAX_PAIRS, generator=generator, dtype=torch.double) * wedges[-1]
    key = torch.searchsorted(wedges, where, right=True).clamp_max(len(fan) - 1)
    one = (torch.rand(len(key), generator=generator) * fan[key]).long().clamp_max(fan[key] - 1)
    step = (torch.rand(len(key), generator=generator) * (fan[key] - 1)).long()
    other = (one + 1 + step.clamp_max(fan[key] - 2)) % fan[key]
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    start = (fan.cumsum(0) - fan)[key]
    return by_key[start + low], by_key[start + high]


def _meet(rows: Rows, first: Tensor, second: Tensor, times: Tensor, is_exact: bool) -> Pairs:
    """The keys that two queries share: those of the one with fewer, looked up in the other's."""
    degree, code = rows.degree, rows.code
    swap = degree[first] > degree[second]
    few, many = torch.where(swap, second, first), torch.where(swap, first, second)
    width = degree[few]
    pair = torch.arange(len(few)).repeat_interleave(width)
    place = torch.arange(len(pair)) - (width.cumsum(0) - width).repeat_interleave(width)
    mine = rows.rowptr[few].repeat_interleave(width) + place
    wanted = many[pair] * rows.num_keys + rows.key[mine]
    theirs = torch.searchsorted(code, wanted).clamp_max(max(0, len(code) - 1))
    found = code[theirs] == wanted
    pair, mine, theirs = pair[found], mine[found], theirs[found]
    shared = torch.bincount(pair, minlength=len(few))
    # A pair is met once for each key it shares, so it counts the less the more it shares.
    share = torch.ones(len(few)) if is_exact else times / shared.clamp_min(1)
    every = torch.arange(len(pair))
    pairs = Pairs(few, many, share.float(), pair, torch.stack([mine, theirs]), every, is_exact)
    return _take(pairs, (shared >= 2).nonzero()[:, 0])


def _thinned(pairs: Pairs, generator: torch.Generator) -> Pairs:
    """No more than MAX_PAIRS pairs, and of each no more than MAX_SHARED keys to compare."""
    is_exact = pairs.is_exact
    if len(pairs) > MAX_PAIRS:
        chosen = torch.randperm(len(pairs), generator=generator)[:MAX_PAIRS].sort().values
        pairs, is_exact = _take(pairs, chosen), False
    order = torch.rand(len(pairs.pair), generator=generator).argsort()
    order = order[torch.sort(pairs.pair[order], stable=True).indices]  # by pair, shuffled within
    count = torch.bincount(pairs.pair, minlength=len(pairs))
    turn = torch.arange(len(order)) - (count.cumsum(0) - count)[pairs.pair[order]]
    kept = order[turn < MAX_SHARED].sort().values
    is_exact = is_exact and len(kept) == len(order)
    return replace(pairs, compared=kept, is_exact=is_exact)


def _take(pairs: Pairs, chosen: Tensor) -> Pairs:
    number = torch.full((len(pairs),), -1)
    number[chosen] = torch.arange(len(chosen))
    kept = number[pairs.pair] >= 0
    first, second, share = (each[chosen] for each in (pairs.first, pairs.second, pairs.share))
    pair, edge = number[pairs.pair[kept]], pairs.edge[:, kept]
    return Pairs(first, second, share, pair, edge, torch.arange(len(pair)), pairs.is_exact)


def _taus(rows: Rows, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """τ of each pair and head, [P, H], 0 where no comparison is left; and whether one is."""
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
    """Do they choose the same key, and could each have had the other's choice? [P, H] twice"""
    is_first = rows.is_first
    # Of all keys that are shared: among a few, equal choices would be met oftener than others.
    kept = is_first.any(1)[pairs.edge].any(0)
    left, right = (is_first[pairs.edge[side, kept]] for side in (0, 1))  # [firsts, H]
    counted = torch.zeros(len(pairs), rows.num_heads)
    either, other, both = (
        counted.index_add(0, pairs.pair[kept], each.float()) > 0
        for each in (left, right, left & right)
    )
    could_be = either & other
    return (both & could_be).float(), could_be.float()
