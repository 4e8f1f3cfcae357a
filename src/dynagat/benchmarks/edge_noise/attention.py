"""Attention on noise edges, as measured by the microscope, relative to uniform attention weights.

Every layer counts the same, whatever its number of heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynagat.experiment import Record
from dynagat.report import wording
from dynagat.report.headline import SIGNIFICANT
from dynagat.report.parts import Table
from dynagat.report.results import full_name
from dynagat.report.rows import OURS, RIVAL, Row
from dynagat.significance import Sample, contrast

COLUMNS = ("settings", "mechanism", "heads", "attention on noise", "uniform share", "ratio",
           "ratio by layer", "interaction", "n")  # fmt: skip
LEGEND = (
    "Attention on noise: fraction of the attention that lies on added edges. Uniform share: the"
    " same fraction if all weights were equal. Ratio: the first divided by the second; below 1, the"
    " layer avoids noise edges. Means over heads, then over layers, then over n runs. Interaction:"
    " fraction of the scores' variance that is due neither to the query nor to the key alone, a"
    " measure of how dynamic they are."
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
class NoiseAttention:
    """The layers of every analysed run of a row, by seed."""

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
        """Ratio of each layer, mean over runs."""
        return [_mean(each.ratio for each in runs) for runs in self._runs_of_layers]

    def band(self, layer: int) -> tuple[float, float]:
        """Mean of the layer's ratio over runs, minus and plus one standard deviation."""
        sample = Sample.of(run[layer].ratio for run in self.layers.values())
        std = 0.0 if sample.n == 1 else sample.std
        return sample.mean - std, sample.mean + std

    @property
    def masses(self) -> list[float]:
        """Attention of each layer on noise, mean over runs."""
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


def noise_attention(rows: Sequence[Row]) -> list[NoiseAttention]:
    """Of the rows with noise whose runs were analysed."""
    every = []
    for row in rows:
        layers = {run.seed: _layers(run) for run in row.counted}
        each = NoiseAttention(row, {seed: run for seed, run in layers.items() if run})
        if each.layers and each.uniform:
            every.append(each)
    return every


def noise_table(family: Sequence[Row]) -> Table | None:
    """The rows of one family; None if none of their runs were analysed."""
    lines = [each.cells() for each in noise_attention(family)]
    if not lines:
        return None
    title = f"Attention on noise ({full_name(family[0])})"
    return Table.of(title, COLUMNS, lines, text_columns=2, legend=LEGEND)


def answers(rows: Sequence[Row]) -> Iterator[str]:
    """For rows of one data set: whether GATv2 attends less to noise than GAT, at the most noise."""
    every = noise_attention(rows)
    highest = max((each.row.swept["noise"] for each in every), default=None)
    there = [each for each in every if each.row.swept["noise"] == highest]
    if there:
        parts = [f"{each.row.title} {each.ratio:.2f} (by layer {_listed(each.by_layer)})"
                 for each in there]  # fmt: skip
        yield (
            f"{_verdict(there)}. Attention on noise edges relative to uniform weights, at noise ="
            f" {highest:g}: {'; '.join(parts)}."
        )


def _verdict(there: Sequence[NoiseAttention]) -> str:
    ours = next((each for each in there if each.row.mechanism == OURS), None)
    rival = next((each for each in there if each.row.mechanism == RIVAL), None)
    if ours is None or rival is None:
        return "Attention on noise was not measured for both GATv2 and GAT"
    if not ours.row.is_comparable(rival.row):
        return "Attention of GATv2 and GAT is not compared, because runs were cut off"
    p = contrast(ours.ratios, rival.ratios, higher_is_better=False).student.one_sided
    test = f"one-sided {wording.p_equals(p)}" if math.isfinite(p) else "one run, so no test"
    if ours.ratio >= rival.ratio:
        return f"GATv2 does not attend less to noise edges than GAT ({test})"
    if p < SIGNIFICANT:
        return f"GATv2 attends less to noise edges than GAT ({test})"
    return f"GATv2 attends less to noise edges than GAT on average, not significantly ({test})"


def _layers(run: Record) -> tuple[Layer, ...]:
    """Empty if no edges were marked as noise, or the run diverged."""
    analysis = run.exhibits.get("microscope") or {}
    layers = [_layer(layer["heads"]) for layer in analysis.get("layers", ())]
    return tuple(each for each in layers if math.isfinite(each.attention))


def _layer(heads: list[dict[str, Any]]) -> Layer:
    marked = [head["noise"] for head in heads if head.get("noise")]
    return Layer(
        attention=_mean(_number(mark["attention"]["value"]) for mark in marked),
        uniform=_mean(_number(mark["uniform"]) for mark in marked),
        interaction=_mean(_number(head["interaction"]["value"]) for head in heads),
    )


def _number(value: float | None) -> float:
    """JSON holds None instead of nan."""
    return math.nan if value is None else value


def _mean(values: Any) -> float:
    known = list(values)
    return sum(known) / len(known) if known else math.nan


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
