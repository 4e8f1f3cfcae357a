"""Training on a graph larger than memory: which memory a process takes, beside the mapped files.

One process writes the graph, and another trains for a fixed number of steps with the network, the
sampler and the training loop of ogbn-products. Its anonymous memory (RssAnon) is what can't be
given back; pages of mapped files (RssFile) are only as many as there is room for.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Generator, Tensor, nn

from bench.cases import Case
from bench.isolation import CannotRun, in_fresh_process, reason_of
from bench.large_graph import LargeGraph
from bench.memory import STATUS, status
from bench.records import Record
from bench.training import WARM_UP, TimedTask, build
from dynagat.data.scratch import DEFAULT_LIMIT
from dynagat.data.store import open_graph
from dynagat.training import fit

INTERVAL = 0.02  # seconds between two looks at the memory
LIMIT_SHARE = (
    16  # a small graph's limit is a part of its size, so that it is treated as a large one
)
SPARE = 1.2  # of disk space


@dataclass
class Resident:
    """Peaks of the resident memory of this process, in bytes."""

    anonymous: int = 0
    mapped: int = 0

    def look(self) -> None:
        self.anonymous = max(self.anonymous, status("RssAnon"))
        self.mapped = max(self.mapped, status("RssFile") + status("RssShmem"))


@dataclass(frozen=True)
class Measured:
    """Seconds of each step and of sorting the rows; sampled edges of the steps; memory in bytes."""

    steps: tuple[float, ...]
    sampled: int
    sorting: float
    before: int  # anonymous memory before the graph is opened
    peak: Resident
    steps_per_epoch: int


def measure_large(case: Case) -> Iterator[Record]:
    """Size of the store, peaks of memory, time of a step, and sampled edges per second."""
    assert isinstance(case.graph, LargeGraph)
    if not STATUS.exists():
        yield Record("dynagat", "step", reason="only Linux tells anonymous from mapped memory")
        return
    try:
        with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
            yield from _measure(case, Path(folder))
    except Exception as error:
        yield Record("dynagat", "step", reason=reason_of(error))


def _measure(case: Case, folder: Path) -> Iterator[Record]:
    graph = case.graph
    assert isinstance(graph, LargeGraph)
    size = graph.num_nodes * (4 * graph.features + 8) + 8 * graph.num_edges
    needed, free = SPARE * (size + 16 * graph.num_edges), shutil.disk_usage(folder).free
    if needed > free:
        raise CannotRun(f"needs {needed / 1e9:.0f} GB of disk, but {free / 1e9:.0f} GB are free")
    seconds, peak = in_fresh_process(write, graph, folder / "graph")
    yield Record("dynagat", "store", (float(size),))
    yield Record.rounded("dynagat", "writing", [seconds])
    yield Record("dynagat", "writing memory", (float(peak.anonymous),))
    measured: Measured = in_fresh_process(train, case, folder)
    yield Record.rounded("dynagat", "sorting", [measured.sorting])
    yield Record.rounded("dynagat", "step", measured.steps)
    yield Record("dynagat", "anonymous memory", (float(measured.peak.anonymous),))
    yield Record("dynagat", "anonymous memory before", (float(measured.before),))
    yield Record("dynagat", "mapped memory", (float(measured.peak.mapped),))
    per_step = measured.sampled / len(measured.steps)
    edges = per_step / statistics.median(measured.steps)
    yield Record.rounded("dynagat", "edges per second", [edges])
    epoch = measured.steps_per_epoch * statistics.median(measured.steps)
    yield Record.rounded("dynagat", "epoch", [epoch])


def write(graph: LargeGraph, folder: Path) -> tuple[float, Resident]:
    """Seconds and memory; meant for a process of its own."""
    begin = time.perf_counter()
    with watched() as peak:
        graph.write(folder, "large")
    return time.perf_counter() - begin, peak


def train(case: Case, folder: Path) -> Measured:
    """Train for a number of steps; meant for a process of its own."""
    os.environ["DYNAGAT_CACHE"] = str(folder / "cache")
    size = sum(path.stat().st_size for path in (folder / "graph").rglob("*"))
    os.environ["DYNAGAT_MEMORY"] = str(min(DEFAULT_LIMIT, size // LIMIT_SHARE))
    before = status("RssAnon")
    with watched() as peak:
        begin = time.perf_counter()
        network, task, schedule, num_train = build(case, open_graph(folder / "graph"))
        sorting = time.perf_counter() - begin
        counted = CountedSteps(task, case.effort)
        once = replace(schedule, max_rounds=1, silent_rounds=0, round_passes=1, round_steps=1)
        fit(network, counted, once, Generator().manual_seed(0))
    steps_per_epoch = math.ceil(num_train / schedule.batch_size)
    steps = tuple(counted.seconds[WARM_UP:])
    sampled = sum(counted.sampled[WARM_UP : WARM_UP + len(steps)])
    return Measured(steps, sampled, sorting, before, peak, steps_per_epoch)


@dataclass
class CountedSteps(TimedTask):
    """A task without evaluation that counts the edges of its batches."""

    sampled: list[int] = field(default_factory=list)

    def loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, float]:
        self.sampled.append(sum(graph.num_edges for graph in batch.graphs))
        return self.task.loss(network, batch)

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        return math.nan, math.nan


@contextmanager
def watched() -> Iterator[Resident]:
    """The peaks of this process's memory within the block."""
    peak, is_over = Resident(), threading.Event()

    def watch() -> None:
        while not is_over.wait(INTERVAL):
            peak.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()
        peak.look()
