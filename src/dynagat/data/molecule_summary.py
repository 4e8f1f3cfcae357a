"""describe_molecules: numbers of molecules, elements and bonds, and the target, as a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dynagat.data.assumptions import assumptions
from dynagat.data.description import Summary
from dynagat.data.molecules import BOND, BOND_TYPES, GRAPH, NUMBER, SYMBOLS
from dynagat.data.store import NODE, GraphData


def describe_molecules(data: GraphData) -> str:
    lines = list(_lines(data))
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in lines)


def _lines(data: GraphData) -> Iterator[tuple[str, str]]:
    graphs = data.nodes[GRAPH]
    yield "molecules", f"{graphs.count:,} of {data.about['source']}"
    for name, key in (("atoms", "num_nodes"), ("bonds", "num_edges")):
        yield f"{name} of each", str(_summary(np.asarray(graphs.arrays[key])))
    numbers = np.asarray(data.nodes[NODE].arrays["x"])[:, NUMBER].astype(np.int64)
    found, counts = np.unique(numbers, return_counts=True)
    yield "elements", _listed([SYMBOLS[n] for n in found], counts)
    kinds = np.bincount(np.asarray(data.edges[BOND].arrays["type"]), minlength=1 + len(BOND_TYPES))
    yield "bonds", _listed(BOND_TYPES, kinds[1:])
    if data.task.get("kind") == "regression":
        yield "target", str(_summary(np.asarray(data.y)))
    elif data.task.get("kind") == "classification":
        classes = data.task["classes"]
        yield "classes", _listed(classes, np.bincount(np.asarray(data.y), minlength=len(classes)))
    yield "split", ", ".join(f"{part} {len(rows):,}" for part, rows in data.split.items())
    for number, sentence in enumerate(assumptions(data)):
        yield "" if number else "read as", sentence


def _summary(values: np.ndarray) -> Summary:
    numbers = (values.min(), np.median(values), values.mean(), values.max())
    return Summary(*map(float, numbers))


def _listed(names: Sequence[str], counts: np.ndarray) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
