"""Figure 2: the problem with k = 4. Each query looks for the key that has its attribute."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from dynagat.benchmarks.dictionary_lookup.dictionary import make_dictionary
from dynagat.report import wording
from dynagat.report.drawing import INK, STYLE, svg_of

SEED = 11  # of the released code
QUERY_Y, KEY_Y, RADIUS = 1.0, 0.0, 0.19
ATTRIBUTES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def figure_2(k: int = 4) -> str:
    """A graph of the released code's seed: what is given, and what is asked."""
    values = make_dictionary(k, seed=SEED, valid_share=0.0).train[0].tolist()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.15 * k + 1.2, 2.5), layout="constrained")
        axes = figure.subplots()
        _draw_edges(axes, k)
        for index, value in enumerate(values):
            _draw_node(axes, index, QUERY_Y, f"{ATTRIBUTES[index]}, ?", "#ffffff")
            _draw_node(axes, index, KEY_Y, f"{ATTRIBUTES[index]}, {value + 1}", "#dfe7ee")
            label = f"→ {value + 1}"
            axes.text(index, QUERY_Y + 0.3, label, ha="center", gid=f"answer-{index}", color=INK)
        for y, text in ((QUERY_Y, "queries"), (KEY_Y, "keys")):
            axes.text(-0.45, y, text, ha="right", va="center", color=INK)
        axes.set_xlim(-1.0, k - 0.6)
        axes.set_ylim(KEY_Y - 0.3, QUERY_Y + 0.5)
        axes.set_aspect("equal")
        axes.axis("off")
        return svg_of(figure, "figure-2", _alt(values))


def _alt(values: Sequence[int]) -> str:
    pairs = [f"{ATTRIBUTES[index]} has {value + 1}" for index, value in enumerate(values)]
    return f"DictionaryLookup with {len(values)} queries and keys: key {wording.listed(pairs)}"


def _draw_edges(axes: Axes, k: int) -> None:
    """All keys to all queries; the edge that a query has to find is drawn thick."""
    for query in range(k):
        for key in range(k):
            is_right = query == key
            axes.annotate(
                "",
                xy=(query, QUERY_Y - RADIUS),
                xytext=(key, KEY_Y + RADIUS),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": wording.colour_of("gatv2") if is_right else "#b8bec4",
                    "linewidth": 2.0 if is_right else 0.7,
                    "mutation_scale": 9,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
                zorder=2 if is_right else 1,
            )


def _draw_node(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    axes.add_patch(Circle((x, y), RADIUS, facecolor=colour, edgecolor=INK, linewidth=0.8, zorder=3))
    axes.text(x, y, text, ha="center", va="center", color="#101010", zorder=4, gid="node")
