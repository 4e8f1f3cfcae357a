"""print_report: the brief parts of a report in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

import rich.table
from rich.console import Console

from dynagat.experiment import Benchmark, Record
from dynagat.report.findings import Findings
from dynagat.report.parts import Part, Prose, Table

LONG = 8  # lines from which the groups of a table are separated


def print_report(
    console: Console, records: Iterable[Record], benchmarks: Iterable[Benchmark]
) -> None:
    """The headline, result tables and notes of each benchmark."""
    known = list(records)
    for benchmark in benchmarks:
        console.print(benchmark.title, style="bold", markup=False, highlight=False)
        for part in Findings.of(known, benchmark).brief_parts:
            _print(console, part)
        console.print()


def _print(console: Console, part: Part) -> None:
    if isinstance(part, Table):
        console.print()
        console.print(rich_table(part))
    elif isinstance(part, Prose):
        style, indent = (None, "  ") if part.is_list else ("dim", "")
        if part.title:
            console.print(part.title, style="italic", markup=False, highlight=False)
        for sentence in part.sentences:
            console.print(f"{indent}{sentence}", style=style, markup=False, highlight=False)


def rich_table(table: Table) -> rich.table.Table:
    """Only the first column wraps."""
    shown = rich.table.Table(title=table.title, title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(table.columns):
        side = "left" if index < table.text_columns else "right"
        width = 5 if index == 0 else None
        shown.add_column(name, justify=side, no_wrap=index > 0, min_width=width)
    for index, line in enumerate(table.lines):
        if len(table.lines) > LONG and table.starts_group(index):
            shown.add_section()
        shown.add_row(*line.cells, style="bold" if line.is_ours else "")
    return shown
