"""What runs cost: seconds of a training pass and of an evaluation, and memory; made-up data too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from typing import Any

from dynagat.experiment import Benchmark, Record
from dynagat.experiment.settings import flat
from dynagat.report import wording
from dynagat.report.tables import Row, current, is_made, untested_rows

COLUMNS = ("settings", "mechanism", "heads", "layers", "data", "a pass", "an evaluation",
           "peak memory", "threads", "n")  # fmt: skip
LEFT = 2  # columns of words
LEGEND = (
    "Medians over rounds, then over n runs: seconds of one pass over the training data, and of one"
    " evaluation. Layers: whose code they are. Peak memory is the largest of the n, of the whole"
    " process, data and all."
)
ONE_SOURCE = {"gcn": "dynagat", "gin": "pyg", "sage": "pyg"}  # whatever was asked for
HIDDEN = ("network.source", "data.made")  # have columns of their own


@dataclass(frozen=True)
class Cost:
    """Rows that differ in nothing but numbers that the paper varies, on as many threads."""

    rows: tuple[Row, ...]
    runs: tuple[Record, ...]
    steps: int  # of a pass, in these runs
    own_steps: int  # of a pass, in the benchmark

    @property
    def passes(self) -> float:
        """Seconds; where the runs' passes were shorter than the benchmark's, as if they had not."""
        return median(map(_pass_seconds, self.runs)) * self.own_steps / self.steps

    @property
    def evaluation(self) -> float:
        known = [seconds for run in self.runs if math.isfinite(seconds := _evaluation_seconds(run))]
        return median(known) if known else math.nan

    @property
    def memory(self) -> int:
        """Bytes at the peak."""
        return max(run.peak_memory_bytes for run in self.runs)

    @property
    def source(self) -> str:
        """Whose layers."""
        asked = flat(self.runs[0].settings).get("network.source", "dynagat")
        return ONE_SOURCE.get(self.rows[0].mechanism, str(asked))

    def cells(self) -> list[str]:
        """One text for each of COLUMNS."""
        row, run = self.rows[0], self.runs[0]
        estimated = f", estimated from {self.steps} of {self.own_steps} steps"
        return [
            self._settings(),
            wording.name_of(row.mechanism),
            wording.NOTHING if row.mechanism in wording.WITHOUT_HEADS else str(row.heads),
            self.source,
            "made up" if is_made(run) else "real",
            wording.seconds(self.passes) + (estimated if self.steps != self.own_steps else ""),
            wording.seconds(self.evaluation),
            wording.size(self.memory),
            run.versions.get("threads", wording.NOTHING),
            str(len(self.runs)),
        ]

    @property
    def company(self) -> list[str]:
        """All that is to be the same where two costs are compared."""
        cells = self.cells()
        return [*cells[:3], cells[4], cells[8]]

    def place(self, mechanisms: list[str]) -> tuple[Any, ...]:
        """Real data first; what can be compared, side by side."""
        row, cells = self.rows[0], self.cells()
        mechanism = mechanisms.index(row.mechanism)
        return is_made(self.runs[0]), cells[0], mechanism, row.heads, cells[3], cells[8]

    def _settings(self) -> str:
        """ "pubmed, noise=0–0.5, as-published" """
        row = self.rows[0]
        told = [_swept(name, [each.swept[name] for each in self.rows]) for name in row.swept]
        told += [] if row.fidelity == "corrected" else [row.fidelity]
        for path, value in {**row.budget, **row.changed}.items():
            if path not in HIDDEN and not (path == "task.steps" and self.steps != self.own_steps):
                told.append(wording.told_setting(path.split(".")[-1], value))
        return ", ".join(told) or "default"


def costs(records: Iterable[Record], benchmark: Benchmark) -> list[Cost]:
    """Of the benchmark's records that tell how long a pass took."""
    timed = [record for record in current(records, benchmark) if _tells_time(record)]
    lots: dict[str, list[tuple[Row, Record]]] = {}
    for row in untested_rows(timed, benchmark, benchmark.metric):
        for run in row.runs:
            lots.setdefault(_lot(row, run), []).append((row, run))
    found = [_cost(benchmark, lot) for lot in lots.values()]
    order = list(benchmark.mechanisms)
    return sorted(found, key=lambda each: each.place(order))


def beside_pyg(found: list[Cost]) -> Iterator[str]:
    """How much our layers save, where PyG's were run with the same settings and threads."""
    for ours, theirs in permutations(found, 2):
        if (ours.source, theirs.source) != ("dynagat", "pyg") or ours.company != theirs.company:
            continue
        row = ours.rows[0]
        yield (
            f"Beside PyG's layers in the same network, {wording.title_of(row.mechanism, row.heads)}"
            f" trains {theirs.passes / ours.passes:.1f} times as fast on ours"
            f" ({wording.seconds(ours.passes)} a pass against {wording.seconds(theirs.passes)}),"
            f" with {wording.size(ours.memory)} of memory against {wording.size(theirs.memory)}."
        )


def _cost(benchmark: Benchmark, lot: list[tuple[Row, Record]]) -> Cost:
    told = flat(lot[0][1].settings)
    base = benchmark.base(lot[0][0].mechanism, told.get("data.dataset"))
    own = getattr(base.task, "steps", 1) if told.get("task.roots") else 1
    steps = told["task.steps"] if told.get("task.roots") else 1
    rows = {id(row): row for row, _ in lot}
    return Cost(tuple(rows.values()), tuple(run for _, run in lot), steps, own)


def _tells_time(record: Record) -> bool:
    """Where a round goes on until it has so many steps, nobody knows the number of its passes."""
    return bool(record.round_seconds) and flat(record.settings)["schedule.round_steps"] == 1


def _lot(row: Row, run: Record) -> str:
    fixed = [f"{name}={v}" for name, v in row.swept.items() if not isinstance(v, (int, float))]
    threads = run.versions.get("threads", "")
    return repr((row.family, fixed, row.budget, row.mechanism, row.heads, threads))


def _swept(name: str, values: list[Any]) -> str:
    known = list(dict.fromkeys(values))
    if len(known) == 1:
        return wording.told_setting(name, known[0])
    if all(isinstance(value, float) for value in known):
        return f"{name}={wording.stretches(known)}"
    return f"{name}={wording.several(known)}".replace("-", "–")


def _pass_seconds(run: Record) -> float:
    passes = flat(run.settings)["schedule.round_passes"]
    return median(training for training, _ in run.round_seconds) / passes


def _evaluation_seconds(run: Record) -> float:
    """nan where no round was evaluated."""
    known = list(_evaluated(run))
    return median(known) if known else math.nan


def _evaluated(run: Record) -> Iterator[float]:
    for here, (_, evaluation) in zip(run.history, run.round_seconds, strict=True):
        if math.isfinite(here["valid"]):
            yield evaluation
