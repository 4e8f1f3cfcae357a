"""Does dynamic attention decay noise edges? What the microscope saw of runs with edge noise.

Each layer counts alike, whatever its heads; of uniform weights the noise edges have a known share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynagat.experiment import Record
from dynagat.report import wording
from dynagat.report.tables import OURS, RIVAL, Row
from dynagat.significance import Sample, compare

SIGNIFICANT = 0.05
COLUMNS = ("settings", "mechanism", "heads", "attention on noise", "uniform share", "ratio",
           "ratio by layer", "interaction", "n")  # fmt: skip
LEFT = 2  # columns of words
LEGEND = (
    "Attention on noise: the share of it that lies on added edges; beside the share that they would"
    " have if all weights were equal, and the ratio of the two: below 1, the layer turns away from"
    " noise. Means over heads, then over layers, then over n runs. Interaction: the share of the"
    " scores' variance that is neither the query's nor the key's, so how dynamic they are."
)


@dataclass(frozen=True)
class Layer:
    """Means over the heads of one layer of a run."""

    attention: float
    uniform: float
    interaction: float

    @property
    def ratio(self) -> float:
        return self.attention / self.uniform if self.uniform else math.nan


@dataclass(frozen=True)
class NoiseSeen:
    """The layers of every run of a row that was looked at, by seed."""

    row: Row
    layers: dict[int, tuple[Layer, ...]]

    @property
    def ratios(self) -> dict[int, float]:
        """By seed."""
        return {seed: _mean(each.ratio for each in run) for seed, run in self.layers.items()}

    @property
    def ratio(self) -> float:
        return _mean(self.ratios.values())

    @property
    def by_layer(self) -> list[float]:
        """The ratio of each layer, a mean over runs."""
        return [_mean(each.ratio for each in runs) for runs in self._runs_of_layers]

    def spread(self, layer: int) -> tuple[float, float]:
        """One standard deviation of the layer's ratio, over runs, to either side of the mean."""
        sample = Sample.of(run[layer].ratio for run in self.layers.values())
        std = 0.0 if sample.n == 1 else sample.std
        return sample.mean - std, sample.mean + std

    @property
    def masses(self) -> list[float]:
        """The attention of each layer on noise, a mean over runs."""
        return [_mean(each.attention for each in runs) for runs in self._runs_of_layers]

    @property
    def uniform(self) -> float:
        return self._mean_of("uniform")

    def _mean_of(self, name: str) -> float:
        return _mean(_mean(getattr(each, name) for each in run) for run in self.layers.values())

    @property
    def _runs_of_layers(self) -> list[tuple[Layer, ...]]:
        return list(zip(*self.layers.values(), strict=True))

    def cells(self) -> list[str]:
        """One text for each of COLUMNS."""
        return [
            self.row.label,
            wording.name_of(self.row.mechanism),
            str(self.row.heads),
            *(f"{self._mean_of(name):.3f}" for name in ("attention", "uniform")),
            f"{self.ratio:.2f}",
            _listed(self.by_layer),
            f"{self._mean_of('interaction'):.2f}",
            str(len(self.layers)),
        ]


def noise_seen(rows: Sequence[Row]) -> list[NoiseSeen]:
    """Of the rows with noise whose runs' attention was looked at."""
    swept = [row for row in rows if "noise" in row.swept]
    found = [NoiseSeen(row, {run.seed: _layers(run) for run in row.counted}) for row in swept]
    found = [NoiseSeen(f.row, {s: run for s, run in f.layers.items() if run}) for f in found]
    return [each for each in found if each.layers and each.uniform]


def answers(rows: Sequence[Row]) -> Iterator[str]:
    """For rows of one data set: whether GATv2 gives noise less than GAT does, where it is most."""
    seen = noise_seen(rows)
    most = max((each.row.swept["noise"] for each in seen), default=None)
    there = [each for each in seen if each.row.swept["noise"] == most]
    if there:
        parts = [f"{each.row.title} {each.ratio:.2f} (by layer {_listed(each.by_layer)})"
                 for each in there]  # fmt: skip
        yield (
            f"{_verdict(there)}. At noise = {most:g} they get this part of the attention that "
            f"equal weights would give them: {'; '.join(parts)}."
        )


def _verdict(there: Sequence[NoiseSeen]) -> str:
    ours = next((each for each in there if each.row.mechanism == OURS), None)
    rival = next((each for each in there if each.row.mechanism == RIVAL), None)
    if ours is None or rival is None:
        return "No telling whether dynamic attention decays noise edges more than static"
    p = compare(ours.ratios, rival.ratios, higher_is_better=False).student.one_sided
    told = f"one-sided p {_p(p)}" if math.isfinite(p) else "one run, so no test"
    if ours.ratio >= rival.ratio:
        return f"GATv2 does not decay noise edges more than GAT ({told})"
    if p < SIGNIFICANT:
        return f"GATv2 decays noise edges more than GAT ({told})"
    return f"GATv2 seems to decay noise edges more than GAT, but that is not sure ({told})"


def _p(p: float) -> str:
    text = wording.p_value(p)
    return f"{text[0]} {text[1:]}" if text[0] == "<" else f"= {text}"


def _layers(run: Record) -> tuple[Layer, ...]:
    """None where nothing was marked as noise, or the run has no numbers."""
    seen = run.exhibits.get("microscope") or {}
    found = [_layer(layer["heads"]) for layer in seen.get("layers", ())]
    return tuple(each for each in found if math.isfinite(each.attention))


def _layer(heads: list[dict[str, Any]]) -> Layer:
    marked = [head["noise"] for head in heads if head.get("noise")]
    return Layer(
        attention=_mean(_number(mark["attention"]["value"]) for mark in marked),
        uniform=_mean(_number(mark["uniform"]) for mark in marked),
        interaction=_mean(_number(head["interaction"]["value"]) for head in heads),
    )


def _number(value: float | None) -> float:
    """JSON has None for nan."""
    return math.nan if value is None else value


def _mean(values: Any) -> float:
    known = list(values)
    return sum(known) / len(known) if known else math.nan


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
