"""headline: what the rows say, in plain words; what speaks against the paper comes first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from dynagat.experiment import Benchmark
from dynagat.report import wording
from dynagat.report.attentive import heads_of
from dynagat.report.noise import answers
from dynagat.report.tables import OURS, RIVAL, Row, families, longest

SHORTFALL = 0.01  # how far below the paper's number is worth a sentence; relative if no share


def headline(benchmark: Benchmark, rows: list[Row], made_up: int = 0) -> list[str]:
    """Sentences: lost comparisons, results, shortfalls, the other comparisons, unfinished runs.

    Of rows, and of the number of runs on made-up data.
    """
    made = [f"{wording.count(made_up, 'run')} on made-up data: time and memory only, see below."]
    if not rows:
        return made if made_up else [f"{benchmark.name} has not been run yet."]
    told = [members for _, members in families(rows) if is_told(members[0])]
    told = told or [members for _, members in families(rows)]
    spoken: list[str] = []
    for say in (_lost, _reached, _short, _equalled, _won, answers, _seen):
        for members in (part for family in told for part in _by_dataset(longest(family))):
            spoken += [_placed(sentence, members[0]) for sentence in say(members)]
    left = len(families(rows)) - len(told)
    if left:
        spoken.append(f"{wording.count(left, 'table')} of other settings: see below.")
    return spoken + list(_unfinished(rows)) + (made if made_up else [])


def is_told(row: Row) -> bool:
    """Tables of the two fidelities are; what was tried out speaks for itself."""
    return not row.changed.keys() - row.caveats.keys()


def _by_dataset(family: list[Row]) -> list[list[Row]]:
    found: dict[str | None, list[Row]] = {}
    for row in family:
        found.setdefault(row.swept.get("dataset"), []).append(row)
    return list(found.values())


def _placed(sentence: str, row: Row) -> str:
    """With the data set, the fidelity and the caveats that it is under before it."""
    place = f"on {row.swept['dataset']}" if "dataset" in row.swept else ""
    words = row.family.replace("as-published", "as the released code does it")
    words = "" if row.fidelity == "corrected" and is_told(row) else words
    told = "; ".join(word for word in (place, words, *row.caveats.values()) if word)
    if not told:
        return sentence
    if not sentence.startswith(tuple(wording.NAMES.values())):
        sentence = sentence[0].lower() + sentence[1:]
    return f"{told[0].upper()}{told[1:]}{', ' if told == place else ': '}{sentence}"


def _lost(members: list[Row]) -> Iterator[str]:
    """Where GATv2's mean is not better than GAT's."""
    yield from _not_beaten([row for row in members if row.mechanism == RIVAL])


def _equalled(members: list[Row]) -> Iterator[str]:
    """Where it is not better than another's, which the paper does not claim of all."""
    yield from _not_beaten([row for row in members if row.mechanism != RIVAL])


def _not_beaten(members: list[Row]) -> Iterator[str]:
    for title, group in _by_title(members):
        lost = [row for row in group if _gain(row) <= 0]
        if lost:
            worst = min(lost, key=_gain)
            yield _said(_ours(lost), "does not beat", title, _where(lost), f"({_versus(worst)}).")


def _won(members: list[Row]) -> Iterator[str]:
    """Where it is, against every other mechanism, and how sure that is."""
    parts, ours = [], ""
    for title, group in _by_title(members):
        tested = [row for row in group if row.comparison is not None]
        won = [row for row in tested if _gain(row) > 0]
        if won:
            ours = _ours(won)
            parts.append(_said(title, _tally(won, tested), f"({_certainty(won)})"))
    if parts:
        yield f"{ours} is better than {'; than '.join(parts)}."


def _seen(members: list[Row]) -> Iterator[str]:
    """What the microscope says of each mechanism's heads."""
    parts = []
    for title, group in _by_title(members):
        heads = [head["verdict"] for row in group for head in heads_of(row)]
        for verdict, count in Counter(heads).most_common():
            parts.append(f"{count} of {wording.count(len(heads), 'head')} of {title} {verdict}")
    if parts:
        yield f"Under the microscope: {', '.join(parts)}."


def _certainty(won: list[Row]) -> str:
    untested = sum(math.isnan(row.p) for row in won)
    if untested == len(won):
        return "one seed, so no test"
    sure = sum(row.p_holm < 0.05 for row in won)
    rest = f", {untested} with one seed only" if untested else ""
    return f"p < 0.05 after Holm's correction: {sure} of {len(won)}{rest}"


def _reached(members: list[Row]) -> Iterator[str]:
    """What each mechanism comes to."""
    known = [row for row in members if row.sample is not None]
    parts = [_said(title, _results(group)) for title, group in _by_title(known)]
    if parts:
        yield f"{wording.metric_words(known[0].metric).capitalize()}: {'; '.join(parts)}."


