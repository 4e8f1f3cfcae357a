"""score_uses: for each use of a variable in a program, the probability of every candidate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dynagat.benchmarks.varmisuse.model import LANGUAGE, VariableModel
from dynagat.data.programs.evaluation import Use
from dynagat.data.programs.python_graph import Program
from dynagat.data.programs.python_source import MANY_BRANCHES
from dynagat.data.programs.records import ProgramGraph, read_record
from dynagat.data.programs.slots import is_left_out
from dynagat.data.programs.syntax import ProgramError

FAR = "the variable is not among the five candidates"


@dataclass(frozen=True)
class ScoredUse:
    """A use of a variable, and the other variable that is most probable there."""

    line: int  # from 1
    column: int  # from 1, in characters
    present: str
    suggested: str
    log_present: float  # ln of the probability of the present variable
    log_suggested: float

    @property
    def present_probability(self) -> float:
        return math.exp(self.log_present)

    @property
    def suggested_probability(self) -> float:
        return math.exp(self.log_suggested)

    @property
    def certainty(self) -> float:
        """ln of how many times more probable the suggested variable is than the present one"""
        return self.log_suggested - self.log_present

    def is_doubtful(self, threshold: float) -> bool:
        """Whether the suggested variable is more probable, and at least as much as a threshold."""
        return self.certainty > 0 and self.suggested_probability >= threshold


def score_uses(
    program: Program, model: VariableModel, left_out: Counter[str] | None = None
) -> Iterator[ScoredUse]:
    """Every use that another variable could replace, in the order of the text.

    Uses that are not scored, although there are other variables, are counted in `left_out`: those
    of a variable that is no candidate (FAR), and the last ones of a program with too many branches
    (MANY_BRANCHES).
    """
    slots: list[tuple[Use, list[str]]] = []
    counts: Counter[str] = Counter() if left_out is None else left_out

    def graphs() -> Iterator[ProgramGraph]:
        for number, use in enumerate(program.uses):
            try:
                record = program.record(use, "", model.distance)
                if record is None and is_left_out(use, program.flow):
                    counts[FAR] += 1
            except ProgramError:
                counts[MANY_BRANCHES] += len(program.uses) - number
                return
            if record is not None:
                slots.append((use, _names(record)))
                yield read_record(record, LANGUAGE)

    for number, scores in enumerate(model.log_probabilities(graphs())):
        use, names = slots[number]
        present, *others = scores.tolist()
        best = max(range(len(others)), key=others.__getitem__)
        token = use.token
        yield ScoredUse(
            token.line, token.column + 1, names[0], names[1 + best], present, others[best]
        )


def _names(record: dict) -> list[str]:
    """Of the candidates as `read_record` orders them: the present variable is the first."""
    candidates = sorted(record["SymbolCandidates"], key=lambda each: not each["IsCorrect"])
    return [each["SymbolName"] for each in candidates]
