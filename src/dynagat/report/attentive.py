"""What the microscope measured in the runs, one line per mechanism and settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from dynagat.analysis.resample import two_digits
from dynagat.analysis.verdict import words_of
from dynagat.report import wording
from dynagat.report.parts import Table
from dynagat.report.results import full_name
from dynagat.report.rows import Row

COLUMNS = ("settings", "mechanism", "heads", "n", "weighted agreement", "agreement τ",
           "same choice", "one ranking", "by chance", "selected keys", "interaction", "neighbours",
           "attends?", "ranking")  # fmt: skip
LEGEND = (
    "Means over the heads of all runs. Weighted agreement: covariance of two queries' attention"
    " over the keys they share, relative to that of two queries with the same order; 1 if static."
    " Agreement τ: Kendall's τ of the two orders, in which nearly equal weights count as much as"
    " others. Same choice: how often they rank the same key first. One ranking: fraction of"
    " comparisons that a single order of all keys explains, and that of random scores. Selected"
    " keys: those that some query ranks first, of those that could be. Interaction: fraction of the"
    " scores' variance that is due neither to the query nor to the key alone. Neighbours: effective"
    " number, of the degree. Attends?: uniform if it is at least 99 % of the degree. Ranking: does"
    " it depend on the query?"
)
OLDER = (
    " Runs without a weighted agreement were recorded before it existed. Their ranking is judged by"
    " the smaller of agreement τ and same choice, which can make a head look more dynamic than its"
    " attention is."
)


def attentive_table(family: Sequence[Row]) -> Table | None:
    """The rows of one family; None if the microscope measured none of their runs."""
    measured = [(row, heads) for row in family if (heads := measured_heads(row))]
    if not measured:
        return None
    title = f"How attentive ({full_name(family[0])})"
    is_old = any("weighted_agreement" not in head for _, heads in measured for head in heads)
    legend = LEGEND + OLDER if is_old else LEGEND
    lines = [_cells(row, heads) for row, heads in measured]
    return Table.of(title, COLUMNS, lines, text_columns=2, legend=legend)


def measured_heads(row: Row) -> list[dict[str, Any]]:
    """Every head of every run that the microscope measured; a glance measures no ranking."""
    analyses = [run.exhibits.get("microscope") or {} for run in row.runs]
    layers = [layer for each in analyses for layer in each.get("layers", ())]
    return [head for layer in layers for head in layer["heads"] if "agreement" in head]


def count_words(words: Iterable[str]) -> str:
    """ "478 uniform, 32 attends" """
    return ", ".join(f"{number} {word}" for word, number in Counter(words).most_common())


def _cells(row: Row, heads: list[dict[str, Any]]) -> list[str]:
    def mean(read: Callable[[dict[str, Any]], float | None], digits: int = 2) -> str:
        values = [read(head) for head in heads]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return wording.NOTHING
        value = sum(known) / len(known)
        return two_digits(value) if digits == 2 else f"{value:.{digits}f}"

    focuses, rankings = zip(*map(words_of, heads), strict=True)
    runs = sum(bool(measured_heads(replace(row, runs=(run,)))) for run in row.runs)
    return [
        row.label,
        wording.name_of(row.mechanism),
        str(row.heads),
        str(runs),
        mean(lambda head: head.get("weighted_agreement", {}).get("value")),
        mean(lambda head: head["agreement"]["value"]),
        mean(lambda head: head["same_choice"]["value"]),
        mean(lambda head: head["explained"]["value"]),
        mean(lambda head: head["by_chance"]),
        mean(lambda head: head["selection"]["share"]["value"]),
        mean(lambda head: head["interaction"]["value"]),
        f"{mean(lambda head: head['effective']['value'], 1)} of "
        f"{mean(lambda head: head['degree'], 1)}",
        count_words(focuses),
        count_words(rankings),
    ]
