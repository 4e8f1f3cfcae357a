"""A graph from a plain .npz file: features, edges, labels and a split, under common names.

features   x; or attr_data, attr_indices, attr_indptr, attr_shape (CSR, as in Amazon's files)
edges      edge_index [2, E]; or row and col; or adj_data, adj_indices, adj_indptr, adj_shape.
           A row is the key, a column the query: PyG's source and target.
labels     y, or labels
split      train, valid (or val) and test, as indices; or train_mask, ..., as booleans
of edges   edge_attr, edge_weight, and other edge_NAME with a row per edge
num_nodes  if there are neither features nor labels

As in tables, each edge is stored in both directions, once, unless the graph is read as directed.
Values of edges need that, since merged edges may differ in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data import csr
from dynagat.data.checks import check_count, check_ends, check_finite, check_split, index_dtype
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes, check_name
from dynagat.data.targets import targets
from dynagat.npz_file import read_arrays

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
    directed: bool = False,
) -> GraphData:
    """The graph of a file; `split` is another file with its split. Nothing is unpickled.

    `directed` keeps the direction of edges. Otherwise each is stored in both directions, once.
    """
    path = Path(path)
    raw = _load(path)
    key, query, arrays = _edges(raw, path)
    x, y = _features(raw, path), raw.get("y", raw.get("labels"))
    if arrays and not directed:
        names = ", ".join(f"edge_{name}" for name in arrays)
        raise ValueError(
            f"{path} has {names}, in which merged edges may differ: read it with directed=True "
            "(--directed)"
        )
    count = _count(raw, x, y, key, query, path)
    check_count(count, path)
    for index in (key, query):
        check_ends(index, count, path)
    nodes: Arrays = {} if x is None else {"x": x}
    about: dict[str, Any] = {"source": path.name, "directed": directed}
    if y is not None:
        nodes["y"], task = targets(y, f"{path}: the labels")
        about["task"] = {**task, "node_type": NODE, "target": "y" if "y" in raw else "labels"}
    parts = _split(raw if split is None else _load(Path(split)), count, split or path)
    kinds, dtype = {NODE: Nodes(count, nodes)}, index_dtype(count)
    edges = {EDGE: Edges(key.astype(dtype), query.astype(dtype), arrays)}
    graph = GraphData(check_name(name or path.stem), kinds, edges, parts, about)
    return graph if directed else graph.symmetric()


def _load(path: Path) -> Arrays:
    return read_arrays(path, KNOWN.fullmatch)


def _edges(raw: Arrays, path: Path) -> tuple[np.ndarray, np.ndarray, Arrays]:
    arrays = {
        name.removeprefix("edge_"): array
        for name, array in raw.items()
        if name.startswith("edge_") and name != "edge_index"
    }
    for name, array in arrays.items():
        if array.ndim == 0:
            raise ValueError(f"{path}: edge_{name} must have a row per edge, but is one number")
    if "edge_index" in raw:
        index = raw["edge_index"]
        if index.ndim != 2 or len(index) != 2 or index.dtype.kind not in "iu":
            actual = f"{index.dtype} {list(index.shape)}"
            raise ValueError(f"{path}: edge_index must be integers [2, E], but is {actual}")
        return index[0], index[1], arrays
    if "row" in raw and "col" in raw:
        row, column = raw["row"], raw["col"]
        kinds = row.dtype.kind + column.dtype.kind
        if row.ndim != 1 or row.shape != column.shape or not set(kinds) <= set("iu"):
            raise ValueError(f"{path}: row and col must be two vectors of integers, equally long")
        return row, column, arrays
    if "adj_indptr" in raw:
        matrix = _matrix(raw, "adj", path)
        _explained(csr.check_csr, matrix, "adj", path)
        return csr.row_index(matrix[2]), matrix[1], arrays
    known = "edge_index; row and col; or adj_indptr and adj_indices"
    raise ValueError(f"{path} must have {known}, but has {', '.join(raw)}")


def _matrix(raw: Arrays, what: str, path: Path) -> list[np.ndarray]:
    """data, indices, indptr and shape of a CSR matrix."""
    names = [f"{what}_{part}" for part in ("data", "indices", "indptr", "shape")]
    if missing := [name for name in names if name not in raw]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(raw)}")
    return [raw[name] for name in names]


def _explained(function: Any, matrix: list[np.ndarray], what: str, path: Path) -> Any:
    try:
        return function(*matrix)
    except ValueError as error:
        raise ValueError(f"{path}: {what}_* must form a CSR matrix, but {error}") from None


def _features(raw: Arrays, path: Path) -> np.ndarray | None:
    if "attr_indptr" in raw:
        x = _explained(csr.dense, _matrix(raw, "attr", path), "attr", path)
    elif "x" not in raw:
        return None
    else:
        x = raw["x"]
        x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2:
        raise ValueError(f"{path}: x must be numbers [N, features], but is {x.dtype} {x.shape}")
    check_finite(x, f"{path}: x")
    return x


def _count(raw: Arrays, x: Any, y: Any, key: Any, query: Any, path: Path) -> int:
    given = raw.get("num_nodes")
    if given is not None and (given.size != 1 or given.dtype.kind not in "iu"):
        actual = f"{given.dtype} {list(given.shape)}"
        raise ValueError(f"{path}: num_nodes must be one integer, but is {actual}")
    if y is not None and y.ndim == 0:
        raise ValueError(f"{path}: the labels must be a vector, but are one number")
    counts = {
        "num_nodes": None if given is None else int(given.reshape(-1)[0]),
        "x": None if x is None else len(x),
        "y": None if y is None else len(y),
        "adj": raw["adj_indptr"].size - 1 if "adj_indptr" in raw else None,
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
