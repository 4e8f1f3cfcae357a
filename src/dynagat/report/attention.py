"""The attention that records carry, as the page and Figure 1 show it.

An exhibit holds weights by graph, head, query and key; a self-loop is a last key of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeGuard

from dynagat.experiment import Benchmark, Record
from dynagat.report import wording
from dynagat.report.tables import Row, rows

SEEDS_SHOWN = 2  # of each mechanism and settings
RUNS_SHOWN = 240  # on a page
UNIT = 10_000  # weights are whole numbers of it: four decimals, as in the records


def first_head(record: Record) -> list[list[float]]:
    """[query][key] of the first graph and head, without self-loops; empty if there is none."""
    exhibit = record.exhibits.get("attention")
    if not exhibit:
        return []
    keys = len(exhibit["values"][0])
    shown = [row[:keys] for row in exhibit["weights"][0][0]]
    return shown if all(_is_number(weight) for row in shown for weight in row) else []


def shown_runs(
    records: Iterable[Record], benchmarks: Iterable[Benchmark]
) -> tuple[list[dict[str, Any]], int]:
    """What the page's heat map can pick from, and how many runs with attention are left out."""
    known = list(records)
    found: list[dict[str, Any]] = []
    there = 0
    for benchmark in benchmarks:
        for row in rows(known, benchmark):
            runs = [run for run in row.runs if run.exhibits.get("attention")]
            there += len(runs)
            found += [_plain(run, row) for run in runs[:SEEDS_SHOWN]]
    found = found[:RUNS_SHOWN]
    return found, there - len(found)


def start_of(runs: list[dict[str, Any]], k: int = 10) -> tuple[int, int] | None:
    """Where the page begins: GAT beside GATv2 in the same graphs, of k keys if there are any.

    Without such a pair, another; without any, a run alone.
    """

    def order(pair: tuple[int, int]) -> tuple[bool, int, tuple[int, int]]:
        left, right = runs[pair[0]], runs[pair[1]]
        wanted = (left["mechanism"], right["mechanism"]) == ("gat", "gatv2")
        return not wanted, abs(len(left["values"][0]) - k), pair

    pairs = [
        (left, right)
        for left, a in enumerate(runs)
        for right, b in enumerate(runs)
        if a["mechanism"] != b["mechanism"] and _scene(a) == _scene(b)
    ]
    return min(pairs, key=order) if pairs else (0, 0) if runs else None


def _scene(run: dict[str, Any]) -> tuple[str, str, int]:
    return run["family"], run["settings"], run["seed"]


def _plain(record: Record, row: Row) -> dict[str, Any]:
    exhibit = record.exhibits["attention"]
    return {
        "mechanism": record.mechanism,
        "title": wording.title_of(record.mechanism, record.heads),
        "colour": wording.colour_of(record.mechanism),
        "family": row.family,
        "settings": row.label,
        "seed": record.seed,
        "accuracy": _result(record, row),
        "values": exhibit["values"],
        "weights": [[[_whole(keys) for keys in head] for head in g] for g in exhibit["weights"]],
    }


def _result(record: Record, row: Row) -> str:
    value = record.metrics.get(row.metric, float("nan"))
    shown = wording.number(value, row.metric) + wording.unit(row.metric)
    return f"{wording.metric_words(row.metric)} {shown}"


def _whole(weights: list[float | None]) -> list[int | None]:
    return [round(weight * UNIT) if _is_number(weight) else None for weight in weights]


def _is_number(weight: float | None) -> TypeGuard[float]:
    """A diverged run has none: nan, or None where it went through JSON."""
    return weight is not None and math.isfinite(weight)
