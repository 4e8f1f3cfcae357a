"""describe: sizes, degrees, components, class balance and homophily of a graph.

Everything is counted in blocks, so a graph larger than memory can be described: memory holds a few
numbers per node, and the pairs of at most 2²⁵ edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from dynagat.data.assumptions import assumptions
from dynagat.data.checks import check_labels
from dynagat.data.description import (
    Balance,
    Description,
    EdgeFacts,
    Features,
    Homophily,
    NodeFacts,
    Summary,
)
from dynagat.data.store import SPLITS, Edges, EdgeType, GraphData, Nodes, flat
from dynagat.data.texts import Texts

BLOCK = 1 << 22  # edges, or values of features, per block
MAX_PAIRS = 1 << 25  # edges that are sorted at once


def describe(data: GraphData) -> Description:
    """Describe a graph, which takes some seconds for ten million edges."""
    degrees = _all_degrees(data)
    nodes = [_node_facts(kind, each, degrees[kind]) for kind, each in data.nodes.items()]
    edges = [_edge_facts(kind, each, data) for kind, each in data.edges.items()]
    components, largest = _components(data)
    return Description(
        name=data.name,
        source=_source(data.about.get("source")),
        nodes=tuple(nodes),
        edges=tuple(edges),
        components=components,
        largest_component=largest,
        balance=_balance(data),
        homophily=_homophily(data),
        split={name: len(data.split[name]) for name in _ordered(data.split)},
        bytes=sum(_bytes(array) for array in flat(data).values()),
        assumed=assumptions(data),
    )


def _source(source: Any) -> str | None:
    """The source as text; for tables, the names of their files."""
    if isinstance(source, Mapping):
        return " and ".join(each["file"] for each in source.values())
    return source


def _blocks(edges: Edges) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, edges.count, BLOCK):
        stop = start + BLOCK
        yield np.asarray(edges.key_index[start:stop]), np.asarray(edges.query_index[start:stop])


def _all_degrees(data: GraphData) -> dict[str, np.ndarray]:
    """The number of edges of each node without self-loops, by type."""
    degrees = {kind: np.zeros(nodes.count, np.int64) for kind, nodes in data.nodes.items()}
    for (key_kind, _, query_kind), edges in data.edges.items():
        for key, query in _blocks(edges):
            if key_kind == query_kind:
                other = key != query
                key, query = key[other], query[other]
            degrees[key_kind] += np.bincount(key, minlength=len(degrees[key_kind]))
            degrees[query_kind] += np.bincount(query, minlength=len(degrees[query_kind]))
    return degrees


def _node_facts(kind: str, nodes: Nodes, degrees: np.ndarray) -> NodeFacts:
    x = nodes.arrays.get("x")
    features = None if x is None or isinstance(x, Texts) else _features(x)
    return NodeFacts(kind, nodes.count, int((degrees == 0).sum()), features, tuple(nodes.arrays))


def _features(x: np.ndarray) -> Features:
    width = int(np.prod(x.shape[1:]))
    zeros = nan = 0
    rows = max(1, BLOCK // max(1, width))
    for start in range(0, len(x), rows):
        block = np.asarray(x[start : start + rows])
        zeros += int(block.size - np.count_nonzero(block))
        nan += int((~np.isfinite(block)).sum())
    return Features(width, str(x.dtype), zeros / max(1, x.size), nan)


def _edge_facts(kind: EdgeType, edges: Edges, data: GraphData) -> EdgeFacts:
    key_count, query_count = data.nodes[kind[0]].count, data.nodes[kind[2]].count
    out, into = np.zeros(key_count, np.int64), np.zeros(query_count, np.int64)
    loops = 0
    is_within = kind[0] == kind[2]
    for key, query in _blocks(edges):
        out += np.bincount(key, minlength=key_count)
        into += np.bincount(query, minlength=query_count)
        loops += int((key == query).sum()) if is_within else 0
    distinct, is_symmetric = _distinct(edges, key_count, query_count)
    return EdgeFacts(
        kind="-".join(kind),
        count=edges.count,
        queries_per_key=_summary(out),
        keys_per_query=_summary(into),
        self_loops=loops,
        duplicates=edges.count - distinct,
        is_symmetric=is_symmetric if is_within else None,
        density=distinct / max(1, key_count * query_count),
        arrays=tuple(edges.arrays),
    )


def _summary(values: np.ndarray) -> Summary:
    if not len(values):
        return Summary(0.0, 0.0, 0.0, 0.0)
    median, mean = float(np.median(values)), float(values.mean())
    return Summary(float(values.min()), median, mean, float(values.max()))


def _distinct(edges: Edges, key_count: int, query_count: int) -> tuple[int, bool]:
    """The number of distinct pairs, and whether each occurs in both directions.

    Pairs are sorted, one range of queries at a time. They are symmetric if the sums of 64-bit
    hashes of both directions agree, which happens by chance for one in 10¹⁹ graphs.
    """
    ranges = max(1, -(-edges.count // MAX_PAIRS))
    bounds = np.linspace(0, query_count, ranges + 1).astype(np.int64)
    distinct, forward, backward = 0, 0, 0
    for low, high in pairwise(bounds):
        code = _codes(edges, key_count, low, high, whole=ranges == 1)
        code.sort()
        if len(code):
            code = code[np.concatenate([[True], code[1:] != code[:-1]])]
        query, key = code // key_count, code % key_count
        distinct += len(code)
        forward += _hash_sum(query, key)
        backward += _hash_sum(key, query)
    return distinct, (forward - backward) % 2**64 == 0


def _codes(edges: Edges, key_count: int, low: int, high: int, *, whole: bool) -> np.ndarray:
    """query · key_count + key of the edges whose query lies in [low, high)."""
    codes = []
    for key, query in _blocks(edges):
        if not whole:
            inside = (query >= low) & (query < high)
            key, query = key[inside], query[inside]
        codes.append(query.astype(np.int64) * key_count + key)
    return np.concatenate(codes) if codes else np.empty(0, np.int64)


def _hash_sum(first: np.ndarray, second: np.ndarray) -> int:
    """Sum of the hashes of ordered pairs (the steps of splitmix64)."""
    total = 0
    with np.errstate(over="ignore"):
        for start in range(0, len(first), BLOCK):
            a = first[start : start + BLOCK].astype(np.uint64)
            b = second[start : start + BLOCK].astype(np.uint64)
            z = a * np.uint64(0x9E3779B97F4A7C15) + b * np.uint64(0xC2B2AE3D27D4EB4F)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            total += int((z ^ (z >> np.uint64(31))).sum(dtype=np.uint64))
    return total


def _components(data: GraphData) -> tuple[int, float]:
    """The number of connected components over all types, and the largest's fraction of nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, total = {}, 0
    for kind, nodes in data.nodes.items():
        first[kind], total = total, total + nodes.count
    component, count = np.arange(total), total
    for (key_kind, _, query_kind), edges in data.edges.items():
        for key, query in _blocks(edges):  # a block merges the components of the blocks before
            ends = component[key + first[key_kind]], component[query + first[query_kind]]
            new = ends[0] != ends[1]
            if new.any():
                entries = (np.ones(int(new.sum()), np.int8), (ends[0][new], ends[1][new]))
                matrix = coo_array(entries, shape=(count, count)).tocsr()
                count, renamed = connected_components(matrix, directed=False)
                component = renamed[component]
    largest = int(np.bincount(component).max()) if total else 0
    return int(count), largest / max(1, total)


