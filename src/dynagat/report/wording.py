"""How names and numbers are printed, and the colour of each mechanism."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dynagat.analysis.verdict import ATTENDS, UNKNOWN
from dynagat.metrics import Metric
from dynagat.nn.network import BASELINES

NAMES = {"gatv2": "GATv2", "gat": "GAT", "dpgat": "DPGAT", "gcn": "GCN", "gin": "GIN",
         "sage": "GraphSAGE"}  # fmt: skip

# Okabe and Ito's palette: distinct for colour-blind readers, on white and on black.
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
STEP = 0.05  # fractions that differ by this much are consecutive, as the paper's noise ratios


def name_of(mechanism: str) -> str:
    return NAMES.get(mechanism, mechanism)


def heads_of(mechanism: str, heads: int) -> str:
    """The number of heads; a dash for a mechanism without heads."""
    return NOTHING if mechanism in BASELINES else str(heads)


def title_of(mechanism: str, heads: int) -> str:
    """ "GATv2 (1 head)" """
    if mechanism in BASELINES:
        return name_of(mechanism)
    return f"{name_of(mechanism)} ({count(heads, 'head')})"


def colour_of(mechanism: str) -> str:
    return COLOURS.get(mechanism, OTHER_COLOUR)


def scale_of(metric: Metric) -> float:
    """Factor of printed values: fractions are printed in per cent."""
    return 100.0 if metric.is_fraction else 1.0


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def predicate(word: str, number: int) -> str:
    """ "attends", "attend", "is static", "are static": the microscope's verdict on some heads"""
    if word == ATTENDS:
        return "attends" if number == 1 else "attend"
    if word == UNKNOWN:
        return "can not be judged"
    return f"is {word}" if number == 1 else f"are {word}"


def tally(words: Iterable[str]) -> str:
    """ "20 attend and 4 are uniform": the microscope's verdicts on some heads"""
    counts = Counter(words).most_common()
    return listed([f"{number:,} {predicate(word, number)}" for word, number in counts])


def number(value: float, metric: Metric) -> str:
    """Fractions in per cent with one decimal, or with more where 99.97 would become 100.0."""
    if not math.isfinite(value):
        return NOTHING
    if not metric.is_fraction:
        return f"{value:.4g}"
    for decimals in (1, 2, 3, 4):
        text = f"{100 * value:.{decimals}f}"
        if float(text) != 100 or value >= 1:
            return text
    return "99.9999"


def with_unit(value: float, metric: Metric) -> str:
    """ "87.0%" """
    return number(value, metric) + metric.unit


def signed(value: float, metric: Metric) -> str:
    if not math.isfinite(value):
        return NOTHING
    text = f"{100 * value:+.1f}" if metric.is_fraction else f"{value:+.4g}"
    return "0.0" if text in ("-0.0", "+0.0") else text.replace("-", "−")


def mean_and_std(mean: float, std: float, metric: Metric) -> str:
    """ "87.0 ± 1.2"; without the standard deviation of a single run."""
    text = number(mean, metric)
    if not math.isfinite(std):
        return text
    return f"{text} ± {100 * std:.1f}" if metric.is_fraction else f"{text} ± {std:.2g}"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return NOTHING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float) -> str:
    """ "p = 0.020" or "p < 0.001" """
    return f"p = {p_value(p)}".replace("= <", "< ")


def size(value: float) -> str:
    """Bytes as MB or GB."""
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


def setting_label(name: str, value: Any) -> str:
    """ "noise=0.5"; a data set by its name alone."""
    text = f"{value:g}" if isinstance(value, float) else setting_text(value)
    return text if name == "dataset" else f"{name}={text}"


def ranges_of_fractions(values: Sequence[float]) -> str:
    """[0.1, 0.15, 0.2, 0.5] -> "0.1–0.2, 0.5" """
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


def ranges(values: Sequence[Any]) -> str:
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


def first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def first_lower(sentence: str) -> str:
    """For a sentence that follows a colon; names of mechanisms keep their capitals."""
    if sentence.startswith(tuple(NAMES.values())):
        return sentence
    return sentence[:1].lower() + sentence[1:]
