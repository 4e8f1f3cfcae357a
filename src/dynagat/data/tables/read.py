"""read_tables: a table of edges and a table of nodes, CSV or Parquet, as a GraphData.

Files are read in blocks, never as a whole: the table of nodes three times, that of edges once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.arrays import write_folder
from dynagat.data.store import EDGE, KIND, NODE, Edges, GraphData, Nodes, described, open_graph
from dynagat.data.tables.columns import Columns, check_has_columns
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.destination import EDGE_BASE, Destination, Memory
from dynagat.data.tables.edge_list import EdgeColumns, EdgeReader
from dynagat.data.tables.node_table import Choices, NodeColumns, NodeReader
from dynagat.data.tables.split import check_shares
from dynagat.data.tables.table_file import TableFile
from dynagat.data.tables.targets import check_task, known_targets

ENDS = [("source", "target"), ("src", "dst"), ("from", "to"), ("key", "query"), ("u", "v")]
IDS = ["id", "node", "node_id", "nodeid", "name"]
SPLIT = "split"


def read_tables(
    edges: Path | str,
    nodes: Path | str,
    *,
    target: str | Sequence[str] | None,
    task: str = "auto",
    key: str | None = None,
    query: str | None = None,
    id: str | None = None,
    split: str | None = None,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    directed: bool = False,
    ignore: Sequence[str] = (),
    edge_columns: Sequence[str] = (),
    columns: Columns | None = None,
    name: str | None = None,
    folder: Path | str | None = None,
    replace: bool = False,
) -> GraphData:
    """The graph of a table of edges and a table of nodes, CSV (also compressed by gzip) or Parquet.

    Args:
        edges: a file with a line per edge that holds the ids of two nodes: the key, which is
            attended to, and the query, which attends.
        nodes: a file with a line per node. All columns except id, target and split become
            features, as described in data/tables/columns.py.
        target: the column to predict. Several columns of 0 and 1 are labels of which a node may
            have any. None if there is no target.
        task: "auto" infers it from the target, as described in data/tables/targets.py.
        key, query: columns of the edges; by default source and target, src and dst, from and to,
            key and query, or u and v, else the first two.
        id: the column of node ids; by default id, node, node_id or name, else the first.
        split: the column of train, valid and test; by default the one named split. Without it, the
            labelled nodes are split at random.
        shares, seed: fractions and seed of the random split, which is stratified by class.
        directed: whether to keep the direction of edges. If so, each line is an edge; else each
            edge is stored in both directions, once.
        ignore: columns of the nodes to leave out.
        edge_columns: columns of numbers to keep as the edges' `attr`. They need `directed`, since
            duplicate edges that are merged may differ in them.
        columns: an encoding that was fitted before, `Columns.from_dict(about["columns"])`. Other
            columns are ignored then.
        name: of the graph; by default that of the folder, or of the file of nodes.
        folder: where to store the graph, block by block, so that features need not fit into
            memory. None keeps it in memory.
        replace: whether to replace a stored graph.

    Raises:
        TableError: with the file, line and value of the first problem. Nothing is written then.
    """
    targets = known_targets(target)
    check_task(task, len(targets))
    check_shares(shares)
    edge_file, node_file = TableFile.open(edges), TableFile.open(nodes)
    ends = edge_columns_of(edge_file, key, query, edge_columns, directed)
    roles = _node_columns(node_file, targets, id, split, ignore, columns)
    name = name or name_of(Path(nodes) if folder is None else Path(folder))
    job = _Job(edge_file, node_file, ends, roles, Choices(task, shares, seed), columns, directed)
    if folder is None:
        memory = Memory()
        return memory.graph(name, *job.write(memory))
    with write_folder(folder, KIND, replace=replace) as writer:
        num_nodes, about = job.write(writer)
        bare = Edges(np.empty(0, np.int32), np.empty(0, np.int32))
        whole = GraphData(name, {NODE: Nodes(num_nodes)}, {EDGE: bare}, {}, about)
        writer.about = described(whole)
    return open_graph(folder)


@dataclass(frozen=True)
class _Job:
    """The files to read, and all options."""

    edges: TableFile
    nodes: TableFile
    ends: EdgeColumns
    roles: NodeColumns
    choices: Choices
    columns: Columns | None
    directed: bool

    def write(self, destination: Destination) -> tuple[int, dict[str, Any]]:
        """Write all arrays; returns the number of nodes and the metadata of the graph."""
        nodes = NodeReader(self.nodes, self.roles, self.choices, destination)
        ids, about = nodes.write(self.columns)
        edges = EdgeReader(self.edges, self.ends, ids)
        write = edges.write_as_listed if self.directed else edges.write_both_ways
        write(destination, EDGE_BASE)
        ends = {"key": self.ends.key, "query": self.ends.query, "attr": list(self.ends.attributes)}
        about["tables"] |= {**ends, "directed": self.directed, **asdict(edges.counts)}
        files = {"edges": self.edges.path, "nodes": self.nodes.path}
        about["source"] = {
            end: {"file": path.name, "bytes": path.stat().st_size} for end, path in files.items()
        }
        return len(ids), about


def edge_columns_of(
    file: TableFile, key: str | None, query: str | None, attributes: Sequence[str], directed: bool
) -> EdgeColumns:
    """The columns with these names, or else the usual ones."""
    if (key is None) != (query is None):
        raise ValueError(f"key and query must be given together, but are {key!r} and {query!r}")
    if attributes and not directed:
        raise ValueError("edge_columns needs directed=True, since merged edges may differ in them")
    if len(file.names) < 2:
        raise TableError(
            f"{file.path} must have two columns or more, separated by comma, semicolon, tab or |, "
            f"but has {len(file.names)}: {shown(', '.join(file.names))}"
        )
    if key is None or query is None:
        key, query = _default_ends(file.names)
    file.check_columns([key, query, *attributes])
    if key == query:
        raise ValueError(f"key and query must be different columns, but both are {key!r}")
    return EdgeColumns(key, query, tuple(attributes))


def _default_ends(names: Sequence[str]) -> tuple[str, str]:
    by_lower = {name.lower(): name for name in reversed(names)}
    for key, query in ENDS:
        if key in by_lower and query in by_lower:
            return by_lower[key], by_lower[query]
    return names[0], names[1]


def _node_columns(
    file: TableFile,
    targets: list[str],
    id: str | None,
    split: str | None,
    ignore: Sequence[str],
    columns: Columns | None,
) -> NodeColumns:
    file.check_columns([*targets, *ignore, *(each for each in (id, split) if each is not None)])
    by_lower = {name.lower(): name for name in reversed(file.names)}
    id = id or next((by_lower[each] for each in IDS if each in by_lower), file.names[0])
    if split is None and by_lower.get(SPLIT) not in [*ignore, *targets, id]:
        split = by_lower.get(SPLIT)
    taken = [id, *targets, *([split] if split else [])]
    for name in taken:
        if taken.count(name) > 1:
            raise ValueError(f"column {name!r} can be only one of id, target and split")
    if columns is not None:
        check_has_columns(file, columns.names)
    features = tuple(name for name in file.names if name not in {*taken, *ignore})
    return NodeColumns(id, tuple(targets), split, features)


def name_of(path: Path) -> str:
    """The name of a graph that is read from this file."""
    return re.sub(r"[^\w.+-]+", "-", path.name.split(".")[0]).strip("-.+") or "graph"
