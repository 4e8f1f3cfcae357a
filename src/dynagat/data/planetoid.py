"""Planetoid's citation graphs (PubMed, Cora, Citeseer) from their original ind.NAME.* files.

Edges are stored in both directions, once each, and without the self-loops of the files (PubMed has
3, Citeseer 124), which gives the published counts. Features are those of the files; row
normalisation is left to the benchmarks. Nodes of Citeseer that are missing in the files get zero
features and the unknown class -1.
"""

from __future__ import annotations

import re
import reprlib
from pathlib import Path

import numpy as np

from dynagat.data.blocks import reading
from dynagat.data.checks import check_finite, check_split, index_dtype
from dynagat.data.pickles import SparseRows, read_pickle
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
NUM_VALID = 500  # the nodes after the training nodes, as in all published results


def read_planetoid(folder: Path | str, name: str | None = None) -> GraphData:
    """The graph of a folder's ind.NAME.* files; NAME is optional if the folder holds one graph."""
    folder = Path(folder)
    file_name = _file_name(folder, name)
    paths = {part: folder / f"ind.{file_name}.{part}" for part in PARTS}
    for path in paths.values():
        if not path.is_file():
            expected = ", ".join(f"ind.{file_name}.{part}" for part in PARTS)
            raise ValueError(f"{path} is missing; Planetoid's files are {expected}")
    x_train, y_train = _dense(paths["x"]), _dense(paths["y"])
    if len(x_train) != len(y_train):
        expected = f"{len(y_train)} rows, like ind.{file_name}.y"
        raise ValueError(f"{paths['x']} must have {expected}, but has {len(x_train)}")
    test = _test_index(paths["test.index"])
    x, y = _all_rows(paths, "x", test), _all_rows(paths, "y", test)
    check_finite(x, f"{folder}: features")
    count = len(x)
    labels = np.where(y.any(1), y.argmax(1), -1).astype(np.int64)
    train = np.arange(len(y_train))
    split = {"train": train, "valid": np.arange(len(train), len(train) + NUM_VALID), "test": test}
    check_split(split, count, folder)
    classes = [str(each) for each in range(y.shape[1])]
    task = {"kind": "classification", "node_type": NODE, "classes": classes, "target": "topic"}
    about = {"task": task, "source": f"Planetoid, ind.{file_name}.* files"}
    nodes = {NODE: Nodes(count, {"x": x, "y": labels})}
    edges = {EDGE: _edges(paths["graph"], count)}
    return GraphData(name or file_name, nodes, edges, split, about).symmetric()


def _file_name(folder: Path, name: str | None) -> str:
    names = sorted(path.name.split(".")[1] for path in folder.glob("ind.*.graph"))
    if name is not None and (name in names or len(names) != 1):
        return name
    if len(names) != 1:
        known = ", ".join(names) or "none"
        raise ValueError(f"{folder} must hold the ind.*.graph file of one graph, but holds {known}")
    return names[0]


def _all_rows(paths: dict[str, Path], what: str, test: np.ndarray) -> np.ndarray:
    """The rows of all nodes: those of allx or ally, then those of tx or ty at the test nodes."""
    others, of_test = _dense(paths[f"all{what}"]), _dense(paths[f"t{what}"])
    if len(of_test) != len(test) or others.shape[1] != of_test.shape[1]:
        raise ValueError(
            f"{paths[f't{what}']} must have shape {(len(test), others.shape[1])}, "
            f"but has {of_test.shape}"
        )
    count = max(len(others), int(test.max()) + 1)
    if count > 2 * (len(others) + len(test)):  # Citeseer lacks 15 of its nodes
        raise ValueError(
            f"{paths['test.index']} holds node {count - 1}, but there are features of only "
            f"{len(others) + len(test)} nodes"
        )
    rows = np.zeros((count, others.shape[1]), np.float32)
    rows[: len(others)] = others
    rows[test] = of_test
    return rows


def _dense(path: Path) -> np.ndarray:
    matrix = read_pickle(path)
    if isinstance(matrix, SparseRows):
        try:
            return matrix.dense()
        except ValueError as error:
            raise ValueError(f"{path} was altered: {error}") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or not matrix.shape[1]:
        raise ValueError(
            f"{path} must hold a matrix of numbers, but holds a {type(matrix).__name__}"
        )
    return matrix


def _test_index(path: Path) -> np.ndarray:
    nodes = []
    with reading(path):
        lines = path.read_text("utf-8").splitlines()
    for line, text in enumerate(lines, 1):
        if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
            shown = reprlib.repr(text)
            raise ValueError(f"{path}, line {line}: must be a node index, but is {shown}")
        nodes.append(int(text))
    if not nodes:
        raise ValueError(f"{path} is empty, but must hold the indices of the test nodes")
    return np.array(nodes, np.int64)


def _edges(path: Path, count: int) -> Edges:
    """The pairs of a node and each of its neighbours, without self-loops."""
    graph = read_pickle(path)
    if not isinstance(graph, dict) or not all(isinstance(each, list) for each in graph.values()):
        raise ValueError(
            f"{path} must hold a dictionary of neighbour lists, but holds a {type(graph).__name__}"
        )
    degrees = [len(each) for each in graph.values()]
    if sum(degrees) > path.stat().st_size:
        raise ValueError(f"{path} was altered: it holds more neighbours than fit into it")
    for node in (*graph, *(node for each in graph.values() for node in each)):
        if type(node) is not int or not 0 <= node < count:
            shown = reprlib.repr(node)
            raise ValueError(f"{path} must hold nodes from 0 to {count - 1}, but holds {shown}")
    key = np.repeat(np.array(list(graph), np.int64), degrees)
    query = np.array([node for each in graph.values() for node in each], np.int64)
    kept = key != query
    dtype = index_dtype(count)
    return Edges(key[kept].astype(dtype), query[kept].astype(dtype))
