"""dynagat plan against a measured epoch: how far the predicted time is from what training takes.

A synthetic graph of the shape of ogbn-products is stored. One process measures the rates, one makes
the plan, and one trains for an epoch, without evaluation.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Generator, Tensor, nn

from bench.cases import Case
from bench.isolation import in_fresh_process, reason_of
from bench.records import Record
from bench.training import build, draw_graph
from dynagat.data.store import open_graph, store_folder
from dynagat.metrics import Metric
from dynagat.planning import Plan, Rates, make_plan, measure_rates
from dynagat.training import Task, fit


def measure_plan(case: Case) -> Iterator[Record]:
    """The time of an epoch, predicted and measured, and the parts of the prediction."""
    try:
        with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
            in_fresh_process(store, case, Path(folder))
            rates = in_fresh_process(measure_rates)
            plan: Plan = in_fresh_process(predict, case, Path(folder), rates)
            measured = in_fresh_process(train, case, Path(folder))
    except Exception as error:
        yield Record("dynagat", "epoch", reason=reason_of(error))
        return
    yield Record.rounded("dynagat", "epoch", [measured])
    yield Record.rounded("plan", "epoch", [plan.epoch_seconds])
    yield Record.rounded("plan", "over measured", [plan.epoch_seconds / measured])
    for part, seconds in plan.seconds.items():
        yield Record.rounded("plan", part, [seconds])


def store(case: Case, folder: Path) -> None:
    os.environ["DYNAGAT_CACHE"] = str(folder)
    draw_graph(case).save()


def predict(case: Case, folder: Path, rates: Rates) -> Plan:
    os.environ["DYNAGAT_CACHE"] = str(folder)
    return make_plan(case.benchmark, rates, mechanism=case.mechanism)


def train(case: Case, folder: Path) -> float:
    """Seconds of an epoch; meant for a process of its own."""
    os.environ["DYNAGAT_CACHE"] = str(folder)
    data = open_graph(store_folder() / case.benchmark)
    network, task, schedule, _ = build(case, data)
    once = replace(schedule, max_rounds=1, silent_rounds=0, round_passes=1, round_steps=1)
    outcome = fit(network, WithoutEvaluation(task), once, Generator().manual_seed(0))
    [(seconds, _)] = outcome.seconds
    return seconds


@dataclass
class WithoutEvaluation:
    """A task that is only trained. Implements training.Task."""

    task: Task

    @property
    def metric(self) -> Metric:
        return self.task.metric

    def batches(self, generator: Generator) -> Iterator[Any]:
        return self.task.batches(generator)

    def loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, float]:
        return self.task.loss(network, batch)

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        return math.nan, math.nan
