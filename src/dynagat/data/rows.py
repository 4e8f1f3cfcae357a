"""Rows on disk: the edges of a stored graph grouped by query, sorted in bounded memory.

Sampling needs the keys of each query. For a large graph they are sorted once, bucket by bucket, and
kept in the folder `rows` of the cache, from which all processes of a host map them.

    1. count the edges of consecutive queries, and cut the queries into buckets of similar size
    2. append each edge to the file of its bucket, in the order of the graph
    3. sort each bucket by query, and append its keys to the rows
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np

from dynagat.data.arrays import FolderError, Writer, fingerprint, read_folder, write_folder
from dynagat.data.checks import check_ends
from dynagat.data.scratch import memory_limit
from dynagat.data.store import GraphData, cache_folder
from dynagat.files import locked
from dynagat.graph import MAX_ROWS

KIND = "rows"
BYTES_PER_EDGE = 16  # of the four arrays of edges that a Graph has
BLOCK = 1 << 20  # edges read at a time
BUCKET = 1 << 22  # edges sorted in memory at a time
MAX_BUCKETS = 256  # each is an open file
BINS = 1 << 18  # in which edges are counted
LOW = np.int64(0xFFFFFFFF)


@dataclass(frozen=True)
class RowOrder:
    """What the rows hold.

    Args:
        both: each edge in both directions, once, keys in ascending order; else all edges in the
            order of the graph.
        loops: whether self-loops stay.
        edge_id: whether the index of each edge in the graph is stored, too; not with `both`.
    """

    both: bool = False
    loops: bool = True
    edge_id: bool = False

    @property
    def name(self) -> str:
        return "-".join(["both" if self.both else "one", "loops" if self.loops else "no-loops",
                         *(["ids"] if self.edge_id else [])])  # fmt: skip


def rows_on_disk(data: GraphData, order: RowOrder) -> dict[str, np.ndarray] | None:
    """rowptr, key_index and, if asked for, edge_id, mapped from files; sorted when first needed.

    None if the graph is not stored, or if its rows take no more memory than the limit
    (DYNAGAT_MEMORY).
    """
    size = BYTES_PER_EDGE * data.num_edges * (2 if order.both else 1)
    if data.folder is None or size <= memory_limit():
        return None
    path = _folder(data.folder, order)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    lock.touch()
    with locked(lock):  # other processes of this host wait
        if not path.exists():
            with write_folder(path, KIND) as writer:
                _write(writer, data, order)
    arrays, _ = read_folder(path, KIND, verify=False)  # samplers check each index that they read
    return {name: np.asarray(array) for name, array in arrays.items()}


def remove_rows(folder: Path) -> None:
    """Remove the rows of a stored graph; processes that have mapped them keep them.

    Those of a graph whose list of arrays can't be read are not found, and stay.
    """
    try:
        name = fingerprint(folder)
    except FolderError:
        return
    for path in (cache_folder() / "rows").glob(f"*{name}-*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _folder(graph: Path, order: RowOrder) -> Path:
    """Named after the content of the graph, so that a changed graph gets other rows."""
    return cache_folder() / "rows" / f"{fingerprint(graph)}-{order.name}"


def _write(writer: Writer, data: GraphData, order: RowOrder) -> None:
    if data.num_nodes > MAX_ROWS:
        raise ValueError(f"{data.name} must have at most {MAX_ROWS} nodes to be sampled from")
    buckets = _Buckets.of(data, order)
    writer.about = {"graph": data.name, **asdict(order)}
    num_edges = data.num_edges * (2 if order.both else 1)
    rowptr = writer.grow("rowptr", np.int32 if num_edges <= MAX_ROWS else np.int64)
    keys, ids = writer.grow("key_index", np.int32), None
    if order.edge_id:
        ids = writer.grow("edge_id", np.int64)
    rowptr.append(np.zeros(1, np.int64))
    folder, total = writer.folder / "buckets", 0
    folder.mkdir()
    _scatter(data, order, buckets, folder)
    for number in range(buckets.count):
        first, until = buckets.queries(number, data.num_nodes)
        path = folder / str(number)
        pairs = np.fromfile(path, np.int64) if path.exists() else np.zeros(0, np.int64)
        pairs, by_query = _sorted(pairs, order)
        degree = np.bincount((pairs >> 32) - first, minlength=until - first)
        rowptr.append(total + np.cumsum(degree))
        keys.append(pairs & LOW)
        if ids is not None and by_query is not None and len(pairs):
            ids.append(np.fromfile(folder / f"{number}.ids", np.int64)[by_query])
        total += len(pairs)
        path.unlink(missing_ok=True)
    shutil.rmtree(folder)


def _sorted(pairs: np.ndarray, order: RowOrder) -> tuple[np.ndarray, np.ndarray | None]:
    """The pairs of a bucket by query, and their former positions unless both directions are kept.

    Sorting (query, position) as one number is stable, and faster than a stable sort.
    """
    if order.both:
        pairs.sort()
        is_new = np.ones(len(pairs), bool)
        np.not_equal(pairs[1:], pairs[:-1], out=is_new[1:])
        return pairs[is_new], None
    position = np.arange(len(pairs))
    position |= pairs & ~LOW
    position.sort()
    position &= LOW
    return pairs[position], position


@dataclass(frozen=True)
class _Buckets:
    """Which bucket each bin belongs to; a bin is 2^shift consecutive queries."""

    shift: int
    bucket_of: np.ndarray  # [bins] uint16, ascending

    @classmethod
    def of(cls, data: GraphData, order: RowOrder) -> _Buckets:
        shift = max(0, (max(data.num_nodes, 1) - 1).bit_length() - (BINS - 1).bit_length())
        count = np.zeros(max(1, -(-data.num_nodes >> shift)), np.int64)
        for query, *_ in _blocks(data, order):
            count += np.bincount(query >> shift, minlength=len(count))
        size = max(BUCKET, -(-int(count.sum()) // MAX_BUCKETS))
        before = np.cumsum(count) - count
        return cls(shift, np.unique(before // size, return_inverse=True)[1].astype(np.uint16))

    @property
    def count(self) -> int:
        return int(self.bucket_of[-1]) + 1

    def queries(self, number: int, num_nodes: int) -> tuple[int, int]:
        first, until = np.searchsorted(self.bucket_of, [number, number + 1]) << self.shift
        return min(int(first), num_nodes), min(int(until), num_nodes)


def _scatter(data: GraphData, order: RowOrder, buckets: _Buckets, folder: Path) -> None:
    """Append each edge, as query · 2^32 + key, to the file of its bucket."""
    files: dict[str, IO[bytes]] = {}
    with ExitStack() as stack:
        for query, key, edge in _blocks(data, order):
            bucket = buckets.bucket_of[query >> buckets.shift]
            by_bucket = np.argsort(bucket, kind="stable")
            columns = {"": (query << 32 | key)[by_bucket]}
            if edge is not None:
                columns[".ids"] = edge[by_bucket]
            ends = np.cumsum(np.bincount(bucket, minlength=buckets.count))
            for number in np.unique(bucket):
                here = slice(ends[number - 1] if number else 0, ends[number])
                for ending, column in columns.items():
                    name = f"{number}{ending}"
                    if name not in files:
                        files[name] = stack.enter_context(open(folder / name, "wb"))
                    files[name].write(column[here].data)


def _blocks(
    data: GraphData, order: RowOrder
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Query, key and, if asked for, index of the edges, block by block."""
    edges, count = data.sole_edges, data.num_nodes
    for start in range(0, edges.count, BLOCK):
        here = slice(start, start + BLOCK)
        key, query = (
            np.asarray(each[here]).astype(np.int64) for each in (edges.key_index, edges.query_index)
        )
        for index in (key, query):
            check_ends(index, count, f"edges of {data.name} from {start} on")
        edge = np.arange(start, start + len(key)) if order.edge_id else None
        if not order.loops:
            kept = key != query
            key, query = key[kept], query[kept]
            edge = None if edge is None else edge[kept]
        if order.both:
            key, query = np.concatenate([key, query]), np.concatenate([query, key])
        yield query, key, edge
