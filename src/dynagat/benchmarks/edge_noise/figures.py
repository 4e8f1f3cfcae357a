"""Figure 4 with its p-values and slopes, and the attention on noise edges, as SVG text.

One panel per data set and fidelity. Hollow markers are the paper's.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dynagat.benchmarks.edge_noise.attention import NoiseAttention, noise_attention
from dynagat.benchmarks.edge_noise.published import P_VALUES
from dynagat.benchmarks.edge_noise.slope import STEP, declines
from dynagat.report import wording
from dynagat.report.drawing import INK, STYLE, add_grid, svg_of
from dynagat.report.findings import Findings
from dynagat.report.headline import SIGNIFICANT
from dynagat.report.rows import RIVAL, Row, families, longest

XLABEL = "edges added per edge"
LEAST_P = 1e-5  # smaller ones are drawn here
WIDTH = 24  # letters per line in a panel
LINES = ("-", "--", ":")  # styles for the numbers of heads of one mechanism


@dataclass(frozen=True)
class Panel:
    """The rows of one data set and fidelity."""

    dataset: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        family = self.rows[0].family.removeprefix("corrected").removeprefix(", ")
        return f"{self.dataset}, {family}" if family else self.dataset

    @property
    def curves(self) -> dict[tuple[str, int], list[Row]]:
        """By mechanism and heads, over noise."""
        curves: dict[tuple[str, int], list[Row]] = {}
        for row in sorted(self.rows, key=_noise):
            curves.setdefault((row.mechanism, row.heads), []).append(row)
        return curves


def figure_4(findings: Findings) -> str | None:
    """Accuracy over noise; below, GATv2's p-values against GAT and the slopes of all seeds."""
    shown = panels(findings)
    if not shown:
        return None
    columns = min(2, len(shown))
    lines = math.ceil(len(shown) / columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.0, 4.5 * lines + 0.5), layout="constrained")
        heights = (1.9, 1, 0.9) * lines
        axes = figure.subplots(3 * lines, columns, height_ratios=heights, squeeze=False)
        for index in range(columns * lines):
            line, column = divmod(index, columns)
            places = [axes[3 * line + part][column] for part in range(3)]
            if index < len(shown):
                for draw, ax in zip((_accuracy, _p_values, _slopes), places, strict=True):
                    draw(ax, shown[index])
            else:
                for ax in places:
                    ax.set_axis_off()
        every = [row for panel in shown for row in panel.rows]
        _legend(figure, every, has_paper=any(map(_has_paper, shown)))
        return svg_of(figure, "figure-4", "Test accuracy and p-values over noise, and slopes")


def figure_4_caption(findings: Findings) -> str:
    shown = panels(findings)
    fidelities = {row.fidelity for panel in shown for row in panel.rows}
    bands = {
        "corrected": "one standard deviation",
        "as-published": "bootstrapped 95% intervals of the mean, where as published (D18)",
    }
    sentences = [
        "Figure 4. Test accuracy as random edges are added, and the one-sided p of GATv2 against"
        " GAT without correction (log scale; below the dashed line it is under 0.05). Lines are"
        f" means over seeds, bands {wording.listed([bands[e] for e in bands if e in fidelities])}."
        " Bottom: the slope of each seed's accuracy over noise, in points for 0.1 added edges per"
        " edge, its mean, and the paired two-sided p against GATv2 after Holm's correction.",
    ]
    if any(map(_has_paper, shown)):
        sentences.append(
            "Hollow markers are the paper's; hollow triangles are p printed as <0.0001."
        )
    if any(row.p < LEAST_P for panel in shown for row in panel.rows if row.mechanism == RIVAL):
        sentences.append(f"Filled triangles are p below {LEAST_P:.5f}.")
    if any(row.not_converged for panel in shown for row in panel.rows):
        sentences.append(
            "A cross marks a mean with runs that were cut off: it counts as a win for no mechanism,"
            " and has no p."
        )
    return " ".join([*sentences, *_caveats(shown)])


