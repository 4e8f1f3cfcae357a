"""check_split: whether the targets of a graph's nodes can be learnt with its split."""

from __future__ import annotations

import numpy as np

from dynagat.data import checks
from dynagat.data.ogb import SETS
from dynagat.data.store import SPLITS, GraphData


def check_split(data: GraphData) -> None:
    """Every node is in one part at most and has a known target; each class has training nodes.

    OGB's splits are used as published: in ogbn-products the classes 42 to 46 have no training
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
            raise ValueError(
                f"{name} of {data.name} must hold nodes with known targets, but {len(nodes)} of "
                f"{len(index)} have none, such as node {nodes[0]}"
            )


def _check_classes(data: GraphData, parts: dict[str, np.ndarray]) -> None:
    """Every class of valid and test has a name and, except in OGB's splits, training nodes."""
    y, names = np.asarray(data.y), data.task["classes"]
    counts = {part: np.bincount(y[index], minlength=len(names)) for part, index in parts.items()}
    highest = max((len(each) for each in counts.values()), default=0) - 1
    if highest >= len(names):
        raise ValueError(f"y of {data.name} holds class {highest}, but it has {len(names)} classes")
    if data.name in SETS:
        return
    none = np.zeros(len(names), np.int64)
    evaluated = counts.get("valid", none) + counts.get("test", none)
    untrained = np.flatnonzero((evaluated > 0) & (counts.get("train", none) == 0))
    if len(untrained):
        classes = ", ".join(f"{names[each]!r} ({evaluated[each]} nodes)" for each in untrained)
        raise ValueError(
            f"every class of {data.name} must have training nodes, but {classes} "
            f"{'is' if len(untrained) == 1 else 'are'} in valid and test only"
        )
