"""GraphData: a graph with its features, targets and split, as a value; and the graph store.

A stored graph is a folder of plain arrays (data/arrays.py), under its name in the store:
nodes/TYPE/NAME.npy, edges/KEY__RELATION__QUERY/NAME.npy, split/NAME.npy. Arrays of an opened graph
are mapped from their files and read on access.
"""

from __future__ import annotations

import hashlib
import operator
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagat.data import arrays as folders
from dynagat.data.arrays import Array, FolderError
from dynagat.data.checks import check_count
from dynagat.data.elements import EDGE, NODE, SPLITS, Edges, EdgeType, Nodes, tensor
from dynagat.data.to_pyg import to_pyg
from dynagat.graph import Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

__all__ = ["EDGE", "KIND", "NODE", "SPLITS", "EdgeType", "Edges", "GraphData", "Nodes"]
__all__ += [
    "cache_folder",
    "check_name",
    "copy_folder",
    "described",
    "find_folder",
    "flat",
    "open_graph",
]
__all__ += ["raw_folders", "store_folder", "stored_names", "tensor"]

KIND = "graph"
NAME = re.compile(r"[\w][\w.+-]*")


@dataclass(frozen=True, eq=False)
class GraphData:
    """Nodes and edges by type, a split, and `about`, a dictionary that can be stored as JSON.

    about["task"] says what is predicted, if anything:
      kind: "classification": y is [N] int64, -1 where unknown;
            "multilabel": y is [N, T] float32 of 0 and 1, nan where unknown;
            "regression": y is [N] float32 or float64, nan where unknown;
            "links": the split holds pairs of nodes.
      node_type: the type of the nodes that have y.
      classes: the names of the classes or labels.   target: the name of the target.
    about["source"] is the origin of the graph.

    The split holds node indices as "train", "valid" and "test". For links it holds arrays such as
    "train/edge" [n, 2] and "valid/edge_neg".
    """

    name: str
    nodes: Mapping[str, Nodes]
    edges: Mapping[EdgeType, Edges]
    split: Mapping[str, np.ndarray] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None  # None if it is not stored

    def __post_init__(self) -> None:
        for kind, nodes in self.nodes.items():
            for name, array in nodes.arrays.items():
                _check_length(f"{name} of nodes {kind}", array, nodes.count)
        for kind, edges in self.edges.items():
            for end in (kind[0], kind[2]):
                if end not in self.nodes:
                    raise ValueError(
                        f"edges {'-'.join(kind)} need nodes of type {end!r}, which are missing"
                    )
            _check_length(f"query_index of edges {'-'.join(kind)}", edges.query_index, edges.count)
            for name, array in edges.arrays.items():
                _check_length(f"{name} of edges {'-'.join(kind)}", array, edges.count)

    @property
    def task(self) -> Mapping[str, Any]:
        return self.about.get("task", {})

    @property
    def node_type(self) -> str:
        """The type of the nodes that have targets, or the only type."""
        if "node_type" in self.task:
            return self.task["node_type"]
        if len(self.nodes) > 1:
            raise ValueError(f"{self.name} has nodes of several types: {', '.join(self.nodes)}")
        return next(iter(self.nodes))

    @property
    def num_nodes(self) -> int:
        return self.nodes[self.node_type].count

    @property
    def num_edges(self) -> int:
        return sum(edges.count for edges in self.edges.values())

    @property
    def x(self) -> np.ndarray:
        """[N, features] of the nodes that have targets."""
        return self._node_array("x")

    @property
    def y(self) -> np.ndarray:
        return self._node_array("y")

    def _node_array(self, name: str) -> Any:
        arrays = self.nodes[self.node_type].arrays
        if name not in arrays:
            raise ValueError(f"{self.name} has no {name}; its nodes have {', '.join(arrays)}")
        return arrays[name]

    def only(self, relation: str) -> GraphData:
        """The graph of one relation between the nodes that have targets."""
        kind = (self.node_type, relation, self.node_type)
        if kind not in self.edges:
            known = ", ".join("-".join(each) for each in self.edges)
            raise ValueError(f"{self.name} has no edges {'-'.join(kind)}; it has {known}")
        nodes = {self.node_type: self.nodes[self.node_type]}
        return replace(self, nodes=nodes, edges={kind: self.edges[kind]}, folder=None)

    @property
    def sole_edges(self) -> Edges:
        """The edges of a graph with one type of nodes and one relation; an error for others."""
        if len(self.edges) != 1 or len(self.nodes) != 1:
            known = ", ".join("-".join(each) for each in self.edges)
            raise ValueError(f"{self.name} has edges of several types: {known}; pick with only()")
        return next(iter(self.edges.values()))

    def symmetric(self) -> GraphData:
        """The graph with each edge in both directions, once; edge attributes are dropped."""
        edges = self.sole_edges
        key, query = _symmetric(edges.key_index, edges.query_index, self.num_nodes)
        kind = next(iter(self.edges))
        return replace(self, edges={kind: Edges(key, query)}, folder=None)

    def without_loops(self) -> GraphData:
        """The graph without self-loops."""
        edges = self.sole_edges
        kept = edges.key_index != edges.query_index
        arrays = {name: array[kept] for name, array in edges.arrays.items()}
        others = Edges(edges.key_index[kept], edges.query_index[kept], arrays)
        return replace(self, edges={next(iter(self.edges)): others}, folder=None)

    def graph(self, *, self_loops: bool = False) -> Graph:
        """The Graph of these edges, which must be of one type."""
        edges = self.sole_edges
        query, key = tensor(edges.query_index), tensor(edges.key_index)
        return Graph.from_edges(query, key, self.num_nodes, self_loops=self_loops)

    def to_pyg(self) -> Data | HeteroData:
        """A PyG Data, or a HeteroData if there are several types; with masks of the split."""
        return to_pyg(self.nodes, self.edges, self.split, self.node_type if self.split else NODE)

    def save(self, path: Path | str | None = None, *, replace: bool = False) -> GraphData:
        """Write it, by default under its name in the store, and return the stored graph."""
        path = store_folder() / check_name(self.name) if path is None else Path(path)
        with folders.write_folder(path, KIND, replace=replace) as writer:
            for name, array in flat(self).items():
                writer.add(name, array)
            writer.about = described(self)
        return open_graph(path)


