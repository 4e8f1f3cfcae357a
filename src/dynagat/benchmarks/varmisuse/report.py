"""What the report adds for VarMisuse: guesses without a network, and the paper's p-values."""

from __future__ import annotations

from dynagat.benchmarks.varmisuse.baselines import GUESSES
from dynagat.benchmarks.varmisuse.published import P_VALUES, WHERE
from dynagat.benchmarks.varmisuse.task import TESTS
from dynagat.report import wording
from dynagat.report.findings import Findings
from dynagat.report.parts import Extras, Table

LEGEND = (
    "Accuracy of guesses: any candidate; the one whose name is used most often around the slot; "
    "the one whose name is the nearest token. Of several equal ones, one at random."
)


def extras(findings: Findings) -> Extras:
    table = guesses(findings)
    return Extras(tables=(table,) if table else ())


def guesses(findings: Findings) -> Table | None:
    """A line for each guess on each data set; None without records."""
    found = {row.dataset: run.exhibits["baselines"] for row in findings.rows for run in row.runs}
    lines = [
        [dataset, name, *(wording.number(by_part[part][name], TESTS[part]) for part in TESTS)]
        for dataset, by_part in found.items()
        for name in GUESSES
    ]
    if not lines:
        return None
    columns = ("data", "guess", *(metric.title for metric in TESTS.values()))
    tests = wording.listed([f"p = {p} ({TESTS[part].title})" for part, p in P_VALUES.items()])
    legend = f"{LEGEND} In {WHERE} of the paper, GATv2 against GAT: {tests}, one-sided."
    return Table.of("Without a network", columns, lines, text_columns=2, legend=legend, brief=True)
