"""read_links: a table of edges, CSV or Parquet, as links to predict.

Self-pairs are left out and counted; a pair that is listed several times, in any direction, is one
link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dynagat.data.link_split import SHARES, split_links
from dynagat.data.store import NODE, GraphData
from dynagat.data.tables.cells import READERS, compute, is_sound
from dynagat.data.tables.columns import read_cells
from dynagat.data.tables.csv_lines import TableError
from dynagat.data.tables.destination import EDGE_BASE, NODE_BASE, Memory
from dynagat.data.tables.edge_list import EdgeColumns, EdgeReader
from dynagat.data.tables.ids import Ids, first_empty, read_names
from dynagat.data.tables.read import SPLIT, edge_columns_of, name_of, read_tables
from dynagat.data.tables.split import WORDS, check_shares
from dynagat.data.tables.table_file import TableFile
from dynagat.data.tables.targets import Coding

TIMES = ("number", "date")  # kinds of cells that can be ordered in time


def read_links(
    edges: Path | str,
    nodes: Path | str | None = None,
    *,
    time: str | None = None,
    split: str | None = None,
    key: str | None = None,
    query: str | None = None,
    id: str | None = None,
    ignore: Sequence[str] = (),
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    name: str | None = None,
) -> GraphData:
    """The links of a table of edges, split into training, validation and test.

    Args:
        edges: a file with a line per link that holds the ids of two nodes.
        nodes: a file with a line per node, whose columns become features, as in `read_tables`.
            Without it, the nodes are those of the links, and networks learn a vector for each.
        time: a column of the edges with numbers or dates: the latest links are for test, those
            before for validation. A link that is listed several times is as old as its first line.
        split: a column of the edges with train, valid and test; by default the one named split.
            Without time and split, the links are split at random.
        key, query, id, ignore: columns, as in `read_tables`.
        shares: fractions of training, validation and test links.
        seed: of the random split, and of the pairs that are not links.
        name: of the graph; by default that of the file of edges.

    Raises:
        TableError: with the file, line and value of the first problem.
    """
    check_shares(shares)
    file = TableFile.open(edges)
    ends = edge_columns_of(file, key, query, (), True)
    time, split = _columns(file, ends, time, split)
    name = name or name_of(file.path)
    if nodes is None:
        data = _of_edges(file, ends, name)
    else:
        options = {"key": ends.key, "query": ends.query, "id": id, "ignore": ignore}
        data = read_tables(edges, nodes, target=None, directed=True, name=name, **options)
    about: dict[str, Any] = {"key": ends.key, "query": ends.query, "time": time, "split": split}
    about |= {} if split else {"shares": list(shares)}
    data = replace(data, about={**data.about, "links": about})
    parts = None if split is None else _parts(file, split)
    times = None if time is None else _times(file, time)
    options = {"shares": shares, "seed": seed, "time": times, "part": parts}
    try:
        return split_links(data, source=str(file.path), locate=file.locate, **options)
    except ValueError as error:
        raise TableError(str(error)) from None


def _columns(
    file: TableFile, ends: EdgeColumns, time: str | None, split: str | None
) -> tuple[str | None, str | None]:
    """The columns of times and of parts; by default there is a split if a column is named so."""
    file.check_columns([each for each in (time, split) if each is not None])
    if time is not None and split is not None:
        raise ValueError(f"links are split by time {time!r} or by column {split!r}, not by both")
    usual = {name.lower(): name for name in reversed(file.names)}.get(SPLIT)
    if time is None and split is None and usual not in (ends.key, ends.query):
        split = usual
    for each in (time, split):
        if each in (ends.key, ends.query):
            raise ValueError(f"column {each!r} holds nodes, so it can't be the time or the split")
    return time, split


def _of_edges(file: TableFile, ends: EdgeColumns, name: str) -> GraphData:
    """A graph of the nodes that occur in the table, in the order of their ids."""
    blocks = []
    for first, block in file.blocks([ends.key, ends.query]):
        for column in (ends.key, ends.query):
            cells = block.column(column)
            row = first_empty(cells)
            if row is not None:
                raise TableError(
                    f"{file.locate(first + row)}: column {column!r} is empty, but must hold the id "
                    "of a node"
                )
            blocks.append(compute.unique(read_names(cells)))
    if not blocks:
        raise TableError(f"{file.path} has a header, but no rows")
    distinct = compute.unique(Ids.of(blocks).values)
    ids, memory = Ids(distinct.take(compute.array_sort_indices(distinct))), Memory()
    edges = EdgeReader(file, ends, ids)
    edges.write_as_listed(memory, EDGE_BASE)
    memory.add(f"{NODE_BASE}/id", ids.array)
    tables = {"key": ends.key, "query": ends.query, "directed": False, **asdict(edges.counts)}
    source = {"edges": {"file": file.path.name, "bytes": file.path.stat().st_size}}
    about = {"source": source, "tables": tables, "task": {"node_type": NODE}}
    return memory.graph(name, len(ids), about)


def _parts(file: TableFile, column: str) -> np.ndarray:
    """[lines] of 0 (train), 1 (valid), 2 (test), and -1 for empty cells."""
    coding = Coding(file, column)
    for _, block in file.blocks([column]):
        coding.add(block.column(column))
    coded = coding.finish()
    texts = coded.texts.to_pylist()
    for text in texts:
        if text.lower() not in WORDS:
            raise coded.error(text, "must hold train, valid or test")
    return coded.expand(np.array([WORDS[text.lower()] for text in texts], np.int8), -1)


def _times(file: TableFile, column: str) -> np.ndarray:
    """[lines] numbers, or days since 1970."""
    cells = pa.chunked_array([block.column(column) for _, block in file.blocks([column])])
    cells = cells.combine_chunks()
    readable = [kind for kind in TIMES if is_sound(READERS[kind](cells))]
    kind = readable[0] if readable else _kind_of_first(cells)
    times = read_cells(cells, kind, column, file.locate)
    if np.isnan(times).any():
        row = int(np.isnan(times).argmax())
        what = "must hold a number or a date"
        raise TableError(f"{file.locate(row)}: column {column!r} is empty, but {what}")
    return times


def _kind_of_first(cells: pa.Array) -> str:
    """The kind that the first cell has, so that the error names the first cell that differs."""
    return "date" if is_sound(READERS["date"](cells.slice(0, 1))) else "number"
