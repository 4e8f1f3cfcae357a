"""What runs cost: seconds of a training epoch and of an evaluation, and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from typing import Any

from dynagat.experiment import Benchmark, Record
from dynagat.experiment.settings import flat
from dynagat.report import wording
from dynagat.report.parts import Table
from dynagat.report.rows import Row

COLUMNS = ("settings", "mechanism", "heads", "layers", "an epoch", "an evaluation",
           "peak memory", "threads", "n")  # fmt: skip
LEGEND = (
    "Medians over rounds, then over n runs: seconds of one epoch and of one evaluation. Layers:"
    " whose implementation. Peak memory: the largest of the n runs, of the whole process with its"
    " data."
)
SOURCE = "network.source"  # has a column of its own
OURS, PYG = "dynagat", "pyg"
OWN_SAGE = "2026-11-18T11:47"  # older runs of GraphSAGE used PyG's, whatever their settings say


@dataclass(frozen=True)
class Cost:
    """Runs that differ only in numbers that the paper varies, on the same number of threads."""

    rows: tuple[Row, ...]
    runs: tuple[Record, ...]
    steps: int  # of an epoch in these runs
    own_steps: int  # of an epoch in the benchmark
    source: str  # whose layers

    @property
    def epoch(self) -> float:
        """Seconds; extrapolated if the runs' epochs were shorter than the benchmark's."""
        return median(map(_epoch_seconds, self.runs)) * self.own_steps / self.steps

    @property
    def evaluation(self) -> float:
        known = [seconds for run in self.runs if math.isfinite(seconds := _evaluation_seconds(run))]
        return median(known) if known else math.nan

    @property
    def memory(self) -> int:
        """Peak in bytes."""
        return max(run.peak_memory_bytes for run in self.runs)

    def cells(self) -> list[str]:
        """One text for each of COLUMNS."""
        row, run = self.rows[0], self.runs[0]
        estimated = f", estimated from {self.steps} of {self.own_steps} steps"
        return [
            self._settings(),
            wording.name_of(row.mechanism),
            wording.heads_of(row.mechanism, row.heads),
            self.source,
            wording.seconds(self.epoch) + (estimated if self.steps != self.own_steps else ""),
            wording.seconds(self.evaluation),
            wording.size(self.memory),
            run.versions.get("threads", wording.NOTHING),
            str(len(self.runs)),
        ]

    @property
    def conditions(self) -> list[str]:
        """What must be the same where two costs are compared."""
        cells = self.cells()
        return [*cells[:3], cells[7]]

    def order(self, mechanisms: list[str]) -> tuple[Any, ...]:
        """Puts comparable costs next to each other."""
        row, cells = self.rows[0], self.cells()
        mechanism = mechanisms.index(row.mechanism)
        return cells[0], mechanism, row.heads, cells[3], cells[7]

    def _settings(self) -> str:
        """ "photo, noise=0–0.5, as-published" """
        row = self.rows[0]
        texts = [_varied(name, [each.swept[name] for each in self.rows]) for name in row.swept]
        texts += [] if row.fidelity == "corrected" else [row.fidelity]
        for path, value in {**row.budget, **row.changed}.items():
            is_estimated = path == "task.steps" and self.steps != self.own_steps
            if path != SOURCE and not is_estimated:
                texts.append(wording.setting_label(path.split(".")[-1], value))
        return ", ".join(texts) or "default"


def costs(rows: Sequence[Row], benchmark: Benchmark) -> list[Cost]:
    """Costs of the runs whose records say how long an epoch took."""
    groups: dict[str, list[tuple[Row, Record]]] = {}
    for row in rows:
        for run in filter(_has_epoch_times, row.runs):
            key = _group(row, run) + _source(run)
            groups.setdefault(key, []).append((row, run))
    order = list(benchmark.mechanisms)
    every = [_cost(benchmark, group) for group in groups.values()]
    return sorted(every, key=lambda each: each.order(order))


def cost_table(costs: Sequence[Cost]) -> Table | None:
    if not costs:
        return None
    lines = [each.cells() for each in costs]
    return Table.of("Time and memory", COLUMNS, lines, text_columns=2, legend=LEGEND)


def compared_with_pyg(costs: Sequence[Cost]) -> Iterator[str]:
    """How much our layers save, where PyG's were run with the same settings and threads."""
    for ours, theirs in permutations(costs, 2):
        if (ours.source, theirs.source) != (OURS, PYG):
            continue
        if ours.conditions != theirs.conditions:
            continue
        row = ours.rows[0]
        yield (
            f"{wording.title_of(row.mechanism, row.heads)} trains {theirs.epoch / ours.epoch:.1f}"
            f" times as fast with our layers as with PyG's in the same network"
            f" ({wording.seconds(ours.epoch)} an epoch against {wording.seconds(theirs.epoch)}),"
            f" with {wording.size(ours.memory)} of memory against {wording.size(theirs.memory)}."
        )


def _cost(benchmark: Benchmark, group: list[tuple[Row, Record]]) -> Cost:
    values = flat(group[0][1].settings)
    base = benchmark.base(group[0][0].mechanism, values.get("data.dataset"))
    own = getattr(base.task, "steps", 1) if values.get("task.roots") else 1
    steps = values["task.steps"] if values.get("task.roots") else 1
    rows = {id(row): row for row, _ in group}
    runs = tuple(run for _, run in group)
    return Cost(tuple(rows.values()), runs, steps, own, _source(runs[0]))


def _source(run: Record) -> str:
    """Whose layers a run used: networks without the setting have their own."""
    given = flat(run.settings).get(SOURCE)
    if given is None:
        return OURS
    is_pyg = run.mechanism == "gin" or (run.mechanism == "sage" and run.created < OWN_SAGE)
    return PYG if is_pyg else str(given)


def _has_epoch_times(record: Record) -> bool:
    """Not if rounds last until so many steps are made: the number of their epochs is unknown."""
    return bool(record.round_seconds) and flat(record.settings)["schedule.round_steps"] == 1


def _group(row: Row, run: Record) -> str:
    fixed = [f"{name}={v}" for name, v in row.swept.items() if not isinstance(v, (int, float))]
    threads = run.versions.get("threads", "")
    return repr((row.family, fixed, row.budget, row.mechanism, row.heads, threads))


def _varied(name: str, values: list[Any]) -> str:
    known = list(dict.fromkeys(values))
    if len(known) == 1:
        return wording.setting_label(name, known[0])
    if all(isinstance(value, float) for value in known):
        return f"{name}={wording.ranges_of_fractions(known)}"
    return f"{name}={wording.ranges(known)}".replace("-", "–")


def _epoch_seconds(run: Record) -> float:
    epochs = flat(run.settings)["schedule.round_passes"]
    return median(training for training, _ in run.round_seconds) / epochs


def _evaluation_seconds(run: Record) -> float:
    """nan if no round was evaluated."""
    rounds = zip(run.history, run.round_seconds, strict=True)
    known = [evaluation for here, (_, evaluation) in rounds if math.isfinite(here["valid"])]
    return median(known) if known else math.nan