def noise_figure(findings: Findings) -> str | None:
    """How much attention lies on noise edges, by layer; None if it was not measured."""
    shown = [(panel, measured) for panel in panels(findings)
             if (measured := noise_attention(panel.rows))]  # fmt: skip
    if not shown:
        return None
    columns = max(len(each.masses) for _, measured in shown for each in measured)
    with matplotlib.rc_context(STYLE):
        size = 5.0 if columns < 3 else 6.4, 3.4 * len(shown) + 0.4
        figure = Figure(figsize=size, layout="constrained")
        ratios = (1.3, 1) * len(shown)
        axes = figure.subplots(2 * len(shown), columns, height_ratios=ratios, sharey="row",
                               squeeze=False)  # fmt: skip
        for line, (panel, measured) in enumerate(shown):
            for layer in range(columns):
                above, below = axes[2 * line][layer], axes[2 * line + 1][layer]
                _add_title(above, panel, f"layer {layer + 1}")
                _masses(above, below, panel, measured, layer)
            axes[2 * line][0].set_ylabel("attention on noise")
            axes[2 * line + 1][0].set_ylabel("÷ uniform share")
        figure.supxlabel(XLABEL, fontsize=9, color=INK)
        every = [each.row for _, measured in shown for each in measured]
        _legend(figure, every, has_uniform=True)
        return svg_of(figure, "noise-figure", "Attention on noise edges over noise, by layer")


def noise_figure_caption(findings: Findings) -> str:
    caption = (
        "Does dynamic attention ignore noise edges? Above: the fraction of attention on them in"
        " each layer, mean over heads and runs; dashed, the fraction under uniform weights. Below:"
        " the first divided by the second, with a standard deviation over runs; below 1, the layer"
        " avoids noise."
    )
    return " ".join([caption, *_caveats(panels(findings))])


def panels(findings: Findings) -> list[Panel]:
    """Of the standard families; of the first family, if none is standard."""
    every = [family for _, family in families(findings.rows)]
    standard = [family for family in every if family[0].is_standard] or every[:1]
    groups: dict[tuple[str, str], list[Row]] = {}
    for family in standard:
        for row in longest(family):
            groups.setdefault((row.dataset, row.family), []).append(row)
    return [Panel(dataset, tuple(group)) for (dataset, _), group in groups.items()]


def _noise(row: Row) -> float:
    return row.swept["noise"]


def _has_paper(panel: Panel) -> bool:
    return any(row.published for row in panel.rows)


def _caveats(shown: Sequence[Panel]) -> list[str]:
    return [
        f"{panel.title}: {'; '.join(panel.rows[0].caveats.values())}."
        for panel in shown
        if panel.rows[0].caveats
    ]


def _accuracy(ax: Axes, panel: Panel) -> None:
    styles: dict[str, int] = {}
    for (mechanism, heads), group in panel.curves.items():
        styles[mechanism] = styles.get(mechanism, -1) + 1
        known = [row for row in group if row.sample is not None]
        gid = f"ours-{panel.dataset}-{group[0].fidelity}-{mechanism}-{heads}"
        if known:
            _curve(ax, known, LINES[styles[mechanism] % len(LINES)], gid)
        _paper(ax, group, gid.replace("ours", "paper", 1))
    _frame(ax)
    _add_title(ax, panel)
    ax.set_ylabel(f"{panel.rows[0].metric.title}, %")
    ax.tick_params(labelbottom=False)


def _paper(ax: Axes, group: list[Row], gid: str) -> None:
    points = [(_noise(row), 100 * row.published.mean) for row in group if row.published]
    if points:
        colour = wording.colour_of(group[0].mechanism)
        ax.plot([x for x, _ in points], [y for _, y in points], linestyle="none", marker="o",
                markersize=5, markerfacecolor="none", color=colour, gid=gid)  # fmt: skip