def _results(group: list[Row]) -> str:
    metric = group[0].metric
    best = [row for row in group if wording.is_share(metric) and _mean(row) == 1]
    if best:
        low = min(group, key=_mean)
        lowest = [] if low in best else [f"(its lowest: {_shown(low)}", f"{_where([low])})"]
        return _said("100%", _tally(best, group), *lowest)
    if len(group) == 1:
        return _said(_shown(group[0]), _where(group), f"(n = {len(group[0].values)})")
    low, high = min(group, key=_mean), max(group, key=_mean)
    return _said(wording.number(_mean(low), metric), "to", _shown(high), _where(group))


def _short(members: list[Row]) -> Iterator[str]:
    """Where ours falls short of the paper's number."""
    parts = [
        _said(title, _where(short), f"({_farthest(short)})")
        for title, group in _by_title(members)
        if (short := [row for row in group if _shortfall(row) > SHORTFALL])
    ]
    if parts:
        metric = members[0].metric
        limit = "one point" if wording.is_share(metric) else "one per cent"
        side = "Below" if wording.higher_is_better(metric) else "Above"
        yield f"{side} the paper's number by more than {limit}: {'; '.join(parts)}."


def _farthest(short: list[Row]) -> str:
    worst = max(short, key=_shortfall)
    assert worst.published is not None
    paper = wording.number(worst.published.mean, worst.metric) + wording.unit(worst.metric)
    place = f" {_where([worst])}, the farthest" if len(short) > 1 else ""
    return f"{_shown(worst)} against {paper}{place}"


def _unfinished(rows: list[Row]) -> Iterator[str]:
    runs = wording.count(sum(len(row.runs) for row in rows), "run")
    stopped = sum(row.not_converged for row in rows)
    diverged = sum(row.diverged for row in rows)
    failed = sum(row.failed for row in rows)
    if failed:
        yield f"{failed} of {runs} failed the released code's rule and are left out, as there."
    if stopped:
        yield f"{stopped} of {runs} did not converge: cut off at the last round, or diverged."
    if diverged:
        yield f"{wording.count(diverged, 'run')} gave no number, and no mean counts such a run."


def _by_title(members: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = {}
    for row in members:
        found.setdefault(row.title, []).append(row)
    return list(found.items())


def _gain(row: Row) -> float:
    """By how much GATv2 is better than this row; nan where there is no GATv2 to compare with."""
    if row.comparison is None:
        return math.nan
    better = wording.higher_is_better(row.metric)
    return row.comparison.difference if better else -row.comparison.difference


def _shortfall(row: Row) -> float:
    if row.published is None or math.isnan(row.difference):
        return 0.0
    worse = -row.difference if wording.higher_is_better(row.metric) else row.difference
    gap = worse if wording.is_share(row.metric) else worse / (abs(row.published.mean) or 1.0)
    return round(gap, 9)  # 0.45 - 0.44 is one point, whatever floats say


def _mean(row: Row) -> float:
    return math.nan if row.sample is None else row.sample.mean


def _shown(row: Row) -> str:
    return wording.number(_mean(row), row.metric) + wording.unit(row.metric)


def _versus(row: Row) -> str:
    assert row.comparison is not None
    ours = wording.number(row.comparison.ours.mean, row.metric) + wording.unit(row.metric)
    return _said(ours, "against", _shown(row), _where([row]))


def _ours(group: list[Row]) -> str:
    return wording.title_of(OURS, min(row.against or 1 for row in group))


def _tally(some: list[Row], all_: list[Row]) -> str:
    """ "at 17 of 17 values of k, 4–20" """
    names = _names(all_[0])
    if len(all_) == 1:
        return _where(all_)
    if len(names) != 1:
        return f"at {len(some)} of {len(all_)} settings"
    return f"at {len(some)} of {len(all_)} values of {names[0]}, {_places(some)}"


def _where(group: list[Row]) -> str:
    """ "at k = 4–6, 9"; nothing where the paper varies nothing but the data set."""
    names = _names(group[0])
    if len(names) == 1:
        return f"at {names[0]} = {_places(group)}"
    return f"at {wording.listed([row.label for row in group])}" if names else ""


def _names(row: Row) -> list[str]:
    return [name for name in row.swept if name != "dataset"]


def _places(group: list[Row]) -> str:
    (name,) = _names(group[0])
    values = [row.swept[name] for row in group]
    if all(type(value) is float for value in values):
        return wording.stretches(values)
    return wording.several(values).replace("-", "–").replace(",", ", ")


def _said(*words: str) -> str:
    return " ".join(word for word in words if word)
