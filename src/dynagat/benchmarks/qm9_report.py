"""What the report adds for QM9: learning curves, each mechanism relative to GAT, every run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from dynagat.experiment import Record
from dynagat.report import wording
from dynagat.report.drawing import STYLE, add_grid, svg_of
from dynagat.report.findings import Findings
from dynagat.report.parts import Extras, Figure, Table
from dynagat.report.rows import RIVAL, Row, families

HEADS = 8  # of the GAT that the paper's last column is relative to
COLUMNS = 3  # of panels
LONG = 30  # runs, from which their table is folded


def extras(findings: Findings) -> Extras:
    def draw() -> Iterator[Figure]:
        svg = learning_curves(findings.rows)
        if svg is not None:
            yield Figure("learning-curves", svg, CAPTION)

    tables = [table for _, family in families(findings.rows) if (table := relative(family))]
    return Extras(draw, tuple(filter(None, [*tables, every_run(findings.rows)])))


CAPTION = (
    "Loss on the validation molecules by epoch: half the mean squared error of the normalised "
    "target. Each line is a run; its end is the end of the run, the dot the epoch whose network "
    "was tested."
)


def learning_curves(rows: Sequence[Row]) -> str | None:
    """A panel for each property; None without records."""
    targets = list(dict.fromkeys(str(row.swept.get("target", "")) for row in rows if row.runs))
    if not targets:
        return None
    columns = min(COLUMNS, len(targets))
    lines = -(-len(targets) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Canvas(figsize=(7.0, 2.6 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).flatten()
        for panel, target in zip(panels, targets, strict=False):
            here = [row for row in rows if row.swept.get("target", "") == target]
            _panel(panel, target, here)
        for panel in panels[len(targets) :]:
            panel.set_axis_off()
        return svg_of(figure, "learning-curves", "Validation loss by epoch")


def _panel(ax: Axes, target: str, rows: Sequence[Row]) -> None:
    for row in rows:
        label: str | None = f"{row.title}, {row.family}"
        for run in row.runs:
            losses = [(each["round"], each["valid_loss"]) for each in run.history]
            colour = wording.colour_of(row.mechanism)
            dashes = "-" if row.fidelity == "as-published" else "--"
            ax.plot(*zip(*losses, strict=True), dashes, color=colour, linewidth=1, label=label)
            ax.plot(*min(losses, key=lambda each: each[1]), "o", color=colour, markersize=3)
            label = None
    ax.set_yscale("log")
    ax.set_title(target)
    ax.set_xlabel("epoch")
    ax.legend(fontsize=6, frameon=False)
    add_grid(ax)


def relative(rows: Sequence[Row]) -> Table | None:
    """Error / that of GAT with 8 heads, minus 1: mean and median over the properties (D43)."""
    ours = {(row.mechanism, row.heads, row.swept.get("target")): row for row in rows}
    kinds = list(dict.fromkeys((row.mechanism, row.heads) for row in rows))
    lines = []
    for mechanism, heads in kinds:
        pairs = [
            (row, ours[RIVAL, HEADS, target])
            for (name, count, target), row in ours.items()
            if (name, count) == (mechanism, heads) and (RIVAL, HEADS, target) in ours
        ]
        gains = [a.mean / b.mean - 1 for a, b in pairs if a.sample and b.sample]
        papers = [
            a.published.mean / b.published.mean - 1 for a, b in pairs if a.published and b.published
        ]
        if gains and (mechanism, heads) != (RIVAL, HEADS):
            cells = [f"{f(gains):+.1%}" for f in (statistics.mean, statistics.median)]
            paper = f"{statistics.mean(papers):+.1%}" if papers else wording.NOTHING
            lines.append([wording.title_of(mechanism, heads), str(len(gains)), *cells, paper])
    if not lines:
        return None
    columns = ("mechanism", "properties", "mean", "median", "paper, same properties")
    legend = (
        "The error relative to that of GAT with 8 heads: negative is better. The paper's -11.5 % "
        "for GATv2 is a mean over all 13 properties, -6.75 % without the sixth, on which some of "
        "GAT's runs diverged (D43)."
    )
    return Table.of("Error relative to GAT", columns, lines, legend=legend)


RUN_COLUMNS = ("property", "mechanism", "heads", "seed", "fidelity", "epochs", "best epoch",
               "error ratio", "published", "hours")  # fmt: skip


def every_run(rows: Sequence[Row]) -> Table | None:
    """A line for each run; None without runs."""
    lines = [_run_cells(row, run) for row in rows for run in row.runs]
    if not lines:
        return None
    legend = (
        "A line for each run. Cut off: the epochs were used up before early stopping ended the run."
        " Best epoch: the one with the lowest validation loss, whose network was tested."
    )
    is_long = len(lines) > LONG
    return Table.of("Every run", RUN_COLUMNS, lines, text_columns=2, legend=legend, folded=is_long)


def _run_cells(row: Row, run: Record) -> list[str]:
    best = min(run.history, key=lambda each: each["valid_loss"], default={"round": wording.NOTHING})
    theirs = row.published
    return [
        str(row.swept.get("target", wording.NOTHING)),
        wording.name_of(row.mechanism),
        wording.heads_of(row.mechanism, row.heads),
        str(run.seed),
        row.family,
        f"{len(run.history)}{' (cut off)' if run.ended == 'budget' else ''}",
        str(best["round"]),
        wording.number(run.metrics.get(row.metric.name, math.nan), row.metric),
        wording.NOTHING
        if theirs is None
        else wording.mean_and_std(theirs.mean, theirs.std or math.nan, row.metric),
        f"{run.seconds / 3600:.1f}",
    ]
