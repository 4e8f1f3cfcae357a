"""write_tables: a graph as two tables that read_tables can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from dynagat.data.store import GraphData
from dynagat.data.texts import Texts


def write_tables(data: GraphData, edges: Path | str, nodes: Path | str) -> None:
    """Write edges as source and target; nodes as id, features f0, f1, ..., label and split.

    Files named .parquet or .pq are Parquet, others CSV. Several labels per node become columns
    label0, label1, ... Unlabelled nodes, and those in no part of the split, have empty cells.
    """
    names = data.nodes[data.node_type].arrays.get("id", np.arange(data.num_nodes))
    ids = pa.array(list(names) if isinstance(names, Texts) else names)
    ends = data.sole_edges
    pairs = {"source": ends.key_index, "target": ends.query_index}
    _write({end: ids.take(pa.array(index)) for end, index in pairs.items()}, Path(edges))
    features = {f"f{n}": _plain(column) for n, column in enumerate(np.asarray(data.x).T)}
    _write({"id": ids, **features, **_labels(data), **_parts(data)}, Path(nodes))


def _labels(data: GraphData) -> dict[str, pa.Array]:
    if not data.task:
        return {}
    y, classes = np.asarray(data.y), data.task.get("classes")
    if data.task["kind"] == "classification" and classes:
        code = pa.array(y, mask=y < 0)
        return {"label": pa.array([str(name) for name in classes]).take(code)}
    if y.ndim == 1:
        return {"label": _plain(y)}
    return {f"label{n}": _plain(column) for n, column in enumerate(y.T)}


def _parts(data: GraphData) -> dict[str, pa.Array]:
    if not data.split:
        return {}
    part = np.full(data.num_nodes, "", object)
    for name, index in data.split.items():
        part[index] = name
    return {"split": pa.array(part, pa.string(), mask=part == "")}


def _plain(column: np.ndarray) -> pa.Array:
    """Whole numbers as integers, which are shorter; nan as an empty cell."""
    empty = np.isnan(column)
    known = np.where(empty, 0, column)
    whole = np.abs(known).max(initial=0) < 2**31 and bool((known == np.floor(known)).all())
    return pa.array(known.astype(np.int32) if whole else known, mask=empty)


def _write(columns: dict[str, Any], path: Path) -> None:
    table = pa.table(columns)
    if path.suffix in (".parquet", ".pq"):
        parquet.write_table(table, path)
    else:
        arrow_csv.write_csv(table, path)
