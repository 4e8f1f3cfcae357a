"""The result of `how_attentive` as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagat.analysis.resample import Estimate

if TYPE_CHECKING:
    from dynagat.analysis.attentive import Attentiveness, Head

COLUMNS = ("layer", "head", "agreement τ", "same choice", "one ranking", "(chance)",
           "selected keys", "interaction", "neighbours", "verdict")  # fmt: skip


def table(result: Attentiveness) -> str:
    """One line per head."""
    lines = [COLUMNS, *(_cells(head) for head in result.heads)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines]  # fmt: skip
    return "\n".join(text)


def _cells(head: Head) -> tuple[str, ...]:
    selection = head.selection
    return (
        head.layer or head.kind,
        str(head.head),
        str(head.agreement),
        _value(head.same_choice),
        _value(head.explained),
        f"{head.by_chance:.2f}",
        f"{selection.selected:,} of {selection.selectable:,}",
        _value(head.interaction),
        f"{head.effective.value:.1f} of {head.degree:.1f}",
        head.verdict,
    )


def _value(estimate: Estimate) -> str:
    """Without the interval."""
    return str(estimate).split(" ")[0]
