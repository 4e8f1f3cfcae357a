"""The answer in sentences: which mechanism to use, how sure that is, and whether this graph needs
dynamic attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dynagat.analysis.verdict import ATTENDS, DYNAMIC, MIXED, STATIC, UNIFORM
from dynagat.comparison.results import (
    ROUNDING,
    SIGNIFICANT,
    Difference,
    MechanismResult,
    difference,
    differences,
)
from dynagat.report import wording
from dynagat.report.wording import count, listed, name_of, size

FASTER, SLOW = 1.5, 1.0  # factor, and seconds of the slower, from which time is mentioned


def answer(results: Sequence[MechanismResult]) -> list[str]:
    """Sentences; the first says what to use."""
    if results[0].sample("valid") is None:
        return ["All runs diverged, so there is nothing to compare. "
                "Try a lower learning rate: --set lr=0.001."]  # fmt: skip
    best, others = results[0], [each for each in results[1:] if each.sample("test") is not None]
    tests = differences(best, others)
    sentences = [_use(best), *_against(best, others, tests), *_need(results)]
    return [*sentences, *_cost(best, others, tests), *_cautions(results)]


def _use(best: MechanismResult) -> str:
    test = best.sample("test")
    reached = "" if test is None else f", with {_reached(best, 'test')} on the test nodes"
    seeds = count(len(best.values("valid")), "seed")
    name = name_of(best.mechanism)
    return f"Use {name}: it is the best on the validation nodes{reached} ({seeds})."


def _reached(result: MechanismResult, part: str) -> str:
    sample, metric = result.sample(part), result.metric
    assert sample is not None
    value = wording.mean_and_std(sample.mean, sample.std, metric)
    return f"{metric.title} {value}{' %' if metric.is_fraction else ''}"


def _against(
    best: MechanismResult, others: Sequence[MechanismResult], tests: Sequence[Difference]
) -> list[str]:
    """What it is significantly better than, and what it does not differ from significantly."""
    if not others:
        return []
    known = [each for each in tests if not math.isnan(each.p)]
    if not known:
        return ["With one seed, no test can say whether the difference is more than chance: "
                "run more, such as --seeds 0-4."]  # fmt: skip
    sentences = []
    gain = best.metric.gain
    better = [each for each in known if each.is_significant and gain(each.mean, 0.0) > 0]
    worse = [each for each in known if each.is_significant and gain(each.mean, 0.0) < 0]
    level = [each for each in known if not each.is_significant]
    if better:
        sentences.append(f"On the test nodes it is better than {_by_how_much(better, best)}.")
    if level:
        sentences.append(f"It does not differ significantly from {_level(level, best)}.")
    if worse:
        sentences.append(f"But on the test nodes it is worse than {_by_how_much(worse, best)}: the "
                         "validation nodes and the test nodes disagree here.")  # fmt: skip
    return sentences


def _by_how_much(tests: Sequence[Difference], best: MechanismResult) -> str:
    return listed([f"{name_of(each.other)} (by {_points(each, best)}, {_p(each)})"
                   for each in tests])  # fmt: skip


def _level(tests: Sequence[Difference], best: MechanismResult) -> str:
    """Each with the side of its mean: the best was not chosen on the test nodes."""
    parts = []
    for each in tests:
        side = "below" if each.mean > 0 else "above"
        at = "the same mean" if abs(each.mean) < ROUNDING else f"{_points(each, best)} {side} it"
        parts.append(f"{name_of(each.other)} ({at}, {_p(each)})")
    return listed(parts)


def _points(each: Difference, best: MechanismResult) -> str:
    """ "1.2 points" """
    text = wording.signed(abs(each.mean), best.metric).lstrip("+")
    if not best.metric.is_fraction:
        return text
    return "less than 0.1 points" if text == "0.0" else f"{text} points"


def _p(each: Difference) -> str:
    return f"paired {wording.p_equals(each.p)}"


def _need(results: Sequence[MechanismResult]) -> list[str]:
    """Does this data need dynamic attention?"""
    by_name = {each.mechanism: each for each in results}
    dynamic, static = by_name.get("gatv2"), by_name.get("gat")
    if dynamic is None or not dynamic.verdicts:
        return []
    total = len(dynamic.verdicts)
    focuses, rankings = zip(*dynamic.verdicts, strict=True)
    verdicts = f"{wording.tally(focuses)}; {wording.tally(rankings)}"
    seen = f"Of GATv2's {count(total, 'trained head')}, {verdicts}"
    if static is None or static.sample("test") is None or dynamic.sample("test") is None:
        return [f"{seen}."]
    gain = difference(dynamic, static)
    if math.isnan(gain.p):  # _against says so already
        return [f"{seen}."]
    pays = gain.is_significant and dynamic.metric.gain(gain.mean, 0.0) > 0
    p = f" ({wording.p_equals(gain.p)})"
    verb = "worse than GAT" if gain.is_significant else "not significantly better than GAT"
    stands = f"{verb}{p}"
    used = [(ATTENDS, DYNAMIC), (ATTENDS, MIXED)]
    is_used = sum(each in used for each in dynamic.verdicts) * 2 > total
    is_flat = focuses.count(UNIFORM) * 2 > total
    if pays and is_used:
        verdict = "This data needs dynamic attention: which neighbours matter depends on the node"
        return [f"{verdict}. {seen}, and GATv2 is better than GAT{p}."]
    if pays:
        return [f"GATv2 is better than GAT{p}, but hardly through dynamic attention: "
                f"{wording.first_lower(seen)}."]  # fmt: skip
    lead = "This data shows no need for dynamic attention"
    if is_flat:
        return [f"{lead}, nor for any: {wording.first_lower(seen)}, and GATv2 is {stands}."]
    if is_used:
        return [f"{lead}: GATv2 uses it, but is {stands}. {seen}."]
    is_static = rankings.count(STATIC) * 2 > total
    reason = ": one ranking of the neighbours suits all nodes" if is_static else ""
    return [f"{lead}{reason}. {seen}, and GATv2 is {stands}."]


def _cost(
    best: MechanismResult, others: Sequence[MechanismResult], tests: Sequence[Difference]
) -> list[str]:
    level = [other for other, each in zip(others, tests, strict=True) if each.p >= SIGNIFICANT]
    own = f"A run of {name_of(best.mechanism)} took {_time(best.seconds)} and {size(best.memory)}"
    quick = min(level, key=lambda each: each.seconds, default=None)
    if quick is None or best.seconds < max(SLOW, quick.seconds * FASTER):
        return [f"{own}."]
    times = f"{best.seconds / quick.seconds:.1f} times faster"
    return [f"{own}. {name_of(quick.mechanism)}, which does not differ significantly, took "
            f"{_time(quick.seconds)} and {size(quick.memory)}: {times}."]  # fmt: skip


def _cautions(results: Sequence[MechanismResult]) -> list[str]:
    sentences, runs = [], [run for each in results for run in each.runs]
    diverged = sum(run.ended == "diverged" for run in runs)
    budget = sum(run.ended == "budget" for run in runs)
    if diverged:
        sentences.append(f"{diverged} of {len(runs)} runs diverged and are left out of the means.")
    if budget * 2 > len(runs):
        many = f"{budget} of {len(runs)} runs used all their epochs"
        sentences.append(f"{many} while the validation score was still improving: more epochs "
                         "could change the order (--set max_rounds=…).")  # fmt: skip
    return sentences


def _time(seconds: float) -> str:
    return f"{max(seconds, 0.1):.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
