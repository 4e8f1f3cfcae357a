"""One ranking of all keys, and how many of the queries' own comparisons it explains."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows, signs
from dynagat.native import kernels

MAX_COMPARISONS = 1_000_000  # up to so many all are made
MAX_QUERIES = 10_000  # else so many queries are drawn,
MAX_OF_QUERY = 64  # and so many comparisons of each
FEW_KEYS = 10  # up to so many all orders are searched


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Within a query, which of two keys is ranked higher? In a large graph, a sample of these."""

    query: Tensor  # [M]
    edge: Tensor  # [2, M]: the edges to the two keys
    share: Tensor  # [M]: so much that those of a query sum to one
    is_exact: bool

    def signs(self, rows: Rows) -> Tensor:
        """[M, H]: 1 if the first is ranked higher, -1 if the second, 0 if they are equal."""
        return signs(rows.score[self.edge[0]], rows.score[self.edge[1]])


def find_comparisons(rows: Rows, seed: int = 0) -> Comparisons:
    """All, or, of the queries with two keys or more, some of some."""
    generator = torch.Generator().manual_seed(seed)
    count = rows.degree * (rows.degree - 1) // 2
    is_exact = int(count.sum()) <= MAX_COMPARISONS
    queries = (count > 0).nonzero()[:, 0]
    if not is_exact:
        chosen = torch.randperm(len(queries), generator=generator)[:MAX_QUERIES]
        queries = queries[chosen.sort().values]
    few = count[queries] if is_exact else count[queries].clamp_max(MAX_OF_QUERY)
    query = queries.repeat_interleave(few)
    turn = torch.arange(len(query)) - (few.cumsum(0) - few).repeat_interleave(few)
    drawn = torch.rand(len(query), generator=generator, dtype=torch.double) * count[query]
    number = torch.where(few.repeat_interleave(few) < count[query], drawn.long(), turn)
    edge = _unrank(number) + rows.rowptr[query]
    return Comparisons(query, edge, 1 / few.repeat_interleave(few), is_exact)


