"""Tuning: the settings to choose among for one mechanism, as a value.

A point is a value for every searched setting, {dotted name: value}. Points that the settings
refuse, such as heads that do not divide the width, are left out of the grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dynagat.experiment import settings
from dynagat.experiment.benchmark import Benchmark
from dynagat.experiment.jobs import HEADS, Request
from dynagat.experiment.record import key_of
from dynagat.metrics import Metric

MAX_POINTS = 100_000
Point = dict[str, Any]
Sampler = Literal["tpe", "grid"]


@dataclass(frozen=True)
class Tuning:
    """One study: a mechanism, a grid, and the seeds that each point is run with."""

    benchmark: Benchmark
    mechanism: str
    choices: Mapping[str, tuple[Any, ...]]  # by dotted name
    seeds: tuple[int, ...]
    sampler: Sampler = "tpe"
    prune: bool = True

    @property
    def key(self) -> str:
        """A hash of all that determines the study, except its budget, which can grow."""
        base = settings.flat(settings.as_stored(self.benchmark.settings, whole=True))
        values = {
            "revision": self.benchmark.revision,
            "base": {path: value for path, value in base.items() if path not in self.choices},
            "choices": settings.as_dict([[path, v] for path, v in sorted(self.choices.items())]),
            "seeds": list(self.seeds),
            "sampler": self.sampler,
            "prune": self.prune,
        }
        return key_of(self.benchmark.name, self.mechanism, 0, values)

    @property
    def metric(self) -> Metric:
        """The metric of validation scores."""
        return self.benchmark.metric

    @property
    def max_rounds(self) -> int:
        """The longest run at any point of the grid."""
        base = self.benchmark.schedule.max_rounds
        return max(self.choices.get("schedule.max_rounds", (base,)))

    def at(self, point: Point) -> Benchmark:
        return self.benchmark.with_settings(settings.with_values(self.benchmark.settings, point))

    def refusal(self, point: Point) -> str:
        """Why the settings refuse a point; empty if they do not."""
        try:
            self.at(point)
        except ValueError as error:
            return str(error)
        return ""

    def points(self) -> tuple[list[Point], list[str]]:
        """The grid, and why points are refused; a value that is always refused is an error."""
        number = math.prod(map(len, self.choices.values()))
        if number > MAX_POINTS:
            limit = f"{MAX_POINTS:,}"
            raise ValueError(f"a grid must have at most {limit} points, but this has {number:,}")
        every = itertools.product(*self.choices.values())
        points = [dict(zip(self.choices, values, strict=True)) for values in every]
        judged = [(point, self.refusal(point)) for point in points]
        for path, value in ((p, v) for p, values in self.choices.items() for v in values):
            refusals = [why for point, why in judged if point[path] == value]
            if all(refusals):
                raise ValueError(f"no point of the grid can have {path}={value}: {refusals[0]}")
        return [point for point, why in judged if not why], [why for _, why in judged if why]


def choices_of(
    benchmark: Benchmark, texts: list[str], fixed: Collection[str] = ()
) -> dict[str, tuple[Any, ...]]:
    """The benchmark's grid; texts "name=value,value" add settings to it or replace their values.

    Settings that are fixed, given by their dotted names, leave the grid.
    """
    start, own = benchmark.settings, {}
    for name, values in benchmark.search.items():
        # Through their texts, so that the printed command means exactly the same values.
        parsed = [settings.parse_choices(start, f"{name}={settings.as_text(v)}") for v in values]
        own[parsed[0][0]] = tuple(value for _, one in parsed for value in one)
    given = dict(settings.parse_choices(start, text) for text in texts)
    for path in given:
        if path in fixed:
            raise ValueError(f"{path} can't be both set and searched")
    choices = {path: values for path, values in (own | given).items() if path not in fixed}
    if not choices:
        raise ValueError(
            f"{benchmark.name} has no grid to search; name one, such as --search lr=0.01,0.001"
        )
    return choices


def tunings_of(
    benchmark: Benchmark,
    request: Request,
    search: list[str],
    sampler: Sampler = "tpe",
    prune: bool = True,
) -> list[Tuning]:
    """One for each mechanism. Trials start from the settings of the request, not the tuned ones.

    Without heads among the settings or the grid, a mechanism has the first number of heads that the
    benchmark compares.
    """
    start = benchmark.base("", request.dataset)
    given = settings.parse_settings(start, list(request.settings))
    for path, values in given:
        if len(values) > 1:
            raise ValueError(f"--set gives {path} several values; --search chooses among them")
    short = benchmark.smoke if request.smoke else ()
    [chosen] = settings.grid(start, [*short, *request.settings])
    base, fixed = benchmark.with_settings(chosen), {path for path, _ in given}
    choices = choices_of(benchmark, search, fixed)
    tunings = []
    for name in request.mechanisms or tuple(benchmark.mechanisms):
        benchmark.check_mechanism(name)
        has_heads = HEADS in {*choices, *fixed}
        own = base if has_heads else base.with_heads(base.mechanisms[name][0])
        tunings.append(Tuning(own, name, choices, request.seeds, sampler, prune))
    return tunings
