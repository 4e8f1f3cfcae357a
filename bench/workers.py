"""Workers: the ogbn-products benchmark on one process and divided among two, as with --ddp 2."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from bench.cases import Case
from bench.isolation import check_memory, in_fresh_process, reason_of
from bench.records import Record
from bench.training import BYTES_PER_EDGE, WARM_UP, TimedTask, build, write_graph
from dynagat.data.store import open_graph
from dynagat.experiment import Distributed
from dynagat.experiment.runner import Contact, Work
from dynagat.prediction.prediction import Prediction
from dynagat.training import fit

SETUPS: Mapping[str, tuple[int, int]] = {  # processes, and the threads of each
    "one worker, one thread": (1, 1),
    "one worker, two threads": (1, 2),
    "two workers, one thread each": (2, 1),
}


@dataclass(frozen=True)
class Speeds:
    """Seconds per sampled edge of each step, of all workers together, and of one evaluation."""

    edges: tuple[float, ...]
    evaluation: float


def measure_workers(case: Case) -> Iterator[Record]:
    """Time per sampled edge, and of an exact evaluation, in each setup."""
    try:
        check_memory(2 * BYTES_PER_EDGE * case.graph.num_edges)
        with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
            path = Path(folder) / "graph"
            in_fresh_process(write_graph, case, path)
            speeds = {name: launch(case, path, *SETUPS[name]) for name in case.contenders}
    except Exception as error:
        yield Record(case.contenders[0], "edge", reason=reason_of(error))
        return
    for name, speed in speeds.items():
        yield Record.rounded(name, "edge", speed.edges)
        yield Record.rounded(name, "evaluation", [speed.evaluation])


def launch(case: Case, path: Path, size: int, threads: int) -> Speeds:
    work = Work(train, (case, path, threads), f"{case.name} on {size}")
    runs = Distributed(size).run(iter([work]), lambda work, message: None, print, None)
    [done] = runs
    return done.result


@dataclass
class CountedTask(TimedTask):
    """Also counts the sampled edges of each step."""

    edges: list[int] = field(default_factory=list)

    def loss(self, network: nn.Module, batch: Any) -> tuple[torch.Tensor, float]:
        self.edges.append(sum(batch.num_sampled_edges))
        return super().loss(network, batch)


def train(contact: Contact, case: Case, path: Path, threads: int) -> Speeds:
    """In each worker: a fixed number of steps, the same for all, then an evaluation."""
    torch.set_num_threads(threads)
    network, task, schedule, _ = build(case, open_graph(path))
    assert isinstance(task, Prediction)
    steps = replace(case.effort, seconds=0.0, fewest=case.effort.most)
    counted = CountedTask(task.together(contact.group), steps)
    once = replace(schedule, max_rounds=1, silent_rounds=0, round_passes=1, round_steps=1)
    outcome = fit(network, counted, once, Generator().manual_seed(0), group=contact.group)
    edges = contact.group.mean(torch.tensor(counted.edges).double()) * contact.group.size
    timed = zip(counted.seconds[WARM_UP:], edges.tolist()[WARM_UP:], strict=True)
    [(_, evaluation)] = outcome.seconds
    return Speeds(tuple(seconds / count for seconds, count in timed), evaluation)
