"""One ranking of all keys, and the fraction of the queries' own comparisons that it explains."""

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

MAX_COMPARISONS = 1_000_000  # up to this many, all comparisons are used
MAX_QUERIES = 10_000  # otherwise, a sample of this many queries
MAX_OF_QUERY = 64  # and this many comparisons per query
FEW_KEYS = 10  # up to this many keys, the best of all orders is computed
SOME_KEYS = 128  # up to this many, the order is improved by moving single keys


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Pairs of keys of the same query; in a large graph, a sample of them."""

    query: Tensor  # [M]
    edge: Tensor  # [2, M]: the edges to the two keys
    share: Tensor  # [M]: weights that sum to one within each query
    is_exact: bool

    def signs(self, rows: Rows) -> Tensor:
        """[M, H]: 1 if the first key is ranked higher, -1 if the second, 0 if they are tied."""
        return signs(rows.score[self.edge[0]], rows.score[self.edge[1]])


def find_comparisons(rows: Rows, seed: int = 0) -> Comparisons:
    """All comparisons, or a sample of them in a large graph."""
    generator = torch.Generator().manual_seed(seed)
    count = rows.degree * (rows.degree - 1) // 2
    is_exact = int(count.sum()) <= MAX_COMPARISONS
    queries = (count > 0).nonzero()[:, 0]
    if not is_exact:
        chosen = torch.randperm(len(queries), generator=generator)[:MAX_QUERIES]
        queries = queries[chosen.sort().values]
    size = count[queries] if is_exact else count[queries].clamp_max(MAX_OF_QUERY)
    query = queries.repeat_interleave(size)
    position = torch.arange(len(query)) - (size.cumsum(0) - size).repeat_interleave(size)
    drawn = torch.rand(len(query), generator=generator, dtype=torch.double) * count[query]
    sizes = size.repeat_interleave(size)
    index = torch.where(sizes < count[query], drawn.long(), position)
    edge = _unrank(index) + rows.rowptr[query]
    return Comparisons(query, edge, 1 / sizes, is_exact)


def _unrank(index: Tensor) -> Tensor:
    """[M] -> [2, M]: the pairs at these positions in (0, 1), (0, 2), (1, 2), (0, 3), ..."""
    high = ((1 + (1 + 8 * index.double()).sqrt()) / 2).long()
    high -= (high * (high - 1) // 2 > index).long()  # if the root was rounded up
    high += (high * (high + 1) // 2 <= index).long()
    return torch.stack([index - high * (high - 1) // 2, high])


def explained(
    rows: Rows, comparisons: Comparisons, effects: Tensor, resampling: Resampling
) -> tuple[list[Estimate], Tensor]:
    """Per head: the fraction of comparisons that one ranking of all keys explains, where each query
    counts equally; and the position of each key in that ranking, [K, H], 0 for the best.

    Args:
        effects: [K, H], the keys' effects on the scores, which decide contradictions.
    """
    signs = comparisons.signs(rows)
    positions = _improve(rows, comparisons, signs, rank_keys(rows, effects))
    correct = _is_predicted(rows, comparisons, signs, positions)
    above, below = (_by_query(rows, comparisons, each) for each in (correct, signs.abs()))
    return resampling.ratio(above, below), positions


def rank_keys(rows: Rows, effects: Tensor) -> Tensor:
    """[K, H]: the position of each key in an order that no query's ranking contradicts, if such an
    order exists. Ties and contradictions are decided by `effects` [K, H], larger first."""
    if kernels is None:
        columns = [_rank_in_python(rows, effects, head) for head in range(rows.num_heads)]
        return torch.stack(columns, dim=1)
    arrays = [rows.rowptr.int(), rows.key.int()]
    arrays += [each.T.double().contiguous() for each in (rows.score, effects)]
    positions = torch.zeros(rows.num_heads, rows.num_keys, dtype=torch.int32)
    kernels.rank(
        arrays=[array.data_ptr() for array in (*arrays, positions)],
        queries=rows.num_queries,
        keys=rows.num_keys,
        edges=len(rows.key),
        heads=rows.num_heads,
        threads=torch.get_num_threads(),
    )
    return positions.T.long()


def _is_predicted(rows: Rows, comparisons: Comparisons, signs: Tensor, positions: Tensor) -> Tensor:
    """[M, H]: does the ranking predict this comparison? Ties count as no."""
    first, second = (positions[rows.key[edge]] for edge in comparisons.edge)
    return ((second - first).sign() * signs > 0).to(signs.dtype)


def _by_query(rows: Rows, comparisons: Comparisons, values: Tensor) -> Tensor:
    """[M, H] -> [Q, H]: the mean over each query's comparisons."""
    zeros = torch.zeros(rows.num_queries, values.shape[1])
    return zeros.index_add(0, comparisons.query, values.float() * comparisons.share[:, None])


def _improve(rows: Rows, comparisons: Comparisons, signs: Tensor, positions: Tensor) -> Tensor:
    """Up to FEW_KEYS keys: the best of all orders. Up to SOME_KEYS: move single keys to where they
    contradict the fewest comparisons, until no move helps."""
    if rows.num_keys > SOME_KEYS:
        return positions
    first, second = (rows.key[edge] for edge in comparisons.edge)
    columns = []
    for head in range(rows.num_heads):
        wins = torch.zeros(rows.num_keys, rows.num_keys, dtype=torch.double)
        value = (signs[:, head] * comparisons.share).double()
        wins.index_put_((first, second), value, accumulate=True)
        if rows.num_keys <= FEW_KEYS:
            order = _best_order((wins - wins.T).tolist())
        else:
            order = _local_search(positions[:, head].argsort().tolist(), wins - wins.T)
        columns.append(torch.tensor(order, dtype=torch.long).argsort())
    return torch.stack(columns, dim=1)


def _best_order(net: list[list[float]]) -> list[int]:
    """Dynamic programming over sets of keys: which key is best placed last in each set?"""
    keys = range(len(net))
    worth, last = [0.0] * (1 << len(net)), [0] * (1 << len(net))
    for mask in range(1, 1 << len(net)):
        members = [key for key in keys if mask >> key & 1]
        worth[mask], last[mask] = max(
            (worth[mask ^ 1 << key] + sum(net[other][key] for other in members), key)
            for key in members
        )
    order, mask = [], (1 << len(net)) - 1
    while mask:
        order.append(last[mask])
        mask ^= 1 << last[mask]
    return order[::-1]


def _local_search(order: list[int], net: Tensor) -> list[int]:
    """Move single keys while it helps; net[a, b] is how much a is preferred to b."""
    for _ in range(len(order)):
        moved = False
        for key in list(order):
            others = [each for each in order if each != key]
            gain = net[key, others]  # gain from being before each of the others
            worth = torch.cat([gain.new_zeros(1), (-gain).cumsum(0)])  # at position 0, 1, ...
            here = order.index(key)
            best = int(worth.argmax())
            if worth[best] > worth[here] + 1e-9:
                others.insert(best, key)
                order, moved = others, True
        if not moved:
            return order
    return order


def _rank_in_python(rows: Rows, effects: Tensor, head: int) -> Tensor:
    """The algorithm of csrc/ranking.h, which explains it."""
    after, waits = _preferences(rows, head)
    by_effect = effects[:, head].argsort(descending=True, stable=True).tolist()
    rank = {key: position for position, key in enumerate(by_effect)}
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
    """The successors of each node, with repetitions, and its number of predecessors."""
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