def flat(data: GraphData) -> dict[str, Array]:
    """All arrays, by the names under which they are stored."""
    arrays: dict[str, Array] = {}
    for kind, nodes in data.nodes.items():
        arrays |= {f"nodes/{kind}/{name}": array for name, array in nodes.arrays.items()}
    for kind, edges in data.edges.items():
        base = f"edges/{'__'.join(kind)}"
        arrays |= {f"{base}/key_index": edges.key_index, f"{base}/query_index": edges.query_index}
        arrays |= {f"{base}/{name}": array for name, array in edges.arrays.items()}
    return arrays | {f"split/{name}": array for name, array in data.split.items()}


def described(data: GraphData) -> dict[str, Any]:
    """The metadata that is stored with the arrays of a graph."""
    counts = {kind: nodes.count for kind, nodes in data.nodes.items()}
    return {
        "name": data.name,
        "nodes": counts,
        "edges": [list(kind) for kind in data.edges],
        "about": dict(data.about),
    }


def open_graph(name: Path | str, *, verify: bool | None = None) -> GraphData:
    """Open the graph in a folder, or with this name in the store.

    `verify` is that of arrays.read_folder.
    """
    path = find_folder(name)
    arrays, metadata = folders.read_folder(path, KIND, verify=verify)
    try:
        for count in metadata["nodes"].values():
            check_count(operator.index(count), path)
        nodes = {
            kind: Nodes(count, _below(arrays, f"nodes/{kind}/"))
            for kind, count in metadata["nodes"].items()
        }
        edges = {}
        for kind in map(tuple, metadata["edges"]):
            inner = _below(arrays, f"edges/{'__'.join(kind)}/")
            edges[kind] = Edges(inner.pop("key_index"), inner.pop("query_index"), inner)
        split = _below(arrays, "split/")
        return GraphData(metadata["name"], nodes, edges, split, metadata["about"], path)
    except (KeyError, TypeError, AttributeError):
        raise FolderError(f"{path} was altered: it is not a graph that dynagat wrote") from None


def find_folder(name: Path | str) -> Path:
    """The folder of a graph, given by its path or by its name in the store."""
    places = [Path(name), copy_folder(name)]
    for path in [each for each in places if (each / folders.LIST).is_file()] + places[::-1]:
        if path.is_dir():
            return path
    known = ", ".join(stored_names()) or "none"
    raise FolderError(f"there is no stored graph {str(name)!r}; {store_folder()} has {known}")


def copy_folder(name: Path | str) -> Path:
    """Where a host of a cluster keeps a graph: in its store, or the copy of a folder elsewhere."""
    if not Path(name).is_absolute():
        return store_folder() / name
    return cache_folder() / "copies" / hashlib.sha256(str(name).encode()).hexdigest()[:16]


def stored_names() -> list[str]:
    """The names of all graphs in the store."""
    return sorted(path.parent.name for path in store_folder().glob(f"[!.]*/{folders.LIST}"))


def store_folder() -> Path:
    """The folder of stored graphs: `store` in the cache folder."""
    return cache_folder() / "store"


def cache_folder() -> Path:
    """DYNAGAT_CACHE if it is set, else `dynagat` in the user's cache folder."""
    named = os.environ.get("DYNAGAT_CACHE")
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else usual / "dynagat"


def raw_folders(name: str) -> list[Path]:
    """The folders to search for a dataset's files: in DYNAGAT_DATA, then in the cache folder."""
    named = os.environ.get("DYNAGAT_DATA")
    places = [Path(named)] if named else []
    return [place / name for place in [*places, cache_folder() / "raw"]]


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"a graph's name must consist of letters, digits and . - + _, but is {name!r}"
        )
    return name


def _below(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names start with a prefix, without it."""
    return {n.removeprefix(prefix): each for n, each in arrays.items() if n.startswith(prefix)}


def _check_length(name: str, array: Any, count: int) -> None:
    if len(array) != count:
        raise ValueError(f"{name} must have {count} rows, but has {len(array)}")


def _symmetric(key: np.ndarray, query: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs in both directions, without duplicates, sorted by query and then by key."""
    code = np.concatenate([
        query.astype(np.int64) * count + key,
        key.astype(np.int64) * count + query,
    ])  # fmt: skip
    code.sort()
    code = code[np.concatenate([[True], code[1:] != code[:-1]])] if len(code) else code
    kind = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    return (code % count).astype(kind), (code // count).astype(kind)