def _curve(ax: Axes, known: list[Row], line: str, gid: str) -> None:
    """Means as a line with markers, and a band around them."""
    colour = wording.colour_of(known[0].mechanism)
    xs = [_noise(row) for row in known]
    low, high = zip(*(_band(row) for row in known), strict=True)
    ax.fill_between(xs, low, high, color=colour, alpha=0.14, linewidth=0)
    if len(xs) == 1:
        ax.vlines(xs, low, high, color=colour, linewidth=1)
    means = [100 * row.sample.mean for row in known if row.sample]
    ax.plot(xs, means, color=colour, linestyle=line, marker="o", markersize=3, linewidth=1.4,
            gid=gid, zorder=3)  # fmt: skip
    cut = [(_noise(row), 100 * row.mean) for row in known if row.not_converged]
    if cut:
        ax.plot(*zip(*cut, strict=True), "x", color=INK, markersize=5, gid=f"cut-{gid}", zorder=5)


def _band(row: Row) -> tuple[float, float]:
    """In per cent. As published it is the interval of the mean, unlike the captions say (D18)."""
    assert row.sample is not None
    mean, std = row.sample.mean, row.sample.std
    if row.sample.n == 1:
        return 100 * mean, 100 * mean
    low, high = row.interval if row.fidelity == "as-published" else (mean - std, mean + std)
    return 100 * low, 100 * high


def _p_values(ax: Axes, panel: Panel) -> None:
    """Ours as a line, with triangles for very small ones; the paper's hollow."""
    tested = [row for row in sorted(panel.rows, key=_noise)
              if row.mechanism == RIVAL and math.isfinite(row.p) and not row.is_cut]  # fmt: skip
    gid = f"p-{panel.dataset}-{panel.rows[0].fidelity}"
    _points(ax, [(_noise(row), row.p) for row in tested], gid)
    if _has_paper(panel):
        paper = P_VALUES.get(panel.dataset, {})
        exact = [(noise, float(text)) for noise, text in paper.items() if text[0] != "<"]
        below = [(noise, float(text[1:])) for noise, text in paper.items() if text[0] == "<"]
        for points, marker, name in ((exact, "o", "paper"), (below, "v", "paper-below")):
            ax.plot([noise for noise, _ in points], [p for _, p in points], linestyle="none",
                    marker=marker, markersize=5, markerfacecolor="none", color=INK,
                    gid=f"{name}-{gid}")  # fmt: skip
    ax.axhline(SIGNIFICANT, color=INK, linewidth=0.8, linestyle="--", alpha=0.6)
    ax.set_yscale("log")
    ax.set_ylim(0.7 * LEAST_P, 1.5)
    ax.set_yticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"])
    ax.minorticks_off()
    _frame(ax)
    ax.set_ylabel("p against GAT")
    ax.set_xlabel(XLABEL)


def _slopes(ax: Axes, panel: Panel) -> None:
    """The slope of each seed, and their mean, with the p of the test against GATv2."""
    every = declines(panel.rows)
    if not every:
        ax.set_axis_off()
        return
    labels = []
    for place, each in enumerate(every):
        values = [100 * STEP * slope for slope in each.slopes.values()]
        colour = wording.colour_of(each.row.mechanism)
        gid = f"slope-{panel.dataset}-{each.row.fidelity}-{each.row.mechanism}-{each.row.heads}"
        ax.plot(values, [place] * len(values), "o", markersize=2.5, alpha=0.5, color=colour,
                gid=gid)  # fmt: skip
        ax.plot(100 * STEP * each.sample.mean, place, "|", markersize=11, color=colour)
        p = f", {wording.p_equals(each.p_holm)}" if math.isfinite(each.p_holm) else ""
        labels.append(f"{wording.name_of(each.row.mechanism)}{p}")
    ax.set_yticks(range(len(every)), labels, fontsize=7)
    ax.set_ylim(len(every) - 0.5, -0.5)
    ax.set_xlabel("slope, points per 0.1")
    add_grid(ax)


