"""The samplers in numpy: the definition of the native ones, and their replacement without them.

Every random number is a function of (seed, stage, position, count), as in csrc/random.h. These
functions and the native ones thus return the same bits, whatever the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
FULL = 0xFFFFFFFFFFFFFFFF


class Picks(NamedTuple):
    """The sampled edges by query: query i has the edges rowptr[i] .. rowptr[i + 1] - 1."""

    rowptr: np.ndarray  # [queries + 1] int32
    key: np.ndarray  # [E] int32
    edge: np.ndarray  # [E] int64: index of the edge in the graph


class Sample(NamedTuple):
    """The sampled nodes, the seeds first, and the edges by layer; keys are positions in `node`.

    Unless layered, there is one layer, with the edges of all nodes but those of the last hop.
    """

    node: np.ndarray  # [n] int64
    layers: list[Picks]  # by hop
    new_nodes: list[int]  # number of seeds, then of new nodes by hop
    num_edges: list[int]  # by hop


@dataclass(frozen=True)
class Stream:
    """The random numbers of one seed and stage, by position."""

    seed: int
    stage: int

    def at(self, position: np.ndarray) -> np.ndarray:
        start = mix(mix(self.seed + GOLDEN) + (self.stage + 1) * GOLDEN)
        return _mix(np.uint64(start) + position.astype(np.uint64) * np.uint64(GOLDEN))


def mix(x: int) -> int:
    """The output function of splitmix64, for one number."""
    x &= FULL
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & FULL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & FULL
    return x ^ (x >> 31)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def random_below(at: np.ndarray, count: int, below: np.ndarray | int) -> np.ndarray:
    """The random integer with index `count` at each position, in [0, below)."""
    drawn = _mix(at + np.uint64((count + 1) * GOLDEN & FULL))
    size = np.asarray(below).astype(np.uint64)
    low = (drawn & np.uint64(0xFFFFFFFF)) * size >> np.uint64(32)
    return (((drawn >> np.uint64(32)) * size + low) >> np.uint64(32)).astype(np.int64)


def sample(
    rows: list[np.ndarray],
    seeds: np.ndarray,
    fanouts: list[int],
    replace: bool,
    layered: bool,
    seed: int,
    threads: int = 1,
) -> Sample:
    """Sample hop by hop: for all nodes so far if layered, else for the new ones only."""
    index_of = {int(node): n for n, node in enumerate(seeds)}
    node, layers, new_nodes = [seeds.astype(np.int64)], [], [len(seeds)]
    for hop, fanout in enumerate(fanouts):
        queries = np.concatenate(node) if layered else node[-1]
        picks = pick(rows, queries, fanout, replace, seed, hop)
        known = len(index_of)
        local = [index_of.setdefault(int(key), len(index_of)) for key in picks.key]
        layers.append(picks._replace(key=np.array(local, np.int32)))
        new = np.array(list(index_of)[known:], np.int64)
        node.append(new)
        new_nodes.append(len(new))
    num_edges = [len(picks.key) for picks in layers]
    layers = layers if layered or not layers else [_merged(layers)]
    return Sample(np.concatenate(node), layers, new_nodes, num_edges)


def _merged(layers: list[Picks]) -> Picks:
    degrees = np.concatenate([np.diff(picks.rowptr) for picks in layers])
    keys, edges = ([picks[n] for picks in layers] for n in (1, 2))
    return Picks(_offsets(degrees), np.concatenate(keys), np.concatenate(edges))


def pick(
    rows: list[np.ndarray],
    queries: np.ndarray,
    fanout: int,
    replace: bool,
    seed: int,
    stage: int,
    threads: int = 1,
) -> Picks:
    """Sample `fanout` keys of each query, or all if it is -1; queries may repeat."""
    begin, end = (rows[0][queries + n].astype(np.int64) for n in (0, 1))
    degree = end - begin
    at = Stream(seed, stage).at(np.arange(len(queries)))
    count = degree if fanout < 0 else np.minimum(degree, fanout)
    if replace and fanout >= 0:
        count = np.where(degree > 0, fanout, 0)
    rowptr = _offsets(count)
    within = np.arange(rowptr[-1]) - np.repeat(rowptr[:-1], count)
    drawing = (count > 0) & (fanout >= 0) & ((degree > fanout) | replace)
    if drawing.any():
        draw = _draw_any if replace else _draw_distinct
        within[np.repeat(drawing, count)] = draw(at[drawing], fanout, degree[drawing]).ravel()
    position = np.repeat(begin, count) + within
    return Picks(rowptr, rows[1][position].astype(np.int32), _edge_index(rows, position))


def _draw_any(at: np.ndarray, k: int, degree: np.ndarray) -> np.ndarray:
    """[queries, k] numbers below the degree of the query, with repetition."""
    return np.stack([random_below(at, t, degree) for t in range(k)], 1)


def _draw_distinct(at: np.ndarray, k: int, degree: np.ndarray) -> np.ndarray:
    """[queries, k] without repetition, by Floyd's method; degrees must be above k."""
    chosen = np.full((len(at), k), -1)
    for t in range(k):
        last = degree - k + t
        drawn = random_below(at, t, last + 1)
        taken = (chosen[:, :t] == drawn[:, None]).any(1)
        chosen[:, t] = np.where(taken, last, drawn)
    return chosen


