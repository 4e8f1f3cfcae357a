"""The report: tables, figures and one offline page, computed from records and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from dynagat.experiment import Benchmark, Record
from dynagat.report import costs
from dynagat.report.docs import write_markdown
from dynagat.report.figures import figure_1, figure_3, gin_figure
from dynagat.report.headline import headline
from dynagat.report.noise_figures import figure_4, noise_figure
from dynagat.report.notes import notes
from dynagat.report.page import write_page
from dynagat.report.provenance import made_up
from dynagat.report.render import LEGEND, markdown, plain_table, rich_table
from dynagat.report.tables import Row, current, families, rows

__all__ = [
    "Row",
    "families",
    "figure_1",
    "figure_3",
    "figure_4",
    "gin_figure",
    "headline",
    "markdown",
    "noise_figure",
    "print_tables",
    "rich_table",
    "rows",
    "write_markdown",
    "write_page",
    "write_report",
]


def write_report(
    records: Iterable[Record], benchmarks: Iterable[Benchmark], folder: Path | str
) -> Path:
    """folder/index.html; and a Markdown page per benchmark, with its figures as files beside it."""
    known, asked, folder = list(records), list(benchmarks), Path(folder)
    for benchmark in asked:
        write_markdown(known, benchmark, folder)
    return write_page(known, asked, folder / "index.html")


def print_tables(
    console: Console, records: Iterable[Record], benchmarks: Iterable[Benchmark]
) -> None:
    """What was found, in words, and the tables that say it in numbers."""
    known = list(records)
    for benchmark in benchmarks:
        found, made = rows(known, benchmark), made_up(current(known, benchmark))
        console.print(benchmark.title, style="bold", markup=False, highlight=False)
        cost = costs.costs(known, benchmark)
        for sentence in (*headline(benchmark, found, made), *costs.beside_pyg(cost)):
            console.print(f"  {sentence}", markup=False, highlight=False)
        for _, members in families(found):
            console.print()
            console.print(rich_table(members))
        if found:
            for words in (LEGEND, *notes(benchmark, found)):
                console.print(words, style="dim", markup=False, highlight=False)
        if made:  # a table of results would say nothing of them
            lines = [each.cells() for each in cost]
            console.print(plain_table("Time and memory", costs.COLUMNS, costs.LEFT, lines))
        console.print()
