"""A graph from a plain .npz file: features, edges, labels and a split, by the names in use.

features   x; or attr_data, attr_indices, attr_indptr, attr_shape (CSR, as Amazon's files have it)
edges      edge_index [2, E]; or row and col; or adj_data, adj_indices, adj_indptr, adj_shape.
           A row is the key, a column the query: PyG's source and target.
labels     y, or labels
split      train, valid (or val) and test, as indices; or train_mask, ..., as booleans
of edges   edge_attr, edge_weight, and others edge_NAME with a row per edge
num_nodes  where neither features nor labels tell

Edges are as in the file; `both=True` stores them in both directions, each once, without self-loops,
as PyG reads Amazon's.
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
# others are left alone: the original Amazon files keep names as pickled objects
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
    """The graph of a file; `split` is another file that holds its split. Nothing is unpickled."""
    path = Path(path)
    held = _load(path)
    key, query, arrays = _edges(held, path)
    x, y = _features(held, path), held.get("y", held.get("labels"))
    count = _count(held, x, y, key, query, path)
    for index in (key, query):
        check_ends(index, count, path)
    nodes: Arrays = {} if x is None else {"x": x}
    about: dict[str, Any] = {"source": path.name}
    if y is not None:
        nodes["y"], task = targets(y, f"{path}: the labels")
        about["task"] = {**task, "node_type": NODE, "target": "y" if "y" in held else "labels"}
    parts = _split(held if split is None else _load(Path(split)), count, split or path)
    kinds, dtype = {NODE: Nodes(count, nodes)}, index_dtype(count)
    edges = {EDGE: Edges(key.astype(dtype), query.astype(dtype), arrays)}
    graph = GraphData(check_name(name or path.stem), kinds, edges, parts, about)
    return _both(graph) if both else graph


def _load(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        path.stat()  # first, whether it is there
        raise ValueError(f"{path} was cut short or altered: it is no .npz file")
    with reading(path), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if KNOWN.fullmatch(name)}


def _edges(held: Arrays, path: Path) -> tuple[np.ndarray, np.ndarray, Arrays]:
    arrays = {
        name.removeprefix("edge_"): array
        for name, array in held.items()
        if name.startswith("edge_") and name != "edge_index"
    }
    if "edge_index" in held:
        index = held["edge_index"]
        if index.ndim != 2 or len(index) != 2 or index.dtype.kind not in "iu":
            told = f"{index.dtype} {list(index.shape)}"
            raise ValueError(f"{path}: edge_index must be whole numbers [2, E], but is {told}")
        return index[0], index[1], arrays
    if "row" in held and "col" in held:
        return held["row"], held["col"], arrays
    if "adj_indptr" in held:
        row, column, _ = _entries(held, "adj", path)
        return row, column, arrays
    known = "edge_index; row and col; or adj_indptr and adj_indices"
    raise ValueError(f"{path} must have {known}, but has {', '.join(held)}")


def _entries(held: Arrays, what: str, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and value of each entry of a CSR matrix."""
    names = [f"{what}_{part}" for part in ("data", "indices", "indptr", "shape")]
    if missing := [name for name in names if name not in held]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(held)}")
    data, indices, indptr, shape = (held[name] for name in names)
    is_whole = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(indices)
    if not is_whole or (np.diff(indptr) < 0).any() or len(data) != len(indices):
        raise ValueError(f"{path}: {what}_* must be the parts of a CSR matrix, but are not")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        told = f"[{indices.min()}, {indices.max()}]"
        raise ValueError(f"{path}: {what}_indices must lie in [0, {shape[1]}), but span {told}")
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices, data


def _features(held: Arrays, path: Path) -> np.ndarray | None:
    if "attr_indptr" in held:
        row, column, data = _entries(held, "attr", path)
        x = np.zeros(tuple(held["attr_shape"]), np.float32)
        x[row, column] = data
    elif "x" not in held:
        return None
    else:
        x = held["x"]
        x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise ValueError(f"{path}: x must be numbers [N, features], but is {x.dtype} {x.shape}")
    check_finite(x, f"{path}: x")
    return x


def _count(held: Arrays, x: Any, y: Any, key: Any, query: Any, path: Path) -> int:
    counts = {
        "num_nodes": int(held["num_nodes"]) if "num_nodes" in held else None,
        "x": None if x is None else len(x),
        "y": None if y is None else len(y),
        "adj": int(held["adj_shape"][0]) if "adj_shape" in held else None,
    }
    told = {name: count for name, count in counts.items() if count is not None}
    if len(set(told.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in told.items())
        raise ValueError(f"{path}: numbers of nodes must agree, but are {listed}")
    if not told:
        return int(max(key.max(initial=-1), query.max(initial=-1))) + 1
    return next(iter(told.values()))


def _split(held: Arrays, count: int, source: Any) -> Arrays:
    found: Arrays = {}
    for part, names in PARTS.items():
        for name in names:
            if name in held:
                found[part] = held[name]
            elif f"{name}_mask" in held:
                mask = held[f"{name}_mask"]
                if mask.shape != (count,):
                    told = f"[{count}], but is {list(mask.shape)}"
                    raise ValueError(f"{source}: {name}_mask must be of shape {told}")
                found[part] = np.nonzero(mask)[0]
    check_split(found, count, source)
    return found


def _both(graph: GraphData) -> GraphData:
    edges = graph.sole_edges
    kept = edges.key_index != edges.query_index
    without_loops = Edges(edges.key_index[kept], edges.query_index[kept])
    return replace(graph, edges={EDGE: without_loops}).symmetric()
