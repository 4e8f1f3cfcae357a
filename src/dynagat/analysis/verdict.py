"""One word for a head: static, mostly static, dynamic, or uniform.

static          no two queries contradict each other on any key they share, and none chooses another
                key than one that both could have had. True of every GAT head, whatever its weights.
uniform         the weights of a query hardly differ: its effective number of neighbours is within
                1 % of its degree, hence the ranking means nothing. (A static head stays static.)
mostly static   queries contradict each other, but seldom: mean τ and the share of equal choices are
                both 0.8 or more, so two queries agree on nine of ten comparisons.
dynamic         the ranking, or the first choice, depends on who asks.

`docs/microscope.md` has the known cases that these limits were set by.
"""

from __future__ import annotations

import math

STATIC = "static"
MOSTLY_STATIC = "mostly static"
DYNAMIC = "dynamic"
UNIFORM = "uniform: not attending"
UNDECIDED = "nothing to compare"

MOSTLY = 0.8
UNIFORM_SHARE = 0.99


def verdict(agreement: float, same_choice: float, effective: float, degree: float) -> str:
    """From the mean τ, the share of equal choices, the effective number of neighbours and the
    degree. nan for τ means that no two queries share two keys that both rank apart."""
    is_flat = effective >= UNIFORM_SHARE * degree
    if math.isnan(agreement):
        return UNIFORM if is_flat else UNDECIDED
    chooses_alike = 1.0 if math.isnan(same_choice) else same_choice
    if agreement == 1 and chooses_alike == 1:
        return STATIC
    if is_flat:
        return UNIFORM
    return MOSTLY_STATIC if min(agreement, chooses_alike) >= MOSTLY else DYNAMIC
