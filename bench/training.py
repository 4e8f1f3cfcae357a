"""Training at full size: time and memory of the benchmarks ogbn-products, -proteins and -arxiv.

The graph is synthetic, with the sizes of the real one. It is written to a temporary folder by one
process; a second one opens it, trains GATv2 with the benchmark's own network, sampler, task and
training loop, and evaluates once with all neighbours. ogbn-arxiv is compared with the same network
of PyG's layers, and not evaluated.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, nn

from bench.cases import Case, Effort
from bench.isolation import check_memory, in_fresh_process, reason_of
from bench.memory import peak_bytes, reset_peak
from bench.records import Record
from dynagat.benchmarks import find
from dynagat.data.catalog import CATALOG
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes, open_graph
from dynagat.metrics import Metric
from dynagat.training import Schedule, Task, fit

WARM_UP = 3  # steps that are not recorded
EDGE_FEATURES = {"ogbn-proteins": 8}
MULTILABEL = ("ogbn-proteins",)
BYTES_PER_EDGE = 110  # peak memory of the training process; measured: 105 for ogbn-products


@dataclass(frozen=True)
class Measured:
    """Seconds of each training step and of one evaluation, and the peak memory in bytes."""

    steps: tuple[float, ...]
    steps_per_epoch: int
    evaluation: float
    peak: int


def measure_training(case: Case) -> Iterator[Record]:
    """Time of a step, an epoch and an exact evaluation; peak memory of the process."""
    try:
        check_memory(BYTES_PER_EDGE * case.graph.num_edges)
        with written_graph(case) as path:
            measured: Measured = in_fresh_process(train, case, path)
    except Exception as error:
        yield Record("dynagat", "step", reason=reason_of(error))
        return
    yield Record.rounded("dynagat", "step", measured.steps)
    others = {
        "steps per epoch": float(measured.steps_per_epoch),
        "epoch": measured.steps_per_epoch * statistics.median(measured.steps),
        "evaluation": measured.evaluation,
    }
    for quantity, value in others.items():
        yield Record.rounded("dynagat", quantity, [value])
    yield Record("dynagat", "process memory", (float(measured.peak),))


def measure_epoch(case: Case) -> Iterator[Record]:
    """Time of a training step and of an epoch, and peak memory beyond the data, of each contender,
    whose names are those of `PyGStack.source`."""
    with written_graph(case) as path:
        for name in case.contenders:
            try:
                measured: Measured = in_fresh_process(train_only, case, path, name)
            except Exception as error:  # the other contenders still run
                yield Record(name, "epoch", reason=reason_of(error))
                continue
            yield Record.rounded(name, "step", measured.steps)
            epoch = measured.steps_per_epoch * statistics.median(measured.steps)
            yield Record.rounded(name, "steps per epoch", [float(measured.steps_per_epoch)])
            yield Record.rounded(name, "epoch", [epoch])
            yield Record(name, "memory", (float(measured.peak),))


# The data


@contextmanager
def written_graph(case: Case) -> Iterator[Path]:
    """The folder of the case's graph, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
        path = Path(folder) / "graph"
        in_fresh_process(write_graph, case, path)
        yield path


def write_graph(case: Case, path: Path) -> None:
    draw_graph(case).save(path)


