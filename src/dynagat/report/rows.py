"""rows: results next to the published numbers, one row per mechanism and settings.

Rows that differ only in what the paper varies (k, say) form a family, which is one table.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from dynagat.experiment import Benchmark, Published, Record
from dynagat.experiment.settings import FIDELITIES, departures, values_of
from dynagat.metrics import Metric
from dynagat.report import wording
from dynagat.significance import Contrast, Sample, bootstrap_interval, contrast, holm

OURS = "gatv2"
RIVAL = "gat"  # the paper claims to beat it
HEADS = "network.heads"  # has a column of its own
ROUNDS, PATIENCE = "schedule.max_rounds", "schedule.patience"
BUDGET = (ROUNDS, PATIENCE)  # less of it is a shorter run of the same


@dataclass(frozen=True)
class Row:
    """The runs of one mechanism under the same settings, and what they are compared with."""

    family: str  # "corrected", "as-published", "corrected, split=random"
    swept: Mapping[str, Any]  # the settings that the paper varies: {"k": 10}
    budget: Mapping[str, Any]  # {"schedule.max_rounds": 12} where it is not the fidelity's
    is_shorter: bool  # whether this budget is smaller than the fidelity's
    is_fixed: bool  # whether the number of rounds is fixed: no early stopping
    changed: Mapping[str, Any]  # other settings that are not the fidelity's, by dotted name
    caveats: Mapping[str, str]  # warnings about some of the changed settings, by the same names
    fidelity: str  # the nearer one, if `changed` holds some of its fields
    mechanism: str
    heads: int
    metric: Metric
    runs: tuple[Record, ...]  # by seed
    published: Published | None
    against: int | None = None  # the heads of the GATv2 that `contrast` is about
    contrast: Contrast | None = None  # of GATv2, its `ours`, with this row's mechanism
    # Whether a run of either was cut off, or one budget was shorter: then neither is better.
    is_cut: bool = False
    p_holm: float = math.nan  # Student's, one-sided, corrected by Holm
    num_tests: int = 0  # for how many tests

    @property
    def dataset(self) -> str:
        """Its name, where the paper varies the data set; else empty."""
        return str(self.swept.get("dataset", ""))

    @property
    def label(self) -> str:
        values = [*self.swept.items(), *((_last(path), v) for path, v in self.budget.items())]
        return ", ".join(wording.setting_label(k, v) for k, v in values) or "default"

    @property
    def title(self) -> str:
        return wording.title_of(self.mechanism, self.heads)

    @property
    def is_standard(self) -> bool:
        """Whether it belongs to one of the fidelities, without other settings."""
        return not self.changed.keys() - self.caveats.keys()

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """Without the runs that failed the released code's rule (D20), where it applies."""
        return tuple(run for run in self.runs if run.ended != "failed")

    @cached_property
    def values(self) -> dict[int, float]:
        """The metric by seed, without diverged runs."""
        values = {run.seed: run.metrics.get(self.metric.name, math.nan) for run in self.counted}
        return {seed: value for seed, value in values.items() if math.isfinite(value)}

    @cached_property
    def sample(self) -> Sample | None:
        return Sample.of(self.values.values()) if self.values else None

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of the mean."""
        if not self.values:
            return math.nan, math.nan
        return bootstrap_interval(list(self.values.values()))

    @property
    def mean(self) -> float:
        return math.nan if self.sample is None else self.sample.mean

    @property
    def difference(self) -> float:
        """Ours minus the published mean."""
        return math.nan if self.published is None else self.mean - self.published.mean

    @property
    def gain(self) -> float:
        """By how much GATv2 is better than this row; nan if they were not compared."""
        if self.contrast is None:
            return math.nan
        return self.metric.gain(self.contrast.ours.mean, self.contrast.other.mean)

    @property
    def p(self) -> float:
        """That GATv2 is better than this row: Student's, one-sided, as in the paper.

        nan where runs were cut off: then nothing is tested.
        """
        if self.contrast is None or self.is_cut:
            return math.nan
        return self.contrast.student.one_sided

    @property
    def diverged(self) -> int:
        return len(self.counted) - len(self.values)

    @property
    def protocol(self) -> str:
        """ "shorter protocol (max_rounds=20)"; empty for the benchmark's own budget."""
        if not self.is_shorter:
            return ""
        texts = [wording.setting_label(_last(path), value) for path, value in self.budget.items()]
        return f"shorter protocol ({', '.join(texts)})"

    @property
    def not_converged(self) -> int:
        """Runs that were cut off or diverged. A fixed number of rounds that was used up is none."""
        return sum(not run.converged for run in self.counted) - self.at_last_round

    @property
    def at_last_round(self) -> int:
        """Runs that used all of a fixed number of rounds."""
        return sum(run.ended == "budget" for run in self.counted) if self.is_fixed else 0

    def is_comparable(self, other: Row) -> bool:
        """Whether no run of either was cut off.

        If runs used up fewer rounds than the benchmark has, all of both must have used up equally
        many.
        """
        if self.not_converged or other.not_converged:
            return False
        if self.budget.get(PATIENCE) != other.budget.get(PATIENCE):
            return False
        is_used_up = [row.at_last_round == len(row.counted) for row in (self, other)]
        is_short = any(row.is_shorter and row.at_last_round for row in (self, other))
        return not is_short or (self.budget == other.budget and all(is_used_up))

    @property
    def failed(self) -> int:
        return len(self.runs) - len(self.counted)

    @property
    def ended(self) -> Mapping[str, int]:
        return Counter(run.ended for run in self.runs)


