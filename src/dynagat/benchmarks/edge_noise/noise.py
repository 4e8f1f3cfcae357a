"""add_noise: random edges that a graph does not have, added to it (section 4.2, Figure 4).

As in the paper's code, n = int(⌊E/2⌋ · ratio) pairs {i, j} are added to E directed edges, each in
both directions. A self-loop counts as one edge.

The result depends on the edges and the seed alone: numpy guarantees that PCG64 gives the same
64-bit numbers for a seed on every machine and in every version. For one seed, the pairs of a small
ratio are the first of those of a larger one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import PCG64

from dynagat.data.store import Edges, GraphData

NUM_VALUES = 2**64  # of a number of PCG64


def add_noise(data: GraphData, ratio: float, seed: int) -> tuple[GraphData, np.ndarray]:
    """The graph with n = int(⌊E/2⌋ · ratio) more pairs, and a mask [E + 2n] of the added edges.

    Pairs are drawn uniformly without replacement from the {i, j}, i ≠ j, that are no edges. The old
    edges keep their order and come first; then the new pairs as drawn, then their reverses. Nodes,
    features and split stay; about["noise"] holds the ratio, the seed and the number of pairs.

    Args:
        data: with each edge in both directions, once, and without arrays on its edges.
        ratio: in [0, 1]; 0 returns the same data.
        seed: of the random generator.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"the noise ratio must lie in [0, 1], but is {ratio}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of 0 or more, but is {seed!r}")
    edges = data.sole_edges
    taken, num_pairs = _edge_pairs(data), int(edges.count // 2 * ratio)
    num_free = data.num_nodes * (data.num_nodes - 1) // 2 - len(taken)
    if num_pairs > num_free:
        raise ValueError(
            f"noise of ratio {ratio} on {data.name} needs {num_pairs} new pairs of nodes, "
            f"but only {num_free} pairs are free"
        )
    if ratio == 0:
        return data, np.zeros(edges.count, bool)
    pairs = _draw(taken, data.num_nodes, edges.count // 2, num_pairs, PCG64(int(seed)))
    kind = next(iter(data.edges))
    about = {**data.about, "noise": {"ratio": float(ratio), "seed": int(seed), "pairs": num_pairs}}
    more = _extended(edges, *np.divmod(pairs, data.num_nodes))
    marks = np.arange(more.count) >= edges.count
    return replace(data, edges={kind: more}, about=about, folder=None), marks


def _edge_pairs(data: GraphData) -> np.ndarray:
    """The code i·N + j of each pair i < j that is an edge, sorted; each must be there both ways."""
    edges, num_nodes = data.sole_edges, data.num_nodes
    if edges.arrays:
        raise ValueError(
            f"the edges of {data.name} have {', '.join(edges.arrays)}, which noise edges lack; "
            "leave them out first: data.symmetric()"
        )
    key, query = edges.key_index.astype(np.int64), edges.query_index.astype(np.int64)
    up = np.sort((key * num_nodes + query)[key < query])
    down = np.sort((query * num_nodes + key)[key > query])
    wrong, how = _unmatched(up, down), "in both directions"
    if not len(wrong):
        wrong, how = up[1:][up[1:] == up[:-1]], "once"
    if len(wrong):
        i, j = divmod(int(wrong[0]), num_nodes)
        raise ValueError(
            f"{data.name} must have each edge {how}, but has not that of nodes {i} and {j}; "
            "symmetrise first: data.symmetric()"
        )
    return up


def _unmatched(up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """[1]: the smallest code that occurs more often in one sorted list; [0] if there is none."""
    short = min(len(up), len(down))
    differ = np.flatnonzero(up[:short] != down[:short])
    at = int(differ[0]) if len(differ) else short
    return np.sort(np.concatenate([up[at : at + 1], down[at : at + 1]]))[:1]


def _draw(
    taken: np.ndarray, num_nodes: int, max_pairs: int, num_pairs: int, stream: PCG64
) -> np.ndarray:
    """Codes of free pairs in the order in which they are drawn; `max_pairs` at ratio 1.

    If half of all pairs stay free at any ratio, pairs are drawn until enough are free and new.
    Otherwise there are fewer than 4 · `max_pairs`: the free ones are listed and shuffled.
    """
    if 2 * (len(taken) + max_pairs) <= num_nodes * (num_nodes - 1) // 2:
        return _first_free(taken, num_nodes, num_pairs, stream)
    i, j = np.triu_indices(num_nodes, 1)
    free = np.setdiff1d(i * num_nodes + j, taken, assume_unique=True)
    return _shuffled(free, stream)[:num_pairs]


def _first_free(taken: np.ndarray, num_nodes: int, num_pairs: int, stream: PCG64) -> np.ndarray:
    """The first distinct free pairs of the stream."""
    pairs = np.empty(0, np.int64)
    while len(pairs) < num_pairs:
        missing = num_pairs - len(pairs)
        fresh = _random_pairs(stream.random_raw(missing + missing // 8 + 16), num_nodes)
        pairs = np.concatenate([pairs, fresh[~_is_in(fresh, taken)]])
        pairs = pairs[np.sort(np.unique(pairs, return_index=True)[1])]
    return pairs[:num_pairs]


def _random_pairs(numbers: np.ndarray, num_nodes: int) -> np.ndarray:
    """Codes of pairs, uniformly: a number modulo N (N - 1) stands for an ordered pair.

    The few largest numbers are left out, since they would make small remainders more likely.
    """
    ordered = num_nodes * (num_nodes - 1)
    numbers = numbers[numbers <= np.uint64(NUM_VALUES - 1 - NUM_VALUES % ordered)]
    i, j = np.divmod((numbers % np.uint64(ordered)).astype(np.int64), num_nodes - 1)
    j += j >= i
    return np.minimum(i, j) * num_nodes + np.maximum(i, j)


def _shuffled(items: np.ndarray, stream: PCG64) -> np.ndarray:
    """The items sorted by random numbers, which are drawn again if two are equal."""
    order = np.empty(0, np.intp)
    while len(order) < len(items):
        order = np.unique(stream.random_raw(len(items)), return_index=True)[1]
    return items[order]


def _is_in(items: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    at = np.searchsorted(ascending, items)
    return np.append(ascending, -1)[at] == items


def _extended(edges: Edges, i: np.ndarray, j: np.ndarray) -> Edges:
    """The edges, then those from i to j, then those from j to i."""
    key, query = edges.key_index, edges.query_index
    more_keys = np.concatenate([i, j]).astype(key.dtype)
    more_queries = np.concatenate([j, i]).astype(query.dtype)
    return Edges(np.concatenate([key, more_keys]), np.concatenate([query, more_queries]))
