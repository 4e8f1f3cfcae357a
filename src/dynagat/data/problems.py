"""What a graph must satisfy before its nodes' targets are learnt, each told in a sentence."""

from __future__ import annotations

import numpy as np

from dynagat.data import checks
from dynagat.data.ogb import SETS
from dynagat.data.store import SPLITS, GraphData


def check_split(data: GraphData) -> None:
    """Parts hold nodes, each in one part, with known targets; each class has training nodes.

    OGB's splits stand as they are published: in ogbn-products the classes 42 to 46 have no training
    nodes, but 1.6% of the test nodes (snap-stanford/ogb, issue 299).
    """
    kind = data.task.get("kind")
    if kind == "links":
        return
    parts = {name: np.asarray(data.split[name]) for name in SPLITS if name in data.split}
    checks.check_split(parts, data.num_nodes, f"the split of {data.name}")
    if kind in ("classification", "regression"):
        _check_known(data, parts)
    if kind == "classification":
        _check_classes(data, parts)


def _check_known(data: GraphData, parts: dict[str, np.ndarray]) -> None:
    y = np.asarray(data.y)
    unknown = np.isnan(y) if y.dtype.kind == "f" else y < 0
    for name, index in parts.items():
        nodes = index[unknown[index]]
        if len(nodes):
            told = f"{name} of {data.name} must hold nodes with known targets, but {len(nodes)} of"
            raise ValueError(f"{told} {len(index)} have none, such as node {nodes[0]}")


def _check_classes(data: GraphData, parts: dict[str, np.ndarray]) -> None:
    """Every class that is asked for has a name and, unless OGB has split so, training nodes."""
    y, names = np.asarray(data.y), data.task["classes"]
    counts = {part: np.bincount(y[index], minlength=len(names)) for part, index in parts.items()}
    most = max((len(each) for each in counts.values()), default=0)
    if most > len(names):
        raise ValueError(
            f"y of {data.name} holds class {most - 1}, but it has {len(names)} classes"
        )
    if data.name in SETS:
        return
    none = np.zeros(len(names), np.int64)
    asked = counts.get("valid", none) + counts.get("test", none)
    untrained = np.flatnonzero((asked > 0) & (counts.get("train", none) == 0))
    if len(untrained):
        told = ", ".join(f"{names[each]!r} ({asked[each]} nodes)" for each in untrained)
        raise ValueError(
            f"every class of {data.name} must have training nodes, but {told} "
            f"{'is' if len(untrained) == 1 else 'are'} in valid and test only"
        )
