"""One ranking of all keys, and how many of the queries' own comparisons it explains."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows
from dynagat.native import kernels

MAX_COMPARISONS = 1_000_000  # up to so many all are made
MAX_QUERIES = 10_000  # else so many queries are drawn,
MAX_OF_QUERY = 64  # and so many comparisons of each


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Within a query, which of two keys is ranked higher? In a large graph, a sample of these."""

    query: Tensor  # [M]
    edge: Tensor  # [2, M]: the edges to the two keys
    share: Tensor  # [M]: so much that those of a query sum to one
    is_exact: bool

    def signs(self, rows: Rows) -> Tensor:
        """[M, H]: 1 if the first is ranked higher, -1 if the second, 0 if they are equal."""
        return (rows.score[self.edge[0]] - rows.score[self.edge[1]]).sign()


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

    Of two rankings the better: that by the preferences of all queries, and that by `effects`
    [K, H], the keys' share in the scores.
    """
    signs = comparisons.signs(rows)
    candidates = [rank_keys(rows), effects.argsort(0, descending=True).argsort(0)]
    shares = [_told(rows, comparisons, signs, places) for places in candidates]
    totals = torch.stack([(share * comparisons.share[:, None]).sum(0) for share in shares])
    best = totals.argmax(0)
    places = torch.stack(candidates)[best, :, torch.arange(rows.num_heads)].T
    places = _improved(rows, comparisons, signs, places)
    right = _told(rows, comparisons, signs, places)
    above, below = (_by_query(rows, comparisons, each) for each in (right, signs.abs()))
    return draws.ratio(above, below), places


def rank_keys(rows: Rows) -> Tensor:
    """[K, H]: the place of each key, such that few queries' rankings contradict it; none, if none
    need to."""
    if kernels is None:
        columns = [_rank_in_python(rows, head) for head in range(rows.num_heads)]
        return torch.stack(columns, dim=1)
    arrays = [rows.rowptr.int(), rows.key.int(), rows.score.T.double().contiguous()]
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
    """With few keys: move each to where it contradicts least, until none can be moved."""
    if rows.num_keys > 128:
        return places
    first, second = (rows.key[edge] for edge in comparisons.edge)
    found = []
    for head in range(rows.num_heads):
        wins = torch.zeros(rows.num_keys, rows.num_keys, dtype=torch.double)
        value = (signs[:, head] * comparisons.share).double()
        wins.index_put_((first, second), value, accumulate=True)
        order = places[:, head].argsort().tolist()
        found.append(torch.tensor(_settled(order, wins - wins.T)).argsort())
    return torch.stack(found, dim=1)


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


def _rank_in_python(rows: Rows, head: int) -> Tensor:
    """What csrc/ranking.h does, with a heap: see there."""
    after, before = _preferences(rows, head)
    surplus = {node: len(after[node]) - len(before[node]) for node in {*after, *before}}
    heap = [(-value, node) for node, value in surplus.items()]
    heapq.heapify(heap)
    sinks = [node for node in surplus if not after[node]]
    sources = [node for node in surplus if not before[node]]
    front, back, gone = [], [], set()

    def remove(node: int) -> None:
        gone.add(node)
        for ways, opposite, ends, step in ((after, before, sources, 1), (before, after, sinks, -1)):
            for other in ways[node]:
                if other not in gone:
                    opposite[other].remove(node)
                    surplus[other] += step
                    heapq.heappush(heap, (-surplus[other], other))
                    if not opposite[other]:
                        ends.append(other)

    while len(gone) < len(surplus):
        side, ends = (back, sinks) if sinks else (front, sources)
        node = ends.pop() if ends else heapq.heappop(heap)[1]
        if node in gone:
            continue
        side.append(node)
        remove(node)
    ranked = [node for node in (*front, *reversed(back)) if node < rows.num_keys]
    rest = sorted(set(range(rows.num_keys)) - set(ranked))
    return torch.tensor(ranked + rest).argsort()


def _preferences(rows: Rows, head: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """The nodes that come after each node, and before each, some more than once."""
    after, before, extra = defaultdict(list), defaultdict(list), rows.num_keys

    def link(better: int, worse: int) -> None:
        after[better].append(worse)
        before[worse].append(better)

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
