"""The microscope's findings in words: a table for the terminal, and a sentence per head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagat.analysis.resample import Estimate

if TYPE_CHECKING:
    from dynagat.analysis.attentive import Attentiveness, Head

COLUMNS = ("layer", "head", "agreement τ", "same choice", "one ranking", "(chance)",
           "selected keys", "interaction", "neighbours", "verdict")  # fmt: skip


def table(found: Attentiveness) -> str:
    """One line per head."""
    lines = [COLUMNS, *(_cells(head) for head in found.heads)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines]  # fmt: skip
    return "\n".join(text)


def _cells(head: Head) -> tuple[str, ...]:
    picked = head.selection
    return (
        f"{head.layer or head.kind}",
        str(head.head),
        str(head.agreement),
        _short(head.same_choice),
        _short(head.explained),
        f"{head.by_chance:.2f}",
        f"{picked.selected:,} of {picked.selectable:,}",
        _short(head.interaction),
        f"{head.effective.value:.1f} of {head.degree:.1f}",
        head.verdict,
    )


def _short(estimate: Estimate) -> str:
    return str(estimate).split(" ")[0]
