"""Importing: a CSV file of edges and one of nodes, read by dynagat and, for comparison, by pandas.

A node has six numbers, a category, a date and a label. Each measurement has its own process, which
reads tiny files first, so that the memory of imported modules is not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import Case
from bench.graphs import Recipe, Uniform
from bench.isolation import in_fresh_process, reason_of
from bench.memory import peak_bytes, reset_peak
from bench.records import Record
from dynagat.data import read_tables
from dynagat.data.store import GraphData, flat
from dynagat.data.texts import Texts

TINY = Uniform(200, 1_000)
NUM_CLASSES = 10
Reader = Callable[[Path], Any]


def measure_import(case: Case) -> Iterator[Record]:
    """Time and peak memory of each reader, taking turns; and the size of the graph's arrays."""
    results: dict[str, list[tuple[float, int, int]]] = {name: [] for name in READERS}
    with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
        write_files(case.graph, Path(folder), case.string_ids)
        for _ in range(case.effort.fewest):
            for name in list(results):
                try:
                    results[name].append(in_fresh_process(read_files, name, Path(folder)))
                except Exception as error:  # the other readers still run
                    del results[name]
                    yield Record(name, "seconds", reason=reason_of(error))
    for name, values in results.items():
        seconds, peaks, sizes = zip(*values, strict=True)
        yield Record(name, "seconds", tuple(round(each, 3) for each in seconds))
        yield Record(name, "memory", tuple(map(float, peaks)))
        if any(sizes):
            ratios = (peak / size for peak, size in zip(peaks, sizes, strict=True))
            yield Record(name, "arrays", tuple(map(float, sizes)))
            yield Record(name, "peak over arrays", tuple(round(ratio, 4) for ratio in ratios))


def read_files(name: str, folder: Path) -> tuple[float, int, int]:
    """Seconds, peak bytes relative to just before reading, and bytes of the graph's arrays."""
    read = READERS[name]
    with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as tiny:
        write_files(TINY, Path(tiny), False)
        read(Path(tiny))
    before = reset_peak()
    begin = time.perf_counter()
    data = read(folder)
    seconds = time.perf_counter() - begin
    return seconds, peak_bytes() - before, bytes_of(data) if isinstance(data, GraphData) else 0


def read_by_pandas(folder: Path) -> Any:
    """Both tables; no graph is built from them."""
    import pandas

    return [pandas.read_csv(folder / name) for name in ("edges.csv", "nodes.csv")]


def read_to_memory(folder: Path) -> GraphData:
    return read_tables(folder / "edges.csv", folder / "nodes.csv", target="label")


def read_to_folder(folder: Path) -> GraphData:
    tables = folder / "edges.csv", folder / "nodes.csv"
    return read_tables(*tables, target="label", folder=folder / "graph", replace=True)


READERS: Mapping[str, Reader] = {
    "pandas": read_by_pandas,
    "dynagat": read_to_memory,
    "dynagat, to a folder": read_to_folder,
}


def bytes_of(data: GraphData) -> int:
    """Total size of a graph's arrays."""
    arrays = flat(data).values()
    groups = (each.arrays.values() if isinstance(each, Texts) else [each] for each in arrays)
    return sum(array.nbytes for group in groups for array in group)


def write_files(graph: Recipe, folder: Path, string_ids: bool) -> None:
    """Write edges.csv with a line per edge and nodes.csv with a line per node."""
    import pyarrow as pa
    from pyarrow import csv

    key, query = (_ids(ends.numpy(), string_ids) for ends in graph.edge_index())
    csv.write_csv(pa.table({"source": key, "target": query}), str(folder / "edges.csv"))
    columns = _node_columns(graph.num_nodes, string_ids)
    csv.write_csv(pa.table(columns), str(folder / "nodes.csv"))


def _node_columns(count: int, string_ids: bool) -> dict[str, Any]:
    random = np.random.default_rng(0)
    days = np.datetime64("2015-01-01") + random.integers(0, 3650, count)
    numbers = {f"number_{n}": random.standard_normal(count).round(4) for n in range(6)}
    category = np.array([f"kind {n}" for n in range(20)])[random.integers(0, 20, count)]
    label = np.array([f"class {n}" for n in range(NUM_CLASSES)])[
        random.integers(0, NUM_CLASSES, count)
    ]
    others = {"category": category, "date": days, "label": label}
    return {"id": _ids(np.arange(count), string_ids), **numbers, **others}


def _ids(numbers: np.ndarray, as_strings: bool) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    array = pa.array(numbers)
    if not as_strings:
        return array
    return compute.binary_join_element_wise("user-", compute.cast(array, pa.string()), "")  # pyright: ignore
