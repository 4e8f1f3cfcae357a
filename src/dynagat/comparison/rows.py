"""Row: what came of one mechanism, over all seeds; and how it stands against another."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynagat.experiment import Record
from dynagat.significance import Sample, holm, paired

CLEAR = 0.05  # the p below which two mechanisms are told apart
ROUNDING = 1e-9  # of a score


@dataclass(frozen=True, eq=False)
class Row:
    """The runs of a mechanism, and their means."""

    mechanism: str
    heads: int
    runs: tuple[Record, ...]
    score: str  # "accuracy"
    verdicts: Mapping[str, int]  # of the heads of all runs; empty if it has none

    def values(self, part: str) -> dict[int, float]:
        """By seed; of runs that came to a number."""
        found = {run.seed: run.metrics[f"{part}_{self.score}"] for run in self.runs}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

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
        """By its validation score: the test is not looked at."""
        valid = self.values("valid")
        return max(self.runs, key=lambda run: valid.get(run.seed, -math.inf))


@dataclass(frozen=True)
class Difference:
    """test mean of `better` - that of `other`, p of the paired test, adjusted if one of several."""

    better: str
    other: str
    mean: float
    p: float  # two-sided; nan if there are too few seeds
    seeds: int

    @property
    def is_clear(self) -> bool:
        return self.p < CLEAR


def rows_of(records: Sequence[Record], score: str) -> list[Row]:
    """One for each mechanism, the best on the validation nodes first."""
    names = dict.fromkeys(record.mechanism for record in records)
    found = []
    for name in names:
        runs = tuple(record for record in records if record.mechanism == name)
        found.append(Row(name, runs[0].heads, runs, score, _verdicts(runs)))
    return sorted(found, key=_valid, reverse=True)


def differences(best: Row, others: Sequence[Row]) -> list[Difference]:
    """Of the best to each other, p-values adjusted by Holm for their number."""
    raw = [difference(best, other) for other in others]
    adjusted = holm([each.p for each in raw])
    return [
        Difference(each.better, each.other, each.mean, p, each.seeds)
        for each, p in zip(raw, adjusted, strict=True)
    ]


def difference(ours: Row, other: Row) -> Difference:
    """On the test nodes, seed by seed."""
    a, b = ours.values("test"), other.values("test")
    seeds = sorted(a.keys() & b.keys())
    mean = statistics.mean(a[s] - b[s] for s in seeds) if seeds else math.nan
    p = _p([a[seed] for seed in seeds], [b[seed] for seed in seeds])
    return Difference(ours.mechanism, other.mechanism, mean, p, len(seeds))


def _p(ours: Sequence[float], others: Sequence[float]) -> float:
    """Of the paired t-test. Few test nodes may give the same difference on every seed, to which t
    is infinite: then of the signs alone, which are all alike by chance in 2 of 2ⁿ cases."""
    if len(ours) < 2:
        return math.nan
    gains = [a - b for a, b in zip(ours, others, strict=True)]
    if max(gains) - min(gains) < ROUNDING < abs(gains[0]):
        return 2.0 ** (1 - len(gains))
    return paired(ours, others, "two-sided")


def _valid(row: Row) -> float:
    sample = row.sample("valid")
    return -math.inf if sample is None else sample.mean


def _verdicts(runs: Sequence[Record]) -> dict[str, int]:
    """Of every head of every run that the microscope measured."""
    seen: list[Mapping[str, Any]] = [run.exhibits.get("microscope") or {} for run in runs]
    heads = [head for each in seen for layer in each.get("layers", ()) for head in layer["heads"]]
    words = [head["verdict"].split(":")[0] for head in heads]  # "uniform: not attending"
    return dict(Counter(words).most_common())