def draw_graph(case: Case) -> GraphData:
    """The edges of the case's recipe; features, targets and a split drawn at random.

    The widths are those of the real dataset, and the split has its proportions.
    """
    entry, random = CATALOG[case.benchmark], np.random.default_rng(0)
    num_nodes, num_edges = case.graph.num_nodes, case.graph.num_edges
    task: dict[str, Any] = {"node_type": NODE, "classes": list(map(str, range(entry.classes)))}
    if case.benchmark in MULTILABEL:
        task["kind"] = "multilabel"
        y = random.integers(0, 2, (num_nodes, entry.classes)).astype(np.float32)
    else:
        task["kind"] = "classification"
        y = random.integers(0, entry.classes, num_nodes)
    nodes = {"y": y}
    if entry.features:
        nodes["x"] = random.standard_normal((num_nodes, entry.features), np.float32)
    edges = {}
    if case.benchmark in EDGE_FEATURES:
        edges["attr"] = random.random((num_edges, EDGE_FEATURES[case.benchmark]), np.float32)
    key, query = case.graph.edge_index().numpy()
    ends = np.cumsum(entry.split[:2]) * num_nodes // sum(entry.split)
    parts = np.split(random.permutation(num_nodes), ends)
    return GraphData(
        case.benchmark,
        {NODE: Nodes(num_nodes, nodes)},
        {EDGE: Edges(key, query, edges)},
        dict(zip(("train", "valid", "test"), map(np.sort, parts), strict=True)),
        {"task": task},
    )


# Training


@dataclass
class TimedTask:
    """A task whose training batches end once enough steps were timed. Implements training.Task."""

    task: Task
    effort: Effort
    seconds: list[float] = field(default_factory=list)  # of each step, the warm-up included

    @property
    def metric(self) -> Metric:
        return self.task.metric

    def batches(self, generator: Generator) -> Iterator[Any]:
        """Batches of as many epochs as it takes."""
        begin = time.perf_counter()
        while True:
            for batch in self.task.batches(generator):
                yield batch
                end = time.perf_counter()
                self.seconds.append(end - begin)
                begin = end
                if self._is_enough():
                    return

    def _is_enough(self) -> bool:
        timed = self.seconds[WARM_UP:]
        if len(timed) >= self.effort.most:
            return True
        return len(timed) >= self.effort.fewest and sum(timed) >= self.effort.seconds

    def loss(self, network: nn.Module, batch: Any) -> tuple[torch.Tensor, float]:
        return self.task.loss(network, batch)

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        return self.task.evaluate(network, part)


class TimedSteps(TimedTask):
    """A task without evaluation."""

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        return math.nan, math.nan


def train(case: Case, path: Path) -> Measured:
    """Train for a number of steps, evaluate once; meant for a process of its own."""
    network, task, schedule, num_train = build(case, open_graph(path))
    timed = TimedTask(task, case.effort)
    once = replace(schedule, max_rounds=1, silent_rounds=0, round_passes=1, round_steps=1)
    outcome = fit(network, timed, once, Generator().manual_seed(0))
    [(_, evaluation)] = outcome.seconds
    steps_per_epoch = math.ceil(num_train / schedule.batch_size)
    return Measured(tuple(timed.seconds[WARM_UP:]), steps_per_epoch, evaluation, peak_bytes())


def train_only(case: Case, path: Path, source: str) -> Measured:
    """Train layers of this source for a number of steps; meant for a process of its own."""
    network, task, schedule, _ = build(case, open_graph(path), source=source)
    timed = TimedSteps(task, case.effort)
    once = replace(schedule, max_rounds=1, silent_rounds=0, round_passes=1, round_steps=1)
    before = reset_peak()
    fit(network, timed, once, Generator().manual_seed(0))
    steps = tuple(timed.seconds[WARM_UP:])
    return Measured(steps, find(case.benchmark).task.steps, math.nan, peak_bytes() - before)


def build(case: Case, data: GraphData, **settings: str) -> tuple[nn.Module, Task, Schedule, int]:
    """Network, task, schedule and number of training nodes of the case's benchmark, on these data.

    `settings` are those of the network. The only function here that depends on how dynagat's node
    benchmarks are put together.
    """
    benchmark = find(case.benchmark)
    problem = benchmark.data.problem(data, seed=0)
    torch.manual_seed(0)
    stack = replace(benchmark.network, heads=case.heads, **settings)
    network = stack.build(problem, case.mechanism)
    schedule = benchmark.schedule.for_mechanism(case.mechanism)
    return network, benchmark.task.prepare(problem, schedule), schedule, len(problem.split["train"])
