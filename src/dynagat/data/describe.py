"""What a graph is like: sizes, degrees, components, label balance, homophily, odd edges.

Everything is counted in blocks, so a graph larger than memory can be described: what is held is a
few numbers per node, and the pairs of at most 2²⁵ edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dynagat.data.store import SPLITS, Edges, EdgeType, GraphData, Nodes, flat
from dynagat.data.texts import Texts

BLOCK = 1 << 22  # edges, or numbers of features, that are looked at at once
PAIRS = 1 << 25  # edges that are sorted at once
SHOWN = 12  # classes that the table lists


@dataclass(frozen=True)
class Spread:
    """Of one number per node."""

    min: float
    median: float
    mean: float
    max: float


@dataclass(frozen=True)
class Features:
    count: int
    dtype: str
    zeros: float  # share of them
    nan: int  # how many are no finite numbers


@dataclass(frozen=True)
class NodeFacts:
    kind: str
    count: int
    isolated: int  # with no edge of any kind, but to themselves
    features: Features | None
    arrays: tuple[str, ...]


@dataclass(frozen=True)
class EdgeFacts:
    kind: str
    count: int
    queries_per_key: Spread  # degrees out: how many attend to a node
    keys_per_query: Spread  # degrees in: how many a node attends to
    self_loops: int
    duplicates: int  # edges whose pair came before
    is_symmetric: bool | None  # whether each pair is there in both directions; None across types
    density: float  # of all pairs, the share that are edges
    arrays: tuple[str, ...]


@dataclass(frozen=True)
class Balance:
    """How the targets are spread."""

    kind: str
    unknown: int  # targets that are not known
    counts: Mapping[str, int]  # nodes of each class, or that have each label
    values: Spread | None  # of a regression


@dataclass(frozen=True)
class Homophily:
    """Over the edges that join two nodes of known class, loops apart; either direction counts.

    edge: share of edges that join equal classes.
    adjusted: (edge - Σ p_k²) / (1 - Σ p_k²), p_k the share of edge ends at class k: 0 if edges
        don't care for classes, whatever their sizes.
    class_insensitive: mean over all classes but one of max(0, h_k - n_k / n), h_k the share of
        class k's edge ends whose other end is of it, n_k / n its share of nodes.
    """

    edge: float
    adjusted: float
    class_insensitive: float


@dataclass(frozen=True)
class Description:
    name: str
    source: str | None
    made: bool
    nodes: tuple[NodeFacts, ...]
    edges: tuple[EdgeFacts, ...]
    components: int
    largest_component: float  # its share of all nodes
    balance: Balance | None
    homophily: Homophily | None
    split: Mapping[str, int]
    bytes: int  # of all arrays

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = list(_lines(self))
        width = max(len(name) for name, _ in lines) + 2
        return "\n".join(f"{name:<{width}}{text}" for name, text in lines)


def describe(data: GraphData) -> Description:
    """Look at all of a graph; some seconds for ten million edges."""
    degrees = _all_degrees(data)
    nodes = [_node_facts(kind, each, degrees[kind]) for kind, each in data.nodes.items()]
    edges = [_edge_facts(kind, each, data) for kind, each in data.edges.items()]
    components, largest = _components(data)
    balance = _balance(data)
    about = data.about
    return Description(
        name=data.name,
        source=_source(about.get("source")),
        made=bool(about.get("made")),
        nodes=tuple(nodes),
        edges=tuple(edges),
        components=components,
        largest_component=largest,
        balance=balance,
        homophily=_homophily(data),
        split={name: len(data.split[name]) for name in _ordered(data.split)},
        bytes=sum(_bytes(array) for array in flat(data).values()),
    )


def _source(told: Any) -> str | None:
    """Of tables, the names of their files."""
    return " and ".join(e["file"] for e in told.values()) if isinstance(told, Mapping) else told


def _blocks(edges: Edges) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, edges.count, BLOCK):
        stop = start + BLOCK
        yield np.asarray(edges.key_index[start:stop]), np.asarray(edges.query_index[start:stop])


def _all_degrees(data: GraphData) -> dict[str, np.ndarray]:
    """Edges at each node that lead to another one, by type."""
    found = {kind: np.zeros(nodes.count, np.int64) for kind, nodes in data.nodes.items()}
    for (key_kind, _, query_kind), edges in data.edges.items():
        for key, query in _blocks(edges):
            if key_kind == query_kind:
                other = key != query
                key, query = key[other], query[other]
            found[key_kind] += np.bincount(key, minlength=len(found[key_kind]))
            found[query_kind] += np.bincount(query, minlength=len(found[query_kind]))
    return found


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
        queries_per_key=_spread(out),
        keys_per_query=_spread(into),
        self_loops=loops,
        duplicates=edges.count - distinct,
        is_symmetric=is_symmetric if is_within else None,
        density=distinct / max(1, key_count * query_count),
        arrays=tuple(edges.arrays),
    )


def _spread(values: np.ndarray) -> Spread:
    if not len(values):
        return Spread(0.0, 0.0, 0.0, 0.0)
    middle, mean = float(np.median(values)), float(values.mean())
    return Spread(float(values.min()), middle, mean, float(values.max()))


def _distinct(edges: Edges, key_count: int, query_count: int) -> tuple[int, bool]:
    """How many distinct pairs there are, and whether they are the same turned around.

    Pairs are sorted, a range of queries at a time. Turned around they are the same if two sums of
    64-bit hashes agree: by chance that happens once in 10¹⁹ graphs.
    """
    parts = max(1, -(-edges.count // PAIRS))
    bounds = np.linspace(0, query_count, parts + 1).astype(np.int64)
    distinct, there, back = 0, 0, 0
    for low, high in pairwise(bounds):
        code = _codes(edges, key_count, low, high, whole=parts == 1)
        code.sort()
        if len(code):
            code = code[np.concatenate([[True], code[1:] != code[:-1]])]
        query, key = code // key_count, code % key_count
        distinct += len(code)
        there += _mixed(query, key)
        back += _mixed(key, query)
    return distinct, (there - back) % 2**64 == 0


def _codes(edges: Edges, key_count: int, low: int, high: int, *, whole: bool) -> np.ndarray:
    """query · key_count + key of the edges whose query lies in [low, high)."""
    found = []
    for key, query in _blocks(edges):
        if not whole:
            inside = (query >= low) & (query < high)
            key, query = key[inside], query[inside]
        found.append(query.astype(np.int64) * key_count + key)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _mixed(first: np.ndarray, second: np.ndarray) -> int:
    """A sum over pairs of a hash in which order matters (the steps of splitmix64)."""
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
    """Connected components over all types and either direction; the largest's share of nodes."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, total = {}, 0
    for kind, nodes in data.nodes.items():
        first[kind], total = total, total + nodes.count
    component, count = np.arange(total), total
    for (key_kind, _, query_kind), edges in data.edges.items():
        for key, query in _blocks(edges):  # a block joins the components that there are so far
            ends = component[key + first[key_kind]], component[query + first[query_kind]]
            new = ends[0] != ends[1]
            if new.any():
                joined = (np.ones(int(new.sum()), np.int8), (ends[0][new], ends[1][new]))
                matrix = coo_array(joined, shape=(count, count)).tocsr()
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
        return Balance(kind, len(y) - len(known), {}, _spread(known))
    names = [str(each) for each in data.task.get("classes", ())]
    if kind == "multilabel":
        counts = np.nansum(y, 0).astype(np.int64)
        return Balance(kind, int(np.isnan(y).sum()), _named(names, counts), None)
    counts = np.bincount(y[y >= 0], minlength=len(names))
    return Balance(kind, int((y < 0).sum()), _named(names, counts), None)


