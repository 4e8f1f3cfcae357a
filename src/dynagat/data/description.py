"""Description: the facts about a graph, as a value and as a table of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAX_CLASSES = 12  # listed in the table


@dataclass(frozen=True)
class Summary:
    """Of one number per node."""

    min: float
    median: float
    mean: float
    max: float

    def __str__(self) -> str:
        middle = f"median {self.median:,.10g}, mean {self.mean:,.2f}"
        return f"min {self.min:,.10g}, {middle}, max {self.max:,.10g}"


@dataclass(frozen=True)
class Features:
    count: int
    dtype: str
    zeros: float  # fraction of zeros
    nan: int  # number of values that are not finite

    def __str__(self) -> str:
        bad = f", {self.nan:,} not finite" if self.nan else ""
        return f"{self.count:,} {self.dtype}, {self.zeros:.1%} zeros{bad}"


@dataclass(frozen=True)
class NodeFacts:
    kind: str
    count: int
    isolated: int  # nodes without any edge except self-loops
    features: Features | None
    arrays: tuple[str, ...]


@dataclass(frozen=True)
class EdgeFacts:
    kind: str
    count: int
    queries_per_key: Summary  # out-degrees: how many nodes attend to a node
    keys_per_query: Summary  # in-degrees: how many nodes a node attends to
    self_loops: int
    duplicates: int  # edges whose pair occurs before
    is_symmetric: bool | None  # whether each pair occurs in both directions; None across types
    density: float  # distinct edges as a fraction of all pairs
    arrays: tuple[str, ...]


@dataclass(frozen=True)
class Balance:
    """The distribution of the targets."""

    kind: str
    unknown: int  # number of unknown targets
    counts: Mapping[str, int]  # number of nodes by class or label
    values: Summary | None  # for regression


@dataclass(frozen=True)
class Homophily:
    """Over the edges between two nodes of known class, without self-loops, in either direction.

    edge: fraction of edges that connect nodes of the same class.
    adjusted: (edge - Σ p_k²) / (1 - Σ p_k²), p_k the fraction of edge ends at class k: 0 if edges
        are independent of classes, whatever the class sizes.
    class_insensitive: mean over all classes but one of max(0, h_k - n_k / n), h_k the fraction of
        class k's edge ends whose other end is of class k, n_k / n its fraction of nodes.
    """

    edge: float
    adjusted: float
    class_insensitive: float

    def __str__(self) -> str:
        others = f"adjusted {self.adjusted:.3f}, class-insensitive {self.class_insensitive:.3f}"
        return f"{self.edge:.3f} of edges connect nodes of the same class; {others}"


@dataclass(frozen=True)
class Description:
    name: str
    source: str | None
    nodes: tuple[NodeFacts, ...]
    edges: tuple[EdgeFacts, ...]
    components: int
    largest_component: float  # as a fraction of all nodes
    balance: Balance | None
    homophily: Homophily | None
    split: Mapping[str, int]
    bytes: int  # of all arrays
    assumed: tuple[str, ...] = ()  # sentences about how its files were read

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = list(_lines(self))
        width = max(len(name) for name, _ in lines) + 2
        return "\n".join(f"{name:<{width}}{text}" for name, text in lines)


def _lines(graph: Description) -> Iterator[tuple[str, str]]:
    yield "graph", graph.name
    if graph.source:
        yield "from", graph.source
    for nodes in graph.nodes:
        yield f"nodes {nodes.kind}", f"{nodes.count:,}, isolated {nodes.isolated:,}"
        if nodes.features is not None:
            yield "  features", str(nodes.features)
    for edges in graph.edges:
        yield from _edge_lines(edges)
    largest = f"the largest has {graph.largest_component:.1%} of the nodes"
    yield "components", f"{graph.components:,}; {largest}"
    if graph.balance is not None:
        yield from _balance_lines(graph.balance)
    if graph.homophily is not None:
        yield "homophily", str(graph.homophily)
    if graph.split:
        yield "split", ", ".join(f"{name} {count:,}" for name, count in graph.split.items())
    yield "arrays", f"{graph.bytes / 1e6:,.1f} MB"
    for number, sentence in enumerate(graph.assumed):
        yield "" if number else "read as", sentence


def _edge_lines(edges: EdgeFacts) -> Iterator[tuple[str, str]]:
    yield f"edges {edges.kind}", f"{edges.count:,}, density {edges.density:.2g}"
    yield "  in-degrees", str(edges.keys_per_query)
    yield "  out-degrees", str(edges.queries_per_key)
    symmetric = {True: "in both directions", False: "not symmetric", None: "between types"}
    odd = f"{edges.self_loops:,} self-loops, {edges.duplicates:,} duplicates"
    yield "  pairs", f"{symmetric[edges.is_symmetric]}; {odd}"
    if edges.arrays:
        yield "  with", ", ".join(edges.arrays)


def _balance_lines(balance: Balance) -> Iterator[tuple[str, str]]:
    unknown = f", {balance.unknown:,} unknown" if balance.unknown else ""
    if balance.values is not None:
        yield "target", f"regression{unknown}; {balance.values}"
        return
    what = "classes" if balance.kind == "classification" else "labels"
    yield what, f"{len(balance.counts):,}{unknown}"
    total = max(1, sum(balance.counts.values()))
    ranked = sorted(balance.counts.items(), key=lambda each: -each[1])
    for name, count in ranked[:MAX_CLASSES]:
        yield f"  {' '.join(name.split())[:19]}", f"{count:,} ({count / total:.1%})"
    if len(ranked) > MAX_CLASSES:
        rest = sum(count for _, count in ranked[MAX_CLASSES:])
        yield f"  {len(ranked) - MAX_CLASSES} others", f"{rest:,} ({rest / total:.1%})"
