"""headline: the results in sentences, by protocol; what contradicts the paper comes first.

"Better" is said only of differences that are significant after Holm's correction. Where a run of
either mechanism was cut off, nothing is said about which is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from dynagat.analysis.verdict import words_of
from dynagat.experiment import Benchmark
from dynagat.report import wording
from dynagat.report.attentive import measured_heads
from dynagat.report.parts import Prose
from dynagat.report.rows import OURS, RIVAL, Row, families, longest

SHORTFALL = 0.01  # distance to the published number worth a sentence; relative unless a fraction
SIGNIFICANT = 0.05


Say = Callable[[list[Row]], Iterable[str]]  # of the rows of one family and data set


def headline(
    benchmark: Benchmark, rows: Sequence[Row], say_more: Say = lambda rows: ()
) -> list[Prose]:
    """A list of sentences for each data set and protocol; if several, one about all runs.

    Each has losses, results, shortfalls, the benchmark's own, and other comparisons.

    Args:
        benchmark: the benchmark.
        rows: of its main metric.
        say_more: sentences of the benchmark's own.
    """
    if not rows:
        return [Prose((f"{benchmark.name} has not been run yet.",), is_list=True)]
    says = (_lost, _reached, _short, say_more, _equalled, _better, _higher, _cut, analysed)
    every = []
    for members in (parts := groups(rows)):
        title = _context(members[0]) or ("Corrected" if len(parts) > 1 else "")
        every.append((title, [sentence for say in says for sentence in say(members)]))
    others = len(families(rows)) - len(_standard(rows))
    rest = [f"{wording.count(others, 'table')} of other settings: see below."] if others else []
    rest += _unfinished(rows)
    if len(every) == 1:
        every[0][1].extend(rest)
    else:
        every.append(("All runs", rest))
    return [Prose(tuple(said), is_list=True, title=title) for title, said in every if said]


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The longest runs of each fidelity, by data set and protocol; lost comparisons first."""
    families_ = (_by_protocol(longest(family)) for family in _standard(rows))
    return [group for every in families_ for group in sorted(every, key=_lost_none)]


def _standard(rows: Sequence[Row]) -> list[list[Row]]:
    """The families of the fidelities; all families if there are none of them."""
    every = [members for _, members in families(rows)]
    return [members for members in every if members[0].is_standard] or every


def _by_protocol(family: list[Row]) -> list[list[Row]]:
    """By data set and, of shorter protocols, by the budget."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in family:
        groups.setdefault((row.dataset, row.protocol), []).append(row)
    return list(groups.values())


def _context(row: Row) -> str:
    """The data set, the fidelity and the caveats that sentences are about."""
    place = f"on {row.dataset}" if row.dataset else ""
    family = row.fidelity if row.is_standard else row.family
    family = family.replace("as-published", "as the released code does it")
    family = family.replace("improved", "with our improvements", 1)
    family = "" if row.fidelity == "corrected" and row.is_standard else family
    parts = (place, family, *row.caveats.values(), row.protocol)
    return wording.first_upper("; ".join(word for word in parts if word))


def _lost(members: list[Row]) -> Iterator[str]:
    """Where GATv2's mean is not better than GAT's."""
    yield from _not_beaten([row for row in members if row.mechanism == RIVAL])


def _lost_none(members: list[Row]) -> bool:
    return not any(_lost(members))


def _equalled(members: list[Row]) -> Iterator[str]:
    """Where it is not better than another's: the paper does not claim that it always is."""
    yield from _not_beaten([row for row in members if row.mechanism != RIVAL])


def _not_beaten(members: list[Row]) -> Iterator[str]:
    for title, group in _by_title(members):
        lost = [row for row in group if row.gain <= 0 and not row.is_cut]
        if lost:
            worst = min(lost, key=lambda row: row.gain)
            yield _join(_ours(lost), "does not beat", title, places(lost), f"({_versus(worst)}).")


