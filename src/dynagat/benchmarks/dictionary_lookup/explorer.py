"""The explorer: a widget of the report's page that shows the attention of single runs.

A record's exhibit holds attention weights by graph, head, query and key; a self-loop is one more
key at the end.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeGuard

from dynagat.experiment import Record
from dynagat.report import provenance, wording
from dynagat.report.drawing import QUERY_COLOURS
from dynagat.report.findings import Findings
from dynagat.report.page import for_script, template
from dynagat.report.parts import Widget
from dynagat.report.rows import Row

SEEDS_SHOWN = 2  # of each mechanism and settings
RUNS_SHOWN = 240  # on a page
UNIT = 10_000  # weights are stored as whole numbers: four decimals, as in the records


def first_head(record: Record) -> list[list[float]]:
    """[query][key] of the first graph and head, without self-loops; empty without an exhibit."""
    exhibit = record.exhibits.get("attention")
    if not exhibit:
        return []
    keys = len(exhibit["values"][0])
    shown = [row[:keys] for row in exhibit["weights"][0][0]]
    return shown if all(_is_number(weight) for row in shown for weight in row) else []


def explorer(findings: Findings) -> Widget:
    """The widget; without runs to show, it says how to make some."""
    runs, num_left_out = shown_runs(findings)
    data = {"unit": UNIT, "colours": QUERY_COLOURS, "start": start_of(runs), "runs": runs}
    html = template(Path(__file__).with_suffix(".html")).render(
        data=for_script(data),
        has_runs=bool(runs),
        left_out=num_left_out,
        seeds_shown=SEEDS_SHOWN,
        command=provenance.first_command(findings.benchmark),
    )
    return Widget(html)


def shown_runs(findings: Findings) -> tuple[list[dict[str, Any]], int]:
    """The runs to choose from, and how many runs with attention are left out."""
    shown: list[dict[str, Any]] = []
    available = 0
    for row in findings.rows:
        runs = [run for run in row.runs if run.exhibits.get("attention")]
        available += len(runs)
        shown += [_plain(run, row) for run in runs[:SEEDS_SHOWN]]
    shown = shown[:RUNS_SHOWN]
    return shown, available - len(shown)


def start_of(runs: list[dict[str, Any]], k: int = 10) -> tuple[int, int] | None:
    """The two runs shown first: GAT and GATv2 on the same graphs, of k keys if possible.

    Without such a pair, another pair; without any, a single run.
    """

    def order(pair: tuple[int, int]) -> tuple[bool, int, tuple[int, int]]:
        left, right = runs[pair[0]], runs[pair[1]]
        is_wanted = (left["mechanism"], right["mechanism"]) == ("gat", "gatv2")
        return not is_wanted, abs(len(left["values"][0]) - k), pair

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
    value = record.metrics.get(row.metric.name, float("nan"))
    return f"{row.metric.title} {wording.with_unit(value, row.metric)}"


def _whole(weights: list[float | None]) -> list[int | None]:
    return [round(weight * UNIT) if _is_number(weight) else None for weight in weights]


def _is_number(weight: float | None) -> TypeGuard[float]:
    """Not the nan of a diverged run, which is None after JSON."""
    return weight is not None and math.isfinite(weight)
