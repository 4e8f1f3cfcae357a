"""Sizes of a data set: of a stored graph, or as published, so that no data are needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from dynagat.data.catalog import CATALOG
from dynagat.data.ogb import SETS
from dynagat.data.store import SPLITS, GraphData, open_graph, stored_names


@dataclass(frozen=True)
class Sizes:
    """Numbers of what is trained on.

    Args:
        name: of the data set.
        nodes: of the type that has targets.
        stored: edges in the graph store.
        edges: edges that nodes attend to: in both directions, if training adds one of them.
        features: numbers per node.
        feature_bytes: of one of them.
        classes: or labels; 0 if nodes have no targets.
        train: nodes for training; all nodes, if there is no split of the nodes.
        origin: "stored" or "published".
    """

    name: str
    nodes: int
    stored: int
    edges: int
    features: int
    feature_bytes: int
    classes: int
    train: int
    origin: str


# Of a data set that is too large for the catalogue; of the one relation of ogbn-mag that is used;
# of ogbn-proteins, whose features are sums of those of edges.
PUBLISHED = {
    each.name: each
    for each in [
        Sizes("ogbn-papers100M", 111_059_956, 1_615_685_872, 2 * 1_615_685_872, 128, 4, 172,
              1_207_179, "published"),
        Sizes("ogbn-mag", 736_389, 5_416_271, 2 * 5_416_271, 128, 4, 349, 629_571, "published"),
        Sizes("ogbn-proteins", 132_534, 79_122_504, 79_122_504, 8, 4, 112, 86_619, "published"),
    ]
}  # fmt: skip


def find_sizes(name: str) -> Sizes:
    """The sizes of a stored graph, or else the published ones; a ValueError for other names."""
    if name in stored_names():
        return _of_stored(open_graph(name, verify=False))
    if name in PUBLISHED:
        return PUBLISHED[name]
    if name not in CATALOG:
        known = ", ".join(dict.fromkeys([*stored_names(), *CATALOG, *PUBLISHED]))
        raise ValueError(f"DATASET must be one of {known}, but is {name!r}")
    entry = CATALOG[name]
    has_split = name not in SETS or not SETS[name].is_links
    return Sizes(
        name=name,
        nodes=entry.nodes,
        stored=entry.edges,
        edges=_directed(name, entry.edges),
        features=entry.features,
        feature_bytes=4,
        classes=entry.classes,
        train=entry.split[0] if has_split else entry.nodes,
        origin="published",
    )


def _directed(name: str, stored: int) -> int:
    """Edges in both directions; only some of OGB's data sets are stored with one of them."""
    return 2 * stored if name in SETS and not SETS[name].both else stored


def _of_stored(data: GraphData) -> Sizes:
    """Of the nodes that have targets; if they have no edges, as molecules, of those with most."""
    count = Counter[str]()
    for kind, edges in data.edges.items():
        if kind[0] == kind[2]:
            count[kind[0]] += edges.count
    own = data.task.get("node_type") or (next(iter(data.nodes)) if len(data.nodes) == 1 else None)
    node_type = own if own in count or not count else count.most_common(1)[0][0]
    if node_type is None:
        raise ValueError(f"{data.name} has no edges between nodes of one type")
    nodes = data.nodes[node_type]
    x = nodes.arrays.get("x")
    width, itemsize = 0, 4
    if isinstance(x, np.ndarray) and x.ndim == 2:
        width, itemsize = x.shape[1], x.dtype.itemsize
    is_task = node_type == own and data.task.get("kind") != "links" and SPLITS[0] in data.split
    return Sizes(
        name=data.name,
        nodes=nodes.count,
        stored=count[node_type],
        edges=_directed(data.name, count[node_type]),
        features=width,
        feature_bytes=itemsize,
        classes=len(data.task.get("classes", ())) if is_task else 0,
        train=len(data.split[SPLITS[0]]) if is_task else nodes.count,
        origin="stored",
    )
