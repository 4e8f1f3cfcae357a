"""The mechanisms beside each other, a row of texts for each: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from dynagat.comparison.rows import Row
from dynagat.report import wording

COLUMNS = ("mechanism", "train", "valid", "test", "seeds", "seconds", "peak memory", "heads are")


def cells(row: Row) -> list[str]:
    """One text for each of COLUMNS."""
    verdicts = ", ".join(f"{many} {verdict}" for verdict, many in row.verdicts.items())
    return [
        wording.title_of(row.mechanism, row.heads),
        *(_score(row, part) for part in ("train", "valid", "test")),
        str(len(row.runs)),
        f"{row.seconds:.1f}",
        f"{row.memory / 1e6:,.0f} MB",
        verdicts or wording.NOTHING,
    ]


def _score(row: Row, part: str) -> str:
    sample = row.sample(part)
    if sample is None:
        return wording.NOTHING
    return wording.spread(sample.mean, sample.std, f"{part}_{row.score}")


def plain_table(rows: Sequence[Row]) -> list[str]:
    """A line for each row, below one of names."""
    lines = [list(COLUMNS), *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