def _points(ax: Axes, points: list[tuple[float, float]], gid: str) -> None:
    colour = wording.colour_of("gatv2")
    ax.plot([x for x, _ in points], [max(p, LEAST_P) for _, p in points], color=colour, marker="o",
            markersize=3, linewidth=1.2, gid=gid)  # fmt: skip
    tiny = [x for x, p in points if p < LEAST_P]
    ax.plot(tiny, [LEAST_P] * len(tiny), color=colour, marker="v", markersize=5, linestyle="none")


def _masses(
    above: Axes, below: Axes, panel: Panel, measured: Sequence[NoiseAttention], layer: int
) -> None:
    """One line per mechanism and heads: attention on noise, and relative to uniform weights."""
    curves: dict[tuple[str, int], list[NoiseAttention]] = {}
    for each in sorted(measured, key=lambda each: _noise(each.row)):
        if layer < len(each.masses):
            curves.setdefault((each.row.mechanism, each.row.heads), []).append(each)
    if not curves:
        above.set_axis_off()
        below.set_axis_off()
        return
    uniform: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1, "zorder": 4}
    shares = {0.0: 0.0} | {_noise(each.row): each.uniform for each in measured}
    above.plot(sorted(shares), [shares[x] for x in sorted(shares)], gid="uniform", **uniform)
    below.axhline(1, **uniform)
    for (mechanism, heads), group in curves.items():
        xs, colour = [_noise(each.row) for each in group], wording.colour_of(mechanism)
        style: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 1.4}
        gid = f"{panel.dataset}-{group[0].row.fidelity}-{mechanism}-{heads}-{layer + 1}"
        above.plot(xs, [each.masses[layer] for each in group], gid=f"mass-{gid}", **style)
        below.plot(xs, [each.by_layer[layer] for each in group], gid=f"ratio-{gid}", **style)
        low, high = zip(*(each.band(layer) for each in group), strict=True)
        below.fill_between(xs, low, high, color=colour, alpha=0.14, linewidth=0)
    for ax in (above, below):
        _frame(ax)
    above.tick_params(labelbottom=False)
    above.set_ylim(bottom=0)


def _frame(ax: Axes) -> None:
    ax.set_xlim(-0.02, 0.52)
    ax.set_xticks([0, 0.1, 0.2, 0.3, 0.4, 0.5], ["0", "0.1", "0.2", "0.3", "0.4", "0.5"])
    add_grid(ax)


def _add_title(ax: Axes, panel: Panel, more: str = "") -> None:
    """The panel's title, and its caveats in the corner that the curves leave free."""
    title = textwrap.fill(panel.title, WIDTH)
    ax.set_title("\n".join([title, more]) if more else title, weight="bold")
    if panel.rows[0].caveats:
        words = "\n".join(textwrap.fill(each, WIDTH) for each in panel.rows[0].caveats.values())
        ax.text(0.03, 0.03, words, transform=ax.transAxes, va="bottom", fontsize=7, zorder=5)


def _legend(
    figure: Figure, shown: Sequence[Row], *, has_paper: bool = False, has_uniform: bool = False
) -> None:
    mechanisms = dict.fromkeys(row.mechanism for row in shown)
    plain: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.4}
    handles = [Line2D([], [], color=wording.colour_of(each), label=wording.name_of(each), **plain)
               for each in mechanisms]  # fmt: skip
    if has_paper:
        handles.append(Line2D([], [], linestyle="none", marker="o", markersize=5, label="paper",
                              markerfacecolor="none", color=INK))  # fmt: skip
    if has_uniform:
        handles.append(Line2D([], [], linestyle="--", linewidth=1, label="uniform", color=INK))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False,
                  fontsize=8, handlelength=1.6, columnspacing=0.9, handletextpad=0.4)  # fmt: skip
