"""Trials: what is timed. Contenders take turns, so that all see the same noise."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.cases import Effort
from bench.records import Record

WARM_UP = 3  # calls
SHORTEST = 0.03  # seconds; shorter calls are repeated within a trial, because a clock has noise


@dataclass(frozen=True)
class Trial:
    """What is timed: run(prepare()), without the time of prepare()."""

    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None


def time_trials(
    quantity: str,
    trials: Mapping[str, Trial],
    durations: Mapping[str, float],
    effort: Effort,
    measure: Callable[[Trial], float] | None = None,
) -> Iterator[Record]:
    """Repeat each trial as often as its duration allows, spread evenly over the whole time.

    `measure` returns the seconds of a trial; default: `seconds_of`.
    """
    measure = measure or seconds_of
    counts = {name: repetitions(durations[name], effort) for name in trials}
    seconds: dict[str, list[float]] = {name: [] for name in trials}
    gc.freeze()  # existing objects are skipped, so that collections between trials are short
    for name in alternation(counts):
        seconds[name].append(measure(trials[name]))
    gc.unfreeze()
    for name, values in seconds.items():
        yield Record.rounded(name, quantity, values)


def time_calls(
    quantity: str,
    calls: Mapping[str, Callable[[], Any]],
    durations: Mapping[str, float],
    effort: Effort,
) -> Iterator[Record]:
    """The seconds of one call of each, where a trial takes at least `SHORTEST`."""
    counts = {name: math.ceil(SHORTEST / durations[name]) for name in calls}
    trials = {
        name: Trial(lambda _, call=call, count=counts[name]: [call() for _ in range(count)])
        for name, call in calls.items()
    }
    whole = {name: durations[name] * count for name, count in counts.items()}
    for record in time_trials(quantity, trials, whole, effort):
        values = (value / counts[record.contender] for value in record.values)
        yield Record.rounded(record.contender, quantity, values)


def settled(call: Callable[[], Any]) -> float:
    """Seconds of a call after a warm-up."""
    return min(seconds_of(Trial(lambda _: call())) for _ in range(WARM_UP))


def repetitions(duration: float, effort: Effort) -> int:
    return min(max(int(effort.seconds / duration), effort.fewest), effort.most)


def alternation(counts: Mapping[str, int]) -> list[str]:
    """Each name `count` times, spread evenly; equal counts give rounds."""
    turns = [
        ((turn + 0.5) / count, index, name)
        for index, (name, count) in enumerate(counts.items())
        for turn in range(count)
    ]
    return [name for _, _, name in sorted(turns)]


def seconds_of(trial: Trial) -> float:
    """Seconds of one run."""
    prepared = trial.prepare()
    gc.collect()
    begin = time.perf_counter()
    trial.run(prepared)
    return time.perf_counter() - begin
