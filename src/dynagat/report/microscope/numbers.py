"""A head's numbers for a reader: each with its interval, and a line on what it means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynagat.analysis.attentive import Head
from dynagat.analysis.resample import Estimate
from dynagat.report.wording import NOTHING

MEANINGS = {
    "agreement τ": "How alike two queries rank the keys they share (Kendall's τ): 1 for one order,"
    " 0 for no more likeness than chance.",
    "same choice": "How often two queries put the same one of the keys they share first.",
    "one ranking": "Share of comparisons that a single ranking of all keys gets right; random"
    " scores would have {chance} on this graph.",
    "selected keys": "Distinct keys that some query puts first, of the most there could be.",
    "interaction": "Share of the scores' variance that belongs to neither the query nor the key"
    " alone; GAT has little, of its LeakyReLU.",
    "entropy": "Relative to uniform weights: 1 if all neighbours weigh alike, 0 if one has"
    " everything.",
    "effective neighbours": "How many equally weighted neighbours would have this entropy, of the"
    " mean degree.",
    "on self-loops": "Attention that stays at the node itself; in brackets, with uniform weights.",
    "on same label": "Attention on other nodes of the query's own label; in brackets, with uniform"
    " weights.",
    "on noise": "Attention on edges marked as noise; in brackets, with uniform weights.",
    "alike": "Mean τ between this head's rankings and those of the layer's other heads: 1 for"
    " copies.",
}


@dataclass(frozen=True)
class Number:
    """One of a head's: its name, value, interval, and what it means."""

    name: str
    value: str
    interval: str
    meaning: str


def numbers(head: Head) -> Iterator[Number]:
    """All that was measured of a head."""
    chance = two_decimals(head.by_chance)
    for name, value, interval in _measured(head):
        yield Number(name, value, interval, MEANINGS[name].replace("{chance}", chance))


def every_number(heads: Sequence[Head]) -> list[Number]:
    """Each name that some head has, once."""
    found = {number.name: number for head in heads for number in numbers(head)}
    return [found[name] for name in MEANINGS if name in found]


def _measured(head: Head) -> Iterator[tuple[str, str, str]]:
    picked, effective = head.selection, head.effective
    yield _told("agreement τ", head.agreement)
    yield _told("same choice", head.same_choice)
    yield _told("one ranking", head.explained)
    chosen = f"{picked.selected:,} of {picked.selectable:,}"
    yield "selected keys", chosen, f"share {_interval(picked.share)}"
    yield _told("interaction", head.interaction)
    yield _told("entropy", head.entropy)
    if not math.isnan(effective.value):
        of_degree = f"{effective.value:.1f} of {head.degree:.1f}"
        yield "effective neighbours", of_degree, _interval(effective, 1)
    masses = (head.self_loops, head.same_label, head.noise)
    for name, mass in zip(("on self-loops", "on same label", "on noise"), masses, strict=True):
        if mass is not None:
            value = f"{two_decimals(mass.attention.value)} (uniform {two_decimals(mass.uniform)})"
            yield name, value, _interval(mass.attention)
    if not math.isnan(head.alike.value):
        yield _told("alike", head.alike)


def _told(name: str, estimate: Estimate) -> tuple[str, str, str]:
    return name, two_decimals(estimate.value), _interval(estimate)


def two_decimals(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def _interval(estimate: Estimate, decimals: int = 2) -> str:
    if math.isnan(estimate.low):
        return ""
    low, high = (f"{end:.{decimals}f}".replace("-", "−") for end in (estimate.low, estimate.high))
    return f"{low} to {high}"
