"""The answer in plain words: which mechanism to use, how sure that is, and whether this graph needs
dynamic attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dynagat.analysis.verdict import DYNAMIC, MOSTLY_STATIC, STATIC, UNIFORM
from dynagat.comparison.rows import CLEAR, ROUNDING, Difference, Row, difference, differences
from dynagat.report import wording
from dynagat.report.wording import count, listed, name_of, size

WORDS = {"accuracy": "accuracy", "roc_auc": "ROC-AUC", "r_squared": "R²"}
FASTER, SLOW = 1.5, 1.0  # times, and seconds of the slower, from which it is worth telling


def answer(rows: Sequence[Row]) -> list[str]:
    """Sentences; the first says what to use."""
    if rows[0].sample("valid") is None:
        return ["No run came to a number, so there is nothing to compare: the losses grew without "
                "bound. Try a lower rate: --set lr=0.001."]  # fmt: skip
    best, others = rows[0], [row for row in rows[1:] if row.sample("test") is not None]
    found = differences(best, others)
    said = [_use(best), *_against(best, others, found), *_need(rows), *_cost(best, others, found)]
    return said + _cautions(rows)


def _use(best: Row) -> str:
    test = best.sample("test")
    reached = "" if test is None else f", with {_reached(best, 'test')} on the test nodes"
    seeds = count(len(best.values("valid")), "seed")
    name = name_of(best.mechanism)
    return f"Use {name}: it is the best on the validation nodes{reached} ({seeds})."


def _reached(row: Row, part: str) -> str:
    sample, metric = row.sample(part), f"{part}_{row.score}"
    assert sample is not None
    value = wording.spread(sample.mean, sample.std, metric)
    unit = " %" if wording.is_share(metric) else ""
    return f"{WORDS[row.score]} {value}{unit}"


def _against(best: Row, others: Sequence[Row], found: Sequence[Difference]) -> list[str]:
    """What it is clearly better than, and what it can't be told apart from."""
    if not others:
        return []
    if all(math.isnan(each.p) for each in found):
        return ["With one seed there is no test of whether the difference is more than chance: "
                "ask for more, such as --seeds 0-4."]  # fmt: skip
    said, names = [], [each for each in found if not math.isnan(each.p)]
    above = [each for each in names if each.is_clear and each.mean > 0]
    below = [each for each in names if each.is_clear and each.mean < 0]
    level = [each for each in names if not each.is_clear]
    if above:
        said.append(f"On the test nodes it is better than {_told(above, best)}.")
    if level:
        said.append(f"It can't be told apart from {_level(level, best)}.")
    if below:
        said.append(f"But on the test nodes it is worse than {_told(below, best)}: the validation "
                    "nodes and the test nodes do not agree here.")  # fmt: skip
    return said


def _told(found: Sequence[Difference], best: Row) -> str:
    """How much better or worse than each."""
    return listed([f"{name_of(each.other)} (by {_points(each, best)}, {_p(each)})"
                   for each in found])  # fmt: skip


def _level(found: Sequence[Difference], best: Row) -> str:
    """Each, and on which side of the best its mean is: the test nodes did not choose."""
    said = []
    for each in found:
        side = "below" if each.mean > 0 else "above"
        at = "the same mean" if abs(each.mean) < ROUNDING else f"{_points(each, best)} {side} it"
        said.append(f"{name_of(each.other)} ({at}, {_p(each)})")
    return listed(said)


def _points(each: Difference, best: Row) -> str:
    """ "1.2 points" """
    metric = f"test_{best.score}"
    text = wording.signed(abs(each.mean), metric).lstrip("+")
    if not wording.is_share(metric):
        return text
    return "less than 0.1 points" if text == "0.0" else f"{text} points"


def _p(each: Difference) -> str:
    return f"paired p = {wording.p_value(each.p)}".replace("p = <", "p < ")


def _need(rows: Sequence[Row]) -> list[str]:
    """Does this data need dynamic attention?"""
    by_name = {row.mechanism: row for row in rows}
    dynamic, static = by_name.get("gatv2"), by_name.get("gat")
    if dynamic is None or not dynamic.verdicts:
        return []
    total = sum(dynamic.verdicts.values())
    told = listed([f"{many} {verdict}" for verdict, many in dynamic.verdicts.items()])
    seen = f"Of GATv2's {count(total, 'trained head')} the microscope finds {told}"
    if static is None or static.sample("test") is None or dynamic.sample("test") is None:
        return [f"{seen}."]
    gain = difference(dynamic, static)
    if math.isnan(gain.p):  # told once, by _against
        return [f"{seen}."]
    pays = gain.is_clear and gain.mean > 0
    p = f" (p = {wording.p_value(gain.p)})".replace("= <", "< ")
    stands = f"worse than GAT{p}" if gain.is_clear else f"not clearly better than GAT{p}"
    is_used = dynamic.verdicts.get(DYNAMIC, 0) * 2 > total
    is_flat = dynamic.verdicts.get(UNIFORM.split(":")[0], 0) * 2 > total
    if pays and is_used:
        verdict = "This data needs dynamic attention: who is asked about matters to whom to attend"
        return [f"{verdict}. {seen}, and GATv2 is better than GAT{p}."]
    if pays:
        return [f"GATv2 is better than GAT{p}, though hardly by dynamic attention: {_lower(seen)}."]
    lead = "This data shows no need of dynamic attention"
    if is_flat:
        return [f"{lead}, nor of any: {_lower(seen)}, and GATv2 is {stands}."]
    if is_used:
        return [f"{lead}: GATv2 makes use of it, but is {stands}. {seen}."]
    is_static = sum(dynamic.verdicts.get(each, 0) for each in (STATIC, MOSTLY_STATIC)) * 2 > total
    serves = ": one ranking of the neighbours serves all nodes" if is_static else ""
    return [f"{lead}{serves}. {seen}, and GATv2 is {stands}."]


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _cost(best: Row, others: Sequence[Row], found: Sequence[Difference]) -> list[str]:
    level = [other for other, each in zip(others, found, strict=True) if each.p >= CLEAR]
    own = f"A run of {name_of(best.mechanism)} took {_time(best.seconds)} and {size(best.memory)}"
    quick = min(level, key=lambda row: row.seconds, default=None)
    if quick is None or best.seconds < max(SLOW, quick.seconds * FASTER):
        return [f"{own}."]
    times = f"{best.seconds / quick.seconds:.1f} times faster"
    return [f"{own}. {name_of(quick.mechanism)}, which can't be told apart from it, took "
            f"{_time(quick.seconds)} and {size(quick.memory)}: {times}."]  # fmt: skip


def _cautions(rows: Sequence[Row]) -> list[str]:
    said, runs = [], [run for row in rows for run in row.runs]
    diverged = sum(run.ended == "diverged" for run in runs)
    budget = sum(run.ended == "budget" for run in runs)
    if diverged:
        said.append(f"{diverged} of {len(runs)} runs diverged and are left out of the means.")
    if budget * 2 > len(runs):
        many = f"{budget} of {len(runs)} runs used up their passes"
        said.append(f"{many} before the validation score stood still: more passes could still "
                    "change the order (--set max_rounds=…).")  # fmt: skip
    return said


def _time(seconds: float) -> str:
    return f"{max(seconds, 0.1):.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