def visit(
    rows: list[np.ndarray],
    kind: int,
    count: int,
    length: int,
    live: np.ndarray,
    seed: int,
    threads: int = 1,
) -> np.ndarray:
    """The visited nodes, each once, in ascending order.

    Kind 0: walks from random nodes, each step to a random key. Kind 1: queries of random edges.
    Kind 2: both ends of a random edge of random nodes among `live`, the nodes that have edges.
    """
    position = np.arange(count)
    at, num_nodes = Stream(seed, 0).at(position), len(rows[0]) - 1
    if kind == 1:
        edge = random_below(at, 0, len(rows[1]))
        return np.unique(np.searchsorted(rows[0], edge, side="right") - 1).astype(np.int64)
    if kind == 2:
        query = live[random_below(at, 0, len(live))]
        return np.unique(np.concatenate([query, _any_key(rows, query, at, 1)]))
    visited = [random_below(at, 0, num_nodes)]
    for step in range(1, length + 1):
        visited.append(_any_key(rows, visited[-1], Stream(seed, step).at(position), 0))
    return np.unique(np.concatenate(visited))


def _any_key(rows: list[np.ndarray], query: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """A random key of each query, or the query itself if it has none."""
    begin, end = rows[0][query].astype(np.int64), rows[0][query + 1].astype(np.int64)
    has_keys = end > begin
    key = query.astype(np.int64)
    position = begin[has_keys] + random_below(at[has_keys], count, (end - begin)[has_keys])
    key[has_keys] = rows[1][position]
    return key


def induce(rows: list[np.ndarray], nodes: np.ndarray, threads: int = 1) -> Picks:
    """All edges among the nodes; keys are positions in `nodes`."""
    all_edges = pick(rows, nodes, -1, False, 0, 0)
    order = np.argsort(nodes, kind="stable")
    position = np.searchsorted(nodes[order], all_edges.key).clip(max=max(len(nodes) - 1, 0))
    kept = nodes[order][position] == all_edges.key if len(nodes) else np.zeros(0, bool)
    query = np.repeat(np.arange(len(nodes)), np.diff(all_edges.rowptr))[kept]
    rowptr = _offsets(np.bincount(query, minlength=len(nodes)))
    return Picks(rowptr, order[position][kept].astype(np.int32), all_edges.edge[kept])


def transpose(
    rowptr: np.ndarray, key: np.ndarray, keys: int, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The queries of each key and the positions of these edges: key_rowptr, query, position."""
    query = np.repeat(np.arange(len(rowptr) - 1, dtype=np.int32), np.diff(rowptr))
    position = np.argsort(key, kind="stable").astype(np.int32)
    return _offsets(np.bincount(key, minlength=keys)), query[position], position


def group_rows(
    query: np.ndarray, key: np.ndarray, nodes: int, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges in any order -> rowptr, key_index, edge_id; each row in the order of the input."""
    for name, index in (("query_index", query), ("key_index", key)):
        bad = index[(index < 0) | (index >= nodes)]
        if len(bad):
            raise ValueError(f"{name} must lie in [0, {nodes}), but holds {bad[0]}")
    order = np.argsort(query, kind="stable").astype(np.int32)
    return _offsets(np.bincount(query, minlength=nodes)), key[order].astype(np.int32), order


def _edge_index(rows: list[np.ndarray], position: np.ndarray) -> np.ndarray:
    return position if len(rows) < 3 else rows[2][position].astype(np.int64)


def _offsets(count: np.ndarray) -> np.ndarray:
    """[rows] counts -> [rows + 1] int32 offsets"""
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
