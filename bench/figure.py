"""The figure: speed-up over PyG eager at each shape, and the peak extra memory of a step."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from bench.records import Entry, Ledger
from bench.tables import NAMES

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

COLORS = {"pyg": "#c9ced6", "compiled": "#8c96a5", "dgl": "#5d7fa8", "dynagat": "#e4572e"}
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "path",
    "svg.hashsalt": "dynagat",  # so that the same records give the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(ledger: Ledger, path: Path) -> None:
    """Draw bars of the groups "layers" and "memory"; the suffix of the path selects SVG or PNG."""
    layers, memory = ledger.group("layers"), ledger.group("memory")
    with pyplot.rc_context(STYLE):
        figure, (left, right) = pyplot.subplots(
            1, 2, figsize=(10, 3.8), width_ratios=(2.4, 1), layout="constrained"
        )
        _draw_speed(left, layers)
        _draw_memory(right, memory)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=150)
        pyplot.close(figure)


def _draw_speed(axes: Axes, entries: list[Entry]) -> None:
    names = [name for name in NAMES if name != "pyg"]
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        ratios = [entry.ratio("pyg", name, "step") or 0.0 for entry in entries]
        shift = (index - (len(names) - 1) / 2) * width
        positions = [group + shift for group in range(len(entries))]
        bars = axes.bar(positions, ratios, width * 0.92, color=COLORS[name], label=NAMES[name])
        labels = [f"{ratio:.1f}×" if ratio else "none" for ratio in ratios]
        axes.bar_label(bars, labels, padding=2, fontsize=8.5)
    axes.axhline(1, color="#444444", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(entries)), [entry.shape for entry in entries])
    axes.set_xlabel("heads × channels")
    axes.set_title("GATv2 layer, forward + backward: times faster than PyG eager", loc="left")
    axes.legend(frameon=False, ncols=len(names), loc="upper left", bbox_to_anchor=(0, 0.99))
    axes.margins(y=0.22)


def _draw_memory(axes: Axes, entries: list[Entry]) -> None:
    axes.set_title("Peak extra memory of a step", loc="left")
    if not entries:
        axes.set_axis_off()
        return
    entry = entries[0]
    names = [name for name in NAMES if entry.median(name, "memory") is not None]
    sizes = [(entry.median(name, "memory") or 0.0) / 1e9 for name in names]
    bars = axes.barh([NAMES[name] for name in names], sizes, color=[COLORS[n] for n in names])
    axes.bar_label(bars, [f"{size:.2f} GB" for size in sizes], padding=3, fontsize=8.5)
    axes.set_xlabel(f"GB, {entry.shape}")
    axes.invert_yaxis()
    axes.margins(x=0.25)
