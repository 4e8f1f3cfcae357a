"""The file layouts of OGB's graphs, each as a Layout: counts, and rows to read.

raw/edge.csv.gz                 one type of nodes, tables of text (arxiv, products, proteins, links)
raw/triplet-type-list.csv.gz    several types, tables of text (mag)
raw/data.npz                    one type of nodes, arrays
raw/edge_index_dict.npz         several types, arrays
adj_full.npz                    arxiv's edges as a CSR matrix in which rows cite columns, together
                                with OGB's labels, years and split
ogbl_ddi.npz                    ddi's edges and pairs, under the names of OGB's split

OGB's node-feat becomes x, edge-feat becomes attr, node_year becomes year of nodes, edge_weight
becomes weight of edges, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from dynagat.data.blocks import Rows, csv_numbers, csv_rows, csv_table, npz_rows
from dynagat.data.csr import check_csr
from dynagat.data.store import EDGE, NODE, EdgeType
from dynagat.npz_file import array_names, read_arrays, read_header

RELATION_SIGN = "___"
PAIR_BLOCK = 1 << 20  # edges per block


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
    labels: Mapping[str, np.ndarray]  # by type: [N] or [N, labels] float64, nan where unknown
    pairs: Mapping[str, np.ndarray] = field(
        default_factory=dict
    )  # the split, if it is in the same file


def read_layout(folder: Path) -> Layout:
    """The layout of a folder, recognised by the files in it."""
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
    raise ValueError(f"{folder} is not a folder of OGB's files: it has none of {names}")


def _text(folder: Path) -> Layout:
    raw = folder / "raw"
    count, edge_count = (
        _single_number(raw / "num-node-list.csv.gz"),
        _single_number(raw / "num-edge-list.csv.gz"),
    )
    pairs = csv_rows(raw / "edge.csv.gz", np.int64, columns=2)
    edges = EdgeRows(edge_count, pairs, _arrays_in(raw, "edge"))
    labels = _labels(raw / "node-label.csv.gz")
    return Layout({NODE: count}, {NODE: _arrays_in(raw, "node")}, {EDGE: edges}, labels)


def _arrays_in(folder: Path, what: str) -> dict[str, Rows | np.ndarray]:
    """node-feat or edge-feat, and the files next to it such as node_year or edge_weight."""
    arrays: dict[str, Rows | np.ndarray] = {}
    features = folder / f"{what}-feat.csv.gz"
    if features.is_file():
        arrays["x" if what == "node" else "attr"] = _wide(csv_rows(features, np.float32))
    for path in sorted(folder.glob(f"{what}_*.csv.gz")):
        arrays[path.name.removesuffix(".csv.gz").removeprefix(f"{what}_")] = csv_numbers(path)
    species = folder / "species.csv.gz"  # its name in the download of ogbn-proteins
    if what == "node" and species.is_file():
        arrays["species"] = csv_numbers(species)
    return arrays


def _wide(rows: Rows) -> Rows:
    """Features are a matrix even if there is only one."""
    if rows.row_shape:
        return rows
    return Rows(rows.source, rows.dtype, (1,), (each[:, None] for each in rows.blocks))


def _labels(path: Path, kind: str = NODE) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    return {kind: csv_rows(path, np.float64, nan=True).whole()}


def _single_number(path: Path) -> int:
    """The number in a file that has one number per graph."""
    return _single(csv_rows(_needed(path), np.int64, columns=1).whole(), str(path))


def _single(numbers: np.ndarray, source: str) -> int:
    if numbers.shape != (1,):
        raise ValueError(f"{source} must hold one number, for one graph, but holds {numbers.size}")
    return int(numbers[0])


def _needed(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{path} is missing; OGB's download of this dataset contains it")
    return path


def _typed_text(folder: Path) -> Layout:
    raw = folder / "raw"
    counts = {kind: int(n) for kind, n in _flags(raw / "num-node-dict.csv.gz").items()}
    nodes = {kind: _arrays_in(raw / "node-feat" / kind, "node") for kind in counts}
    has_features = _flags(raw / "nodetype-has-feat.csv.gz")
    for kind in counts:
        if has_features.get(kind) == "True":
            _needed(raw / "node-feat" / kind / "node-feat.csv.gz")
    edges = {}
    for kind in sorted(tuple(row) for row in csv_table(raw / "triplet-type-list.csv.gz")):
        inner = raw / "relations" / RELATION_SIGN.join(kind)
        count = _single_number(inner / "num-edge-list.csv.gz")
        pairs = csv_rows(_needed(inner / "edge.csv.gz"), np.int64, columns=2)
        edges[kind] = EdgeRows(count, pairs, _arrays_in(inner, "edge"))
    labels: dict[str, np.ndarray] = {}
    for kind, has in _flags(raw / "nodetype-has-label.csv.gz").items():
        if has == "True":
            labels |= _labels(_needed(raw / "node-label" / kind / "node-label.csv.gz"), kind)
    return Layout(counts, nodes, edges, labels)


def _flags(path: Path) -> dict[str, str]:
    """The content of a file of two lines: the node types, and a value for each."""
    rows = csv_table(_needed(path))
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise ValueError(
            f"{path} must have two lines of equal length: node types, and a value for each"
        )
    return dict(zip(*rows, strict=True))


def typed_split_kind(folder: Path) -> str | None:
    """The node type that a split of several types divides; None if its file is missing."""
    path = folder / "nodetype-has-split.csv.gz"
    if not path.is_file():
        return None
    kinds = [kind for kind, has in _flags(path).items() if has == "True"]
    if len(kinds) != 1:
        raise ValueError(f"{path} must name one node type that has a split, but names {len(kinds)}")
    return kinds[0]


def _arrays(folder: Path) -> Layout:
    path = folder / "raw" / "data.npz"
    names = array_names(path)
    for name in ("edge_index", "num_nodes_list", "num_edges_list"):
        if name not in names:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(names)}")
    count, edge_count = (
        _single_number_of(path, "num_nodes_list"),
        _single_number_of(path, "num_edges_list"),
    )
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
    """An array in an .npz file; one column becomes a vector, except for features."""
    rows = npz_rows(path, name)
    if rows.row_shape != (1,) or what.endswith("_feat"):
        return rows
    return Rows(path, rows.dtype, (), (each[:, 0] for each in rows.blocks), lines=False)


def _single_number_of(path: Path, name: str) -> int:
    return _single(npz_rows(path, name).whole(), f"{path}: {name}")


def _floats(labels: np.ndarray) -> np.ndarray:
    labels = labels.astype(np.float64)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _pairs(path: Path, name: str) -> Rows:
    """An edge_index of shape [2, E] as pairs; both rows are read at the same time."""
    shape = read_header(path, name).shape
    if len(shape) != 2 or shape[0] != 2:
        raise ValueError(f"{path}: {name} must be of shape [2, edges], but is of {list(shape)}")
    key, query = (npz_rows(path, name, row=row) for row in (0, 1))
    both = (np.stack(each, 1) for each in zip(key.blocks, query.blocks, strict=True))
    return Rows(path, key.dtype, (2,), both, lines=False)


def _typed_arrays(folder: Path) -> Layout:
    raw = folder / "raw"
    count_file = _needed(raw / "num_nodes_dict.npz")
    counts = {kind: _single_number_of(count_file, kind) for kind in sorted(array_names(count_file))}
    nodes: dict[str, dict[str, Rows | np.ndarray]] = {kind: {} for kind in counts}
    edge_arrays: dict[str, dict[str, Rows | np.ndarray]] = {}
    for path in sorted(raw.glob("*.npz")):
        what = path.name.removesuffix(".npz").removesuffix("_dict")
        for kind in array_names(path):
            if what.startswith("node_"):
                nodes[kind][_short(what)] = _rows(path, kind, what)
            elif what.startswith("edge_") and what != "edge_index":
                edge_arrays.setdefault(kind, {})[_short(what)] = _rows(path, kind, what)
    edges, pair_file = {}, raw / "edge_index_dict.npz"
    num_file = _needed(raw / "num_edges_dict.npz")
    for name in sorted(array_names(pair_file)):
        kind = tuple(name.split(RELATION_SIGN))
        count, pairs = _single_number_of(num_file, name), _pairs(pair_file, name)
        edges[kind] = EdgeRows(count, pairs, edge_arrays.get(name, {}))
    labels, label_file = {}, raw / "node-label.npz"
    for kind in array_names(label_file) if label_file.is_file() else ():
        labels[kind] = _floats(npz_rows(label_file, kind).whole())
    return Layout(counts, nodes, edges, labels)


def _matrix(folder: Path) -> Layout:
    path, raw = folder / "adj_full.npz", folder / "raw"
    names = array_names(path)
    for name in ("indptr", "indices"):
        if name not in names:
            raise ValueError(f"{path} has no array {name!r}, so it is not a CSR matrix")
    indptr, indices = (npz_rows(path, name).whole() for name in ("indptr", "indices"))
    count, edge_count = (
        _single_number(raw / "num-node-list.csv.gz"),
        _single_number(raw / "num-edge-list.csv.gz"),
    )
    try:
        check_csr(indices, indices, indptr, (count, count))
    except ValueError as error:
        raise ValueError(f"{path} was altered: {error}") from None
    edges = EdgeRows(
        edge_count, Rows(path, np.dtype(np.int64), (2,), _matrix_blocks(indptr, indices), False)
    )
    labels = _labels(_needed(raw / "node-label.csv.gz"))
    return Layout({NODE: count}, {NODE: _arrays_in(raw, "node")}, {EDGE: edges}, labels)


def _matrix_blocks(indptr: np.ndarray, indices: np.ndarray) -> Iterator[np.ndarray]:
    """Pairs of row and column, block by block."""
    step = max(1, PAIR_BLOCK * (len(indptr) - 1) // max(1, len(indices)))
    for first, last in pairwise([*range(0, len(indptr) - 1, step), len(indptr) - 1]):
        row = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        yield np.stack([row, indices[indptr[first] : indptr[last]].astype(np.int64)], 1)


def _drug_pairs(folder: Path) -> Layout:
    path = folder / "ogbl_ddi.npz"
    wanted = ("train_edge", "valid_edge", "valid_edge_neg", "test_edge", "test_edge_neg")
    names = array_names(path)
    if missing := [name for name in (*wanted, "num_nodes") if name not in names]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(names)}")
    arrays = read_arrays(path, lambda name: name in (*wanted, "num_nodes"))
    count = _single(arrays["num_nodes"].reshape(-1), f"{path}: num_nodes")
    split = {name.replace("_", "/", 1): _pairs_of(arrays[name], path, name) for name in wanted}
    train = split["train/edge"]
    edges = EdgeRows(len(train), Rows(path, train.dtype, (2,), iter([train]), False))
    return Layout({NODE: count}, {NODE: {}}, {EDGE: edges}, {}, split)


def _pairs_of(array: np.ndarray, path: Path, name: str) -> np.ndarray:
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        actual = f"{array.dtype} {list(array.shape)}"
        raise ValueError(f"{path}: {name} must be integers [edges, 2], but is {actual}")
    return array.astype(np.int64)
