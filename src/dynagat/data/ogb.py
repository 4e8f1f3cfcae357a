"""OGB's graphs, from their raw folders into the graph store, block by block, so of any size.

The first node of an edge in OGB's files is the key, the second the query, as in PyG's edge_index.
Where OGB lists an edge once for both directions, both are stored, one after the other, as OGB's own
loader does. Nothing but arrays is unpickled (data/pickles.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.arrays import Writer, write_folder
from dynagat.data.blocks import Rows, csv_rows, csv_table
from dynagat.data.checks import (
    check_count,
    check_ends,
    check_finite,
    check_labels,
    check_split,
    index_dtype,
)
from dynagat.data.ogb_layouts import EdgeRows, Layout, read_layout, typed_split_kind
from dynagat.data.pickles import read_torch_pickle
from dynagat.data.store import (
    KIND,
    NODE,
    SPLITS,
    GraphData,
    check_name,
    open_graph,
    store_folder,
)

ENDS = ("edge", "edge_neg", "source_node", "target_node", "target_node_neg")


@dataclass(frozen=True)
class OgbSet:
    """Facts about a dataset of OGB that are not in its files."""

    name: str
    download: str  # name of the zip file, and of the folder in it
    split: str  # name of the folder of the official split
    both: bool = False  # whether an edge in the file stands for both directions
    features: bool = True  # whether its nodes have features

    @property
    def is_links(self) -> bool:
        return self.name.startswith("ogbl-")


SETS = {
    each.name: each
    for each in [
        OgbSet("ogbn-arxiv", "arxiv", "time"),
        OgbSet("ogbn-mag", "mag", "time"),
        OgbSet("ogbn-products", "products", "sales_ranking", both=True),
        OgbSet("ogbn-proteins", "proteins", "species", both=True, features=False),
        OgbSet("ogbl-collab", "collab", "time", both=True),
        OgbSet("ogbl-citation2", "citation-v2", "time"),
        OgbSet("ogbl-ddi", "ddi", "target", both=True, features=False),
    ]
}


def read_ogb(
    folder: Path | str,
    name: str | None = None,
    *,
    path: Path | str | None = None,
    replace: bool = False,
    expected: tuple[int, int] | None = None,
) -> GraphData:
    """Store the graph of a folder with raw/ and split/, and open it.

    Args:
        folder: named as in OGB's download or by its loader: arxiv, ogbn_arxiv, ogbn-arxiv.
        name: of the graph; by default OGB's name. The dataset is recognised by this name, or else
            by the name of the folder.
        path: of the stored graph; by default under its name in the store.
        replace: whether to replace a stored graph.
        expected: numbers of nodes and of stored edges to check.
    """
    folder = Path(folder)
    which = recognised(folder, name)
    name = check_name(name or which.name)
    with write_folder(path or store_folder() / name, KIND, replace=replace) as writer:
        layout = read_layout(folder)
        check_count(max(layout.counts.values()), folder)
        _check_features(layout, which, folder)
        for kind, arrays in layout.nodes.items():
            for inner, rows in arrays.items():
                _store(writer, f"nodes/{kind}/{inner}", rows, layout.counts[kind])
        for kind, edges in layout.edges.items():
            _store_edges(writer, kind, edges, layout.counts, which.both)
        task = _store_links(writer, layout, folder, which) if which.is_links else (
            _store_targets(writer, layout, folder, which)
        )  # fmt: skip
        about: dict[str, Any] = {"task": task, "source": f"OGB, {which.name}"}
        if expected is not None:
            check_counts(_total(layout, which), expected, folder)
        kinds = [list(kind) for kind in layout.edges]
        writer.about = {"name": name, "nodes": dict(layout.counts), "edges": kinds, "about": about}
    return open_graph(path or store_folder() / name)


def check_counts(actual: tuple[int, int], expected: tuple[int, int], source: Any) -> None:
    """A published dataset must have its published numbers of nodes and edges."""
    if actual != expected:
        sizes = "{:,} nodes and {:,} edges".format
        raise ValueError(f"{source} must have {sizes(*expected)}, but has {sizes(*actual)}")


def _total(layout: Layout, which: OgbSet) -> tuple[int, int]:
    edge_count = sum(edges.count for edges in layout.edges.values())
    return sum(layout.counts.values()), edge_count * (2 if which.both else 1)


def recognised(folder: Path, name: str | None) -> OgbSet:
    """The dataset in a folder, by the given name or by that of the folder."""
    for each in SETS.values():
        if name == each.name:
            return each
    own = folder.resolve().name
    for each in SETS.values():
        if own.replace("_", "-") == each.name or own == each.download:
            return each
    known = ", ".join(SETS)
    raise ValueError(f"{folder} must be named after the OGB dataset that it holds: one of {known}")


def _check_features(layout: Layout, which: OgbSet, folder: Path) -> None:
    is_download = (folder / "raw" / "edge.csv.gz").is_file()  # other layouts may lack features
    if which.features and is_download and "x" not in layout.nodes[NODE]:
        path = folder / "raw" / "node-feat.csv.gz"
        raise ValueError(f"{path} is missing; OGB's download of {which.name} contains it")


def _store(writer: Writer, name: str, rows: Rows | np.ndarray, count: int, times: int = 1) -> None:
    """Append the blocks; there must be `count` rows, each of which is stored `times` times."""
    if isinstance(rows, np.ndarray):
        rows = Rows(Path(name), rows.dtype, rows.shape[1:], iter([rows]), lines=False)
    growing, seen = writer.grow(name, rows.dtype, rows.row_shape), 0
    for block in rows.blocks:
        check_finite(block, rows.source, first_line=seen + 1 if rows.lines else None)
        growing.append(np.repeat(block, times, 0) if times > 1 else block)
        seen += len(block)
    _check_count(rows, seen, count)


def _check_count(rows: Rows, seen: int, count: int) -> None:
    if seen != count:
        raise ValueError(f"{rows.source} must have {count} rows, but has {seen}")


def _store_edges(
    writer: Writer,
    kind: tuple[str, str, str],
    edges: EdgeRows,
    counts: Mapping[str, int],
    both: bool,
) -> None:
    base = f"edges/{'__'.join(kind)}"
    key_count, query_count = _end_counts(kind, counts, edges)
    dtype = index_dtype(max(key_count, query_count))
    key, query = (writer.grow(f"{base}/{end}_index", dtype) for end in ("key", "query"))
    seen = 0
    for block in edges.pairs.blocks:
        line = seen + 1 if edges.pairs.lines else None
        check_ends(block[:, 0], key_count, edges.pairs.source, first_line=line)
        check_ends(block[:, 1], query_count, edges.pairs.source, first_line=line)
        key.append(block.reshape(-1) if both else block[:, 0])
        query.append(block[:, ::-1].reshape(-1) if both else block[:, 1])
        seen += len(block)
    _check_count(edges.pairs, seen, edges.count)
    for name, rows in edges.arrays.items():
        _store(writer, f"{base}/{name}", rows, edges.count, 2 if both else 1)


def _end_counts(
    kind: tuple[str, str, str], counts: Mapping[str, int], edges: EdgeRows
) -> tuple[int, int]:
    for end in (kind[0], kind[2]):
        if end not in counts:
            raise ValueError(f"{edges.pairs.source}: nodes of type {end!r} are missing")
    return counts[kind[0]], counts[kind[2]]


def _store_targets(writer: Writer, layout: Layout, folder: Path, which: OgbSet) -> dict[str, Any]:
    """Store the labels and the split of the node type that has labels."""
    if len(layout.labels) != 1:
        raise ValueError(f"{folder}: one node type must have labels, but {len(layout.labels)} have")
    ((kind, labels),) = layout.labels.items()
    count = layout.counts[kind]
    if len(labels) != count:
        raise ValueError(f"{folder}: there must be {count} labels, but there are {len(labels)}")
    for part, index in _node_split(folder / "split" / which.split, kind, count).items():
        writer.add(f"split/{part}", index)
    task: dict[str, Any] = {"node_type": kind, "target": "label"}
    if labels.ndim == 2:
        writer.add(f"nodes/{kind}/y", labels.astype(np.float32))
        names = [str(each) for each in range(labels.shape[1])]
        return {"kind": "multilabel", "classes": names, **task}
    y = np.where(np.isnan(labels), -1, labels).astype(np.int64)
    check_labels(y, folder)
    writer.add(f"nodes/{kind}/y", y)
    return {"kind": "classification", "classes": _class_names(folder, int(y.max()) + 1), **task}


def _class_names(folder: Path, count: int) -> list[str]:
    """The names in mapping/labelidx2NAME.csv.gz if it exists, else the class indices."""
    for path in sorted((folder / "mapping").glob("labelidx2*.csv.gz")):
        names = {row[0]: row[1] for row in csv_table(path)[1:] if len(row) > 1}
        return [names.get(str(each), str(each)) for each in range(max(count, len(names)))]
    return [str(each) for each in range(count)]


def _node_split(folder: Path, kind: str, count: int) -> dict[str, np.ndarray]:
    split: dict[str, np.ndarray] = {}
    if (folder / "split_dict.pt").is_file():
        content = read_torch_pickle(folder / "split_dict.pt")
        split = {part: _of_kind(content, part, kind, folder) for part in SPLITS}
    else:
        inner = folder / (typed_split_kind(folder) or "")
        for part in SPLITS:
            path = inner / f"{part}.csv.gz"
            if not path.is_file():
                raise ValueError(f"{path} is missing; the official split contains it")
            split[part] = csv_rows(path, np.int64, columns=1).whole()
    check_split(split, count, folder)
    return split


def _of_kind(content: Any, part: str, kind: str, folder: Path) -> np.ndarray:
    index = content.get(part) if isinstance(content, dict) else None
    index = index.get(kind) if isinstance(index, dict) else index
    if not isinstance(index, np.ndarray):
        raise ValueError(f"{folder / 'split_dict.pt'} must hold an array of {kind}s as {part!r}")
    return index


def _store_links(writer: Writer, layout: Layout, folder: Path, which: OgbSet) -> dict[str, Any]:
    count = layout.counts[NODE]
    dtype = index_dtype(count)
    for name, array, source in _link_split(layout, folder / "split" / which.split):
        if name.split("/")[1] in ENDS:
            check_ends(array, count, f"{source}, {name}")
            array = array.astype(dtype)
        writer.add(f"split/{name}", array)
    return {"kind": "links", "node_type": NODE, "target": "link"}


def _link_split(layout: Layout, folder: Path) -> Iterator[tuple[str, np.ndarray, Path]]:
    """The arrays of the three parts; one file at a time is in memory."""
    for name, array in layout.pairs.items():
        yield name, array, folder
    for part in () if layout.pairs else SPLITS:
        path = folder / f"{part}.pt"
        if not path.is_file():
            raise ValueError(f"{path} is missing; the official split contains it")
        for name, array in _arrays_of(read_torch_pickle(path), path).items():
            yield f"{part}/{name}", array, path


def _arrays_of(content: Any, path: Path) -> dict[str, np.ndarray]:
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{path} must hold arrays by name, but holds a {type(content).__name__}")
    for name, array in content.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            raise ValueError(f"{path}: {name} must be an array of numbers")
    return content