def _better(members: list[Row]) -> Iterator[str]:
    """Where GATv2 is significantly better, against every other mechanism."""
    parts: dict[str, list[str]] = {}
    for title, group in _by_title(members):
        tested = _comparable(group)
        sure = [row for row in tested if _is_significant(row)]
        if sure:
            words = _join(title, _tally(sure, tested), f"(p < {SIGNIFICANT}{test_family(sure)})")
            parts.setdefault(_ours(sure), []).append(words)
    for ours, others in parts.items():
        yield f"{ours} is better than {'; than '.join(others)}."


def _higher(members: list[Row]) -> Iterator[str]:
    """Where only its mean is better."""
    parts: dict[str, list[str]] = {}
    for title, group in _by_title(members):
        tested = _comparable(group)
        unsure = [row for row in tested if row.gain > 0 and not _is_significant(row)]
        if unsure:
            words = _join(title, _tally(unsure, tested), f"({_uncertainty(unsure)})")
            parts.setdefault(_ours(unsure), []).append(words)
    side = "higher" if members[0].metric.higher_is_better else "lower"
    for ours, others in parts.items():
        yield f"{ours} is {side} on average than {'; than '.join(others)}."


def _cut(members: list[Row]) -> Iterator[str]:
    """Where nothing is said, since runs were cut off."""
    parts = [
        _join(title, places(cut))
        for title, group in _by_title(members)
        if (cut := [row for row in group if row.is_cut])
    ]
    if parts:
        yield f"Not compared with GATv2, because runs were cut off: {'; '.join(parts)}."


def _comparable(group: list[Row]) -> list[Row]:
    return [row for row in group if row.contrast is not None and not row.is_cut]


def _is_significant(row: Row) -> bool:
    return row.gain > 0 and row.p_holm < SIGNIFICANT


def test_family(rows: Sequence[Row]) -> str:
    """The family of the tests, which the correction is for; empty for a single test.

    The tests against one mechanism on one data set are a family.
    """
    most = max(rows, key=lambda row: row.num_tests)
    if most.num_tests < 2:
        return ""
    place = f" on {most.dataset}" if most.dataset else ""
    rival = wording.name_of(most.mechanism)
    return f" after Holm's correction for the {most.num_tests} tests against {rival}{place}"


def _uncertainty(rows: list[Row]) -> str:
    untested = sum(math.isnan(row.p) for row in rows)
    if untested == len(rows):
        return "one seed, so no test"
    rest = f", {untested} with one seed only" if untested else ""
    return f"not significant{test_family(rows)}{rest}"


def analysed(members: list[Row]) -> Iterator[str]:
    """The microscope's two verdicts on each mechanism's heads."""
    parts = []
    for title, group in _by_title(members):
        words = [words_of(head) for row in group for head in measured_heads(row)]
        if words:
            axes = "; ".join(map(wording.tally, zip(*words, strict=True)))
            parts.append(f"of {wording.count(len(words), 'head')} of {title}, {axes}")
    if parts:
        yield f"Under the microscope: {'. '.join(map(wording.first_upper, parts))}."


def _reached(members: list[Row]) -> Iterator[str]:
    """The result of each mechanism."""
    known = [row for row in members if row.sample is not None]
    parts = [_join(title, _results(group), _cut_part(group)) for title, group in _by_title(known)]
    if parts:
        yield f"{wording.first_upper(known[0].metric.title)}: {'; '.join(parts)}."


def _cut_part(group: list[Row]) -> str:
    """Which of the results are not those of finished runs."""
    cut = [row for row in group if row.not_converged]
    if not cut:
        return ""
    return "(cut off)" if len(group) == 1 else f"(cut off {places(cut)})"


