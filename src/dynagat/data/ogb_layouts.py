"""The layouts that OGB's graphs come in, each told as what it has: counts, and rows to be read.

raw/edge.csv.gz                 one type of nodes, tables of text (arxiv, products, proteins, links)
raw/triplet-type-list.csv.gz    several types, tables of text (mag)
raw/data.npz                    one type of nodes, arrays
raw/edge_index_dict.npz         several types, arrays
adj_full.npz                    arxiv's edges as a CSR matrix in which a row cites its columns,
                                beside OGB's own labels, years and split
ogbl_ddi.npz                    ddi's edges and pairs, by the names of OGB's split

Of OGB's names node-feat becomes x, edge-feat becomes attr, node_year becomes year of nodes,
edge_weight becomes weight of edges, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from dynagat.data import blocks
from dynagat.data.blocks import Rows, csv_numbers, csv_rows, csv_table, npz_rows
from dynagat.data.store import EDGE, NODE, EdgeType

RELATION_SIGN = "___"
PAIR_BLOCK = 1 << 20  # edges of an array that are handed on at once


@dataclass(frozen=True)
class EdgeRows:
    """The edges of one relation: pairs are [key, query], OGB's source and target."""

    count: int
    pairs: Rows
    arrays: Mapping[str, Rows | np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    counts: Mapping[str, int]  # of nodes, by type
    nodes: Mapping[str, Mapping[str, Rows | np.ndarray]]
    edges: Mapping[EdgeType, EdgeRows]
    labels: Mapping[str, np.ndarray]  # by type: [N] or [N, labels] of float64, nan where not known
    pairs: Mapping[str, np.ndarray] = field(default_factory=dict)  # the split, if it came along


def read_layout(folder: Path) -> Layout:
    """Whichever layout a folder has."""
    raw = folder / "raw"
    known = {
        raw / "edge.csv.gz": _text,
        raw / "triplet-type-list.csv.gz": _typed_text,
        raw / "data.npz": _arrays,
        raw / "edge_index_dict.npz": _typed_arrays,
        folder / "adj_full.npz": _matrix,
        folder / "ogbl_ddi.npz": _drug_pairs,
    }
    for path, read in known.items():
        if path.is_file():
            return read(folder)
    names = ", ".join(str(path.relative_to(folder)) for path in known)
    raise ValueError(f"{folder} is no folder of OGB's files: it has none of {names}")


def _text(folder: Path) -> Layout:
    raw = folder / "raw"
    count, edge_count = _sole(raw / "num-node-list.csv.gz"), _sole(raw / "num-edge-list.csv.gz")
    pairs = csv_rows(raw / "edge.csv.gz", np.int64, columns=2)
    edges = EdgeRows(edge_count, pairs, _found(raw, "edge"))
    labels = _labels(raw / "node-label.csv.gz")
    return Layout({NODE: count}, {NODE: _found(raw, "node")}, {EDGE: edges}, labels)


def _found(folder: Path, what: str) -> dict[str, Rows | np.ndarray]:
    """node-feat or edge-feat, and the files beside it such as node_year or edge_weight."""
    found: dict[str, Rows | np.ndarray] = {}
    features = folder / f"{what}-feat.csv.gz"
    if features.is_file():
        found["x" if what == "node" else "attr"] = _wide(csv_rows(features, np.float32))
    for path in sorted(folder.glob(f"{what}_*.csv.gz")):
        found[path.name.removesuffix(".csv.gz").removeprefix(f"{what}_")] = csv_numbers(path)
    species = folder / "species.csv.gz"  # the name that proteins' download has it under
    if what == "node" and species.is_file():
        found["species"] = csv_numbers(species)
    return found


def _wide(rows: Rows) -> Rows:
    """Features are a matrix, also if there is but one."""
    if rows.row_shape:
        return rows
    return Rows(rows.source, rows.dtype, (1,), (each[:, None] for each in rows.blocks))


def _labels(path: Path, kind: str = NODE) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    return {kind: csv_rows(path, np.float64, nan=True).whole()}


def _sole(path: Path) -> int:
    """The number in a file of one number: OGB's files of node and link sets hold one graph."""
    found = csv_rows(_needed(path), np.int64, columns=1).whole()
    if len(found) != 1:
        raise ValueError(f"{path} must tell of one graph, but tells of {len(found)}")
    return int(found[0])


def _needed(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{path} is missing; OGB's download of this data set has it")
    return path


def _typed_text(folder: Path) -> Layout:
    raw = folder / "raw"
    counts = {kind: int(n) for kind, n in _flags(raw / "num-node-dict.csv.gz").items()}
    nodes = {kind: _found(raw / "node-feat" / kind, "node") for kind in counts}
    has_features = _flags(raw / "nodetype-has-feat.csv.gz")
    for kind in counts:
        if has_features.get(kind) == "True":
            _needed(raw / "node-feat" / kind / "node-feat.csv.gz")
    edges = {}
    for kind in sorted(tuple(row) for row in csv_table(raw / "triplet-type-list.csv.gz")):
        inner = raw / "relations" / RELATION_SIGN.join(kind)
        count = _sole(inner / "num-edge-list.csv.gz")
        pairs = csv_rows(_needed(inner / "edge.csv.gz"), np.int64, columns=2)
        edges[kind] = EdgeRows(count, pairs, _found(inner, "edge"))
    labels: dict[str, np.ndarray] = {}
    for kind, has in _flags(raw / "nodetype-has-label.csv.gz").items():
        if has == "True":
            labels |= _labels(_needed(raw / "node-label" / kind / "node-label.csv.gz"), kind)
    return Layout(counts, nodes, edges, labels)


def _flags(path: Path) -> dict[str, str]:
    """A file of two lines: the types of nodes, and something about each."""
    rows = csv_table(_needed(path))
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise ValueError(f"{path} must have a line of node types and one of their values")
    return dict(zip(*rows, strict=True))


def typed_split_kind(folder: Path) -> str | None:
    """Whose nodes a split of several types splits, or None if the file that tells is not there."""
    path = folder / "nodetype-has-split.csv.gz"
    if not path.is_file():
        return None
    kinds = [kind for kind, has in _flags(path).items() if has == "True"]
    if len(kinds) != 1:
        raise ValueError(f"{path} must name one type that is split, but names {len(kinds)}")
    return kinds[0]


def _arrays(folder: Path) -> Layout:
    path = folder / "raw" / "data.npz"
    names = blocks.npz_names(path)
    for name in ("edge_index", "num_nodes_list", "num_edges_list"):
        if name not in names:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(names)}")
    count, edge_count = _sole_of(path, "num_nodes_list"), _sole_of(path, "num_edges_list")
    of_nodes = [each for each in names if each.startswith("node_")]
    of_edges = [each for each in names if each.startswith("edge_") and each != "edge_index"]
    node_arrays = {_short(name): _rows(path, name, name) for name in of_nodes}
    edge_arrays = {_short(name): _rows(path, name, name) for name in of_edges}
    edges = EdgeRows(edge_count, _pairs(path, "edge_index"), edge_arrays)
    label_file = folder / "raw" / "node-label.npz"
    labels = {}
    if label_file.is_file():
        labels = {NODE: _floats(npz_rows(label_file, "node_label").whole())}
    return Layout({NODE: count}, {NODE: node_arrays}, {EDGE: edges}, labels)


def _short(name: str) -> str:
    """node_feat -> x, edge_feat -> attr, node_year -> year"""
    named = {"node_feat": "x", "edge_feat": "attr"}
    return named.get(name, name.partition("_")[2])


def _rows(path: Path, name: str, what: str) -> Rows:
    """An array of an .npz file; one column is as none, but for features."""
    rows = npz_rows(path, name)
    if rows.row_shape != (1,) or what.endswith("_feat"):
        return rows
    return Rows(path, rows.dtype, (), (each[:, 0] for each in rows.blocks), lines=False)


def _sole_of(path: Path, name: str) -> int:
    found = npz_rows(path, name).whole()
    if found.shape != (1,):
        raise ValueError(f"{path}: {name} must tell of one graph, but tells of {len(found)}")
    return int(found[0])


def _floats(labels: np.ndarray) -> np.ndarray:
    labels = labels.astype(np.float64)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _pairs(path: Path, name: str) -> Rows:
    """An edge_index of shape [2, E] as pairs; the array is gone through twice, side by side."""
    shape = blocks.npz_shape(path, name)
    if len(shape) != 2 or shape[0] != 2:
        raise ValueError(f"{path}: {name} must be of shape [2, edges], but is of {list(shape)}")
    key, query = (npz_rows(path, name, row=row) for row in (0, 1))
    both = (np.stack(each, 1) for each in zip(key.blocks, query.blocks, strict=True))
    return Rows(path, key.dtype, (2,), both, lines=False)


def _typed_arrays(folder: Path) -> Layout:
    raw = folder / "raw"
    count_file = _needed(raw / "num_nodes_dict.npz")
    counts = {kind: _sole_of(count_file, kind) for kind in sorted(blocks.npz_names(count_file))}
    nodes: dict[str, dict[str, Rows | np.ndarray]] = {kind: {} for kind in counts}
    edge_arrays: dict[str, dict[str, Rows | np.ndarray]] = {}
    for path in sorted(raw.glob("*.npz")):
        what = path.name.removesuffix(".npz").removesuffix("_dict")
        for kind in blocks.npz_names(path):
            if what.startswith("node_"):
                nodes[kind][_short(what)] = _rows(path, kind, what)
            elif what.startswith("edge_") and what != "edge_index":
                edge_arrays.setdefault(kind, {})[_short(what)] = _rows(path, kind, what)
    edges, pair_file = {}, raw / "edge_index_dict.npz"
    num_file = _needed(raw / "num_edges_dict.npz")
    for name in sorted(blocks.npz_names(pair_file)):
        kind = tuple(name.split(RELATION_SIGN))
        count, pairs = _sole_of(num_file, name), _pairs(pair_file, name)
        edges[kind] = EdgeRows(count, pairs, edge_arrays.get(name, {}))
    labels, label_file = {}, raw / "node-label.npz"
    for kind in blocks.npz_names(label_file) if label_file.is_file() else ():
        labels[kind] = _floats(npz_rows(label_file, kind).whole())
    return Layout(counts, nodes, edges, labels)


def _matrix(folder: Path) -> Layout:
    path, raw = folder / "adj_full.npz", folder / "raw"
    names = blocks.npz_names(path)
    for name in ("indptr", "indices"):
        if name not in names:
            raise ValueError(f"{path} has no array {name!r}: it is no CSR matrix")
    indptr, indices = (npz_rows(path, name).whole() for name in ("indptr", "indices"))
    count, edge_count = _sole(raw / "num-node-list.csv.gz"), _sole(raw / "num-edge-list.csv.gz")
    if len(indptr) != count + 1 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(f"{path} must be a CSR matrix of {count} rows, but its indptr is not")
    edges = EdgeRows(
        edge_count, Rows(path, np.dtype(np.int64), (2,), _walk(indptr, indices), False)
    )
    labels = _labels(_needed(raw / "node-label.csv.gz"))
    return Layout({NODE: count}, {NODE: _found(raw, "node")}, {EDGE: edges}, labels)


def _walk(indptr: np.ndarray, indices: np.ndarray) -> Iterator[np.ndarray]:
    """Pairs of row and column, some rows at a time."""
    step = max(1, PAIR_BLOCK * (len(indptr) - 1) // max(1, len(indices)))
    for first, last in pairwise([*range(0, len(indptr) - 1, step), len(indptr) - 1]):
        row = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        yield np.stack([row, indices[indptr[first] : indptr[last]].astype(np.int64)], 1)


def _drug_pairs(folder: Path) -> Layout:
    path = folder / "ogbl_ddi.npz"
    held = ("train_edge", "valid_edge", "valid_edge_neg", "test_edge", "test_edge_neg")
    names = blocks.npz_names(path)
    if missing := [name for name in (*held, "num_nodes") if name not in names]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(names)}")
    with blocks.reading(path), np.load(path, allow_pickle=False) as file:
        count = int(file["num_nodes"])
        split = {name.replace("_", "/", 1): file[name].astype(np.int64) for name in held}
    train = split["train/edge"]
    edges = EdgeRows(len(train), Rows(path, train.dtype, (2,), iter([train]), False))
    return Layout({NODE: count}, {NODE: {}}, {EDGE: edges}, {}, split)
