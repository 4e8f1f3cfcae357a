"""The table of edges: the nodes of each edge are looked up, block by block.

To merge duplicate edges, each edge is coded as one number, query · N + key, and the codes are
sorted in place. This takes 16 bytes of memory for each edge of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dynagat.data.tables.columns import read_cells
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.destination import Destination, GrowingArray
from dynagat.data.tables.ids import Ids
from dynagat.data.tables.table_file import TableFile

ROWS = 1 << 19  # minimum number of rows that are looked up at once


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of the table of edges: key, query, and those to keep as attributes."""

    key: str
    query: str
    attributes: tuple[str, ...] = ()


@dataclass
class EdgeCounts:
    """Counts of what was read."""

    lines: int = 0
    loops: int = 0  # lines that are self-loops
    repeated: int = 0  # lines that repeat the edge of another line
    both_ways: int = 0  # pairs of nodes that are listed in both directions
    edges: int = 0  # in the resulting graph


@dataclass
class EdgeReader:
    """Reads a table's edges into a destination."""

    file: TableFile
    columns: EdgeColumns
    ids: Ids
    counts: EdgeCounts = field(default_factory=EdgeCounts)
    known_as: str = "an id in the table of nodes"  # what ids are, for error messages

    def write_as_listed(self, destination: Destination, base: str) -> None:
        """Write one edge per line, in the order of the lines."""
        key, query = (destination.grow(f"{base}/{end}_index", np.int32) for end in ("key", "query"))
        width = len(self.columns.attributes)
        attributes = destination.grow(f"{base}/attr", np.float32, (width,)) if width else None
        codes = GrowingArray.empty(np.int64)
        for keys, queries, rest in self._blocks():
            key.append(keys)
            query.append(queries)
            codes.append(self._codes(keys, queries))
            if attributes is not None:
                attributes.append(rest)
        self.counts.edges = len(codes.array)
        codes.array.sort()
        self.counts.repeated = len(codes.array) - keep_distinct_(codes.array)

    def write_both_ways(self, destination: Destination, base: str) -> None:
        """Write each edge once in both directions, sorted by query and then by key."""
        codes, count = self._symmetric_codes(), len(self.ids)
        key, query = (destination.grow(f"{base}/{end}_index", np.int32) for end in ("key", "query"))
        for start in range(0, len(codes), ROWS):
            queries, keys = np.divmod(codes[start : start + ROWS], count)
            key.append(keys.astype(np.int32))
            query.append(queries.astype(np.int32))

    def _symmetric_codes(self) -> np.ndarray:
        growing = GrowingArray.empty(np.int64)
        for keys, queries, _ in self._blocks():
            growing.append(self._codes(keys, queries))
        pa.default_memory_pool().release_unused()  # memory of the last block, needed below
        codes, count = growing.array, len(self.ids)
        codes.sort()
        once = keep_distinct_(codes)
        self.counts.repeated = len(codes) - once
        codes.resize(2 * once, refcheck=False)
        loops = 0
        for start in range(0, once, ROWS):
            stop = min(start + ROWS, once)
            queries, keys = np.divmod(codes[start:stop], count)
            codes[once + start : once + stop] = keys * count + queries
            loops += int(np.count_nonzero(queries == keys))
        codes.sort()
        self.counts.edges = keep_distinct_(codes)
        self.counts.both_ways = (2 * once - loops - self.counts.edges) // 2
        codes.resize(self.counts.edges, refcheck=False)
        return codes

    def _codes(self, keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
        return queries.astype(np.int64) * len(self.ids) + keys

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Key and query indices, and attributes [rows, attributes]."""
        self._check_header()
        names = [self.columns.key, self.columns.query, *self.columns.attributes]
        waiting: list[pa.RecordBatch] = []
        first = rows = 0
        enough = max(ROWS, len(self.ids) // 2)  # each lookup builds a hash table of all nodes
        for _, block in self.file.blocks(list(dict.fromkeys(names))):
            waiting.append(block)
            rows += block.num_rows
            if rows >= enough:
                yield self._read(pa.Table.from_batches(waiting), first)
                first, rows, waiting = first + rows, 0, []
        if rows:
            yield self._read(pa.Table.from_batches(waiting), first)
        self.counts.lines = first + rows
        if not self.counts.lines:
            raise TableError(f"{self.file.path} has a header, but no rows")

    def _check_header(self) -> None:
        """Without this check, a file without a header would silently lose its first edge."""
        ends = [self.columns.key, self.columns.query]
        if self.file.separator is not None and self._knows(pa.chunked_array([pa.array(ends)])):
            raise TableError(
                f"{self.file.path}, line 1: must be a header with the names of the columns, "
                f"but holds the ids of two nodes, {shown(ends[0])} and {shown(ends[1])}"
            )

    def _read(self, table: pa.Table, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        keys, queries = self._find(table, first)
        self.counts.loops += int(np.count_nonzero(keys == queries))
        attributes = [self._attribute(table, name, first) for name in self.columns.attributes]
        empty = np.empty((len(keys), 0), np.float32)
        return keys, queries, np.stack(attributes, axis=1) if attributes else empty

    def _find(self, table: pa.Table, first: int) -> tuple[np.ndarray, np.ndarray]:
        ends = [table.column(self.columns.key), table.column(self.columns.query)]
        index = self.ids.find([each for end in ends for each in end.chunks])
        if index is None or index.null_count:
            raise self._unknown(ends, first)
        keys, queries = np.split(index.to_numpy(), 2)
        return keys, queries

    def _unknown(self, ends: Sequence[pa.ChunkedArray], first: int) -> TableError:
        """An error about the first edge of an unknown node."""
        key_row, query_row = (self._first_unknown(end) for end in ends)
        row, name = min((key_row, self.columns.key), (query_row, self.columns.query))
        cell = ends[name != self.columns.key][row]
        place, value = self.file.locate(first + row), cell.as_py()
        if value in (None, ""):
            return TableError(f"{place}: column {name!r} is empty, but must hold the id of a node")
        return TableError(
            f"{place}: column {name!r} holds {shown(value)}, which is not {self.known_as}"
        )

    def _first_unknown(self, end: pa.ChunkedArray) -> int:
        """The row of the first unknown node, or the number of rows; by bisection."""
        start, count = 0, len(end)
        while count > 1:
            half = count // 2
            if self._knows(end.slice(start, half)):
                start, count = start + half, count - half
            else:
                count = half
        return start if not self._knows(end.slice(start, 1)) else len(end)

    def _knows(self, cells: pa.ChunkedArray) -> bool:
        index = self.ids.find(cells.chunks)
        return index is not None and index.null_count == 0

    def _attribute(self, table: pa.Table, name: str, first: int) -> np.ndarray:
        cells = table.column(name).combine_chunks()
        numbers = read_cells(cells, "number", name, self.file.locate_from(first))
        if np.isnan(numbers).any():
            row = int(np.isnan(numbers).argmax())
            place = self.file.locate(first + row)
            raise TableError(f"{place}: column {name!r} is empty, but must hold a number")
        return numbers.astype(np.float32)


def keep_distinct_(codes: np.ndarray) -> int:
    """Move the distinct values of a sorted array to its front; returns their number."""
    kept, last = 0, None
    for start in range(0, len(codes), ROWS):
        block = codes[start : start + ROWS].copy()
        new = np.empty(len(block), bool)
        new[0] = last is None or block[0] != last
        np.not_equal(block[1:], block[:-1], out=new[1:])
        block, last = block[new], block[-1]
        codes[kept : kept + len(block)] = block
        kept += len(block)
    return kept