def _balance(data: GraphData) -> Balance | None:
    kind = data.task.get("kind")
    if kind not in ("classification", "multilabel", "regression"):
        return None
    y = np.asarray(data.y)
    if kind == "regression":
        known = y[~np.isnan(y)]
        return Balance(kind, y.size - known.size, {}, _summary(known))
    names = [str(each) for each in data.task.get("classes", ())]
    if kind == "multilabel":
        counts = np.nansum(y, 0).astype(np.int64)
        return Balance(kind, int(np.isnan(y).sum()), _named(names, counts), None)
    check_labels(y, data.name)
    counts = np.bincount(y[y >= 0], minlength=len(names))
    return Balance(kind, int((y < 0).sum()), _named(names, counts), None)


def _named(names: list[str], counts: np.ndarray) -> dict[str, int]:
    names = names + [str(index) for index in range(len(names), len(counts))]
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _homophily(data: GraphData) -> Homophily | None:
    if data.task.get("kind") != "classification":
        return None
    y, kind = np.asarray(data.y), data.node_type
    classes = int(y.max(initial=-1)) + 1
    pairs = np.zeros((classes, classes), np.int64)  # edges by the classes of both ends
    for (key_kind, _, query_kind), edges in data.edges.items():
        if key_kind == query_kind == kind:
            for key, query in _blocks(edges):
                known = (y[key] >= 0) & (y[query] >= 0) & (key != query)
                code = y[key[known]].astype(np.int64) * classes + y[query[known]]
                pairs += np.bincount(code, minlength=classes**2).reshape(classes, classes)
    pairs = pairs + pairs.T
    if not pairs.sum():
        return None
    ends = pairs.sum(1)
    edge, by_chance = float(pairs.trace() / ends.sum()), float(((ends / ends.sum()) ** 2).sum())
    adjusted = (edge - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
    fraction = np.bincount(y[y >= 0], minlength=classes) / (y >= 0).sum()
    excess = np.maximum(0, pairs.diagonal() / np.maximum(1, ends) - fraction)
    return Homophily(edge, adjusted, float(excess.sum() / max(1, classes - 1)))


def _ordered(split: Mapping[str, Any]) -> list[str]:
    """The names of the arrays of a split: train, valid, test, then others."""
    order = {part: position for position, part in enumerate(SPLITS)}
    return sorted(split, key=lambda name: (order.get(name.partition("/")[0], 3), name))


def _bytes(array: Any) -> int:
    arrays = array.arrays.values() if isinstance(array, Texts) else [array]
    return sum(each.nbytes for each in arrays)
