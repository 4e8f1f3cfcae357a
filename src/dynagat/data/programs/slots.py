"""candidates: the variables among which the one that is used in a slot has to be found.

They are the five variables in scope that the text mentions nearest before the slot. A variable is
in scope if its name is visible, a write of it may reach the slot, and its type is not known to
differ from that of the variable in the slot. The choice depends on nothing else about the correct
variable, so it gives no hint; a use of a variable that is not among the five is no slot.
"""

from __future__ import annotations

from bisect import bisect_left

from dynagat.data.programs.data_flow import DataFlow
from dynagat.data.programs.evaluation import Use
from dynagat.data.programs.known_types import known_type, may_replace
from dynagat.data.programs.layout import MAX_CANDIDATES
from dynagat.data.programs.scopes import Variable


def candidates(use: Use, flow: DataFlow) -> list[Variable]:
    """The nearest first; with the variable of the slot, if it is one of them."""
    kind, slot = known_type(use.variable), use.token.id
    visible = [each for each in use.scope.visible() if each.is_variable and each.mentions]
    chosen: list[Variable] = []
    for variable in sorted(visible, key=lambda each: _distance(each, slot)):
        if may_replace(known_type(variable), kind) and flow.before(use, variable, True):
            chosen.append(variable)
        if len(chosen) == MAX_CANDIDATES:
            break
    return chosen


def is_left_out(use: Use, flow: DataFlow) -> bool:
    """Whether there are candidates, but the variable of the slot is none of them."""
    chosen = candidates(use, flow)
    return bool(chosen) and use.variable not in chosen


def _distance(variable: Variable, slot: int) -> tuple[int, int]:
    """Tokens since the last mention before the slot; variables that come later are the last."""
    tokens = variable.mentions
    place = bisect_left(tokens, slot)
    return (0, slot - tokens[place - 1]) if place else (1, tokens[place])
