"""Rows as a table for the terminal and as Markdown: paper | ours, n | difference | p."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from dynagat.report import wording
from dynagat.report.tables import OURS, Row

COLUMNS = ("settings", "mechanism", "heads", "paper", "ours", "n", "difference", "p", "p Holm",
           "unfinished")  # fmt: skip
LEFT = 2  # columns of words
LEGEND = (
    "ours: mean ± standard deviation of n seeds. p: Student's one-sided test that GATv2 is better"
    " than the row; Holm corrects it for the tests of a table. unfinished: runs not converged."
)


def caption(row: Row) -> str:
    """Of the table that the row is in."""
    unit = ", per cent" if wording.is_share(row.metric) else ""
    return f"{wording.metric_words(row.metric)}{unit} ({full_name(row)})"


def full_name(row: Row) -> str:
    """Of the row's family, with what must be said of it."""
    return "; ".join([row.family, *row.caveats.values()])


def cells(row: Row) -> list[str]:
    """One text for each of COLUMNS."""
    ours, metric = row.sample, row.metric
    paper = row.published
    heads = wording.NOTHING if row.mechanism in wording.WITHOUT_HEADS else str(row.heads)
    std = float("nan") if paper is None or paper.std is None else paper.std
    return [
        row.label,
        wording.name_of(row.mechanism),
        heads,
        wording.NOTHING if paper is None else wording.spread(paper.mean, std, metric),
        wording.NOTHING if ours is None else wording.spread(ours.mean, ours.std, metric),
        str(len(row.values)),
        wording.signed(row.difference, metric),
        "" if row.mechanism == OURS else wording.p_value(row.p),
        "" if row.mechanism == OURS else wording.p_value(row.p_holm),
        unfinished(row),
    ]


def unfinished(row: Row) -> str:
    """ "2 of 10, 3 failed": those that failed the released code's rule are apart."""
    stopped = f"{row.not_converged} of {len(row.counted)}" if row.not_converged else ""
    failed = f"{row.failed} failed" if row.failed else ""
    return ", ".join(word for word in (stopped, failed) if word)


def rich_table(rows: list[Row]) -> Table:
    """Of one family; narrower than 100 columns."""
    table = Table(title=caption(rows[0]), title_justify="left", box=None, pad_edge=False)
    for place, name in enumerate(COLUMNS):
        side = "left" if place < LEFT else "right"
        table.add_column(name, justify=side, no_wrap=place > 0, min_width=5 if place == 0 else None)
    before = None
    for row in rows:
        if before is not None and before.swept != row.swept and len(rows) > 8:
            table.add_section()
        table.add_row(*cells(row), style="bold" if row.mechanism == OURS else "")
        before = row
    return table


def plain_table(title: str, columns: Sequence[str], left: int, lines: list[list[str]]) -> Table:
    """For the terminal; the first columns of words, the others of numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < left else "right")
    for line in lines:
        table.add_row(*line)
    return table


def markdown(rows: list[Row]) -> str:
    """Of one family, its caption above."""
    title = caption(rows[0])
    table = markdown_table(COLUMNS, LEFT, [cells(row) for row in rows])
    return f"**{title[0].upper()}{title[1:]}**\n\n{table}"


def markdown_table(columns: Sequence[str], left: int, lines: Sequence[list[str]]) -> str:
    """The first columns of words, the others of numbers."""
    rule = ["---" if place < left else "---:" for place in range(len(columns))]
    return "".join(f"{_line(each)}\n" for each in [list(columns), rule, *lines])


def _line(texts: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"
