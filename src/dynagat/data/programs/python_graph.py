"""Program: the graph of a Python file, from which records of the VarMisuse layout are cut."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagat.data.programs.context import GraphArrays
from dynagat.data.programs.cutting import DISTANCE, Wiring, cut_record
from dynagat.data.programs.data_flow import CANDIDATE, DataFlow
from dynagat.data.programs.evaluation import Evaluation, Use
from dynagat.data.programs.known_types import known_type
from dynagat.data.programs.layout import EDGE_TYPES
from dynagat.data.programs.scopes import Variable, read_scopes
from dynagat.data.programs.slots import candidates
from dynagat.data.programs.syntax import ProgramError, Syntax, read_syntax

# The edges of the slot's token that tell which variable is there, or that the original leaves out.
FLOW = ("LastUse", "LastWrite", "LastLexicalUse")
OF_VARIABLE = (*FLOW, "GuardedBy", "GuardedByNegation")


@contextmanager
def uncollected() -> Iterator[None]:
    """A record has many lists, and no garbage that the collector could find among all objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, eq=False)
class Program:
    syntax: Syntax
    flow: DataFlow
    arrays: GraphArrays  # nodes are those of the syntax
    uses: list[Use]  # in the order of the text
    types: Mapping[int, str]  # of the tokens of variables, where they are known

    @classmethod
    def of(cls, source: str) -> Program:
        """Read the text of a Python file; ProgramError if it can't be read."""
        syntax = read_syntax(source)
        try:
            scopes = read_scopes(syntax.tree)
            evaluation = Evaluation(syntax, scopes)
            evaluation.run()
        except RecursionError:
            raise ProgramError("it is nested too deeply") from None
        flow = DataFlow.of(evaluation.flow)
        edges = {"Child": syntax.child, "NextToken": syntax.next_token}
        edges |= {**evaluation.edges, **flow.edges()}
        arrays = GraphArrays.of(len(syntax.labels), edges)
        variables = [v for scope in scopes.values() for v in scope.variables.values()]
        types = {m: kind for v in variables if (kind := known_type(v)) for m in v.mentions}
        uses = [each for each in evaluation.uses if each.block in flow.places]
        return cls(syntax, flow, arrays, sorted(uses, key=lambda use: use.token.id), types)

    def record(self, use: Use, filename: str, distance: int = DISTANCE) -> dict[str, Any] | None:
        """The record whose slot is this use of a variable; None if no other may stand there."""
        variables = candidates(use, self.flow)
        if len(variables) < 2 or use.variable not in variables:
            return None
        wiring = self._wiring(use, variables)
        with uncollected():
            record = cut_record(self.arrays, self.syntax.labels, self.types, wiring, distance)
        index = use.token.id - self.syntax.tokens[0].id
        return {"filename": filename, "slotTokenIdx": index, **record}

    def _wiring(self, use: Use, variables: list[Variable]) -> Wiring:
        """Each candidate has the edges that it would have in the slot, and the slot has none."""
        arrays, slot = self.arrays, use.token.id
        kinds = [EDGE_TYPES.index(each) for each in OF_VARIABLE]
        own = [each for each in np.unique(arrays.edges_of(slot)) if arrays.kind[each] in kinds]
        removed = list(own)
        added: list[tuple[str, int, int]] = []
        for number, variable in enumerate(variables):
            node = arrays.num_nodes + number
            if variable is use.variable:
                edges = [arrays.named(each) for each in own]
                added += [_with(edge, slot, node) for edge in edges if edge[0] in FLOW]
                continue
            placed = self.flow.place(variable, use)
            for kind, pairs in placed.added.items():
                added += [_with((kind, *pair), CANDIDATE, node) for pair in pairs]
            for kind, pairs in placed.removed.items():
                removed += [arrays.find(kind, *pair) for pair in pairs]
        return Wiring(
            slot,
            [each.name for each in variables],
            [known_type(each) for each in variables],
            variables.index(use.variable),
            added,
            np.unique(np.array(removed, np.int64)),
        )


def _with(edge: tuple[str, int, int], token: int, node: int) -> tuple[str, int, int]:
    """An edge whose ends at a token are at the candidate's node instead."""
    kind, source, target = edge
    return kind, node if source == token else source, node if target == token else target