def _unrank(number: Tensor) -> Tensor:
    """The n-th of the pairs (0, 1), (0, 2), (1, 2), (0, 3), ..: [2, M]"""
    high = ((1 + (1 + 8 * number.double()).sqrt()) / 2).long()
    high -= (high * (high - 1) // 2 > number).long()  # where the root was rounded up
    high += (high * (high + 1) // 2 <= number).long()
    return torch.stack([number - high * (high - 1) // 2, high])


def explained(
    rows: Rows, comparisons: Comparisons, effects: Tensor, draws: Resampling
) -> tuple[list[Estimate], Tensor]:
    """Per head: the share of comparisons that one ranking of all keys explains; and the places of
    the keys in it, [K, H], 0 for the best. Each query counts alike.

    Args:
        effects: [K, H], the keys' share in the scores, by which contradictions are settled.
    """
    signs = comparisons.signs(rows)
    places = _improved(rows, comparisons, signs, rank_keys(rows, effects))
    right = _told(rows, comparisons, signs, places)
    above, below = (_by_query(rows, comparisons, each) for each in (right, signs.abs()))
    return draws.ratio(above, below), places


def rank_keys(rows: Rows, effects: Tensor) -> Tensor:
    """[K, H]: the place of each key in an order that no query's ranking contradicts, if there is
    one; where there is a choice or a contradiction, keys of larger effect [K, H] go first."""
    if kernels is None:
        columns = [_rank_in_python(rows, effects, head) for head in range(rows.num_heads)]
        return torch.stack(columns, dim=1)
    arrays = [rows.rowptr.int(), rows.key.int()]
    arrays += [each.T.double().contiguous() for each in (rows.score, effects)]
    places = torch.zeros(rows.num_heads, rows.num_keys, dtype=torch.int32)
    kernels.rank(
        arrays=[array.data_ptr() for array in (*arrays, places)],
        queries=rows.num_queries,
        keys=rows.num_keys,
        edges=len(rows.key),
        heads=rows.num_heads,
        threads=torch.get_num_threads(),
    )
    return places.T.long()


def _told(rows: Rows, comparisons: Comparisons, signs: Tensor, places: Tensor) -> Tensor:
    """[M, H]: is the comparison, if it has a winner, as the places say?"""
    first, second = (places[rows.key[edge]] for edge in comparisons.edge)
    return ((second - first).sign() * signs > 0).to(signs.dtype)


def _by_query(rows: Rows, comparisons: Comparisons, values: Tensor) -> Tensor:
    """[M, H] -> [Q, H]: the mean over each query's comparisons."""
    zeros = torch.zeros(rows.num_queries, values.shape[1])
    return zeros.index_add(0, comparisons.query, values.float() * comparisons.share[:, None])


def _improved(rows: Rows, comparisons: Comparisons, signs: Tensor, places: Tensor) -> Tensor:
    """With few keys: the best of all orders; with some: move each key to where it contradicts
    least, until none can be moved."""
    if rows.num_keys > 128:
        return places
    first, second = (rows.key[edge] for edge in comparisons.edge)
    found = []
    for head in range(rows.num_heads):
        wins = torch.zeros(rows.num_keys, rows.num_keys, dtype=torch.double)
        value = (signs[:, head] * comparisons.share).double()
        wins.index_put_((first, second), value, accumulate=True)
        if rows.num_keys <= FEW_KEYS:
            order = _best_order((wins - wins.T).tolist())
        else:
            order = _settled(places[:, head].argsort().tolist(), wins - wins.T)
        found.append(torch.tensor(order, dtype=torch.long).argsort())
    return torch.stack(found, dim=1)


def _best_order(net: list[list[float]]) -> list[int]:
    """Set by set of the keys that come first: which of them is best the last?"""
    keys = range(len(net))
    worth, last = [0.0] * (1 << len(net)), [0] * (1 << len(net))
    for some in range(1, 1 << len(net)):
        there = [key for key in keys if some >> key & 1]
        worth[some], last[some] = max(
            (worth[some ^ 1 << key] + sum(net[other][key] for other in there), key) for key in there
        )
    order, some = [], (1 << len(net)) - 1
    while some:
        order.append(last[some])
        some ^= 1 << last[some]
    return order[::-1]


def _settled(order: list[int], net: Tensor) -> list[int]:
    """net[a, b]: by how much a is preferred to b."""
    for _ in range(len(order)):
        moved = False
        for key in list(order):
            others = [each for each in order if each != key]
            gain = net[key, others]  # what it is worth to stand before each of the others
            worth = torch.cat([gain.new_zeros(1), (-gain).cumsum(0)])  # at place 0, 1, ..
            here = order.index(key)
            best = int(worth.argmax())
            if worth[best] > worth[here] + 1e-9:
                others.insert(best, key)
                order, moved = others, True
        if not moved:
            return order
    return order


def _rank_in_python(rows: Rows, effects: Tensor, head: int) -> Tensor:
    """What csrc/ranking.h does: see there."""
    after, waits = _preferences(rows, head)
    by_effect = effects[:, head].argsort(descending=True, stable=True).tolist()
    rank = {key: place for place, key in enumerate(by_effect)}
    free = [rank[key] for key in by_effect if not waits[key]]
    order: list[int] = []
    gone: set[int] = set()
    left = iter(by_effect)
    while len(order) < rows.num_keys:
        chosen = by_effect[heapq.heappop(free)] if free else next(key for key in left
                                                                  if key not in gone)  # fmt: skip
        if chosen in gone:
            continue
        order.append(chosen)
        leaving = [chosen]
        while leaving:
            node = leaving.pop()
            gone.add(node)
            for other in after[node]:
                waits[other] -= 1
                if waits[other] == 0 and other not in gone:
                    if other < rows.num_keys:
                        heapq.heappush(free, rank[other])
                    else:
                        leaving.append(other)
    return torch.tensor(order).argsort()


def _preferences(rows: Rows, head: int) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The nodes after each node, some more than once, and how many are before each."""
    after: dict[int, list[int]] = defaultdict(list)
    before: dict[int, int] = defaultdict(int)
    extra = rows.num_keys

    def link(better: int, worse: int) -> None:
        after[better].append(worse)
        before[worse] += 1

    for begin, end in zip(rows.rowptr[:-1].tolist(), rows.rowptr[1:].tolist(), strict=True):
        groups: dict[float, list[int]] = defaultdict(list)
        for key, score in zip(
            rows.key[begin:end].tolist(), rows.score[begin:end, head].tolist(), strict=True
        ):
            groups[score].append(key)
        ranked = [groups[score] for score in sorted(groups, reverse=True)]
        for one, two in pairwise(ranked):
            for key in one:
                link(key, extra)
            for key in two:
                link(extra, key)
            extra += 1
    return after, before
