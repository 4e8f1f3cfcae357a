"""Made-up records of VarMisuse: program graphs in the original layout, of any size.

At the default size, a graph has as many nodes and edges as one of the original on average: about
2,400 and 7,300, which are 17,000 with reversed edges and self-loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any, final

import torch
from torch import Generator, Tensor

from bench.graphs import SEED, Recipe
from dynagat.benchmarks.varmisuse.stream import join
from dynagat.data.programs.records import ProgramGraph, read_record

ENDS = ("", "er", "ed", "ing", "ion", "al", "or", "ity", "ness", "ful", "less", "able", "ment")
STARTS = """file name path node edge list index count item value key text line token size first last
next parent child result buffer stream config option user event state cache table row column query
request error field group order page code port time view"""
STEMS = tuple(f"{start}{end}" for start in STARTS.split() for end in ENDS)
AST = tuple(f"{what}{kind}"
            for what in ("Argument", "Parameter", "Invocation", "Assignment", "Member", "Binary",
                         "Object", "Variable", "Return", "Method")
            for kind in ("List", "Expression", "Declaration", "Statement", "Access"))  # fmt: skip
PUNCTUATION = ("(", ")", ",", ";", ".", "=", "{", "}", "[", "]", "==", "+", "return", "if", "new")
FLOW = {
    "LastUse": 0.85,
    "LastLexicalUse": 0.85,
    "LastWrite": 0.75,
    "ComputedFrom": 0.3,
    "GuardedBy": 0.2,
    "GuardedByNegation": 0.1,
    "FormalArgName": 0.12,
    "ReturnsTo": 0.04,
}  # fmt: skip  (edges per token that is an identifier)


@dataclass(frozen=True)
class ProgramRecipe:
    """How large a made-up record is."""

    tokens: int = 930
    inner: int = 1_030  # nodes of the syntax tree that are no tokens
    names: int = 400  # different identifiers
    candidates: int = 5

    def records(self, count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
        random = Random(seed)
        for number in range(count):
            yield self.record(random, number)

    def record(self, random: Random, number: int = 0) -> dict[str, Any]:
        """Node 0 is the slot, then come candidates, other tokens and the syntax tree."""
        names = self._names(random)
        variables = random.sample(names, self.candidates)
        words = [random.choice(names if n < 2 or random.random() < 0.5 else PUNCTUATION)
                 for n in range(self.tokens - 1)]  # fmt: skip
        tokens = list(range(1 + self.candidates, 1 + self.candidates + len(words)))
        inner = list(range(tokens[-1] + 1, tokens[-1] + 1 + self.inner))
        labels = ["<SLOT>", *variables, *words, *random.choices(AST, k=self.inner)]
        place = random.randrange(len(tokens))
        line = [*tokens[:place], 0, *tokens[place:]]  # the tokens in their order
        uses = [node for node in tokens if labels[node] not in PUNCTUATION]
        right = random.randrange(self.candidates)
        return {
            "filename": f"src/Made{number}.cs",
            "slotTokenIdx": place,
            "SlotDummyNode": 0,
            "SymbolCandidates": [
                {"SymbolDummyNode": 1 + n, "SymbolName": name, "IsCorrect": n == right}
                for n, name in enumerate(variables)
            ],
            "ContextGraph": {
                "Edges": {
                    "Child": list(_tree(random, inner, line)),
                    "NextToken": [list(pair) for pair in pairwise(line)],
                    **_flow(random, labels, uses, self.candidates),
                },
                "NodeLabels": {str(node): label for node, label in enumerate(labels)},
                "NodeTypes": {},
            },
        }

    def _names(self, random: Random) -> list[str]:
        """Distinct identifiers of two parts, in both styles."""
        names: dict[str, None] = {}
        while len(names) < self.names:
            first, second = random.sample(STEMS, 2)
            camel = f"{first}{second.capitalize()}"
            names[camel if random.random() < 0.7 else f"{first}_{second}"] = None
        return list(names)


def _tree(random: Random, inner: Sequence[int], tokens: Sequence[int]) -> Iterator[list[int]]:
    """Each node hangs below an earlier one that is no token."""
    for n, node in enumerate(inner[1:], 1):
        yield [inner[random.randrange(max(0, n - 20), n)], node]
    for n, node in enumerate(tokens):
        yield [inner[n * len(inner) // len(tokens)], node]


def _flow(
    random: Random, labels: Sequence[str], uses: Sequence[int], candidates: int
) -> dict[str, list[list[int]]]:
    """Edges between uses of variables; those of candidates start at their own nodes."""
    edges = {
        name: [random.sample(uses, 2) for _ in range(round(share * len(uses)))]
        for name, share in FLOW.items()
    }
    for node in range(1, 1 + candidates):
        same = [use for use in uses if labels[use] == labels[node]]
        edges["LastUse"] += [[node, use] for use in same[-1:]]
    return edges


@final
@dataclass(frozen=True)
class Programs(Recipe):
    """A batch of made-up programs with reversed edges and self-loops; see `ProgramRecipe`.

    The default is as large as a batch of the original: fewer than 50,000 nodes.
    """

    num_graphs: int = 21
    tokens: int = ProgramRecipe.tokens
    inner: int = ProgramRecipe.inner
    names: int = ProgramRecipe.names

    def graphs(self) -> list[ProgramGraph]:
        made = ProgramRecipe(self.tokens, self.inner, self.names)
        return [read_record(record, "csharp") for record in made.records(self.num_graphs, SEED)]

    @cached_property
    def num_nodes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum(graph.num_nodes for graph in self.graphs())

    @cached_property
    def num_edges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.num_nodes + 2 * sum(len(graph.key) for graph in self.graphs())

    def draw(self, generator: Generator) -> Tensor:
        graph = join(self.graphs()).graph
        return torch.stack([graph.key_index, graph.query_index]).long()
