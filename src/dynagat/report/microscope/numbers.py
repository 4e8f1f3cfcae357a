"""The measurements of a head as text: value, confidence interval and explanation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynagat.analysis.attentive import Head
from dynagat.analysis.resample import Estimate
from dynagat.report.wording import NOTHING

MEANINGS = {
    "weighted agreement": "Covariance of two queries' attention over the keys they share, relative"
    " to that of two queries with the same order: 1 for the same order, 0 if unrelated. Keys with"
    " nearly equal weights hardly count.",
    "pairs": "Effective number of pairs of queries behind the weighted agreement.",
    "agreement τ": "How similarly two queries rank the keys they share (Kendall's τ): 1 for the"
    " same order, 0 for unrelated orders. All comparisons of two keys count equally.",
    "same choice": "How often two queries rank the same key first, if each has the other's first"
    " choice as a key.",
    "one ranking": "Fraction of comparisons that a single ranking of all keys predicts correctly;"
    " {chance} for random scores on this graph.",
    "selected keys": "Number of distinct keys that some query ranks first, out of the largest"
    " possible number.",
    "interaction": "Fraction of the scores' variance that is explained neither by the query alone"
    " nor by the key alone; small in GAT, where only LeakyReLU causes it.",
    "entropy": "Entropy relative to uniform weights: 1 if all neighbours have the same weight, 0 if"
    " one neighbour has all of it.",
    "effective neighbours": "Number of equally weighted neighbours with the same entropy, compared"
    " with the mean degree.",
    "on self-loops": "Attention on the node itself; in brackets, with uniform weights.",
    "on same label": "Attention on other nodes with the query's label; in brackets, with uniform"
    " weights.",
    "on noise": "Attention on edges marked as noise; in brackets, with uniform weights.",
    "alike": "Mean τ between the rankings of this head and of the layer's other heads: 1 if they"
    " are copies.",
}


@dataclass(frozen=True)
class Number:
    """A measurement of a head."""

    name: str
    value: str
    interval: str
    meaning: str


def numbers(head: Head) -> Iterator[Number]:
    """All measurements of a head."""
    chance = two_decimals(head.by_chance)
    for name, value, interval in _measured(head):
        yield Number(name, value, interval, MEANINGS[name].replace("{chance}", chance))


def every_number(heads: Sequence[Head]) -> list[Number]:
    """One number for each name that any head has."""
    by_name = {number.name: number for head in heads for number in numbers(head)}
    return [by_name[name] for name in MEANINGS if name in by_name]


def _measured(head: Head) -> Iterator[tuple[str, str, str]]:
    selection, effective = head.selection, head.effective
    yield _format("weighted agreement", head.weighted_agreement)
    yield "pairs", f"{head.pairs:,}", ""
    yield _format("agreement τ", head.agreement)
    yield _format("same choice", head.same_choice)
    yield _format("one ranking", head.explained)
    selected = f"{selection.selected:,} of {selection.selectable:,}"
    yield "selected keys", selected, f"fraction {interval_text(selection.share)}"
    yield _format("interaction", head.interaction)
    yield _format("entropy", head.entropy)
    if not math.isnan(effective.value):
        of_degree = f"{effective.value:.1f} of {head.degree:.1f}"
        yield "effective neighbours", of_degree, interval_text(effective, 1)
    masses = (head.self_loops, head.same_label, head.noise)
    for name, mass in zip(("on self-loops", "on same label", "on noise"), masses, strict=True):
        if mass is not None:
            value = f"{two_decimals(mass.attention.value)} (uniform {two_decimals(mass.uniform)})"
            yield name, value, interval_text(mass.attention)
    if not math.isnan(head.alike.value):
        yield _format("alike", head.alike)


def _format(name: str, estimate: Estimate) -> tuple[str, str, str]:
    return name, two_decimals(estimate.value), interval_text(estimate)


def two_decimals(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def interval_text(estimate: Estimate, decimals: int = 2) -> str:
    if math.isnan(estimate.low):
        return ""
    low, high = (f"{end:.{decimals}f}".replace("-", "−") for end in (estimate.low, estimate.high))
    return f"{low} to {high}"
