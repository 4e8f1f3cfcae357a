"""inject: one use of a variable in a Python file, replaced by another variable of its scope."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from dynagat.data.programs.evaluation import Use
from dynagat.data.programs.python_graph import Program
from dynagat.data.programs.python_source import SkippedFile, program_of
from dynagat.data.programs.slots import candidates

TRIES = 20  # uses of a file of which one is replaced
NO_PLACE = "without a use whose replacement has the right variable among its candidates"


@dataclass(frozen=True, eq=False)
class Injection:
    """A program with one misused variable."""

    program: Program
    line: int  # from 1
    column: int  # from 1, in characters
    wrong: str  # what is there now
    right: str  # what was there


def inject(text: str, seed: str) -> Injection:
    """Replace one use, chosen by the seed, by one of its other candidates.

    The variable that was there must be a candidate of the new program, too, or nothing could
    suggest it. A SkippedFile error if there is no such use among the first TRIES.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # as the reader counts lines
    program, random = program_of(text), Random(seed)
    uses = [use for use in program.uses if len(_names(program, use)) > 1]
    random.shuffle(uses)
    for use in uses[:TRIES]:
        right = use.variable.name
        others = [name for name in _names(program, use) if name != right]
        injection = _replaced(text, use, random.choice(others))
        if injection is not None:
            return injection
    raise SkippedFile(NO_PLACE)


def _names(program: Program, use: Use) -> list[str]:
    """Of the candidates; none if the variable that is there is not among them."""
    names = [each.name for each in candidates(use, program.flow)]
    return names if use.variable.name in names else []


def _replaced(text: str, use: Use, wrong: str) -> Injection | None:
    """The program with another variable in the place of a use."""
    token, lines = use.token, text.split("\n")
    line = lines[token.line - 1]
    lines[token.line - 1] = line[: token.column] + wrong + line[token.column + len(token.text) :]
    try:
        program = program_of("\n".join(lines))
    except SkippedFile:
        return None
    for each in program.uses:
        if (each.token.line, each.token.column) == (token.line, token.column):
            names = _names(program, each)
            if each.variable.name == wrong and use.variable.name in names:
                return Injection(program, token.line, token.column + 1, wrong, use.variable.name)
    return None
