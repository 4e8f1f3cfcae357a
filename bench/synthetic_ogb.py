"""Synthetic graphs in the raw file layout of the OGB datasets, of any size up to the true one.

dynagat's own reader reads them. A release note in the folder says that they are synthetic. Rows
are written block by block, so that memory stays small; only the pairs of link datasets are kept.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.catalog import CATALOG, Entry
from dynagat.data.ogb import SETS

BLOCK = 1 << 19  # rows drawn at a time
HOMOPHILY = 0.6  # fraction of edges that are forced to join nodes of the same class
NUM_NEGATIVES = 1000  # per pair of ogbl-citation2
SPECIES = (3702, 4932, 6239, 7227, 7955, 9606, 10090, 511145)  # those of ogbn-proteins
MAG_NODES = {
    "author": 1_134_649, "field_of_study": 59_965, "institution": 8_740, "paper": 736_389,
}  # fmt: skip
MAG_EDGES = {
    ("author", "affiliated_with", "institution"): 1_043_998,
    ("author", "writes", "paper"): 7_145_660,
    ("paper", "cites", "paper"): 5_416_271,
    ("paper", "has_topic", "field_of_study"): 7_505_078,
}

Blocks = Iterator[np.ndarray]


@dataclass(frozen=True)
class Plan:
    """The sizes of a synthetic dataset, and its random generator."""

    entry: Entry
    folder: Path
    nodes: int
    edges: int  # rows of the edge file
    split: tuple[int, int, int]
    random: np.random.Generator

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    @property
    def fraction(self) -> float:
        """Size relative to the real dataset."""
        return self.nodes / _true_nodes(self.entry)


def make_ogb(name: str, folder: Path | str, *, nodes: int | None = None, seed: int = 0) -> Path:
    """Write a synthetic version of an OGB dataset; return the folder.

    Args:
        name: an OGB dataset of the catalog, such as "ogbn-products".
        folder: where to write raw/ and split/; must be empty or not exist.
        nodes: number of nodes (of papers for ogbn-mag); the numbers of edges and the split sizes
            are scaled in proportion. Default: the size of the real dataset.
        seed: random seed; the same seed gives the same files.
    """
    if name not in SETS:
        raise ValueError(f"name must be one of {', '.join(SETS)}, but is {name!r}")
    folder, entry = Path(folder), CATALOG[name]
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"folder must be empty or not exist, but {folder} has files")
    max_nodes = _true_nodes(entry)
    nodes = max_nodes if nodes is None else nodes
    min_nodes = 10 * max(1, entry.classes if SETS[name].features else 1)
    if not min_nodes <= nodes <= max_nodes:
        raise ValueError(f"nodes must lie in [{min_nodes}, {max_nodes}] for {name}, but is {nodes}")
    edges = _scaled(entry.edges // (2 if SETS[name].both else 1), nodes / max_nodes)
    split = _split_sizes(entry, nodes, edges)
    plan = Plan(entry, folder, nodes, edges, split, np.random.default_rng(seed))
    _write_folders(plan)
    MAKERS[name](plan)
    return folder


def _true_nodes(entry: Entry) -> int:
    return MAG_NODES["paper"] if entry.name == "ogbn-mag" else entry.nodes


def _scaled(count: int, fraction: float) -> int:
    return max(1, round(count * fraction))


def _split_sizes(entry: Entry, nodes: int, edges: int) -> tuple[int, int, int]:
    train, valid, test = entry.split
    if SETS[entry.name].is_links:
        fraction = edges / train
        return edges, _scaled(valid, fraction), _scaled(test, fraction)
    fraction = nodes / sum(entry.split)
    valid, test = _scaled(valid, fraction), _scaled(test, fraction)
    return nodes - valid - test, valid, test


def _write_folders(plan: Plan) -> None:
    """Create the folders and the release note, which says that the data are synthetic."""
    for inner in ("raw", "mapping", "processed", f"split/{SETS[plan.entry.name].split}"):
        (plan.folder / inner).mkdir(parents=True, exist_ok=True)
    version = 2 if plan.entry.name == "ogbn-mag" else 1
    (plan.folder / f"RELEASE_v{version}.txt").write_text(f"# Synthetic, not {plan.entry.name}\n")


def _make_nodes(plan: Plan) -> None:
    """ogbn-arxiv and ogbn-products: features, classes and a split."""
    _write_graph(plan)
    _write(plan.raw / "node-feat.csv.gz", _features(plan, plan.nodes, plan.entry.classes))
    _write(plan.raw / "node-label.csv.gz", _classes(plan))
    part = _write_split(plan, plan.folder / "split" / SETS[plan.entry.name].split)
    if plan.entry.name == "ogbn-arxiv":
        _write(plan.raw / "node_year.csv.gz", iter([_years(plan, part)]))


def _make_proteins(plan: Plan) -> None:
    _write_graph(plan)
    weights = (plan.random.integers(0, 1000, (n, 8)) / np.float32(1000) for n in _steps(plan.edges))
    _write(plan.raw / "edge-feat.csv.gz", (block.astype(np.float32) for block in weights))
    labels = (plan.random.integers(0, 2, (n, plan.entry.classes)) for n in _steps(plan.nodes))
    _write(plan.raw / "node-label.csv.gz", labels)
    part = _write_split(plan, plan.folder / "split" / SETS[plan.entry.name].split)
    index = np.where(part == 0, plan.random.integers(0, 6, plan.nodes), part + 5)
    _write(plan.raw / "species.csv.gz", iter([np.array(SPECIES)[index]]))


def _make_mag(plan: Plan) -> None:
    counts = {kind: _scaled(count, plan.fraction) for kind, count in MAG_NODES.items()}
    kinds = list(counts)
    has = {kind: str(kind == "paper") for kind in kinds}
    _write_words(plan.raw / "num-node-dict.csv.gz", [kinds, [str(n) for n in counts.values()]])
    for name in ("nodetype-has-feat", "nodetype-has-label"):
        _write_words(plan.raw / f"{name}.csv.gz", [kinds, list(has.values())])
    _write_words(plan.raw / "triplet-type-list.csv.gz", [list(kind) for kind in MAG_EDGES])
    for index, (kind, true_count) in enumerate(MAG_EDGES.items()):
        count, inner = _scaled(true_count, plan.fraction), plan.raw / "relations" / "___".join(kind)
        ends = counts[kind[0]], counts[kind[2]]
        classes = plan.entry.classes if kind[0] == kind[2] else None
        _write(inner / "edge.csv.gz", _pairs(plan.random, count, ends, classes))
        _write(inner / "edge_reltype.csv.gz", (np.full(n, index) for n in _steps(count)))
        _write_number(inner / "num-edge-list.csv.gz", count)
    paper = plan.raw / "node-feat" / "paper"
    _write(paper / "node-feat.csv.gz", _features(plan, plan.nodes, plan.entry.classes))
    _write(plan.raw / "node-label" / "paper" / "node-label.csv.gz", _classes(plan))
    split = plan.folder / "split" / "time"
    _write_words(split / "nodetype-has-split.csv.gz", [kinds, list(has.values())])
    part = _write_split(plan, split / "paper")
    _write(paper / "node_year.csv.gz", iter([_years(plan, part)]))


def _make_collab(plan: Plan) -> None:
    pairs = _write_graph(plan, keep=True)
    size = (len(pairs), 1)
    columns = {
        "weight": plan.random.integers(1, 9, size),
        "year": plan.random.integers(1963, 2018, size),
    }
    for name, values in columns.items():
        _write(plan.raw / f"edge_{name}.csv.gz", iter([values]))
    _write(plan.raw / "node-feat.csv.gz", _features(plan, plan.nodes, 47))
    parts = {"train": {"edge": pairs, **{name: column[:, 0] for name, column in columns.items()}}}
    for part, count, year in zip(("valid", "test"), plan.split[1:], (2018, 2019), strict=True):
        labels = {"weight": plan.random.integers(1, 9, count), "year": np.full(count, year)}
        negatives = _all_pairs(plan, _scaled(100_000, plan.fraction))
        parts[part] = {"edge": _all_pairs(plan, count), **labels, "edge_neg": negatives}
    _write_pairs(plan, parts)


def _make_citation2(plan: Plan) -> None:
    pairs = _write_graph(plan, keep=True)
    _write(plan.raw / "node-feat.csv.gz", _features(plan, plan.nodes, 47))
    _write(plan.raw / "node_year.csv.gz", iter([plan.random.integers(1901, 2020, plan.nodes)]))
    parts = {"train": {"source_node": pairs[:, 0], "target_node": pairs[:, 1]}}
    for part, count in zip(("valid", "test"), plan.split[1:], strict=True):
        pairs = _all_pairs(plan, count)
        negatives = plan.random.integers(0, plan.nodes, (count, NUM_NEGATIVES))
        ends = {"source_node": pairs[:, 0], "target_node": pairs[:, 1]}
        parts[part] = {**ends, "target_node_neg": negatives}
    _write_pairs(plan, parts)


def _make_ddi(plan: Plan) -> None:
    parts: dict[str, dict[str, np.ndarray]] = {"train": {"edge": _write_graph(plan, keep=True)}}
    true_negatives = (101_882, 95_599)
    for part, count, true in zip(("valid", "test"), plan.split[1:], true_negatives, strict=True):
        negatives = _all_pairs(plan, _scaled(true, plan.fraction))
        parts[part] = {"edge": _all_pairs(plan, count), "edge_neg": negatives}
    _write_pairs(plan, parts)


MAKERS: Mapping[str, Callable[[Plan], None]] = {
    "ogbn-arxiv": _make_nodes,
    "ogbn-products": _make_nodes,
    "ogbn-proteins": _make_proteins,
    "ogbn-mag": _make_mag,
    "ogbl-collab": _make_collab,
    "ogbl-citation2": _make_citation2,
    "ogbl-ddi": _make_ddi,
}


def _write_graph(plan: Plan, *, keep: bool = False) -> np.ndarray:
    """Write the edges and both counts; return the pairs if `keep` is true."""
    kept: list[np.ndarray] = []
    classes = plan.entry.classes if SETS[plan.entry.name].features else None
    blocks = _pairs(plan.random, plan.edges, (plan.nodes, plan.nodes), classes or None)
    _write(plan.raw / "edge.csv.gz", _collect(blocks, kept) if keep else blocks)
    _write_number(plan.raw / "num-node-list.csv.gz", plan.nodes)
    _write_number(plan.raw / "num-edge-list.csv.gz", plan.edges)
    return np.concatenate(kept) if keep else np.empty((0, 2), np.int64)


def _collect(blocks: Blocks, kept: list[np.ndarray]) -> Blocks:
    for block in blocks:
        kept.append(block)
        yield block


def _pairs(
    random: np.random.Generator, count: int, ends: tuple[int, int], classes: int | None
) -> Blocks:
    """Random pairs (key, query); with classes, most join two nodes of the same class.

    Node n has class n mod `classes`.
    """
    for size in _steps(count):
        key, query = (random.integers(0, end, size) for end in ends)
        if classes is not None:
            limit = (ends[1] // classes) * classes
            same_class = (query // classes * classes + key % classes) % limit
            query = np.where(random.random(size) < HOMOPHILY, same_class, query)
        if ends[0] == ends[1]:
            query = np.where(query == key, (query + 1) % ends[1], query)
        yield np.stack([key, query], 1)


def _all_pairs(plan: Plan, count: int) -> np.ndarray:
    return np.concatenate(list(_pairs(plan.random, count, (plan.nodes, plan.nodes), None)))


def _features(plan: Plan, count: int, classes: int) -> Blocks:
    """The mean of the node's class plus noise."""
    mean = plan.random.standard_normal((classes, plan.entry.features)).astype(np.float32)
    first = 0
    for size in _steps(count, BLOCK // 16):
        noise = plan.random.standard_normal((size, plan.entry.features), np.float32)
        yield noise + mean[np.arange(first, first + size) % classes]
        first += size


def _classes(plan: Plan) -> Blocks:
    return iter([np.arange(plan.nodes) % plan.entry.classes])


def _years(plan: Plan, part: np.ndarray) -> np.ndarray:
    return np.where(part == 0, plan.random.integers(1990, 2018, plan.nodes), 2017 + part)


def _write_split(plan: Plan, folder: Path) -> np.ndarray:
    """Write the three files of the split; return the part of each node as 0, 1 or 2."""
    part = np.repeat(np.arange(3), plan.split)
    plan.random.shuffle(part)
    for index, name in enumerate(("train", "valid", "test")):
        _write(folder / f"{name}.csv.gz", iter([np.nonzero(part == index)[0]]))
    return part


def _write_pairs(plan: Plan, parts: Mapping[str, Mapping[str, Any]]) -> None:
    import torch

    for part, arrays in parts.items():
        path = plan.folder / "split" / SETS[plan.entry.name].split / f"{part}.pt"
        torch.save(dict(arrays), path)


def _steps(count: int, block: int = BLOCK) -> Iterator[int]:
    return (min(block, count - start) for start in range(0, count, block))


def _write(path: Path, blocks: Blocks) -> None:
    """Write a .csv.gz file without a header; the same blocks give the same bytes."""
    import pyarrow as pa
    from pyarrow import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    options = csv.WriteOptions(include_header=False)
    with gzip.GzipFile(path, "wb", compresslevel=1, mtime=0) as file:
        for block in blocks:
            columns = block[:, None] if block.ndim == 1 else block
            names = [str(index) for index in range(columns.shape[1])]
            arrays = [pa.array(np.ascontiguousarray(column)) for column in columns.T]
            csv.write_csv(pa.RecordBatch.from_arrays(arrays, names), file, options)


def _write_number(path: Path, number: int) -> None:
    _write(path, iter([np.array([number])]))


def _write_words(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write("".join(f"{','.join(row)}\n" for row in rows).encode())
