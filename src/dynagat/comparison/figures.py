"""Figures of a comparison, as SVG text: the score of every run, and its validation curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dynagat.comparison.results import MechanismResult
from dynagat.report import wording
from dynagat.report.drawing import INK, STYLE, add_grid, svg_of


def scores_figure(results: Sequence[MechanismResult]) -> str:
    """Test scores: a dot for each run, a bar for the mean, a line through each seed."""
    metric = results[0].metric.on("test")
    scale = wording.scale_of(metric)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 0.55 + 0.5 * len(results)), layout="constrained")
        ax: Axes = figure.subplots()
        for seed in sorted({seed for each in results for seed in each.values("test")}):
            points = [(each.values("test").get(seed, math.nan) * scale, -n)
                      for n, each in enumerate(results)]  # fmt: skip
            xs, ys = zip(*points, strict=True)
            ax.plot(xs, ys, color=INK, alpha=0.18, linewidth=0.7, zorder=1)
        for n, each in enumerate(results):
            _dots(ax, each, -n, scale)
        ax.set_yticks([-n for n in range(len(results))],
                      [wording.name_of(each.mechanism) for each in results])  # fmt: skip
        ax.set_ylim(-len(results) + 0.45, 0.55)
        unit = ", %" if metric.is_fraction else ""
        ax.set_xlabel(f"{metric.title}{unit}")
        add_grid(ax, "x")
        ax.tick_params(axis="y", length=0)
        return svg_of(figure, "scores", "Test score of every run, by mechanism")


def _dots(ax: Axes, result: MechanismResult, at: float, scale: float) -> None:
    values = [value * scale for value in result.values("test").values()]
    sample = result.sample("test")
    if sample is None:
        return
    name, colour = result.mechanism, wording.colour_of(result.mechanism)
    style: dict[str, Any] = {"color": colour, "zorder": 3}
    ax.plot(values, [at] * len(values), "o", markersize=5, alpha=0.75, gid=name, **style)
    ax.plot([sample.mean * scale] * 2, [at - 0.3, at + 0.3], linewidth=2.4, **style)


def curves_figure(results: Sequence[MechanismResult]) -> str:
    """The validation score after each round, a line for each run."""
    metric = results[0].metric.on("valid")
    scale = wording.scale_of(metric)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 2.6), layout="constrained")
        ax: Axes = figure.subplots()
        lowest = []
        for result in results:
            for number, run in enumerate(result.runs):
                ys = [each["valid"] * scale for each in run.history]
                label = None if number else wording.name_of(result.mechanism)
                ax.plot([each["round"] for each in run.history], ys, linewidth=1, alpha=0.75,
                        color=wording.colour_of(result.mechanism), label=label)  # fmt: skip
                lowest += ys[len(ys) // 5 :]
        known = [value for value in lowest if math.isfinite(value)]
        if known:  # without the first rounds, which would compress the rest
            ax.set_ylim(bottom=min(known) - 0.05 * (max(known) - min(known)))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("round")
        ax.set_ylabel(metric.title)
        ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=2)
        add_grid(ax)
        return svg_of(figure, "curves", "Validation score after each round, by mechanism")
