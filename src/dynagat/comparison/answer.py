"""The answer in sentences: which mechanism to use, how sure that is, and whether this graph needs
dynamic attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dynagat.analysis.verdict import ATTENDS, DYNAMIC, MIXED, STATIC, UNIFORM
from dynagat.comparison.baselines import Baseline
from dynagat.comparison.results import (
    ROUNDING,
    SIGNIFICANT,
    Difference,
    MechanismResult,
    difference,
    differences,
    predicts_one_class,
)
from dynagat.comparison.subject import LINKS
from dynagat.report import wording
from dynagat.report.wording import count, listed, name_of, size

CHEAPER, SLOW = 1.5, 1.0  # factor, and seconds of the slower, from which time is mentioned
PHRASES = {
    "majority class": "predicting the most frequent class",
    "mean": "predicting the mean",
    "logistic regression": "logistic regression on the {}",
    "ridge regression": "ridge regression on the {}",
    "MLP": "an MLP on the {}",
    "common neighbours": "the number of common neighbours",
    "Adamic-Adar": "the Adamic-Adar index",
    "preferential attachment": "the product of the degrees",
}


def answer(results: Sequence[MechanismResult], baselines: Sequence[Baseline] = ()) -> list[str]:
    """Sentences. The first says whether the graph helps, the second what to use."""
    if results[0].sample("valid") is None:
        return [_nothing(results)]
    best, others = results[0], [each for each in results[1:] if each.sample("test") is not None]
    tests = differences(best, others)
    sentences = [*_graph(best, baselines), _use(best), *_cheaper(best, others, tests)]
    sentences += [*_against(best, others, tests), *_need(results), _cost(best)]
    return [*sentences, *_cautions(results)]


def _nothing(results: Sequence[MechanismResult]) -> str:
    if any(result.is_constant(run) for result in results for run in result.runs):
        return ("No run learned anything, so there is nothing to compare. Try more epochs (--set "
                "max_rounds=300 --set patience=100) or --class-weights balanced.")  # fmt: skip
    return ("All runs diverged, so there is nothing to compare. "
            "Try a lower learning rate: --set lr=0.001.")  # fmt: skip


def _graph(best: MechanismResult, baselines: Sequence[Baseline]) -> list[str]:
    """Does the graph help at all? Against the best model that does not use the edges."""
    is_links = best.subject is LINKS  # whose baselines all use the edges: does a network help?
    without = [each for each in baselines if is_links or each.uses != "edges"]
    if not without or best.sample("test") is None:
        return []
    gain = best.metric.gain
    rival = max(without, key=lambda each: gain(each.sample("valid").mean, 0.0))
    test, name = difference(best, rival), name_of(best.mechanism)
    reached = f"on the test {best.subject.rows}, {name} reaches {_reached(best, 'test')}"
    phrase = PHRASES[rival.mechanism].format(rival.uses)
    values = f"{reached}, and {phrase} {_value(rival, 'test')}"
    others = "".join(_edges_alone(best, each) for each in baselines if each not in without)
    if math.isnan(test.p):
        return [f"{wording.first_upper(values)}{others}."]
    p = wording.p_equals(test.p)
    if not test.is_significant:
        lead = f"These runs do not show that {wording.first_lower(best.subject.tested)} helps"
        return [f"{lead}: {values} ({p}{_power(test, best)}){others}."]
    helps = "helps" if gain(test.mean, 0.0) > 0 else "does not help"
    lead = f"{best.subject.tested} {helps}"
    return [f"{lead}: {values} ({p}){others}."]


def _edges_alone(best: MechanismResult, other: Baseline) -> str:
    test = difference(best, other)
    is_better = test.is_significant and best.metric.gain(test.mean, 0.0) < 0
    more = ", which is better" if is_better else ""
    return f"; {other.mechanism} on the edges alone reaches {_value(other, 'test')}{more}"


def _use(best: MechanismResult) -> str:
    test, rows = best.sample("test"), best.subject.rows
    reached = "" if test is None else f", with {_reached(best, 'test')} on the test {rows}"
    seeds = count(len(best.values("valid")), "seed")
    name = name_of(best.mechanism)
    return f"Use {name}: it is the best on the validation {rows}{reached} ({seeds})."


def _cheaper(
    best: MechanismResult, others: Sequence[MechanismResult], tests: Sequence[Difference]
) -> list[str]:
    """The fastest mechanism that does not differ significantly from the best."""
    level = [other for other, each in zip(others, tests, strict=True) if each.p >= SIGNIFICANT]
    quick = min(level, key=lambda each: each.seconds, default=None)
    if quick is None or best.seconds < max(SLOW, quick.seconds * CHEAPER):
        return []
    name, times = name_of(quick.mechanism), f"{best.seconds / quick.seconds:.1f} times faster"
    return [f"{name} does not differ significantly from it and is {times} "
            f"({_time(quick.seconds)} a run): use {name} if time matters."]  # fmt: skip


def _value(result: MechanismResult | Baseline, part: str) -> str:
    sample, metric = result.sample(part), result.metric
    assert sample is not None
    value = wording.mean_and_std(sample.mean, sample.std or math.nan, metric)
    return f"{value}{' %' if metric.is_fraction else ''}"


def _power(test: Difference, best: MechanismResult) -> str:
    """ "; 5 seeds would probably have shown a difference of 0.8 points" """
    if not test.detectable > ROUNDING:
        return ""
    least = _amount(test.detectable, best)
    return f"; {count(test.seeds, 'seed')} would probably have shown a difference of {least}"


def _reached(result: MechanismResult, part: str) -> str:
    return f"{result.metric.title} {_value(result, part)}"


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
    gain, rows = best.metric.gain, best.subject.rows
    better = [each for each in known if each.is_significant and gain(each.mean, 0.0) > 0]
    worse = [each for each in known if each.is_significant and gain(each.mean, 0.0) < 0]
    level = [each for each in known if not each.is_significant]
    if better:
        sentences.append(f"On the test {rows} it is better than {_by_how_much(better, best)}.")
    if level:
        least = max(level, key=lambda each: each.detectable)
        sentences.append(f"It does not differ significantly from {_level(level, best)}"
                         f"{_power(least, best)}.")  # fmt: skip
    if worse:
        lead = f"But on the test {rows} it is worse than {_by_how_much(worse, best)}"
        sentences.append(f"{lead}: the validation {rows} and the test {rows} disagree here.")
    return sentences


def _by_how_much(tests: Sequence[Difference], best: MechanismResult) -> str:
    return listed([f"{name_of(each.other)} (by {_points(each, best)}, {_p(each)})"
                   for each in tests])  # fmt: skip


def _level(tests: Sequence[Difference], best: MechanismResult) -> str:
    """Each with the side of its mean: the best was not chosen on the test part."""
    parts = []
    for each in tests:
        side = "below" if each.mean > 0 else "above"
        at = "the same mean" if abs(each.mean) < ROUNDING else f"{_points(each, best)} {side} it"
        parts.append(f"{name_of(each.other)} ({at}, {_p(each)})")
    return listed(parts)


def _points(each: Difference, best: MechanismResult) -> str:
    return _amount(abs(each.mean), best)


def _amount(value: float, best: MechanismResult) -> str:
    """ "1.2 points" """
    text = wording.signed(value, best.metric).lstrip("+")
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
        lead = "This data needs dynamic attention"
        verdict = f"{lead}: which neighbours matter depends on the {dynamic.subject.node}"
        return [f"{verdict}. {seen}, and GATv2 is better than GAT{p}."]
    if pays:
        return [f"GATv2 is better than GAT{p}, but hardly through dynamic attention: "
                f"{wording.first_lower(seen)}."]  # fmt: skip
    lead = "These runs show no need for dynamic attention"
    stands += "" if gain.is_significant else _power(gain, dynamic)
    if is_flat:
        return [f"{lead}, nor for any: {wording.first_lower(seen)}, and GATv2 is {stands}."]
    if is_used:
        return [f"{lead}: GATv2 uses it, but is {stands}. {seen}."]
    is_static = rankings.count(STATIC) * 2 > total
    reason = (
        f": one ranking of the neighbours suits all {dynamic.subject.node}s" if is_static else ""
    )
    return [f"{lead}{reason}. {seen}, and GATv2 is {stands}."]


def _cost(best: MechanismResult) -> str:
    took = f"{_time(best.seconds)} and {size(best.memory)}"
    return f"A run of {name_of(best.mechanism)} took {took}."


def _cautions(results: Sequence[MechanismResult]) -> list[str]:
    runs = [run for each in results for run in each.runs]
    diverged = sum(run.ended == "diverged" for run in runs)
    budget = sum(run.ended == "budget" for run in runs)
    sentences = [sentence for each in results for sentence in _constant(each)]
    if diverged:
        sentences.append(f"{diverged} of {len(runs)} runs diverged and are left out of the means.")
    if budget * 2 > len(runs):
        many = f"{budget} of {len(runs)} runs used all their epochs"
        sentences.append(f"{many} before early stopping ended them: more epochs could change the "
                         "order (--set max_rounds=…).")  # fmt: skip
    return sentences


def _constant(result: MechanismResult) -> list[str]:
    """Runs that predict the same for every row are named; they are no results."""
    left_out = sum(result.is_constant(run) for run in result.runs)
    one = sum(predicts_one_class(run) for run in result.runs)
    name, runs, rows = name_of(result.mechanism), len(result.runs), result.subject.rows
    if left_out:
        what = "one class" if one else "the same value"
        return [f"{name} did not learn in {left_out} of {runs} runs, which predict {what} for all "
                f"test {rows} and are left out of the comparison."]  # fmt: skip
    if one:
        return [f"{name} predicts one class for all test {rows} in {one} of {runs} runs: it ranks "
                "them, but the most probable class is always the same."]  # fmt: skip
    return []


def _time(seconds: float) -> str:
    return f"{max(seconds, 0.1):.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
