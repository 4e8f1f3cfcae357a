"""Figures of a comparison, as SVG texts: every run's score, and the way it came there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dynagat.comparison.rows import Row
from dynagat.report import wording
from dynagat.report.figures import INK, STYLE, svg_of


def scores_figure(rows: Sequence[Row]) -> str:
    """Test scores: a dot for each run, a bar for the mean, a line through those of a seed."""
    metric = f"test_{rows[0].score}"
    scale = wording.scale_of(metric)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 0.55 + 0.5 * len(rows)), layout="constrained")
        ax: Axes = figure.subplots()
        for seed in sorted({seed for row in rows for seed in row.values("test")}):
            found = [(row.values("test").get(seed, math.nan) * scale, -n)
                     for n, row in enumerate(rows)]  # fmt: skip
            xs, ys = zip(*found, strict=True)
            ax.plot(xs, ys, color=INK, alpha=0.18, linewidth=0.7, zorder=1)
        for n, row in enumerate(rows):
            _dots(ax, row, -n, scale)
        ax.set_yticks([-n for n in range(len(rows))],
                      [wording.name_of(row.mechanism) for row in rows])  # fmt: skip
        ax.set_ylim(-len(rows) + 0.45, 0.55)
        unit = ", %" if wording.is_share(metric) else ""
        ax.set_xlabel(f"{wording.metric_words(metric)}{unit}")
        ax.grid(axis="x", color=INK, alpha=0.12, linewidth=0.6)
        ax.tick_params(axis="y", length=0)
        return svg_of(figure, "scores", "Test score of every run, by mechanism")


def _dots(ax: Axes, row: Row, at: float, scale: float) -> None:
    values = [value * scale for value in row.values("test").values()]
    sample = row.sample("test")
    if sample is None:
        return
    colour = wording.colour_of(row.mechanism)
    style: dict[str, Any] = {"color": colour, "zorder": 3}
    ax.plot(values, [at] * len(values), "o", markersize=5, alpha=0.75, gid=row.mechanism, **style)
    ax.plot([sample.mean * scale] * 2, [at - 0.3, at + 0.3], linewidth=2.4, **style)


def curves_figure(rows: Sequence[Row]) -> str:
    """The validation score after each pass, a line for each run."""
    metric = f"valid_{rows[0].score}"
    scale = wording.scale_of(metric)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 2.6), layout="constrained")
        ax: Axes = figure.subplots()
        lowest = []
        for row in rows:
            for number, run in enumerate(row.runs):
                ys = [each["valid"] * scale for each in run.history]
                label = None if number else wording.name_of(row.mechanism)
                ax.plot([each["round"] for each in run.history], ys, linewidth=1, alpha=0.75,
                        color=wording.colour_of(row.mechanism), label=label)  # fmt: skip
                lowest += ys[len(ys) // 5 :]
        known = [value for value in lowest if math.isfinite(value)]
        if known:  # the first steps may be anywhere: they would press the rest together
            ax.set_ylim(bottom=min(known) - 0.05 * (max(known) - min(known)))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("round")
        ax.set_ylabel(wording.metric_words(metric))
        ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=2)
        ax.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
        return svg_of(figure, "curves", "Validation score after each round, by mechanism")