def _is_fixed(values: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether there is no early stopping: patience is the number of rounds, which may be reduced.

    A benchmark with early stopping whose rounds were reduced below its patience is none of these:
    its runs were cut off.
    """
    return values[PATIENCE] == values[ROUNDS] or (
        own[PATIENCE] >= own[ROUNDS] and values[PATIENCE] >= values[ROUNDS]
    )


def rows(
    records: Iterable[Record], benchmark: Benchmark, metric: Metric | None = None
) -> list[Row]:
    """The benchmark's records by family, settings, mechanism and heads."""
    groups: dict[str, dict[int, Record]] = {}
    for record in current(records, benchmark):
        groups.setdefault(_group_of(record), {})[record.seed] = record
    reader = _Reader(benchmark)
    every = [reader.row(runs, metric or benchmark.metric) for runs in groups.values()]
    order = list(benchmark.mechanisms)
    ordered = sorted(every, key=lambda row: _order(row, order))
    return [row for _, family in families(ordered) for row in _tested(family)]


def current(records: Iterable[Record], benchmark: Benchmark) -> list[Record]:
    """The benchmark's records, without those of other revisions and of settings it lacks now."""
    return [r for r in records if r.benchmark == benchmark.name and _is_current(r, benchmark)]


def _is_current(record: Record, benchmark: Benchmark) -> bool:
    try:
        benchmark.as_recorded(record)
    except (ValueError, TypeError):
        return False
    return True


def families(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    return [(name, list(members)) for name, members in groupby(rows, key=lambda row: row.family)]


def longest(family: list[Row]) -> list[Row]:
    """Of rows that differ in their budget alone, those with the most, which come first."""
    kept: dict[str, Row] = {}
    for row in family:
        kept.setdefault(repr((row.swept, row.mechanism, row.heads)), row)
    return list(kept.values())


def metrics_of(benchmark: Benchmark) -> list[Metric]:
    """The metric of the tables, then the others that have published numbers."""
    return list(dict.fromkeys([benchmark.metric, *(each.metric for each in benchmark.published)]))


def _group_of(record: Record) -> str:
    return json.dumps([record.mechanism, record.heads, record.settings], sort_keys=True)


def _order(row: Row, mechanisms: list[str]) -> tuple[Any, ...]:
    is_known = row.mechanism in mechanisms
    swept = tuple(
        (0, value, "") if isinstance(value, (int, float)) else (1, 0, str(value))
        for value in row.swept.values()
    )
    family = (not row.is_standard, list(FIDELITIES).index(row.fidelity), row.family)
    mechanism = mechanisms.index(row.mechanism) if is_known else len(mechanisms)
    budget = bool(row.budget), [-row.budget.get(path, 0) for path in BUDGET]  # the longest first
    return *family, swept, mechanism, row.heads, budget


class _Reader:
    """Turns the settings of records into those of a row."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        with_caveat = {text.partition("=")[0] for text in benchmark.caveats}
        varied = dict.fromkeys(name for each in benchmark.published for name in each.settings)
        self.swept = [name for name in varied if name not in with_caveat]

    def row(self, by_seed: Mapping[int, Record], metric: Metric) -> Row:
        runs = tuple(by_seed[seed] for seed in sorted(by_seed))
        values = values_of(self.benchmark.as_recorded(runs[0]).settings)
        values.pop(HEADS, None)
        base = self.benchmark.base(runs[0].mechanism, values.get("data.dataset"))
        sides = {name: values_of(change(base)) for name, change in FIDELITIES.items()}
        marks = [mark.path for mark in departures(base)]
        fidelity = min(sides, key=lambda side: _num_different(values, sides[side], marks))
        swept = {n: v for n in self.swept for path, v in values.items() if _last(path) == n}
        side = sides[fidelity]
        changed = {p: v for p, v in values.items() if v != side.get(p) and _last(p) not in swept}
        budget = {path: changed.pop(path) for path in BUDGET if path in changed}
        texts = [f"{_last(path)}={wording.setting_text(v)}" for path, v in changed.items()]
        caveats = {p: self.benchmark.caveats.get(w) for p, w in zip(changed, texts, strict=True)}
        caveats = {path: caveat for path, caveat in caveats.items() if caveat}
        return Row(
            family=", ".join([fidelity, *texts]),
            swept=swept,
            budget=budget,
            is_shorter=any(value < side[path] for path, value in budget.items()),
            is_fixed=_is_fixed(values, side),
            changed=changed,
            caveats=caveats,
            fidelity=fidelity,
            mechanism=runs[0].mechanism,
            heads=runs[0].heads,
            metric=metric,
            runs=runs,
            # Our improvements are not the paper's: they do not stand beside its numbers.
            published=None
            if caveats or fidelity == "improved"
            else self._published(runs, values, metric),
        )

    def _published(
        self, runs: Sequence[Record], values: Mapping[str, Any], metric: Metric
    ) -> Published | None:
        """The number of as many runs as there are here, if it was published with several."""
        by_name = {_last(path): value for path, value in values.items()}
        known = [
            each
            for each in self.benchmark.published
            if all(by_name.get(name) == value for name, value in each.settings.items())
            and each.heads in (None, runs[0].heads)
            and (each.mechanism, each.metric) == (runs[0].mechanism, metric)
        ]
        reached = [each for each in known if each.n <= len(runs)]
        return max(reached or known[:1], key=lambda each: each.n, default=None)


def _num_different(
    values: Mapping[str, Any], others: Mapping[str, Any], paths: Iterable[str]
) -> int:
    return sum(values.get(path) != others.get(path) for path in paths)


def _last(path: str) -> str:
    return path.split(".")[-1]


def _tested(family: list[Row]) -> list[Row]:
    """With GATv2's tests against each row of the same settings.

    Holm corrects for the tests against one mechanism on one data set.
    """
    tested = [_against_ours(row, family) for row in family]
    lots: dict[tuple[str, str], list[Row]] = {}
    for row in tested:
        lots.setdefault((row.dataset, row.mechanism), []).append(row)
    corrected: dict[int, Row] = {}
    for lot in lots.values():
        num_tests = sum(not math.isnan(row.p) for row in lot)
        for row, p in zip(lot, holm([row.p for row in lot]), strict=True):
            corrected[id(row)] = replace(row, p_holm=p, num_tests=num_tests)
    return [corrected[id(row)] for row in tested]


def _against_ours(row: Row, family: list[Row]) -> Row:
    """GATv2 of the same budget and with as many heads if it was run so, else with the fewest."""
    ours = [each for each in family if each.mechanism == OURS and each.swept == row.swept]
    ours = [each for each in ours if each.values]
    if row.mechanism == OURS or not ours or not row.values:
        return row
    own = min(
        ours, key=lambda each: (each.budget != row.budget, each.heads != row.heads, each.heads)
    )
    tests = contrast(own.values, row.values, row.metric.higher_is_better)
    return replace(row, against=own.heads, contrast=tests, is_cut=not own.is_comparable(row))
