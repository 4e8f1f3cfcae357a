"""Judgement: what came out for a claim of the paper, as a verdict that follows from the tests.

held                           significantly better in every comparison
held in part                   in some; in others it is not, or they were not tested
higher mean, not significant   in none that was tested, but better on average in all of them
did not hold                   in none, and not better on average in some
not tested                     no comparison was tested: one seed, or runs that were cut off

Of a claim about a level, such as 100%, the comparisons are runs that reach it or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dynagat.report import wording
from dynagat.report.findings import Findings
from dynagat.report.headline import SIGNIFICANT, groups, places, test_family
from dynagat.report.rows import OURS, RIVAL, Row

HELD, IN_PART, FAILED, UNTESTED = "held", "held in part", "did not hold", "not tested"
NOT_RUN, RUN, TESTED = range(3)  # what rows can say about a claim


@dataclass(frozen=True)
class Judgement:
    """Of one claim, by one protocol on one data set."""

    claim: str
    context: str  # the protocol, the data set and the caveats
    verdict: str
    numbers: str  # sentences

    @property
    def is_tested(self) -> bool:
        return self.verdict != UNTESTED


def verdict_of(
    num_sure: int, num_higher: int, num_tested: int, num_all: int, side: str = "higher"
) -> str:
    """From the numbers of comparisons: significant, better on average (these too), tested, all."""
    if not num_tested:
        return UNTESTED
    if num_sure == num_all:
        return HELD
    if num_sure:
        return IN_PART
    return f"{side} mean, not significant" if num_higher == num_tested else FAILED


def context_of(row: Row) -> str:
    """ "corrected on mygraph; shorter protocol (max_rounds=20)" """
    place = f" on {row.dataset}" if row.dataset else ""
    name = row.fidelity if row.is_standard else row.family
    return "; ".join(filter(None, [f"{name}{place}", *row.caveats.values(), row.protocol]))


def compared(findings: Findings, claim: str, rival: str = RIVAL) -> Iterator[Judgement]:
    """That GATv2 is better than a rival: a judgement for each protocol and data set it ran on."""

    def rank(rows: list[Row]) -> int:
        has_runs = any(row.mechanism == rival for row in rows)
        return TESTED if _tested_rows(rows, rival) else RUN if has_runs else NOT_RUN

    for members in chosen(findings, rank):
        against = [row for row in members if row.mechanism == rival]
        tested = _tested_rows(members, rival)
        sure = [row for row in tested if row.gain > 0 and row.p_holm < SIGNIFICANT]
        higher = [row for row in tested if row.gain > 0]
        side = "higher" if members[0].metric.higher_is_better else "lower"
        verdict = verdict_of(len(sure), len(higher), len(tested), len(against), side)
        yield Judgement(claim, context_of(members[0]), verdict, _numbers(against))


def chosen(findings: Findings, rank: Callable[[list[Row]], int]) -> Iterator[list[Row]]:
    """For each fidelity and data set, the first group of rows with the highest rank.

    The rank of rows is TESTED, RUN or NOT_RUN; the last are left out. Groups without caveats and
    with the longest runs come first.
    """
    lots: dict[tuple[str, str], list[list[Row]]] = {}
    for members in groups(findings.rows):
        lots.setdefault((members[0].fidelity, members[0].dataset), []).append(members)
    for lot in lots.values():
        best = max(lot, key=rank)
        if rank(best) > NOT_RUN:
            yield best


def _tested_rows(members: Sequence[Row], rival: str) -> list[Row]:
    return [row for row in members if row.mechanism == rival and _is_tested(row)]


def _is_tested(row: Row) -> bool:
    return not row.is_cut and not math.isnan(row.p)


def _numbers(against: list[Row]) -> str:
    lots, is_sole = _by_heads(against), len(against) == 1
    return " ".join(
        _several(lot) if len(lot) > 1 or lot[0].contrast is None else _single(lot[0], is_sole)
        for lot in lots
    )


def _by_heads(rows: Sequence[Row]) -> list[list[Row]]:
    lots: dict[int, list[Row]] = {}
    for row in rows:
        lots.setdefault(row.heads, []).append(row)
    return list(lots.values())


def _single(row: Row, is_sole: bool) -> str:
    """ "GATv2 77.0 ± 0.5, GAT (8 heads) 76.8 ± 0.7 (n = 100); one-sided p = 0.029." """
    assert row.contrast is not None
    ours, metric = row.contrast.ours, row.metric
    name = wording.name_of(OURS) if is_sole else wording.title_of(OURS, row.against or 1)
    first = f"{name} {wording.mean_and_std(ours.mean, ours.std, metric)}"
    second = f"{row.title} {wording.mean_and_std(row.mean, _std(row), metric)}"
    where = places([row])
    count = f"n = {len(row.values)}" if ours.n == len(row.values) else "different n"
    if row.is_cut:
        test = "not compared, because runs were cut off"
    elif math.isnan(row.p):
        test = "one seed, so no test"
    else:
        test = f"one-sided {wording.p_equals(row.p_holm)}{test_family([row])}"
    return f"{first}, {second}{where and ' ' + where} ({count}); {test}."


def _std(row: Row) -> float:
    return math.nan if row.sample is None else row.sample.std


def _several(rows: list[Row]) -> str:
    """The comparisons with one rival, by what came out."""
    tested = [row for row in rows if _is_tested(row) and row.contrast is not None]
    alone = [row for row in rows if row.contrast is not None and not row.is_cut]
    alone = [row for row in alone if math.isnan(row.p)]
    sure = [row for row in tested if row.gain > 0 and row.p_holm < SIGNIFICANT]
    unsure = [row for row in tested if row.gain > 0 and row not in sure]
    lots = (
        ("significantly better", sure),
        ("better on average, not significantly", unsure),
        ("not better", [row for row in tested if not row.gain > 0]),
        ("better with one seed, so no test,", [row for row in alone if row.gain > 0]),
        ("not better with one seed", [row for row in alone if not row.gain > 0]),
        ("not compared, because runs were cut off,", [row for row in rows if row.is_cut]),
    )
    parts = [f"{words} {places(lot) or 'everywhere'}" for words, lot in lots if lot]
    family = f" (p < {SIGNIFICANT}{test_family(sure)})" if sure else ""
    text = "; ".join(parts).replace(",;", ";")
    if not parts:
        return f"There are no runs of GATv2 beside {rows[0].title}."
    return f"GATv2 against {rows[0].title}: {text}{family}."
