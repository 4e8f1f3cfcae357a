"""Tuning: what is chosen among, for one mechanism, as a value.

A point is a choice for every setting searched, {dotted name: value}. Points that a record refuses,
such as heads that do not divide the width, belong to no grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dynagat.experiment import settings
from dynagat.experiment.benchmark import Benchmark
from dynagat.experiment.record import key_of

MOST_POINTS = 100_000
HEADS = "network.heads"
Point = dict[str, Any]
Sampler = Literal["tpe", "grid"]


@dataclass(frozen=True)
class Tuning:
    """One study: of a mechanism, over a grid, each point judged by the same seeds."""

    benchmark: Benchmark
    mechanism: str
    choices: Mapping[str, tuple[Any, ...]]  # by dotted name
    seeds: tuple[int, ...]
    sampler: Sampler = "tpe"
    prune: bool = True

    @property
    def key(self) -> str:
        """A hash of all that determines the study; not of its budget, which can grow."""
        base = settings.flat(settings.as_dict(self.benchmark.settings))
        told = {
            "revision": self.benchmark.revision,
            "base": {path: value for path, value in base.items() if path not in self.choices},
            "choices": settings.as_dict([[path, v] for path, v in sorted(self.choices.items())]),
            "seeds": list(self.seeds),
            "sampler": self.sampler,
            "prune": self.prune,
        }
        return key_of(self.benchmark.name, self.mechanism, 0, told)

    @property
    def most_rounds(self) -> int:
        """Of a run at any point."""
        base = self.benchmark.schedule.max_rounds
        return max(self.choices.get("schedule.max_rounds", (base,)))

    def at(self, point: Point) -> Benchmark:
        return self.benchmark.with_settings(settings.with_values(self.benchmark.settings, point))

    def refusal(self, point: Point) -> str:
        """Why a point can't be; nothing if it can."""
        try:
            self.at(point)
        except ValueError as error:
            return str(error)
        return ""

    def points(self) -> tuple[list[Point], list[str]]:
        """The grid, and why some of it is refused; a value refused everywhere is an error."""
        number = math.prod(map(len, self.choices.values()))
        if number > MOST_POINTS:
            most = f"{MOST_POINTS:,}"
            raise ValueError(f"a grid must have at most {most} points, but this has {number:,}")
        every = itertools.product(*self.choices.values())
        points = [dict(zip(self.choices, values, strict=True)) for values in every]
        judged = [(point, self.refusal(point)) for point in points]
        for path, value in ((p, v) for p, values in self.choices.items() for v in values):
            whys = [why for point, why in judged if point[path] == value]
            if all(whys):
                raise ValueError(f"no point of the grid can have {path}={value}: {whys[0]}")
        return [point for point, why in judged if not why], [why for _, why in judged if why]


def choices_of(
    benchmark: Benchmark, texts: list[str], fixed: Collection[str] = ()
) -> dict[str, tuple[Any, ...]]:
    """The benchmark's own grid, with what texts "name=value,value" add to it or put in its place.

    Settings that are fixed, by their dotted names, leave the grid.
    """
    start, found = benchmark.settings, {}
    for name, values in benchmark.search.items():
        # By way of their texts, so that the command printed later means exactly the same values.
        parsed = [settings.parse_choices(start, f"{name}={settings.as_text(v)}") for v in values]
        found[parsed[0][0]] = tuple(value for _, one in parsed for value in one)
    asked = dict(settings.parse_choices(start, text) for text in texts)
    for path in asked:
        if path in fixed:
            raise ValueError(f"{path} can't be both set and searched")
    found = {path: values for path, values in (found | asked).items() if path not in fixed}
    if not found:
        raise ValueError(
            f"{benchmark.name} has no grid to search; name one, such as --search lr=0.01,0.001"
        )
    return found
