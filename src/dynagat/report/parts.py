"""The parts that reports are made of: prose, facts, tables, figures, code. Plain values.

Each renderer (terminal.py, markdown.py, page.py) knows how to show each kind of part, and nothing
of where it comes from. The terminal shows prose and the tables that are `brief`. On pages, `folded`
parts are closed at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynagat.analysis.text_table import text_table


@dataclass(frozen=True)
class Prose:
    """Sentences: a list, or small print below a table."""

    sentences: tuple[str, ...]
    is_list: bool = False
    title: str = ""  # of a list: what its sentences are about


@dataclass(frozen=True)
class Facts:
    """Texts by name."""

    facts: Mapping[str, str]


@dataclass(frozen=True)
class Code:
    """Commands, or source code."""

    title: str
    lines: tuple[str, ...]
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture as SVG text, and its caption."""

    name: str  # of its file, without the ending
    svg: str
    caption: str
    is_wide: bool = False  # its numbers need room: it scrolls on a phone


@dataclass(frozen=True)
class Widget:
    """HTML with its own style and script, shown on pages only."""

    html: str


@dataclass(frozen=True)
class Line:
    """A line of a table."""

    cells: tuple[str, ...]
    colour: str = ""  # of a dot before the cell in the dot column
    is_ours: bool = False  # printed in bold


@dataclass(frozen=True)
class Table:
    """Lines of texts below the names of their columns."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    text_columns: int = 1  # so many columns at the left hold words, the others numbers
    dot_column: int = 0
    legend: str = ""
    folded: bool = False
    brief: bool = False

    @classmethod
    def of(
        cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], **options: object
    ) -> Table:
        """From plain texts."""
        lines = tuple(Line(tuple(row)) for row in rows)
        return cls(title, tuple(columns), lines, **options)  # pyright: ignore

    def starts_group(self, index: int) -> bool:
        """Whether the first cell of a line differs from that of the line above."""
        return index > 0 and self.lines[index].cells[0] != self.lines[index - 1].cells[0]

    def to_text(self) -> str:
        """Columns that are padded with spaces."""
        return text_table([self.columns, *(line.cells for line in self.lines)])


Part = Prose | Facts | Code | Figure | Widget | Table


@dataclass(frozen=True)
class Section:
    """Parts below a heading; the first section of a report has none."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Extras:
    """What a benchmark adds to its report."""

    draw: Callable[[], Iterable[Figure | Widget]] = tuple  # called for pages only: drawing is slow
    tables: tuple[Table, ...] = ()
    # Sentences of the headline about the rows of one data set: (rows) -> sentences.
    say: Callable[[Any], Iterable[str]] = lambda rows: ()
    # The judgements of the paper's claims: (findings) -> judgements. None: GATv2 against GAT.
    judge: Callable[[Any], Iterable[Any]] | None = None
    claims: tuple[str, ...] = ()  # that it judges
