"""The results of each mechanism over all seeds, and the differences between mechanisms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynagat.analysis.verdict import words_of
from dynagat.experiment import Record
from dynagat.metrics import Metric
from dynagat.report import wording
from dynagat.report.attentive import count_words
from dynagat.report.parts import Line, Table
from dynagat.significance import Sample, holm, paired

SIGNIFICANT = 0.05
ROUNDING = 1e-9  # of a score
COLUMNS = ("mechanism", "train", "valid", "test", "seeds", "seconds", "peak memory", "heads are")


@dataclass(frozen=True, eq=False)
class MechanismResult:
    """The runs of one mechanism."""

    mechanism: str
    heads: int
    runs: tuple[Record, ...]
    metric: Metric
    verdicts: Sequence[tuple[str, str]]  # `words_of` each head of all runs; () without attention

    def values(self, part: str) -> dict[int, float]:
        """The metric by seed, without diverged runs."""
        name = self.metric.on(part).name
        values = {run.seed: run.metrics[name] for run in self.runs}
        return {seed: value for seed, value in values.items() if math.isfinite(value)}

    def sample(self, part: str) -> Sample | None:
        values = self.values(part)
        return Sample.of(values.values()) if values else None

    @property
    def seconds(self) -> float:
        return statistics.mean(run.seconds for run in self.runs)

    @property
    def memory(self) -> int:
        return max(run.peak_memory_bytes for run in self.runs)

    @property
    def best_run(self) -> Record:
        """By its validation score; the test score plays no part."""
        valid, metric = self.values("valid"), self.metric
        return max(self.runs, key=lambda r: metric.gain(valid.get(r.seed, metric.worst), 0.0))


@dataclass(frozen=True)
class Difference:
    """Test mean of `better` minus that of `other`, and p of the paired test."""

    better: str
    other: str
    mean: float
    p: float  # two-sided, corrected if it is one of several tests; nan if there are too few seeds
    seeds: int

    @property
    def is_significant(self) -> bool:
        return self.p < SIGNIFICANT


def results_of(records: Sequence[Record], metric: Metric) -> list[MechanismResult]:
    """One for each mechanism, the best on the validation nodes first."""
    results = []
    for name in dict.fromkeys(record.mechanism for record in records):
        runs = tuple(record for record in records if record.mechanism == name)
        results.append(MechanismResult(name, runs[0].heads, runs, metric, _verdicts(runs)))
    return sorted(results, key=_valid, reverse=True)


def differences(best: MechanismResult, others: Sequence[MechanismResult]) -> list[Difference]:
    """Of the best from each other mechanism, with p-values corrected by Holm's method."""
    raw = [difference(best, other) for other in others]
    adjusted = holm([each.p for each in raw])
    return [
        Difference(each.better, each.other, each.mean, p, each.seeds)
        for each, p in zip(raw, adjusted, strict=True)
    ]


def difference(ours: MechanismResult, other: MechanismResult) -> Difference:
    """On the test nodes, seed by seed."""
    a, b = ours.values("test"), other.values("test")
    seeds = sorted(a.keys() & b.keys())
    mean = statistics.mean(a[s] - b[s] for s in seeds) if seeds else math.nan
    p = _p([a[seed] for seed in seeds], [b[seed] for seed in seeds])
    return Difference(ours.mechanism, other.mechanism, mean, p, len(seeds))


def _p(ours: Sequence[float], others: Sequence[float]) -> float:
    """Of the paired t-test. If the difference is the same on every seed, t is infinite; then of the
    sign test: all n signs are equal by chance in 2 of 2ⁿ cases."""
    if len(ours) < 2:
        return math.nan
    gains = [a - b for a, b in zip(ours, others, strict=True)]
    if max(gains) - min(gains) < ROUNDING < abs(gains[0]):
        return 2.0 ** (1 - len(gains))
    return paired(ours, others, "two-sided")


def _valid(result: MechanismResult) -> float:
    sample, metric = result.sample("valid"), result.metric
    return metric.gain(metric.worst if sample is None else sample.mean, 0.0)


def _verdicts(runs: Sequence[Record]) -> list[tuple[str, str]]:
    """On every head of every run that the microscope measured."""
    analyses: list[Mapping[str, Any]] = [run.exhibits.get("microscope") or {} for run in runs]
    layers = [layer for each in analyses for layer in each.get("layers", ())]
    return [words_of(head) for layer in layers for head in layer["heads"]]


def score_table(results: Sequence[MechanismResult]) -> Table:
    """The mechanisms next to each other; the best one is emphasised."""
    lines = [
        Line(tuple(_cells(each)), wording.colour_of(each.mechanism), is_ours=each is results[0])
        for each in results
    ]
    legend = (
        "Means over the seeds ± one standard deviation; the best on the validation nodes comes"
        " first. All mechanisms have the same network, split and seeds. The deviations show how"
        " much the initial weights matter, not how much another split would change."
    )
    return Table("Scores of each mechanism", COLUMNS, tuple(lines), legend=legend)


def _cells(result: MechanismResult) -> list[str]:
    """One text for each of COLUMNS."""
    verdicts = "; ".join(map(count_words, zip(*result.verdicts, strict=True)))
    return [
        wording.title_of(result.mechanism, result.heads),
        *(_score(result, part) for part in ("train", "valid", "test")),
        str(len(result.runs)),
        f"{result.seconds:.1f}",
        f"{result.memory / 1e6:,.0f} MB",
        verdicts or wording.NOTHING,
    ]


def _score(result: MechanismResult, part: str) -> str:
    sample = result.sample(part)
    if sample is None:
        return wording.NOTHING
    return wording.mean_and_std(sample.mean, sample.std, result.metric)


def difference_table(results: Sequence[MechanismResult]) -> Table | None:
    """The best against each other mechanism; None if there is nothing to compare."""
    if results[0].sample("test") is None:
        return None
    others = [each for each in results[1:] if each.sample("test") is not None]
    lines = [
        [
            f"{wording.name_of(each.better)} − {wording.name_of(each.other)}",
            wording.signed(each.mean, results[0].metric),
            wording.p_value(each.p),
            str(each.seeds),
        ]
        for each in differences(results[0], others)
    ]
    if not lines:
        return None
    columns = ("difference on the test nodes", "mean", "p", "seeds")
    legend = "Two-sided paired t-test by seed, corrected for the number of rows by Holm's method."
    return Table.of("Is the difference more than chance?", columns, lines, legend=legend)
