"""Figure 1, ours and the one printed in the paper: attention of each query to each key.

Query i looks for key i. Static attention ranks the keys in the same order for every query, so all
queries rank the same key first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from dynagat.benchmarks.dictionary_lookup.explorer import first_head
from dynagat.benchmarks.dictionary_lookup.published import FIGURE_1
from dynagat.experiment import Record
from dynagat.report import wording
from dynagat.report.drawing import QUERY_COLOURS, STYLE, add_grid, svg_of
from dynagat.report.findings import Findings
from dynagat.report.parts import Table
from dynagat.report.rows import Row, families

DARK_TEXT, LIGHT_TEXT = "#101010", "#ffffff"  # on pale and on deep cells, whatever the page's ink
COLUMNS = ("attention", "source", "keys ranked first", "right key ranked first",
           "attention on the right key", "largest attention of a query")  # fmt: skip
LEGEND = (
    "The attention of both figures, in one graph of k = 10. The right key is the one with the"
    " query's attribute: key i for query i. Keys ranked first: by at least one query; static"
    " attention has one. Ranges are over queries. The paper's numbers are those printed in its"
    " figure. The right half of that figure is the released GATv2 on the third test graph of seed"
    " 11; the left half does not fit the released GAT (D7), and the paper does not say how many"
    " heads it has."
)


@dataclass(frozen=True)
class Panel:
    """One heat map: weights [query][key]."""

    mechanism: str
    title: str
    weights: Sequence[Sequence[float]]


def figure_1(findings: Findings, k: int = 10) -> str | None:
    """GAT's attention next to GATv2's in the same graph, rankings below; None without both."""
    panels = _ours(findings, k)
    alt = "Attention of each query to each key: GAT next to GATv2"
    return _draw(panels, "figure-1", alt) if panels else None


def figure_1_paper() -> str:
    """The same picture of the values that are printed in the paper."""
    alt = "The paper's Figure 1: attention of each query to each key, GAT next to GATv2"
    return _draw(_papers(), "figure-1-paper", alt)


def attention_table(findings: Findings, k: int = 10) -> Table | None:
    """Ours beside the paper's; None where there is no figure of ours."""
    ours = _ours(findings, k)
    if not ours:
        return None
    rows = []
    for pair in zip(ours, _papers(), strict=True):
        for panel, source in zip(pair, ("ours", "the paper's"), strict=True):
            rows.append([panel.title, source, *_numbers(panel.weights)])
    title = "Attention in Figure 1, ours beside the paper's"
    return Table.of(title, COLUMNS, rows, text_columns=2, legend=LEGEND)


def _numbers(weights: Sequence[Sequence[float]]) -> list[str]:
    first = [max(range(len(row)), key=row.__getitem__) for row in weights]
    right = [row[query] for query, row in enumerate(weights)]
    hits = sum(key == query for query, key in enumerate(first))
    return [
        str(len(set(first))),
        f"{hits} of {len(weights)}",
        f"{min(right):.2f} to {max(right):.2f}",
        f"{min(map(max, weights)):.2f} to {max(map(max, weights)):.2f}",
    ]


def _ours(findings: Findings, k: int) -> list[Panel]:
    """GAT and GATv2; empty without both."""
    panels = []
    for record in _pair(findings.rows, k) or ():
        head = ", head 1" if record.heads > 1 else ""
        title = wording.title_of(record.mechanism, record.heads) + head
        panels.append(Panel(record.mechanism, title, first_head(record)))
    return panels


def _papers() -> list[Panel]:
    titles = {"gat": "GAT, printed", "gatv2": "GATv2 (1 head), printed"}
    return [
        Panel(mechanism, titles[mechanism], [[percent / 100 for percent in row] for row in rows])
        for mechanism, rows in FIGURE_1.items()
    ]


def _draw(panels: Sequence[Panel], name: str, alt: str) -> str:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.3), layout="constrained")
        above, below = figure.subplots(2, 2, height_ratios=(1.75, 1), squeeze=False)
        for panel, heat, lines in zip(panels, above, below, strict=True):
            colour = wording.colour_of(panel.mechanism)
            _heat_map(heat, panel.weights, panel.title, colour)
            _ranking_lines(lines, panel.weights)
        below[0].set_ylabel("attention")
        return svg_of(figure, name, alt)


def _pair(rows: list[Row], k: int) -> tuple[Record, Record] | None:
    """GAT and GATv2, each with the fewest heads, of the same seed and settings."""
    for _, members in families(rows):
        at_k = [row for row in members if row.swept.get("k") == k]
        for ours in (row for row in at_k if row.mechanism == "gatv2"):
            for theirs in (row for row in at_k if row.mechanism == "gat"):
                for a in theirs.runs:
                    for b in ours.runs:
                        if a.seed == b.seed and first_head(a) and first_head(b):
                            return a, b
    return None


def _heat_map(ax: Axes, weights: Sequence[Sequence[float]], title: str, colour: str) -> None:
    k = len(weights)
    shades = LinearSegmentedColormap.from_list(title, ["#ffffff", colour])
    ax.pcolormesh(weights, cmap=shades, vmin=0, vmax=1, edgecolors="#ffffff", linewidth=0.8)
    for query, row in enumerate(weights):
        for key, weight in enumerate(row):
            ink = LIGHT_TEXT if weight > 0.55 else DARK_TEXT
            text = f"{weight:.2f}".removeprefix("0")
            centred: Any = {"ha": "center", "va": "center"}
            ax.text(key + 0.5, query + 0.5, text, **centred, fontsize=6.5, color=ink, gid="cell")
    middles = [index + 0.5 for index in range(k)]
    ax.set_xticks(middles, [f"k{key}" for key in range(k)])
    ax.set_yticks(middles, [f"q{query}" for query in range(k)])
    ax.tick_params(length=0, labelsize=8, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.invert_yaxis()
    ax.set_title(title, color=colour, weight="bold")
    ax.set_aspect("equal")
    for spine in ax.spines.values():
        spine.set_visible(False)


def _ranking_lines(ax: Axes, weights: Sequence[Sequence[float]]) -> None:
    for query, row in enumerate(weights):
        colour = QUERY_COLOURS[query % len(QUERY_COLOURS)]
        ax.plot(row, color=colour, marker="o", markersize=2.2, linewidth=1.1, gid=f"query-{query}")
    top = max(max(row) for row in weights)
    ax.set_ylim(0, 1 if top > 0.5 else 0.5)
    ax.set_xticks(range(len(weights)), [f"k{key}" for key in range(len(weights))])
    ax.tick_params(labelsize=8, length=2)
    add_grid(ax)
