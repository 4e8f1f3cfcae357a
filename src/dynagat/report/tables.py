"""rows: what was measured beside what the paper prints, one row per mechanism and settings.

Rows that differ only in what the paper varies (k, say) are a family: one table, one correction for
many tests. Runs on made-up data tell time and memory, and are in no such row.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from dynagat.experiment import Benchmark, Published, Record, as_published
from dynagat.experiment.settings import as_dict, departures, flat, restored
from dynagat.report import wording
from dynagat.significance import Comparison, Sample, bootstrap_interval, compare, holm

OURS = "gatv2"
RIVAL = "gat"  # whom the paper claims to beat
UNTOLD = ("revision", "network.heads")  # not settings, or with a column of their own
BUDGET = ("schedule.max_rounds", "schedule.patience")  # less of it is a shorter run of the same


@dataclass(frozen=True)
class Row:
    """The runs of one mechanism under the same settings, and what to hold them against."""

    family: str  # "corrected", "as-published", "corrected, split=random"
    swept: Mapping[str, Any]  # the settings by which the paper tells its numbers apart: {"k": 10}
    budget: Mapping[str, Any]  # {"schedule.max_rounds": 12}, where it is not the fidelity's
    changed: Mapping[str, Any]  # the others that are not the fidelity's, by dotted name
    caveats: Mapping[str, str]  # what must be said of some of the changed, by the same names
    fidelity: str  # the nearer one where `changed` holds some of its fields
    mechanism: str
    heads: int
    metric: str
    runs: tuple[Record, ...]  # by seed
    published: Published | None
    against: int | None = None  # the heads of the GATv2 that `comparison` is of
    comparison: Comparison | None = None  # of GATv2, its `ours`, with this row's mechanism
    p_holm: float = math.nan  # Student's, one-sided, corrected over the family

    @property
    def label(self) -> str:
        told = [*self.swept.items(), *((_last(path), v) for path, v in self.budget.items())]
        return ", ".join(wording.told_setting(k, v) for k, v in told) or "default"

    @property
    def title(self) -> str:
        return wording.title_of(self.mechanism, self.heads)

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """Without the runs that failed the released code's rule (D20), where it was asked for."""
        return tuple(run for run in self.runs if run.ended != "failed")

    @cached_property
    def values(self) -> dict[int, float]:
        """The metric by seed; runs without a number are not in it, see `diverged`."""
        found = {run.seed: run.metrics.get(self.metric, math.nan) for run in self.counted}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

    @cached_property
    def sample(self) -> Sample | None:
        return Sample.of(self.values.values()) if self.values else None

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Where the mean lies with 95%."""
        if not self.values:
            return math.nan, math.nan
        return bootstrap_interval(list(self.values.values()))

    @property
    def difference(self) -> float:
        """Ours less the paper's."""
        if self.sample is None or self.published is None:
            return math.nan
        return self.sample.mean - self.published.mean

    @property
    def p(self) -> float:
        """Student's, one-sided, as the paper's are: that GATv2 is better than this row."""
        return math.nan if self.comparison is None else self.comparison.student.one_sided

    @property
    def diverged(self) -> int:
        return len(self.counted) - len(self.values)

    @property
    def not_converged(self) -> int:
        """Runs that were cut off; one of a fixed number of rounds is not, unless they are fewer."""
        is_shorter = "schedule.max_rounds" in self.budget
        cut = [run for run in self.counted if not run.converged]
        return sum(is_shorter or not _is_fixed(run) for run in cut)

    @property
    def failed(self) -> int:
        return len(self.runs) - len(self.counted)

    @property
    def ended(self) -> Mapping[str, int]:
        return Counter(run.ended for run in self.runs)


def _is_fixed(run: Record) -> bool:
    """Whether patience can't end it, and nothing else did."""
    schedule = run.settings["schedule"]
    return run.ended == "budget" and schedule["patience"] >= schedule["max_rounds"]


def rows(records: Iterable[Record], benchmark: Benchmark, metric: str | None = None) -> list[Row]:
    """Of the benchmark's records: by family, settings, mechanism and heads."""
    real = [record for record in records if not is_made(record)]
    found = untested_rows(real, benchmark, metric or benchmark.metric)
    return [row for _, family in families(found) for row in _compared(family)]


def untested_rows(records: Iterable[Record], benchmark: Benchmark, metric: str) -> list[Row]:
    """Of all records, those on made-up data too; no row is compared with another."""
    groups: dict[str, dict[int, Record]] = {}
    for record in current(records, benchmark):
        groups.setdefault(_group_of(record), {})[record.seed] = record
    reader = _Reader(benchmark)
    found = [reader.row(runs, metric) for runs in groups.values()]
    order = list(benchmark.mechanisms)
    return sorted(found, key=lambda row: _place(row, order))


def is_made(record: Record) -> bool:
    """Whether its data are made up."""
    return bool(flat(record.settings).get("data.made"))


def current(records: Iterable[Record], benchmark: Benchmark) -> list[Record]:
    """The benchmark's records, without those of a revision that meant something else by them."""
    mine = [record for record in records if record.benchmark == benchmark.name]
    return [r for r in mine if r.settings.get("revision") == benchmark.revision]


