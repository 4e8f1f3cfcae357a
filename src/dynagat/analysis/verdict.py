"""Two verdicts on a head: does it attend, and does its ranking depend on the query?

Neither verdict overrules the other: a head may be uniform and static, or attend and be dynamic.

attends   uniform              the effective number of neighbours is at least 99 % of the degree
          attends              it is smaller: some neighbours get more attention than others
ranking   static               the weighted agreement is at least 0.99
          mixed                it is at least 0.5
          dynamic              it is lower
          not enough to tell   fewer than 20 pairs of queries, or all queries have equal contents

`docs/microscope.md` lists the known cases from which these limits were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynagat.analysis.resample import Estimate

ATTENDS, UNIFORM = "attends", "uniform"
STATIC, MIXED, DYNAMIC = "static", "mixed", "dynamic"
UNKNOWN = "not enough to tell"

LEAST_UNIFORM = 0.99  # effective neighbours / degree
LEAST_STATIC, LEAST_MIXED = 0.99, 0.5  # weighted agreement
MIN_PAIRS = 20  # with fewer, a single pair counts for more than 5 %

# The words of each axis and the lowest value of each, in descending order.
FOCUS = ((UNIFORM, LEAST_UNIFORM), (ATTENDS, -math.inf))
RANKING = ((STATIC, LEAST_STATIC), (MIXED, LEAST_MIXED), (DYNAMIC, -math.inf))


@dataclass(frozen=True)
class Verdict:
    """A word, and the other words that the confidence interval does not exclude."""

    word: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.word} (or {' or '.join(self.others)})" if self.others else self.word


def judge_focus(uniformity: Estimate) -> Verdict:
    """From the effective number of neighbours / degree; nan if no query has two keys."""
    return _judge(uniformity, FOCUS)


def judge_ranking(agreement: Estimate, pairs: int, query_contents: int | None) -> Verdict:
    """From the weighted agreement, the number of pairs of queries behind it and, if known, the
    number of distinct contents of the queries."""
    if pairs < MIN_PAIRS or query_contents == 1:
        return Verdict(UNKNOWN)
    return _judge(agreement, RANKING)


def _judge(estimate: Estimate, scale: tuple[tuple[str, float], ...]) -> Verdict:
    if math.isnan(estimate.value):
        return Verdict(UNKNOWN)
    words = [word for word, _ in scale]
    value, low, high = (
        next(at for at, (_, least) in enumerate(scale) if number >= least)
        for number in (estimate.value, estimate.low, estimate.high)
    )
    others = [word for at, word in enumerate(words) if high <= at <= low and at != value]
    return Verdict(words[value], tuple(others))


def words_of(head: Mapping[str, Any]) -> tuple[str, str]:
    """The two words of a stored head. Older records lack the weighted agreement; their ranking
    is judged by the smaller of Kendall's τ and the fraction of equal first choices."""
    if "weighted_agreement" in head:
        return head["attends"]["word"], head["ranking"]["word"]
    numbers = (head["agreement"]["value"], head["same_choice"]["value"])
    tau, same = (math.nan if each is None else each for each in numbers)
    lowest = tau if math.isnan(same) else min(tau, same)
    effective, degree = head["effective"]["value"], head["degree"]
    share = math.nan if effective is None else effective / degree
    focus, ranking = (Estimate(each, each, each) for each in (share, lowest))
    return _judge(focus, FOCUS).word, _judge(ranking, RANKING).word
