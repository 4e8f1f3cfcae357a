"""tune: trials for every mechanism, the same number for each, judged on validation data only.

The mechanisms take turns, so that wherever it is stopped they have had the same number of trials.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import torch

from dynagat.experiment.benchmark import Benchmark, validate
from dynagat.experiment.execute import Crew, tell
from dynagat.experiment.storage import connect
from dynagat.experiment.study import LOOKS, Attempt, Study, Trial
from dynagat.experiment.tuning import Point, Tuning
from dynagat.training import Round

Watch = Callable[[str, int, int, Round], None]  # mechanism, trial, seed
Told = Callable[[Trial], None]


@dataclass(frozen=True)
class Tuned:
    """What tuning a mechanism found."""

    tuning: Tuning
    trials: tuple[Trial, ...]  # those of the budget

    @property
    def best(self) -> Trial:
        """The complete trial with the highest value; of equal ones the earliest."""
        complete = [trial for trial in self.trials if trial.value is not None]
        if not complete:
            name, number = self.tuning.mechanism, len(self.trials)
            raise ValueError(f"the {number} trials of {name} were all given up; allow more trials")
        return max(complete, key=lambda trial: (trial.value, -trial.number))

    @property
    def benchmark(self) -> Benchmark:
        """Under the chosen settings."""
        return self.tuning.at(self.best.settings)


def tune(
    studies: list[Study],
    budget: int,
    storage: Path,
    workers: int = 1,
    watch: Watch = lambda mechanism, number, seed, seen: None,
    told: Told = lambda trial: None,
) -> list[Tuned]:
    """Bring each study to its budget. `told` hears of every trial that ends."""
    for name, number in (("trials", budget), ("workers", workers)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")
    if workers == 1:
        _in_this_process(studies, budget, watch, told)
    else:
        _in_processes(studies, budget, storage, workers, watch, told)
    return [Tuned(study.tuning, _counted(study, budget)) for study in studies]


def _counted(study: Study, budget: int) -> tuple[Trial, ...]:
    """The first that count, so that a study with more than its budget has no advantage."""
    return tuple([trial for trial in study.trials() if trial.counts][: study.limit(budget)])


def _asked(studies: list[Study], budget: int, told: Told) -> tuple[Study, Trial] | None:
    """A trial to run, of the study that has had the fewest; None if there is none to begin."""
    while True:
        begun = {study: sum(_is_begun(t) for t in study.trials()) for study in studies}
        open_ones = [study for study in studies if begun[study] < study.limit(budget)]
        if not open_ones:
            return None
        study = min(open_ones, key=lambda each: begun[each])
        trial = study.ask()
        if trial.state != "running":
            told(trial)
        elif trial.same_as is None:
            return study, trial


def _is_begun(trial: Trial) -> bool:
    return trial.counts or trial.state == "running"


def _in_this_process(studies: list[Study], budget: int, watch: Watch, told: Told) -> None:
    while asked := _asked(studies, budget, told):
        study, trial = asked
        for ended in study.tell(trial.number, attempt(study, trial.number, trial.settings, watch)):
            told(ended)


def _in_processes(
    studies: list[Study], budget: int, storage: Path, workers: int, watch: Watch, told: Told
) -> None:
    running: dict[Future[Attempt], tuple[Study, Trial]] = {}
    with Crew(workers) as crew:
        while True:
            while len(running) < workers and (asked := _asked(studies, budget, told)):
                study, trial = asked
                work = (study.tuning, storage, trial.number, trial.settings)
                running[crew.submit(_attempt_in_worker, *work)] = asked
            if not running:
                return
            done = crew.taken(0.1)
            while heard := crew.hear(0):
                watch(*heard)
            for future in sorted(done, key=lambda each: each.exception() is not None):
                study, trial = running.pop(future)
                for ended in study.tell(trial.number, future.result()):
                    told(ended)


_studies: dict[tuple[Path, str], Study] = {}  # in a worker: those it has opened


def _attempt_in_worker(tuning: Tuning, storage: Path, number: int, point: Point) -> Attempt:
    place = (storage, tuning.key)
    if place not in _studies:
        _studies[place] = Study(tuning, connect(storage))
    return attempt(_studies[place], number, point, lambda *seen: tell(seen))


def attempt(study: Study, number: int, point: Point, watch: Watch) -> Attempt:
    """Run a trial's seeds, one after the other, as long as the pruner lets it."""
    tuning, benchmark = study.tuning, study.tuning.at(point)
    torch.optim.Adam([torch.zeros(1)])  # see experiment.run
    started, values, counted = time.perf_counter(), [], [0]

    def attempted(pruned: bool) -> Attempt:
        return Attempt(tuple(values), counted[0], time.perf_counter() - started, pruned)

    for seed in tuning.seeds:
        look = _Look(study, number, values)

        def hear(seen: Round, seed: int = seed, look: _Look = look) -> None:
            counted[0] += 1
            watch(tuning.mechanism, number, seed, seen)
            look(seen)

        try:
            outcome = validate(benchmark, tuning.mechanism, seed, hear)
        except _Pruned:
            return attempted(pruned=True)
        except ValueError as error:
            told = ", ".join(f"{path}={value}" for path, value in point.items())
            raise ValueError(f"{tuning.mechanism} with {told}: {error}") from None
        values.append(-math.inf if outcome.ended == "diverged" else look.best)
        if values[-1] == -math.inf:  # the mean can't be anything else
            break
        if look.ends():
            return attempted(pruned=True)
    return attempted(pruned=False)


class _Pruned(Exception):
    """Ends the training of a trial that is given up."""


class _Look:
    """At a seed's run: the mean of the earlier seeds' values and of its own best so far.

    Such looks are counted through all seeds: the pruner compares trials at the same count.
    """

    def __init__(self, study: Study, number: int, values: list[float]) -> None:
        self.study, self.number, self.values = study, number, values
        self.before = tuple(values)
        self.length = study.tuning.most_rounds
        self.best = -math.inf

    def __call__(self, seen: Round) -> None:
        if math.isfinite(seen.valid):
            self.best = max(self.best, seen.valid)
        is_due = seen.round % max(1, self.length // LOOKS) == 0 and seen.round < self.length
        if is_due and math.isfinite(self.best) and self._gives_up(seen.round):
            raise _Pruned

    def ends(self) -> bool:
        """Whether the trial ends with this run, though there are more seeds."""
        has_more = len(self.values) < len(self.study.tuning.seeds)
        return has_more and self._gives_up(self.length)

    def _gives_up(self, round: int) -> bool:
        mean = (sum(self.before) + self.best) / (len(self.before) + 1)
        return self.study.report(self.number, len(self.before) * self.length + round, mean)
