"""The style of figures, and their SVG text.

Text and axes are drawn in INK, which a page replaces by the colour of its text.
"""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#1b1f24"
QUERY_COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#7F7F7F",
                 "#E69F00", "#44AA99", "#882255", "#6699CC", "#999933")  # fmt: skip
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def add_grid(ax: Axes, axis: Any = "y") -> None:
    """Pale lines behind the data."""
    ax.grid(axis=axis, color=INK, alpha=0.12, linewidth=0.6)
    ax.set_axisbelow(True)


def _numbered(text: str) -> str:
    """Matplotlib's ids of markers and clip paths, hashes of their last bits, as numbers."""
    hashes = dict.fromkeys(re.findall(r"#([mp][0-9a-f]{10})\b", text))
    for number, each in enumerate(hashes):
        text = text.replace(each, f"{each[0]}{number}")
    return text


def svg_of(figure: Figure, name: str, alt: str) -> str:
    """SVG text without prologue, date, creator or fixed size; ids start with `name`."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = _numbered(text)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
