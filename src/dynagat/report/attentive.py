"""What the microscope saw of the runs, one row per mechanism and settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dynagat.analysis.resample import two_digits
from dynagat.report import wording
from dynagat.report.tables import Row

COLUMNS = ("settings", "mechanism", "heads", "n", "agreement τ", "same choice", "one ranking",
           "by chance", "selected keys", "interaction", "neighbours", "verdicts")  # fmt: skip
LEFT = 2  # columns of words
LEGEND = (
    "Means over the heads of all runs. Agreement: Kendall's τ of two queries over the keys they"
    " share, 1 if static. Same choice: how often they rank the same key first. One ranking: the"
    " share of comparisons that a single order of all keys explains, and that of random scores."
    " Selected keys: those that some query ranks first, of those that could be. Interaction: the"
    " share of the scores' variance that is neither the query's nor the key's. Neighbours: the"
    " effective number, of the degree."
)


def attentive_rows(found: list[Row]) -> list[list[str]]:
    """One text for each of COLUMNS; of rows whose runs were looked at."""
    return [_cells(row, heads) for row in found if (heads := heads_of(row))]


def heads_of(row: Row) -> list[dict[str, Any]]:
    """Every head of every run that the microscope measured; a glance gives no verdict."""
    return [head for head in glanced(row) if "verdict" in head]


def glanced(row: Row) -> list[dict[str, Any]]:
    """Every head of every run that was looked at, or glanced at."""
    seen = [run.exhibits.get("microscope") or {} for run in row.runs]
    return [head for each in seen for layer in each.get("layers", ()) for head in layer["heads"]]


def _cells(row: Row, heads: list[dict[str, Any]]) -> list[str]:
    def mean(read: Callable[[dict[str, Any]], float | None], digits: int = 2) -> str:
        values = [read(head) for head in heads]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return wording.NOTHING
        value = sum(known) / len(known)
        return two_digits(value) if digits == 2 else f"{value:.{digits}f}"

    verdicts = Counter(head["verdict"] for head in heads)
    runs = sum(bool(heads_of(replace(row, runs=(run,)))) for run in row.runs)
    return [
        row.label,
        wording.name_of(row.mechanism),
        str(row.heads),
        str(runs),
        mean(lambda head: head["agreement"]["value"]),
        mean(lambda head: head["same_choice"]["value"]),
        mean(lambda head: head["explained"]["value"]),
        mean(lambda head: head["by_chance"]),
        mean(lambda head: head["selection"]["share"]["value"]),
        mean(lambda head: head["interaction"]["value"]),
        f"{mean(lambda head: head['effective']['value'], 1)} of "
        f"{mean(lambda head: head['degree'], 1)}",
        ", ".join(f"{count} {words}" for words, count in verdicts.most_common()),
    ]
