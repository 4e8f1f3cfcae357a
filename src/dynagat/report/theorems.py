"""The theorems in the report: their verdicts as a file, and the drawing of the counterexample.

The counterexample: in the plane, h_b = (1, b) for b = 0, 1, 2. DPGAT's score of a query is linear
in b, so its largest value is at an end, and no query selects h_1. A GATv2 layer can select it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dynagat.analysis.theory import Certificate, scores, select
from dynagat.files import write_text
from dynagat.nn import DPGATConv
from dynagat.report import wording
from dynagat.report.drawing import INK, STYLE, add_grid, svg_of

FILE, FIGURE = "theorems.json", "counterexample.svg"
KEYS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)  # h_0, h_1, h_2
HEADS = 8  # of the DPGAT layer that is drawn
SEED = 0


@dataclass(frozen=True)
class Theorem:
    """A certificate without its measured numbers, which differ a little between machines."""

    name: str
    claim: str
    shown: bool


def write_theorems(certificates: Iterable[Certificate], folder: Path) -> Path:
    """folder/theorems.json and folder/counterexample.svg; returns the folder."""
    theorems = [Theorem(each.name, each.claim, each.shown) for each in certificates]
    text = json.dumps([asdict(each) for each in theorems], indent=1, ensure_ascii=False)
    write_text(folder / FILE, text + "\n")
    svg = counterexample().replace("<svg ", '<svg style="background: white" ', 1)
    write_text(folder / FIGURE, svg + "\n")
    return folder


def read_theorems(path: Path | str) -> list[Theorem]:
    """The file that `write_theorems` wrote."""
    try:
        return [Theorem(**each) for each in json.loads(Path(path).read_text())]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must be a file of `dynagat theory --out`, but {error}") from None


def counterexample() -> str:
    """The keys in the plane, and the scores of DPGAT and GATv2 along the line through them."""
    b = torch.linspace(0, 2, 81, dtype=torch.float64)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        plane, dot, additive = figure.subplots(1, 3, width_ratios=(0.8, 1, 1))
        _draw_keys(plane)
        _draw_scores(dot, b, _dpgat_scores(b), "dpgat")
        dot.set_title("DPGAT: linear in b", color=wording.colour_of("dpgat"), weight="bold")
        _draw_scores(additive, b, _gatv2_scores(b), "gatv2")
        additive.set_title("GATv2: selects h₁", color=wording.colour_of("gatv2"), weight="bold")
        dot.set_ylabel("score of h_b − score of h₁")
        alt = "Counterexample: DPGAT's scores are linear between the keys, those of GATv2 are not"
        return svg_of(figure, "counterexample", alt)


def _along(b: Tensor) -> Tensor:  # [n, 2]
    return torch.stack([torch.ones_like(b), b], 1)


@torch.no_grad()
def _dpgat_scores(b: Tensor) -> Tensor:  # [curves, n]
    """Of the three queries in heads with random Q and K."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = DPGATConv(2, 2, heads=HEADS, add_self_loops=False).double()
    query, key, _ = layer.project(_along(b), KEYS)  # [3, H, C], [n, H, C]
    curves = torch.einsum("qhc,nhc->qhn", query, key) / layer.out_channels**0.5
    return _relative(curves.flatten(0, 1), b)


@torch.no_grad()
def _gatv2_scores(b: Tensor) -> Tensor:  # [queries, n]
    """Of the three queries in the layer that makes all of them select h_1."""
    selection = select(KEYS, [1, 1, 1])
    every = torch.cat([KEYS, _along(b)])
    curves = scores(selection.layer, every)[:3, 3:, 0]  # pyright: ignore[reportArgumentType]
    return _relative(curves, b)


def _relative(curves: Tensor, b: Tensor) -> Tensor:
    """The scores minus that of h_1, scaled so that the largest absolute value of all is 1."""
    centre = int((b - 1).abs().argmin())
    shifted = curves - curves[:, centre : centre + 1]
    return shifted / shifted.abs().max()


def _draw_keys(axes: Axes) -> None:
    axes.plot([1, 1], [-0.2, 2.4], color=INK, linewidth=0.6, linestyle=":")
    for index, (x, y) in enumerate(KEYS.tolist()):
        colour = wording.colour_of("gat") if index == 1 else INK
        axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops={
            "arrowstyle": "-|>", "color": colour, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0,
        })  # fmt: skip
        axes.text(x + 0.08, y, f"h{'₀₁₂'[index]} = ({x:g}, {y:g})", va="center", color=colour)
    axes.set_xlim(-0.1, 2.3)
    axes.set_ylim(-0.3, 2.5)
    axes.set_xticks([0, 1])
    axes.set_yticks([0, 1, 2])
    axes.set_title("keys h_b = x̂ + b ŷ")


def _draw_scores(axes: Axes, b: Tensor, curves: Tensor, mechanism: str) -> None:
    colour = wording.colour_of(mechanism)
    keys = [0, len(b) // 2, len(b) - 1]
    for curve in curves.tolist():
        axes.plot(b.tolist(), curve, color=colour, linewidth=1.0, alpha=0.55)
        axes.plot([0, 1, 2], [curve[key] for key in keys], "o", color=colour, markersize=3)
    axes.axhline(0, color=INK, linewidth=0.6, linestyle="--")
    axes.set_xticks([0, 1, 2], ["h₀", "h₁", "h₂"])
    axes.set_ylim(-1.1, 1.1)
    axes.set_yticks([-1, 0, 1])
    add_grid(axes)