def _results(group: list[Row]) -> str:
    metric = group[0].metric
    perfect = [row for row in group if metric.is_fraction and row.mean == 1]
    if perfect:
        low = min(group, key=lambda row: row.mean)
        lowest = [] if low in perfect else [f"(its lowest: {_shown(low)}", f"{places([low])})"]
        return _join("100%", _tally(perfect, group), *lowest)
    if len(group) == 1:
        return _join(_shown(group[0]), places(group), f"(n = {len(group[0].values)})")
    low, high = (pick(group, key=lambda row: row.mean) for pick in (min, max))
    return _join(wording.number(low.mean, metric), "to", _shown(high), places(group))


def _short(members: list[Row]) -> Iterator[str]:
    """Where ours is worse than the published number."""
    parts = [
        _join(title, places(short), f"({_farthest(short)})")
        for title, group in _by_title(members)
        if (short := [row for row in group if _shortfall(row) > SHORTFALL])
    ]
    if parts:
        metric = members[0].metric
        limit = "one point" if metric.is_fraction else "one per cent"
        side = "Below" if metric.higher_is_better else "Above"
        yield f"{side} the published number by more than {limit}: {'; '.join(parts)}."


def _farthest(short: list[Row]) -> str:
    worst = max(short, key=_shortfall)
    assert worst.published is not None
    paper = wording.with_unit(worst.published.mean, worst.metric)
    place = f" {places([worst])}, the farthest" if len(short) > 1 else ""
    return f"{_shown(worst)} against {paper}{place}"


def _shortfall(row: Row) -> float:
    if row.published is None or math.isnan(row.difference):
        return 0.0
    worse = row.metric.gain(row.published.mean, row.mean)
    gap = worse if row.metric.is_fraction else worse / (abs(row.published.mean) or 1.0)
    return round(gap, 9)  # 0.45 - 0.44 is one point, whatever floats say


def _unfinished(rows: Sequence[Row]) -> Iterator[str]:
    runs = wording.count(sum(len(row.runs) for row in rows), "run")
    stopped = sum(row.not_converged for row in rows)
    at_last = sum(row.at_last_round for row in rows)
    diverged = sum(row.diverged for row in rows)
    failed = sum(row.failed for row in rows)
    if failed:
        yield f"{failed} of {runs} failed the released code's rule and are left out, as it does."
    if stopped:
        yield f"{stopped} of {runs} did not converge: cut off at the last round, or diverged."
    if at_last:
        yield f"{at_last} of {runs} used all of a fixed number of rounds."
    if diverged:
        yield f"{wording.count(diverged, 'run')} diverged; no mean includes them."


def _by_title(members: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in members:
        groups.setdefault(row.title, []).append(row)
    return list(groups.items())


def _shown(row: Row) -> str:
    return wording.with_unit(row.mean, row.metric)


def _versus(row: Row) -> str:
    assert row.contrast is not None
    ours = wording.with_unit(row.contrast.ours.mean, row.metric)
    return _join(ours, "against", _shown(row), places([row]))


def _ours(group: list[Row]) -> str:
    return wording.title_of(OURS, min(row.against or 1 for row in group))


def _tally(some: list[Row], every: list[Row]) -> str:
    """ "at 17 of 17 values of k, 4–20" """
    names = _varied(every[0])
    if len(every) == 1:
        return places(every)
    if len(names) != 1:
        return f"at {len(some)} of {len(every)} settings"
    return f"at {len(some)} of {len(every)} values of {names[0]}, {_values(some)}"


def places(group: Sequence[Row]) -> str:
    """ "at k = 4–6, 9"; empty where the paper varies nothing but the data set."""
    names = _varied(group[0])
    if len(names) == 1:
        return f"at {names[0]} = {_values(group)}"
    return f"at {wording.listed([row.label for row in group])}" if names else ""


def _varied(row: Row) -> list[str]:
    return [name for name in row.swept if name != "dataset"]


def _values(group: Sequence[Row]) -> str:
    (name,) = _varied(group[0])
    values = [row.swept[name] for row in group]
    if all(type(value) is float for value in values):
        return wording.ranges_of_fractions(values)
    return wording.ranges(values).replace("-", "–").replace(",", ", ")


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)
