"""The report: tables, figures and one offline page, computed from records alone.

`Findings` is what the records of a benchmark show; terminal.py, markdown.py and page.py print it.
No file here knows a single benchmark: what only one needs, it adds itself (`Benchmark.extras`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dynagat.experiment import Benchmark, Record
from dynagat.files import write_text
from dynagat.report.claims import claims_page
from dynagat.report.findings import Findings
from dynagat.report.markdown import write_markdown
from dynagat.report.page import left_out, write_page
from dynagat.report.terminal import print_report
from dynagat.report.theorems import Theorem, read_theorems

__all__ = [
    "Findings",
    "claims_page",
    "print_report",
    "read_theorems",
    "write_markdown",
    "write_page",
    "write_report",
]


def write_report(
    records: Iterable[Record],
    benchmarks: Iterable[Benchmark],
    folder: Path | str,
    claims: Path | None = None,
    theorems: Sequence[Theorem] = (),
) -> Path:
    """folder/index.html, and a Markdown page per benchmark with its figures next to it.

    `claims` is a file for a Markdown page of what the paper claims and what came out, theorems
    included.
    """
    known, folder = list(records), Path(folder)
    findings = [Findings.of(known, benchmark) for benchmark in benchmarks]
    for each in findings:
        write_markdown(each, folder)
    if claims is not None:
        write_text(claims, claims_page(findings, theorems))
    return write_page(findings, folder / "index.html", left_out(known, findings))
