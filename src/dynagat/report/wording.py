"""Names and numbers as a reader meets them, and one colour per mechanism wherever it appears."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

NAMES = {"gatv2": "GATv2", "gat": "GAT", "dpgat": "DPGAT", "gcn": "GCN", "gin": "GIN",
         "sage": "GraphSAGE"}  # fmt: skip
WITHOUT_HEADS = {"gcn", "gin", "sage"}
ERRORS = ("error", "mae", "loss")  # metrics that should be small
SHARES = ("accuracy", "auc", "hits", "mrr")  # metrics between 0 and 1

# Okabe and Ito's palette: told apart by colour-blind eyes, on white and on black.
COLOURS = {
    "gatv2": "#0072B2",
    "gat": "#D55E00",
    "dpgat": "#009E73",
    "gin": "#B5659A",
    "gcn": "#B58900",
    "sage": "#56B4E9",
}
OTHER_COLOUR = "#7A7A7A"
NOTHING = "–"
STEP = 0.05  # of shares that are varied, as the paper varies noise


def name_of(mechanism: str) -> str:
    return NAMES.get(mechanism, mechanism)


def title_of(mechanism: str, heads: int) -> str:
    """ "GATv2 (1 head)" """
    if mechanism in WITHOUT_HEADS:
        return name_of(mechanism)
    return f"{name_of(mechanism)} ({count(heads, 'head')})"


def colour_of(mechanism: str) -> str:
    return COLOURS.get(mechanism, OTHER_COLOUR)


def metric_words(metric: str) -> str:
    return metric.replace("_", " ")


def higher_is_better(metric: str) -> bool:
    return not any(word in metric.split("_") for word in ERRORS)


def is_share(metric: str) -> bool:
    return any(part.startswith(SHARES) for part in metric.split("_"))


def scale_of(metric: str) -> float:
    """What a value is multiplied with to be shown: shares are shown in per cent."""
    return 100.0 if is_share(metric) else 1.0


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def number(value: float, metric: str) -> str:
    """One decimal for shares, in per cent; more where 99.97 would else be shown as 100.0."""
    if not math.isfinite(value):
        return NOTHING
    if not is_share(metric):
        return f"{value:.4g}"
    for decimals in (1, 2, 3, 4):
        text = f"{100 * value:.{decimals}f}"
        if float(text) != 100 or value >= 1:
            return text
    return "99.9999"


def unit(metric: str) -> str:
    return "%" if is_share(metric) else ""


def signed(value: float, metric: str) -> str:
    if not math.isfinite(value):
        return NOTHING
    text = f"{100 * value:+.1f}" if is_share(metric) else f"{value:+.4g}"
    return "0.0" if text in ("-0.0", "+0.0") else text.replace("-", "−")


def spread(mean: float, std: float, metric: str) -> str:
    """ "87.0 ± 1.2"; without a deviation where there is but one run."""
    shown = number(mean, metric)
    if not math.isfinite(std):
        return shown
    return f"{shown} ± {100 * std:.1f}" if is_share(metric) else f"{shown} ± {std:.2g}"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return NOTHING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def size(value: float) -> str:
    """Of bytes."""
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{max(value / 1e6, 1):.0f} MB"


def seconds(value: float) -> str:
    if not math.isfinite(value):
        return NOTHING
    if value < 100:
        return f"{value:#.2g} s".replace(". ", " ")
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def effect(value: float) -> str:
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.2f}".replace("-", "−")


def setting_text(value: Any) -> str:
    """As `--set` reads it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(setting_text(each) for each in value)
    return str(value)


def told_setting(name: str, value: Any) -> str:
    """ "noise=0.5"; a data set is told by its name alone."""
    text = f"{value:g}" if isinstance(value, float) else setting_text(value)
    return text if name == "dataset" else f"{name}={text}"


def stretches(values: Sequence[float]) -> str:
    """[0.1, 0.15, 0.2, 0.5] -> "0.1–0.2, 0.5": steps of STEP are consecutive."""
    runs: list[list[float]] = []
    for value in sorted(set(values)):
        if runs and value - runs[-1][-1] < 1.01 * STEP:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts: list[str] = []
    for run in runs:
        ends = [f"{value:g}" for value in run]
        texts += [f"{ends[0]}–{ends[-1]}"] if len(run) > 2 else ends
    return ", ".join(texts)


def several(values: Sequence[Any]) -> str:
    """[4, 5, 6, 10] -> "4-6,10", as `--set` and `--seeds` read it."""
    if not all(type(value) is int for value in values):
        return ",".join(setting_text(value) for value in values)
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs)


def listed(parts: Sequence[str]) -> str:
    """["a", "b", "c"] -> "a, b and c" """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
