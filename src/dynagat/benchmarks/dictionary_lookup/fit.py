"""Which runs reach 100%: the paper says that GAT with 8 heads does on the training graphs.

Runs that were cut off are left out: they might still have reached it. The training graphs are
judged by the network of the last round, since the best round on the validation graphs is earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynagat.benchmarks.dictionary_lookup.published import TRAIN
from dynagat.experiment import Record
from dynagat.metrics import Metric
from dynagat.report import wording
from dynagat.report.rows import Row

FITTED = 0.995  # an accuracy that is 100% as the paper prints it, without decimals


@dataclass(frozen=True)
class Fit:
    """The accuracy of the runs of one mechanism that ended by themselves."""

    metric: Metric
    by_k: dict[int, list[float]]
    num_cut: int

    @property
    def values(self) -> list[float]:
        return [value for values in self.by_k.values() for value in values]

    @property
    def fitted(self) -> int:
        return sum(value >= FITTED for value in self.values)

    def __str__(self) -> str:
        """ "100% in 41 of 44 finished runs at k = 4–20 (lowest 98.2%); 4 others were cut off" """
        others = f"; {wording.count(self.num_cut, 'other')} cut off" if self.num_cut else ""
        if not self.values:
            return f"no finished run{others}"
        ks = wording.ranges(sorted(self.by_k)).replace("-", "–").replace(",", ", ")
        lowest = wording.with_unit(min(self.values), self.metric)
        low = "" if self.fitted == len(self.values) else f" (lowest {lowest})"
        runs = f"{self.fitted} of {wording.count(len(self.values), 'finished run')}"
        return f"100% in {runs} at k = {ks}{low}{others}"


def fit_of(rows: Sequence[Row], mechanism: str, heads: int, metric: Metric) -> Fit | None:
    """None without such runs. Runs from before the accuracy was recorded are not counted."""
    chosen = [row for row in rows if (row.mechanism, row.heads) == (mechanism, heads)]
    by_k: dict[int, list[float]] = {}
    num_cut = 0
    for row in chosen:
        for run in row.counted:
            if metric.name not in run.metrics:
                continue
            if run.converged:
                by_k.setdefault(row.swept["k"], []).append(_value(run, metric))
            else:
                num_cut += 1
    return Fit(metric, by_k, num_cut) if by_k or num_cut else None


def _value(run: Record, metric: Metric) -> float:
    if metric != TRAIN:
        return run.metrics[metric.name]
    after_last = run.metrics.get("last_train_accuracy")
    if after_last is not None:
        return after_last
    # Older records have the accuracy after the best round, and the mean during the last one.
    is_best = run.ended == "perfect" or not run.history
    return run.metrics[TRAIN.name] if is_best else run.history[-1]["train"]


def fits(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence on the rows of one family."""
    kinds = dict.fromkeys((row.mechanism, row.heads) for row in rows)
    known = [(kind, fit) for kind in kinds if (fit := fit_of(rows, *kind, TRAIN)) is not None]
    parts = [f"{wording.title_of(*kind)} {fit}" for kind, fit in known]
    if parts:
        yield f"Train accuracy after the last round, rounded as in the paper: {'; '.join(parts)}."
