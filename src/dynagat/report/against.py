"""GATv2 against GAT: one- and two-sided p-values, where there are runs enough to tell."""

from __future__ import annotations

from dynagat.report import wording
from dynagat.report.tables import RIVAL, Row

ENOUGH = 5  # runs of each
COLUMNS = ("settings", "GATv2", "GAT", "n", "difference", "p one-sided", "p two-sided",
           "Welch one-sided", "Welch two-sided", "p Holm")  # fmt: skip
LEFT = 1  # columns of words
LEGEND = (
    "p: Student's test, one-sided that GATv2 is better, as the paper's are; Welch's does not take"
    " the deviations for equal. Holm corrects the first p for the tests of the table above."
)


def tests_of(family: list[Row]) -> list[list[str]]:
    """One text for each of COLUMNS; of GAT's rows of one family."""
    return [_cells(row) for row in family if row.mechanism == RIVAL and _is_enough(row)]


def _is_enough(row: Row) -> bool:
    tested = row.comparison
    return tested is not None and min(tested.ours.n, tested.other.n) >= ENOUGH


def _cells(row: Row) -> list[str]:
    tested, metric = row.comparison, row.metric
    assert tested is not None
    return [
        f"{row.label}, {_heads(row)}",
        wording.spread(tested.ours.mean, tested.ours.std, metric),
        wording.spread(tested.other.mean, tested.other.std, metric),
        f"{tested.ours.n}, {tested.other.n}",
        wording.signed(tested.difference, metric),
        *(
            wording.p_value(p)
            for p in (
                tested.student.one_sided,
                tested.student.two_sided,
                tested.welch.one_sided,
                tested.welch.two_sided,
                row.p_holm,
            )
        ),
    ]


def _heads(row: Row) -> str:
    assert row.against is not None
    if row.against == row.heads:
        return wording.count(row.heads, "head")
    return f"{row.against} against {wording.count(row.heads, 'head')}"
