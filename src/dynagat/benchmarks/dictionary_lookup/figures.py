"""Figure 3 and the appendix's GIN figure, as SVG text. Hollow markers are the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dynagat.experiment import Benchmark
from dynagat.metrics import ACCURACY, Metric
from dynagat.report import wording
from dynagat.report.drawing import INK, STYLE, add_grid, svg_of
from dynagat.report.findings import Findings
from dynagat.report.rows import Row, families, longest

LINES = ((ACCURACY.on("test"), "-", "o"), (ACCURACY.on("train"), "--", "^"))  # line, marker
Curve = tuple[str, int]  # mechanism and heads


def figure_3(findings: Findings, *, improved: bool = False) -> str | None:
    """Accuracy over k = 4..20; None if there are no such records."""
    curves = [("gatv2", 1), ("gat", 1), ("gat", 8), ("dpgat", 1)]
    return _accuracy_figure(findings, curves, range(4, 21), "Figure 3", improved)


def gin_figure(findings: Findings, *, improved: bool = False) -> str | None:
    """Accuracy of GIN and GATv2 over k = 10..70; None if there are no such records."""
    curves = [("gatv2", 1), ("gin", 1)]
    return _accuracy_figure(findings, curves, range(10, 71, 10), "GIN figure", improved)


def _first_family(rows: Sequence[Row]) -> list[Row]:
    """A figure shows one family: the corrected one if there is any."""
    return families(rows)[0][1] if rows else []


def _accuracy_figure(
    findings: Findings, curves: list[Curve], ks: range, where: str, improved: bool
) -> str | None:
    """Of the improved fidelity, or of another one beside the paper's numbers."""
    known = {
        metric: [r for r in findings.rows_of(metric) if (r.fidelity == "improved") == improved]
        for metric, *_ in LINES
    }
    shown = {metric: _select(rows, ks, curves) for metric, rows in known.items()}
    if not any(shown.values()):
        return None
    with matplotlib.rc_context(STYLE):
        lines = math.ceil(len(curves) / 2)
        figure = Figure(figsize=(4.4, 1.75 * lines + 0.55), layout="constrained")
        axes = figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False).flatten()
        for ax, curve in zip(axes, curves, strict=True):
            for metric, line, marker in LINES:
                ours = [row for row in shown[metric] if (row.mechanism, row.heads) == curve]
                _ours(ax, ours, line, marker)
                if not improved:
                    _papers(ax, findings.benchmark, curve, metric, where, marker)
            _frame(ax, curve, ks)
        family = next(row.family for each in shown.values() for row in each)
        suffix = "" if family == "corrected" else f" ({family})"
        figure.supxlabel(f"k, the number of keys and queries{suffix}", fontsize=9, color=INK)
        _legend(figure, has_paper=not improved)
        name = where.lower().replace(" ", "-") + ("-improved" if improved else "")
        names = wording.listed(list(dict.fromkeys(wording.name_of(each) for each, _ in curves)))
        alt = f"Train and test accuracy of {names} over k"
        return svg_of(figure, name, alt if improved else f"{alt}, ours and the paper's")


def _select(rows: list[Row], ks: range, curves: list[Curve]) -> list[Row]:
    fitting = [row for row in rows if row.swept.get("k") in ks]
    return longest(_first_family([r for r in fitting if (r.mechanism, r.heads) in curves]))


def _ours(ax: Axes, group: list[Row], line: str, marker: str) -> None:
    """Means as a line with markers, standard deviations as a band, or a bar for a single point."""
    points = [(row.swept["k"], row.sample) for row in group if row.sample is not None]
    if not points:
        return
    xs = [k for k, _ in points]
    means = [100 * sample.mean for _, sample in points]
    stds = [0 if math.isnan(sample.std) else 100 * sample.std for _, sample in points]
    colour = wording.colour_of(group[0].mechanism)
    low = [mean - std for mean, std in zip(means, stds, strict=True)]
    high = [min(100, mean + std) for mean, std in zip(means, stds, strict=True)]
    ax.fill_between(xs, low, high, color=colour, alpha=0.16, linewidth=0)
    if len(xs) == 1:
        ax.vlines(xs, low, high, color=colour, linewidth=1)
    style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 3}
    gid = f"ours-{group[0].mechanism}-{group[0].heads}-{group[0].metric.name}"
    ax.plot(xs, means, linewidth=1.4, gid=gid, clip_on=False, zorder=3, **style)
    cut = [row for row in group if row.sample is not None and row.not_converged]
    if cut:
        at = [row.swept["k"] for row in cut], [100 * row.mean for row in cut]
        ax.plot(*at, "x", color=INK, markersize=5, gid=f"cut-{gid}", clip_on=False, zorder=5)


def _papers(
    ax: Axes, benchmark: Benchmark, curve: Curve, metric: Metric, where: str, marker: str
) -> None:
    numbers = [each for each in benchmark.published if each.where == where]
    numbers = [p for p in numbers if (p.mechanism, p.heads, p.metric) == (*curve, metric)]
    if not numbers:
        return
    xs, ys = [each.settings["k"] for each in numbers], [100 * each.mean for each in numbers]
    gid = f"paper-{curve[0]}-{curve[1]}-{metric.name}"
    style: dict[str, Any] = {"color": "none", "markeredgecolor": INK, "markeredgewidth": 0.7}
    size = 6 if marker == "o" else 5
    ax.plot(xs, ys, marker, markersize=size, gid=gid, clip_on=False, zorder=4, **style)


def _frame(ax: Axes, curve: Curve, ks: range) -> None:
    ax.set_title(wording.title_of(*curve), color=wording.colour_of(curve[0]), weight="bold")
    ax.set_xlim(ks[0] - 0.3 * ks.step, ks[-1] + 0.3 * ks.step)
    ax.set_ylim(0, 104)
    ax.set_xticks(list(ks)[:: 4 if ks.step == 1 else 1])
    ax.set_yticks([0, 25, 50, 75, 100], ["0", "", "50", "", "100%"])
    add_grid(ax)


def _legend(figure: Figure, has_paper: bool) -> None:
    plain: dict[str, Any] = {"color": INK, "linewidth": 1.4, "markersize": 3}
    hollow: dict[str, Any] = {"linestyle": "none", "color": "none", "markeredgecolor": INK}
    handles = [
        Line2D([], [], linestyle="-", marker="o", label="test, ours", **plain),
        Line2D([], [], linestyle="--", marker="^", label="train, ours", **plain),
        Line2D([], [], marker="o", markersize=6, label="test, paper", **hollow),
        Line2D([], [], marker="^", markersize=5, label="train, paper", **hollow),
    ][: 4 if has_paper else 2]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=8,
        handlelength=2, columnspacing=0.9, handletextpad=0.4,
    )  # fmt: skip
