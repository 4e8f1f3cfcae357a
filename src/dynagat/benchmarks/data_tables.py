"""The paper's tables of its data sets: the printed numbers beside those of the data that are here.

Degree: mean number of distinct neighbours, without directions. The printed diameters are taken as
they are; ours of a large graph is a lower bound from seeded searches, that of molecules is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dynagat.data.catalog import load, missing
from dynagat.data.distances import STARTS, SWEEPS, SimpleGraph, least_diameter, molecule_diameters
from dynagat.data.molecules import GRAPH
from dynagat.data.programs.summary import describe_programs, find_programs
from dynagat.data.store import GraphData
from dynagat.report import wording
from dynagat.report.parts import Table

LARGEST = 50_000_000  # stored edges of a graph whose degree and diameter are computed


@dataclass(frozen=True)
class Sizes:
    """A line of a table: of a whole graph, or means over the graphs of one part."""

    part: str
    graphs: int | None
    nodes: float
    edges: float
    degree: float | None
    diameter: float | None


def _graph(nodes: int, edges: int, degree: float, diameter: int) -> tuple[Sizes, ...]:
    return (Sizes("", None, nodes, edges, degree, diameter),)


PRINTED: dict[str, tuple[Sizes, ...]] = {
    "ogbn-arxiv": _graph(169_343, 1_166_243, 13.7, 23),
    "ogbn-mag": _graph(1_939_743, 21_111_007, 21.7, 6),  # D26: the whole graph
    "ogbn-products": _graph(2_449_029, 61_859_140, 50.5, 27),
    "ogbn-proteins": _graph(132_534, 39_561_252, 597.0, 9),
    "ogbl-collab": _graph(235_868, 1_285_465, 8.2, 22),
    "ogbl-citation2": _graph(2_927_963, 30_561_187, 20.7, 21),
    "qm9": (
        Sizes("train", 110_462, 18.03, 18.65, None, 6.35),
        Sizes("valid", 10_000, 18.06, 18.67, None, 6.35),
        Sizes("test", 10_000, 18.09, 18.72, None, 6.35),
    ),
    "varmisuse": (
        Sizes("train", 254_360, 2377, 7298, None, 7.88),
        Sizes("valid", 42_654, 1742, 7851, None, 7.88),
        Sizes("test-unseen", 117_036, 1959, 5882, None, 7.78),
        Sizes("test-seen", 59_974, 3986, 12925, None, 7.82),
    ),
}
COLUMNS = ("data", "part", "source", "graphs", "nodes", "edges", "degree", "diameter")
LEGEND = (
    "paper: as printed. here: computed from the data that are here. Edges: each once, of link"
    " prediction with the links of all parts. Degree: mean number of distinct neighbours, without"
    f" directions. Diameter ≥: the longest distance that {STARTS * SWEEPS} breadth-first searches"
    f" found, {SWEEPS} from each of {STARTS} random nodes (seed 0), a lower bound. Of molecules and"
    " programs, numbers are means over graphs; the diameters of molecules are exact, those of"
    " programs are estimated on a sample."
)


def data_table(name: str | None = None, tell: Callable[[str], None] = lambda _: None) -> Table:
    """Of one data set, or of all that the paper has tables of; `tell` gets a line per data set."""
    if name is not None and name not in PRINTED:
        known = ", ".join(PRINTED)
        raise ValueError(f"the paper has no statistics of {name!r}; it has those of {known}")
    lines: list[list[str]] = []
    for each in PRINTED if name is None else [name]:
        tell(each)
        lines += _lines(each)
    return Table.of("Data sets", COLUMNS, lines, text_columns=3, legend=LEGEND)


def _lines(name: str) -> Iterator[list[str]]:
    own = {sizes.part: sizes for sizes in computed(name)}
    for printed in PRINTED[name]:
        yield [name, printed.part, "paper", *_cells(printed)]
        if printed.part in own:
            bound = "≥ " if printed.graphs is None else ""
            yield [name, printed.part, "here", *_cells(own[printed.part], bound)]
    if not own:
        yield [name, "", "not here", *[wording.NOTHING] * 5]


def computed(name: str) -> Iterator[Sizes]:
    """The sizes of a data set; nothing if it is not here."""
    programs = find_programs(name)
    if programs is not None:
        for part in describe_programs(programs).parts:
            means = part.mean_nodes, part.mean_edges, None, part.mean_diameter
            yield Sizes(part.part, part.graphs, *means)
    elif name in PRINTED and name != "varmisuse" and missing(name) is None:
        data = load(name)
        yield from _of_molecules(data) if GRAPH in data.nodes else [_of_graph(data)]


def _of_graph(data: GraphData) -> Sizes:
    nodes = sum(each.count for each in data.nodes.values())
    if data.num_edges > LARGEST:
        return Sizes("", None, nodes, data.num_edges, None, None)
    graph = SimpleGraph.of(data)
    return Sizes("", None, nodes, _num_edges(data), graph.degree, least_diameter(graph))


def _num_edges(data: GraphData) -> int:
    """Each once, where all are stored in both directions; with the links that are not edges."""
    total = sum(len(data.split[f"{part}/edge"]) for part in ("valid", "test")
                if f"{part}/edge" in data.split)  # fmt: skip
    for edges in data.edges.values():
        key, query = np.asarray(edges.key_index), np.asarray(edges.query_index)
        forward = np.sort(key.astype(np.int64) << 32 | query)
        backward = np.sort(query.astype(np.int64) << 32 | key)
        is_double = len(forward) > 0 and np.array_equal(forward, backward)
        total += edges.count // 2 if is_double else edges.count
    return total


def _of_molecules(data: GraphData) -> Iterator[Sizes]:
    graphs = data.nodes[GRAPH].arrays
    diameters = molecule_diameters(data)
    for part, rows in data.split.items():
        chosen = np.asarray(rows)
        if len(chosen):
            nodes, edges = (np.asarray(graphs[n])[chosen] for n in ("num_nodes", "num_edges"))
            means = float(nodes.mean()), float(edges.mean()), None, float(diameters[chosen].mean())
            yield Sizes(part, len(chosen), *means)


def _cells(sizes: Sizes, bound: str = "") -> list[str]:
    is_mean = sizes.graphs is not None
    diameter = sizes.diameter
    return [
        "" if sizes.graphs is None else f"{sizes.graphs:,}",
        f"{sizes.nodes:,.2f}" if is_mean else f"{sizes.nodes:,.0f}",
        f"{sizes.edges:,.2f}" if is_mean else f"{sizes.edges:,.0f}",
        wording.NOTHING if sizes.degree is None else f"{sizes.degree:.1f}",
        wording.NOTHING
        if diameter is None
        else f"{bound}{diameter:.2f}"
        if is_mean
        else f"{bound}{diameter:g}",
    ]