def families(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    return [(name, list(members)) for name, members in groupby(rows, key=lambda row: row.family)]


def longest(family: list[Row]) -> list[Row]:
    """Of rows that differ in their budget alone, the one with the most, which comes first."""
    found: dict[str, Row] = {}
    for row in family:
        found.setdefault(repr((row.swept, row.mechanism, row.heads)), row)
    return list(found.values())


def metrics_of(benchmark: Benchmark) -> list[str]:
    """The metric of the tables, then the others that the paper has numbers of."""
    printed = [each.metric for each in benchmark.published]
    return list(dict.fromkeys([benchmark.metric, *printed]))


def _group_of(record: Record) -> str:
    return json.dumps([record.mechanism, record.heads, record.settings], sort_keys=True)


def _place(row: Row, mechanisms: list[str]) -> tuple[Any, ...]:
    known = row.mechanism in mechanisms
    swept = tuple(
        (0, value, "") if isinstance(value, (int, float)) else (1, 0, str(value))
        for value in row.swept.values()
    )
    family = (bool(row.changed), row.fidelity != "corrected", row.family)
    mechanism = mechanisms.index(row.mechanism) if known else len(mechanisms)
    budget = bool(row.budget), [-row.budget.get(path, 0) for path in BUDGET]  # the longest first
    return *family, swept, mechanism, row.heads, budget


class _Reader:
    """Turns the settings of records into what a row says of them."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        apart = {text.partition("=")[0] for text in benchmark.caveats}
        printed = dict.fromkeys(name for each in benchmark.published for name in each.settings)
        self.swept = [name for name in printed if name not in apart]

    def row(self, by_seed: Mapping[int, Record], metric: str) -> Row:
        runs = tuple(by_seed[seed] for seed in sorted(by_seed))
        told = {path: v for path, v in flat(runs[0].settings).items() if path not in UNTOLD}
        base = self.benchmark.base(runs[0].mechanism, told.get("data.dataset"))
        later = {p: v for p, v in flat(as_dict(restored(base, {}))).items() if p not in UNTOLD}
        told = later | told  # records do not tell the defaults of fields that came later
        sides = {
            "corrected": flat(as_dict(base)),
            "as-published": flat(as_dict(as_published(base))),
        }
        fidelity = self._nearest(told, sides, [mark.path for mark in departures(base)])
        swept = {n: v for n in self.swept for path, v in told.items() if _last(path) == n}
        side = sides[fidelity]
        changed = {p: v for p, v in told.items() if v != side.get(p) and _last(p) not in swept}
        budget = {path: changed.pop(path) for path in BUDGET if path in changed}
        words = [f"{_last(path)}={wording.setting_text(v)}" for path, v in changed.items()]
        caveats = {p: self.benchmark.caveats.get(w) for p, w in zip(changed, words, strict=True)}
        caveats = {path: caveat for path, caveat in caveats.items() if caveat}
        return Row(
            family=", ".join([fidelity, *words]),
            swept=swept,
            budget=budget,
            changed=changed,
            caveats=caveats,
            fidelity=fidelity,
            mechanism=runs[0].mechanism,
            heads=runs[0].heads,
            metric=metric,
            runs=runs,
            published=None if caveats else self._published(runs[0], told, metric),
        )

    def _nearest(
        self, told: Mapping[str, Any], sides: Mapping[str, Mapping[str, Any]], marks: list[str]
    ) -> str:
        """The fidelity from which the fewest fields differ; the record's own if it has one."""

        def differing(side: str) -> int:
            return sum(told.get(path) != sides[side].get(path) for path in marks)

        return min(sides, key=differing)

    def _published(self, record: Record, told: Mapping[str, Any], metric: str) -> Published | None:
        asked = (record.mechanism, metric)
        by_name = {_last(path): value for path, value in told.items()}
        for each in self.benchmark.published:
            same = all(by_name.get(name) == value for name, value in each.settings.items())
            fits = each.heads in (None, record.heads)
            if same and fits and (each.mechanism, each.metric) == asked:
                return each
        return None


def _last(path: str) -> str:
    return path.split(".")[-1]


def _compared(family: list[Row]) -> list[Row]:
    """With GATv2's tests against each row of the same settings, corrected over all of them."""
    tested = [_against_ours(row, family) for row in family]
    adjusted = holm([row.p for row in tested])
    return [replace(row, p_holm=p) for row, p in zip(tested, adjusted, strict=True)]


def _against_ours(row: Row, family: list[Row]) -> Row:
    """GATv2 of the same budget and with as many heads if it was run so, else with the fewest."""
    ours = [each for each in family if each.mechanism == OURS and each.swept == row.swept]
    ours = [each for each in ours if each.values]
    if row.mechanism == OURS or not ours or not row.values:
        return row
    rival = min(
        ours, key=lambda each: (each.budget != row.budget, each.heads != row.heads, each.heads)
    )
    better = wording.higher_is_better(row.metric)
    return replace(row, against=rival.heads, comparison=compare(rival.values, row.values, better))
