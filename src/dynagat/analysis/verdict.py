"""The verdict on a head: static, mostly static, dynamic, or uniform.

static          all queries rank the keys they share in the same order, and rank the same key first
                if both have it. This holds for every GAT head, whatever its weights.
uniform         the weights of a query hardly differ: the effective number of neighbours is within
                1 % of the degree, so the ranking is meaningless. (A static head stays static.)
mostly static   queries rarely disagree: the mean τ and the fraction of equal first choices are both
                at least 0.8, so that two queries agree on nine of ten comparisons.
dynamic         the ranking, or the first choice, depends on the query.

`docs/microscope.md` lists the known cases from which these thresholds were chosen.
"""

from __future__ import annotations

import math

STATIC = "static"
MOSTLY_STATIC = "mostly static"
DYNAMIC = "dynamic"
UNIFORM = "uniform: not attending"
UNDECIDED = "nothing to compare"

MOSTLY = 0.8  # lowest τ and fraction of equal first choices of a mostly static head
UNIFORM_SHARE = 0.99  # lowest effective neighbours / degree of a uniform head


def verdict(agreement: float, same_choice: float, effective: float, degree: float) -> str:
    """The verdict from the mean τ, the fraction of equal first choices, the effective number of
    neighbours and the degree. τ is nan if no two queries share two keys with different scores."""
    is_uniform = effective >= UNIFORM_SHARE * degree
    if math.isnan(agreement):
        return UNIFORM if is_uniform else UNDECIDED
    same = 1.0 if math.isnan(same_choice) else same_choice
    if agreement == 1 and same == 1:
        return STATIC
    if is_uniform:
        return UNIFORM
    return MOSTLY_STATIC if min(agreement, same) >= MOSTLY else DYNAMIC
