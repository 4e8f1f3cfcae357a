"""A graph from a plain .npz file: features, edges, labels and a split, under common names.

features   x; or attr_data, attr_indices, attr_indptr, attr_shape (CSR, as in Amazon's files)
edges      edge_index [2, E]; or row and col; or adj_data, adj_indices, adj_indptr, adj_shape.
           A row is the key, a column the query: PyG's source and target.
labels     y, or labels
split      train, valid (or val) and test, as indices; or train_mask, ..., as booleans
of edges   edge_attr, edge_weight, and other edge_NAME with a row per edge
num_nodes  if there are neither features nor labels

Edges are read as they are; `both=True` stores each in both directions, once, without self-loops, as
PyG does for Amazon's graphs.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.blocks import reading
from dynagat.data.checks import check_ends, check_finite, check_split, index_dtype
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes, check_name
from dynagat.data.targets import targets

Arrays = dict[str, np.ndarray]
PARTS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test",)}
# Other arrays are ignored: in the original Amazon files, names are pickled objects.
KNOWN = re.compile(
    r"x|y|labels|row|col|num_nodes|edge_\w+|(adj|attr)_(data|indices|indptr|shape)"
    r"|(train|valid|val|test)(_mask)?"
)


def read_npz(
    path: Path | str,
    name: str | None = None,
    *,
    split: Path | str | None = None,
    both: bool = False,
) -> GraphData:
    """The graph of a file; `split` is another file with its split. Nothing is unpickled."""
    path = Path(path)
    raw = _load(path)
    key, query, arrays = _edges(raw, path)
    x, y = _features(raw, path), raw.get("y", raw.get("labels"))
    count = _count(raw, x, y, key, query, path)
    for index in (key, query):
        check_ends(index, count, path)
    nodes: Arrays = {} if x is None else {"x": x}
    about: dict[str, Any] = {"source": path.name}
    if y is not None:
        nodes["y"], task = targets(y, f"{path}: the labels")
        about["task"] = {**task, "node_type": NODE, "target": "y" if "y" in raw else "labels"}
    parts = _split(raw if split is None else _load(Path(split)), count, split or path)
    kinds, dtype = {NODE: Nodes(count, nodes)}, index_dtype(count)
    edges = {EDGE: Edges(key.astype(dtype), query.astype(dtype), arrays)}
    graph = GraphData(check_name(name or path.stem), kinds, edges, parts, about)
    return _both_directions(graph) if both else graph


def _load(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        path.stat()  # raises an error if the file is missing
        raise ValueError(f"{path} was cut short or altered: it is not an .npz file")
    with reading(path), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if KNOWN.fullmatch(name)}


def _edges(raw: Arrays, path: Path) -> tuple[np.ndarray, np.ndarray, Arrays]:
    arrays = {
        name.removeprefix("edge_"): array
        for name, array in raw.items()
        if name.startswith("edge_") and name != "edge_index"
    }
    if "edge_index" in raw:
        index = raw["edge_index"]
        if index.ndim != 2 or len(index) != 2 or index.dtype.kind not in "iu":
            actual = f"{index.dtype} {list(index.shape)}"
            raise ValueError(f"{path}: edge_index must be integers [2, E], but is {actual}")
        return index[0], index[1], arrays
    if "row" in raw and "col" in raw:
        return raw["row"], raw["col"], arrays
    if "adj_indptr" in raw:
        row, column, _ = _entries(raw, "adj", path)
        return row, column, arrays
    known = "edge_index; row and col; or adj_indptr and adj_indices"
    raise ValueError(f"{path} must have {known}, but has {', '.join(raw)}")


def _entries(raw: Arrays, what: str, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and value of each entry of a CSR matrix."""
    names = [f"{what}_{part}" for part in ("data", "indices", "indptr", "shape")]
    if missing := [name for name in names if name not in raw]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(raw)}")
    data, indices, indptr, shape = (raw[name] for name in names)
    is_whole = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(indices)
    if not is_whole or (np.diff(indptr) < 0).any() or len(data) != len(indices):
        raise ValueError(
            f"{path}: {what}_data, _indices and _indptr must form a CSR matrix, but do not"
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        actual = f"{indices.min()} to {indices.max()}"
        raise ValueError(f"{path}: {what}_indices must lie in [0, {shape[1]}), but are {actual}")
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices, data


def _features(raw: Arrays, path: Path) -> np.ndarray | None:
    if "attr_indptr" in raw:
        row, column, data = _entries(raw, "attr", path)
        x = np.zeros(tuple(raw["attr_shape"]), np.float32)
        x[row, column] = data
    elif "x" not in raw:
        return None
    else:
        x = raw["x"]
        x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise ValueError(f"{path}: x must be numbers [N, features], but is {x.dtype} {x.shape}")
    check_finite(x, f"{path}: x")
    return x


def _count(raw: Arrays, x: Any, y: Any, key: Any, query: Any, path: Path) -> int:
    counts = {
        "num_nodes": int(raw["num_nodes"]) if "num_nodes" in raw else None,
        "x": None if x is None else len(x),
        "y": None if y is None else len(y),
        "adj": int(raw["adj_shape"][0]) if "adj_shape" in raw else None,
    }
    known = {name: count for name, count in counts.items() if count is not None}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in known.items())
        raise ValueError(f"{path}: the numbers of nodes must agree, but are {listed}")
    if not known:
        return int(max(key.max(initial=-1), query.max(initial=-1))) + 1
    return next(iter(known.values()))


def _split(raw: Arrays, count: int, source: Any) -> Arrays:
    split: Arrays = {}
    for part, names in PARTS.items():
        for name in names:
            if name in raw:
                split[part] = raw[name]
            elif f"{name}_mask" in raw:
                mask = raw[f"{name}_mask"]
                if mask.shape != (count,):
                    actual = list(mask.shape)
                    raise ValueError(
                        f"{source}: {name}_mask must be of shape [{count}], but is {actual}"
                    )
                split[part] = np.nonzero(mask)[0]
    check_split(split, count, source)
    return split


def _both_directions(graph: GraphData) -> GraphData:
    edges = graph.sole_edges
    kept = edges.key_index != edges.query_index
    without_loops = Edges(edges.key_index[kept], edges.query_index[kept])
    return replace(graph, edges={EDGE: without_loops}).symmetric()
