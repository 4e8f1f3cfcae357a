"""Planetoid's citation graphs (PubMed, Cora, Citeseer) from their original ind.NAME.* files.

Edges are stored in both directions, once each, without the self-loops of the files (PubMed has 3,
Citeseer 124), as the published counts say. Features are as in the files: whether rows are
divided by their sums is a benchmark's matter. Nodes of Citeseer that no file describes have
features of zero and an unknown class (-1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.checks import check_ends, check_split, index_dtype
from dynagat.data.pickles import SparseRows, read_pickle
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
NUM_VALID = 500  # the nodes after the training ones, in every published result


def read_planetoid(folder: Path | str, name: str | None = None) -> GraphData:
    """The graph of a folder's ind.NAME.* files; NAME is found if the folder holds one graph."""
    folder = Path(folder)
    file_name = _file_name(folder, name)
    paths = {part: folder / f"ind.{file_name}.{part}" for part in PARTS}
    for path in paths.values():
        if not path.is_file():
            expected = ", ".join(f"ind.{file_name}.{part}" for part in PARTS)
            raise ValueError(f"{path} is missing; Planetoid's files are {expected}")
    x_train, y_train = _dense(paths["x"]), _dense(paths["y"])
    if len(x_train) != len(y_train):
        told = f"{len(y_train)} rows as ind.{file_name}.y, but has {len(x_train)}"
        raise ValueError(f"{paths['x']} must have {told}")
    tested = _test_index(paths["test.index"])
    x, y = _whole(paths, "x", tested), _whole(paths, "y", tested)
    count = len(x)
    labels = np.where(y.any(1), y.argmax(1), -1).astype(np.int64)
    train = np.arange(len(y_train))
    split = {"train": train, "valid": np.arange(len(train), len(train) + NUM_VALID), "test": tested}
    check_split(split, count, folder)
    classes = [str(each) for each in range(y.shape[1])]
    task = {"kind": "classification", "node_type": NODE, "classes": classes, "target": "topic"}
    about = {"task": task, "source": f"Planetoid, ind.{file_name}.* files"}
    nodes = {NODE: Nodes(count, {"x": x, "y": labels})}
    edges = {EDGE: _edges(paths["graph"], count)}
    return GraphData(name or file_name, nodes, edges, split, about).symmetric()


def _file_name(folder: Path, name: str | None) -> str:
    found = sorted(path.name.split(".")[1] for path in folder.glob("ind.*.graph"))
    if name is not None and (name in found or len(found) != 1):
        return name
    if len(found) != 1:
        held = ", ".join(found) or "none"
        raise ValueError(f"{folder} must hold the ind.*.graph file of one graph, but holds {held}")
    return found[0]


def _whole(paths: dict[str, Path], what: str, tested: np.ndarray) -> np.ndarray:
    """Rows of all nodes: those of allx or ally, and those of the test nodes at their places."""
    known, test = _dense(paths[f"all{what}"]), _dense(paths[f"t{what}"])
    if len(test) != len(tested) or known.shape[1] != test.shape[1]:
        told = f"has shape {test.shape}, but {len(tested)} rows of {known.shape[1]} are expected"
        raise ValueError(f"{paths[f't{what}']} {told}")
    found = np.zeros((max(len(known), int(tested.max()) + 1), known.shape[1]), np.float32)
    found[: len(known)] = known
    found[tested] = test
    return found


def _dense(path: Path) -> np.ndarray:
    found = read_pickle(path)
    if isinstance(found, SparseRows):
        return found.dense()
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "biuf":
        raise ValueError(f"{path} must hold a matrix of numbers, but holds {_told(found)}")
    return found


def _test_index(path: Path) -> np.ndarray:
    found = []
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if not text.strip().isdigit():
            raise ValueError(f"{path}, line {line}: a node's number is expected, but is {text!r}")
        found.append(int(text))
    if not found:
        raise ValueError(f"{path} is empty; it must hold the numbers of the test nodes")
    return np.array(found, np.int64)


def _edges(path: Path, count: int) -> Edges:
    """The file's own pairs, without self-loops: a node and each of its neighbours."""
    graph = read_pickle(path)
    if not isinstance(graph, dict) or not all(isinstance(each, list) for each in graph.values()):
        raise ValueError(f"{path} must hold the lists of neighbours, but holds {_told(graph)}")
    degrees = [len(each) for each in graph.values()]
    key = np.repeat(np.array(list(graph), np.int64), degrees)
    query = np.array([node for each in graph.values() for node in each], np.int64)
    check_ends(np.stack([key, query], 1), count, path)
    kept = key != query
    dtype = index_dtype(count)
    return Edges(key[kept].astype(dtype), query[kept].astype(dtype))


def _told(value: Any) -> str:
    return f"a {type(value).__name__}"
