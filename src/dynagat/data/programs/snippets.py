"""Snippet: the tokens of a record in the order of the text, on lines, to be shown to a reader.

A record has no positions and only some of the tokens of a file. Lines begin where statements of the
syntax tree begin, and are indented by the number of statements around them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

HANDLER = "ExceptHandler"  # begins a line, which is indented like its `try`
LINES = {each.__name__ for each in ast.stmt.__subclasses__()} | {HANDLER, "match_case"}
ENDINGS = ("Statement", "Declaration")  # of the original's labels, which begin lines
DEFINED = {"def", "class", "else", "finally"}  # they begin a line inside their statement


class Word(NamedTuple):
    """A token."""

    node: int
    text: str
    indent: int | None  # of the line that it begins; None: it continues a line
    is_after_gap: bool  # whether the record lacks tokens before it


@dataclass(frozen=True)
class Snippet:
    """Nodes are numbered as in the record."""

    name: str  # of the file
    words: tuple[Word, ...]
    labels: tuple[str, ...]  # of all nodes
    slot: int
    candidates: tuple[tuple[str, int], ...]  # names and nodes, the right one first

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Snippet:
        """The snippet of a record that `read_record` accepts."""
        graph, slot = record["ContextGraph"], record["SlotDummyNode"]
        labels = tuple(graph["NodeLabels"][str(n)] for n in range(len(graph["NodeLabels"])))
        edges = graph["Edges"]
        parent = {child: node for node, child in edges.get("Child", ())}
        options = sorted(record["SymbolCandidates"], key=lambda each: not each["IsCorrect"])
        return cls(
            str(record.get("filename", "")),
            tuple(_words(edges.get("NextToken", ()), labels, parent, slot)),
            labels,
            slot,
            tuple((each["SymbolName"], each["SymbolDummyNode"]) for each in options),
        )


def _words(
    pairs: Sequence[Sequence[int]], labels: Sequence[str], parent: Mapping[int, int], slot: int
) -> Iterator[Word]:
    begun: set[int] = set()
    level: set[int] = set()  # statements as deep as the one around them: `except` and `elif`
    follows_decorator = False
    for run in _runs(pairs, slot):
        for place, node in enumerate(run):
            around = list(_statements(node, labels, parent))
            owner = labels[parent[node]] if node in parent else ""
            is_decorator = labels[node] == "@" and owner in (*LINES, "Module")
            is_own = labels[node] in DEFINED and owner in LINES
            begins_line = is_decorator or is_own or not begun.issuperset(around)
            begins_line = begins_line and not follows_decorator
            begun.update(around)
            if labels[node] == "elif":
                level.update(around[:1])
            level.update(each for each in around if labels[each] == HANDLER)
            outer = len(around) - len(level.intersection(around)) - 1 + is_decorator
            indent = max(0, outer) if begins_line else None
            follows_decorator = is_decorator
            yield Word(node, labels[node], indent, place == 0)


def _runs(pairs: Sequence[Sequence[int]], slot: int) -> list[list[int]]:
    """Tokens that follow each other, in the order of their nodes, which is that of the text."""
    following = {pair[0]: pair[1] for pair in pairs}
    reached = set(following.values())
    runs = []
    for start in [node for node in following if node not in reached] or [slot]:
        run, node = [start], start
        while node in following and len(run) <= len(following):  # a ring of tokens ends too
            node = following[node]
            run.append(node)
        runs.append(run)
    return sorted(runs, key=lambda run: min((node for node in run if node != slot), default=slot))


def _statements(node: int, labels: Sequence[str], parent: Mapping[int, int]) -> Iterator[int]:
    """The statements around a token, the innermost first."""
    seen = {node}
    while node in parent and parent[node] not in seen:
        node = parent[node]
        seen.add(node)
        if labels[node] in LINES or labels[node].endswith(ENDINGS):
            yield node
