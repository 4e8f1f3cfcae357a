"""Edge noise (section 4.2, Figure 4): random edges that a graph does not have, added to it.

The count is that of the paper's code: of E directed edges, n = int(⌊E/2⌋ · ratio) pairs {i, j} are
added, each in both directions. A loop counts as one edge.

The draw depends on the edges, the seed and nothing else: numpy promises that the 64-bit numbers of
PCG64 stay the same for a seed on every machine and in every version, and all else is here. With one
seed, the pairs of a small ratio are the first of those of a greater one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import PCG64

from dynagat.data.store import Edges, GraphData

NUMBERS = 2**64  # how many PCG64 has


def add_noise(data: GraphData, ratio: float, seed: int) -> tuple[GraphData, np.ndarray]:
    """The graph with n = int(⌊E/2⌋ · ratio) more pairs, and marks [E + 2n], true for the added.

    Pairs are drawn uniformly and without repetition from the {i, j}, i ≠ j, that are no edges. The
    old edges keep their order and come first; then the new pairs as drawn, then their reverse.
    Nodes, features and split stay; about["noise"] tells ratio, seed and the number of pairs.

    Args:
        data: has each edge in both directions, once, and no arrays on its edges.
        ratio: in [0, 1]; 0 returns the same data.
        seed: that of the draw.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"the noise ratio must lie in [0, 1], but is {ratio}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of 0 or more, but is {seed!r}")
    edges = data.sole_edges
    taken, num_pairs = _joined_pairs(data), int(edges.count // 2 * ratio)
    num_free = data.num_nodes * (data.num_nodes - 1) // 2 - len(taken)
    if num_pairs > num_free:
        asked = f"noise of ratio {ratio} on {data.name} is {num_pairs} new pairs of nodes"
        raise ValueError(f"{asked}, but only {num_free} pairs are free")
    if ratio == 0:
        return data, np.zeros(edges.count, bool)
    pairs = _draw(taken, data.num_nodes, edges.count // 2, num_pairs, PCG64(int(seed)))
    kind = next(iter(data.edges))
    about = {**data.about, "noise": {"ratio": float(ratio), "seed": int(seed), "pairs": num_pairs}}
    more = _extended(edges, *np.divmod(pairs, data.num_nodes))
    marks = np.arange(more.count) >= edges.count
    return replace(data, edges={kind: more}, about=about, folder=None), marks


def _joined_pairs(data: GraphData) -> np.ndarray:
    """The code i·N + j of each pair i < j that is joined, rising; or why they are no pairs."""
    edges, num_nodes = data.sole_edges, data.num_nodes
    if edges.arrays:
        told = f"noise edges have no {', '.join(edges.arrays)}, as the edges of {data.name} do"
        raise ValueError(f"{told}; leave them out first: data.symmetric()")
    key, query = edges.key_index.astype(np.int64), edges.query_index.astype(np.int64)
    up = np.sort((key * num_nodes + query)[key < query])
    down = np.sort((query * num_nodes + key)[key > query])
    wrong, how = _unmatched(up, down), "in both directions"
    if not len(wrong):
        wrong, how = up[1:][up[1:] == up[:-1]], "once"
    if len(wrong):
        i, j = divmod(int(wrong[0]), num_nodes)
        told = f"{data.name} must have each edge {how}, but has not that of nodes {i} and {j}"
        raise ValueError(f"{told}; symmetrise first: data.symmetric()")
    return up


def _unmatched(up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """[1], the least code that two rising lists do not have equally often; [0] if there is none."""
    short = min(len(up), len(down))
    differ = np.flatnonzero(up[:short] != down[:short])
    at = int(differ[0]) if len(differ) else short
    return np.sort(np.concatenate([up[at : at + 1], down[at : at + 1]]))[:1]


def _draw(
    taken: np.ndarray, num_nodes: int, most: int, num_pairs: int, stream: PCG64
) -> np.ndarray:
    """Codes of free pairs, in the order of their draw; `most` of them are drawn at ratio 1.

    Where half of all pairs stay free at any ratio, pairs are drawn until enough are free and new.
    Else there are fewer than 4 · `most`: the free ones are listed and shuffled.
    """
    if 2 * (len(taken) + most) <= num_nodes * (num_nodes - 1) // 2:
        return _first_free(taken, num_nodes, num_pairs, stream)
    i, j = np.triu_indices(num_nodes, 1)
    free = np.setdiff1d(i * num_nodes + j, taken, assume_unique=True)
    return _shuffled(free, stream)[:num_pairs]


def _first_free(taken: np.ndarray, num_nodes: int, num_pairs: int, stream: PCG64) -> np.ndarray:
    """The first distinct pairs of the stream that are free; however many are looked at a time."""
    found = np.empty(0, np.int64)
    while len(found) < num_pairs:
        missing = num_pairs - len(found)
        fresh = _random_pairs(stream.random_raw(missing + missing // 8 + 16), num_nodes)
        found = np.concatenate([found, fresh[~_is_in(fresh, taken)]])
        found = found[np.sort(np.unique(found, return_index=True)[1])]
    return found[:num_pairs]


def _random_pairs(numbers: np.ndarray, num_nodes: int) -> np.ndarray:
    """Codes of pairs, all as likely: a number modulo N (N - 1) is one of the ordered pairs.

    The few greatest numbers, with which low remainders would be more likely, are left out.
    """
    ordered = num_nodes * (num_nodes - 1)
    numbers = numbers[numbers <= np.uint64(NUMBERS - 1 - NUMBERS % ordered)]
    i, j = np.divmod((numbers % np.uint64(ordered)).astype(np.int64), num_nodes - 1)
    j += j >= i
    return np.minimum(i, j) * num_nodes + np.maximum(i, j)


def _shuffled(items: np.ndarray, stream: PCG64) -> np.ndarray:
    """The items by the rank of a number for each; drawn anew if two numbers are alike."""
    order = np.empty(0, np.intp)
    while len(order) < len(items):
        order = np.unique(stream.random_raw(len(items)), return_index=True)[1]
    return items[order]


def _is_in(items: np.ndarray, rising: np.ndarray) -> np.ndarray:
    at = np.searchsorted(rising, items)
    return np.append(rising, -1)[at] == items


def _extended(edges: Edges, i: np.ndarray, j: np.ndarray) -> Edges:
    """The edges, then those of the pairs from i to j, then from j to i."""
    key, query = edges.key_index, edges.query_index
    more_keys = np.concatenate([i, j]).astype(key.dtype)
    more_queries = np.concatenate([j, i]).astype(query.dtype)
    return Edges(np.concatenate([key, more_keys]), np.concatenate([query, more_queries]))