def _named(names: list[str], counts: np.ndarray) -> dict[str, int]:
    names = names + [str(at) for at in range(len(names), len(counts))]
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _homophily(data: GraphData) -> Homophily | None:
    if data.task.get("kind") != "classification":
        return None
    y, kind = np.asarray(data.y), data.node_type
    classes = int(y.max(initial=-1)) + 1
    joined = np.zeros((classes, classes), np.int64)  # edges by the classes of both ends
    for (key_kind, _, query_kind), edges in data.edges.items():
        if key_kind == query_kind == kind:
            for key, query in _blocks(edges):
                known = (y[key] >= 0) & (y[query] >= 0) & (key != query)
                code = y[key[known]].astype(np.int64) * classes + y[query[known]]
                joined += np.bincount(code, minlength=classes**2).reshape(classes, classes)
    joined = joined + joined.T
    if not joined.sum():
        return None
    ends = joined.sum(1)
    edge, by_chance = float(joined.trace() / ends.sum()), float(((ends / ends.sum()) ** 2).sum())
    adjusted = (edge - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
    share = np.bincount(y[y >= 0], minlength=classes) / (y >= 0).sum()
    excess = np.maximum(0, joined.diagonal() / np.maximum(1, ends) - share)
    return Homophily(edge, adjusted, float(excess.sum() / max(1, classes - 1)))


def _ordered(split: Mapping[str, Any]) -> list[str]:
    order = {part: at for at, part in enumerate(SPLITS)}
    return sorted(split, key=lambda name: (order.get(name.partition("/")[0], 3), name))


def _bytes(array: Any) -> int:
    parts = array.arrays.values() if isinstance(array, Texts) else [array]
    return sum(part.nbytes for part in parts)


def _lines(told: Description) -> Iterator[tuple[str, str]]:
    yield "graph", told.name + (" (made up)" if told.made else "")
    if told.source:
        yield "from", told.source
    for nodes in told.nodes:
        yield f"nodes {nodes.kind}", f"{nodes.count:,}, isolated {nodes.isolated:,}"
        if nodes.features is not None:
            yield "  features", _told_features(nodes.features)
    for edges in told.edges:
        yield from _edge_lines(edges)
    share = f"the largest has {told.largest_component:.1%} of the nodes"
    yield "components", f"{told.components:,}; {share}"
    if told.balance is not None:
        yield from _balance_lines(told.balance)
    if told.homophily is not None:
        h = told.homophily
        others = f"adjusted {h.adjusted:.3f}, class-insensitive {h.class_insensitive:.3f}"
        yield "homophily", f"{h.edge:.3f} of edges join equal classes; {others}"
    if told.split:
        yield "split", ", ".join(f"{name} {count:,}" for name, count in told.split.items())
    yield "arrays", f"{told.bytes / 1e6:,.1f} MB"


def _told_features(features: Features) -> str:
    bad = f", {features.nan:,} not finite" if features.nan else ""
    return f"{features.count:,} {features.dtype}, {features.zeros:.1%} zeros{bad}"


def _edge_lines(edges: EdgeFacts) -> Iterator[tuple[str, str]]:
    yield f"edges {edges.kind}", f"{edges.count:,}, density {edges.density:.2g}"
    for name, spread in [("in", edges.keys_per_query), ("out", edges.queries_per_key)]:
        yield f"  degrees {name}", _told_spread(spread)
    symmetric = {True: "both directions of each", False: "not symmetric", None: "across types"}
    odd = f"{edges.self_loops:,} self-loops, {edges.duplicates:,} duplicates"
    yield "  pairs", f"{symmetric[edges.is_symmetric]}; {odd}"
    if edges.arrays:
        yield "  with", ", ".join(edges.arrays)


def _told_spread(spread: Spread) -> str:
    middle = f"median {spread.median:,.10g}, mean {spread.mean:,.2f}"
    return f"min {spread.min:,.10g}, {middle}, max {spread.max:,.10g}"


def _balance_lines(balance: Balance) -> Iterator[tuple[str, str]]:
    unknown = f", {balance.unknown:,} unknown" if balance.unknown else ""
    if balance.values is not None:
        yield "target", f"regression{unknown}; {_told_spread(balance.values)}"
        return
    what = "classes" if balance.kind == "classification" else "labels"
    yield what, f"{len(balance.counts):,}{unknown}"
    total = max(1, sum(balance.counts.values()))
    ranked = sorted(balance.counts.items(), key=lambda each: -each[1])
    for name, count in ranked[:SHOWN]:
        yield f"  {' '.join(name.split())[:19]}", f"{count:,} ({count / total:.1%})"
    if len(ranked) > SHOWN:
        rest = sum(count for _, count in ranked[SHOWN:])
        yield f"  {len(ranked) - SHOWN} others", f"{rest:,} ({rest / total:.1%})"
