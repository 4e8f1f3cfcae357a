"""The results of each mechanism over all seeds, and the differences between mechanisms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynagat.analysis.verdict import words_of
from dynagat.comparison.baselines import Baseline
from dynagat.comparison.subject import NODES, Subject
from dynagat.experiment import Record
from dynagat.metrics import ACCURACY, BALANCED_ACCURACY, MACRO_F1, Metric
from dynagat.report import wording
from dynagat.report.attentive import count_words
from dynagat.report.parts import Line, Table
from dynagat.significance import Sample, detectable, holm, paired

SIGNIFICANT = 0.05
ROUNDING = 1e-9  # of a score
CONSTANT = 1e-3  # standard deviation of the outputs, below which a network predicts one value
BY_CLASS = (ACCURACY, BALANCED_ACCURACY, MACRO_F1)  # see only the class that is predicted
COLUMNS = ("mechanism", "train", "valid", "test", "seeds", "seconds", "peak memory", "heads are")


BASELINE_NOTES = {
    "MLP": "The MLP is trained with each seed.",
    "label propagation": "Label propagation spreads the training labels along the edges.",
    "Adamic-Adar": "Adamic-Adar counts common neighbours, those of low degree more.",
}


@dataclass(frozen=True, eq=False)
class MechanismResult:
    """The runs of one mechanism."""

    mechanism: str
    heads: int
    runs: tuple[Record, ...]
    metric: Metric
    verdicts: Sequence[tuple[str, str]]  # `words_of` each head of all runs; () without attention
    subject: Subject = NODES

    def values(self, part: str) -> dict[int, float]:
        """The metric by seed, without runs that diverged or predict the same for every row."""
        return self._of(self.metric.on(part).name)

    def _of(self, name: str) -> dict[int, float]:
        values = {run.seed: run.metrics[name] for run in self.runs if not self.is_constant(run)}
        return {seed: value for seed, value in values.items() if math.isfinite(value)}

    def on_test(self, metric: Metric) -> Sample | None:
        """Another metric on the test part."""
        values = self._of(metric.on("test").name)
        return Sample.of(values.values()) if values else None

    def is_constant(self, run: Record) -> bool:
        """Whether a run predicts the same for every test row, so that it is no result.

        A network that always predicts one class may still rank the rows by its probability. Then
        it is a result for the metrics of ranks and probabilities.
        """
        if run.ended == "diverged":
            return False
        if run.metrics.get("test_output_std", math.inf) < CONSTANT:
            return True
        return self.metric in BY_CLASS and predicts_one_class(run)

    def sample(self, part: str) -> Sample | None:
        values = self.values(part)
        return Sample.of(values.values()) if values else None

    @property
    def seconds(self) -> float:
        """Of a run: the median, since other programs slow down some runs."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def memory(self) -> int:
        return max(run.peak_memory_bytes for run in self.runs)

    @property
    def best_run(self) -> Record:
        """By its validation score; the test score plays no part."""
        valid, metric = self.values("valid"), self.metric
        return max(self.runs, key=lambda r: metric.gain(valid.get(r.seed, metric.worst), 0.0))


def predicts_one_class(run: Record) -> bool:
    return run.metrics.get("test_predicted_classes") == 1


@dataclass(frozen=True)
class Difference:
    """Test mean of `better` minus that of `other`, and p of the paired test."""

    better: str
    other: str
    mean: float
    p: float  # two-sided, corrected if it is one of several tests; nan if there are too few seeds
    seeds: int
    detectable: float  # a difference that would have been found with a probability of 80 %

    @property
    def is_significant(self) -> bool:
        return self.p < SIGNIFICANT


def results_of(
    records: Sequence[Record], metric: Metric, subject: Subject = NODES
) -> list[MechanismResult]:
    """One for each mechanism, the best on the validation part first."""
    results = []
    for name in dict.fromkeys(record.mechanism for record in records):
        runs = tuple(record for record in records if record.mechanism == name)
        results.append(MechanismResult(name, runs[0].heads, runs, metric, _verdicts(runs), subject))
    return sorted(results, key=_valid, reverse=True)


def differences(best: MechanismResult, others: Sequence[MechanismResult]) -> list[Difference]:
    """Of the best from each other mechanism, with p-values corrected by Holm's method."""
    raw = [difference(best, other) for other in others]
    adjusted = holm([each.p for each in raw])
    return [replace(each, p=p) for each, p in zip(raw, adjusted, strict=True)]


def difference(ours: MechanismResult, other: MechanismResult | Baseline) -> Difference:
    """On the test part, seed by seed."""
    a, b = ours.values("test"), other.values("test")
    seeds = sorted(a.keys() & b.keys())
    gains = [a[seed] - b[seed] for seed in seeds]
    mean = statistics.mean(gains) if seeds else math.nan
    p = _p([a[seed] for seed in seeds], [b[seed] for seed in seeds])
    least = detectable(Sample.of(gains).std if len(gains) > 1 else math.nan, len(gains))
    return Difference(ours.mechanism, other.mechanism, mean, p, len(seeds), least)


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
        "Means over the seeds ± one standard deviation; the best on the validation"
        f" {results[0].subject.rows} comes first. All mechanisms have the same network, split and"
        " seeds. The deviations show how much the initial weights matter, not how much another"
        " split would change."
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


def _score(result: MechanismResult | Baseline, part: str) -> str:
    return _text(result.sample(part), result.metric)


def baseline_table(baselines: Sequence[Baseline]) -> Table:
    """What needs no graph network."""
    lines = [
        [
            wording.first_upper(each.mechanism),
            each.uses,
            *(_score(each, part) for part in ("train", "valid", "test")),
        ]
        for each in baselines
    ]
    columns = ("baseline", "uses", "train", "valid", "test")
    legend = "The same split and metric, without a graph network."
    names = {each.mechanism for each in baselines}
    legend += "".join(f" {note}" for name, note in BASELINE_NOTES.items() if name in names)
    return Table.of("Scores without a graph network", columns, lines, text_columns=2, legend=legend)


def metric_table(results: Sequence[MechanismResult], metrics: Sequence[Metric]) -> Table:
    """All metrics on the test part."""
    lines = []
    for result in results:
        samples = [result.on_test(metric) for metric in metrics]
        cells = [_text(sample, metric) for sample, metric in zip(samples, metrics, strict=True)]
        lines.append([wording.name_of(result.mechanism), *cells])
    columns = ["mechanism"]
    columns += [f"{each.title}{', %' if each.is_fraction else ''}" for each in metrics]
    legend = f"Training and the choice of the model followed the {results[0].metric.title}."
    return Table.of(
        f"Other scores on the test {results[0].subject.rows}",
        columns,
        lines,
        legend=legend,
        folded=True,
    )


def _text(sample: Sample | None, metric: Metric) -> str:
    """Without the standard deviation of equal values."""
    if sample is None:
        return wording.NOTHING
    return wording.mean_and_std(sample.mean, sample.std or math.nan, metric)


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
            wording.number(each.detectable, results[0].metric),
            str(each.seeds),
        ]
        for each in differences(results[0], others)
    ]
    if not lines:
        return None
    columns = (
        f"difference on the test {results[0].subject.rows}",
        "mean",
        "p",
        "detectable",
        "seeds",
    )
    legend = (
        "Two-sided paired t-test by seed, corrected for the number of rows by Holm's method."
        " Detectable: a true difference of this size would be found with a probability of 80 %"
        " (before the correction)."
    )
    return Table.of("Is the difference more than chance?", columns, lines, legend=legend)
