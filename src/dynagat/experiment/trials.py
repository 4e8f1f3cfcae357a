"""tune: the same number of trials for every mechanism, judged on validation data only.

The mechanisms take turns, so that whenever tuning is stopped, all have had as many trials.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dynagat.experiment.benchmark import Benchmark, validate
from dynagat.experiment.checkpoint import Checkpoint, Checkpoints
from dynagat.experiment.execution import Crew, send
from dynagat.experiment.storage import connect
from dynagat.experiment.study import MAX_REPORTS, Attempt, Study, Trial
from dynagat.experiment.tuning import Point, Tuning
from dynagat.training import Round

Watch = Callable[[str, int, int, Round], None]  # mechanism, trial, seed
Tell = Callable[[str, int, int, str], None]  # the same, and a sentence about the checkpoint
OnTrial = Callable[[Trial], None]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning a mechanism."""

    tuning: Tuning
    trials: tuple[Trial, ...]  # those within the budget

    @property
    def best(self) -> Trial:
        """The complete trial with the best value; of equal ones the earliest."""
        complete = [trial for trial in self.trials if trial.value is not None]
        if not complete:
            name, number = self.tuning.mechanism, len(self.trials)
            raise ValueError(f"the {number} trials of {name} were all given up; allow more trials")
        sign = 1 if self.tuning.metric.higher_is_better else -1
        return max(complete, key=lambda trial: (sign * (trial.value or 0.0), -trial.number))

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark under the chosen settings."""
        return self.tuning.at(self.best.settings)


def tune(
    studies: list[Study],
    budget: int,
    storage: Path,
    workers: int = 1,
    watch: Watch = lambda mechanism, number, seed, round_: None,
    on_trial: OnTrial = lambda trial: None,
    tell: Tell = lambda mechanism, number, seed, text: None,
) -> list[Tuned]:
    """Run trials until each study has its budget; `on_trial` is called with every ended trial.

    Long runs of trials keep checkpoints in a folder next to the storage until the trial has ended.
    `watch` is called with each round, `tell` when a run continues from a checkpoint.
    """
    for name, number in (("trials", budget), ("workers", workers)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")
    if workers == 1:
        _in_this_process(studies, budget, storage, watch, on_trial, tell)
    else:
        _in_processes(studies, budget, storage, workers, watch, on_trial, tell)
    return [Tuned(study.tuning, _counted(study, budget)) for study in studies]


def _counted(study: Study, budget: int) -> tuple[Trial, ...]:
    """The first trials within the budget, so that a study with more has no advantage."""
    return tuple([trial for trial in study.trials() if trial.counts][: study.limit(budget)])


def _next(studies: list[Study], budget: int, on_trial: OnTrial) -> tuple[Study, Trial] | None:
    """A trial to run, of the study with the fewest; None if all have their budget."""
    while True:
        begun = {study: sum(_is_begun(t) for t in study.trials()) for study in studies}
        unfinished = [study for study in studies if begun[study] < study.limit(budget)]
        if not unfinished:
            return None
        study = min(unfinished, key=lambda each: begun[each])
        trial = study.ask()
        if trial.state != "running":
            on_trial(trial)
        elif trial.same_as is None:
            return study, trial


def _is_begun(trial: Trial) -> bool:
    return trial.counts or trial.state == "running"


def _in_this_process(
    studies: list[Study], budget: int, storage: Path, watch: Watch, on_trial: OnTrial, tell: Tell
) -> None:
    checkpoints = Checkpoints.beside(storage)
    while chosen := _next(studies, budget, on_trial):
        study, trial = chosen
        result = attempt(study, trial.number, trial.settings, watch, checkpoints, tell)
        for ended in _end(study, trial, result, checkpoints):
            on_trial(ended)


def _end(study: Study, trial: Trial, result: Attempt, checkpoints: Checkpoints) -> list[Trial]:
    ended, tuning = study.tell(trial.number, result), study.tuning
    benchmark = tuning.at(trial.settings)
    checkpoints.remove([benchmark.key(tuning.mechanism, seed) for seed in tuning.seeds])
    return ended


def _in_processes(
    studies: list[Study],
    budget: int,
    storage: Path,
    workers: int,
    watch: Watch,
    on_trial: OnTrial,
    tell: Tell,
) -> None:
    checkpoints = Checkpoints.beside(storage)
    running: dict[Future[Attempt], tuple[Study, Trial]] = {}
    with Crew(workers) as crew:
        while True:
            while len(running) < workers and (chosen := _next(studies, budget, on_trial)):
                study, trial = chosen
                work = (study.tuning, storage, trial.number, trial.settings, checkpoints)
                running[crew.submit(_attempt_in_worker, *work)] = chosen
            if not running:
                return
            finished = crew.finished(0.1)
            while message := crew.receive(0):
                (watch if isinstance(message[-1], Round) else tell)(*message)
            for future in sorted(finished, key=lambda each: each.exception() is not None):
                study, trial = running.pop(future)
                for ended in _end(study, trial, crew.result(future), checkpoints):
                    on_trial(ended)


_studies: dict[tuple[Path, str], Study] = {}  # in a worker: the studies it has opened


def _attempt_in_worker(
    tuning: Tuning, storage: Path, number: int, point: Point, checkpoints: Checkpoints
) -> Attempt:
    place = (storage, tuning.key)
    if place not in _studies:
        _studies[place] = Study(tuning, connect(storage))

    def report(*message: Any) -> None:
        send(message)

    return attempt(_studies[place], number, point, report, checkpoints, report)


def attempt(
    study: Study, number: int, point: Point, watch: Watch, checkpoints: Checkpoints, tell: Tell
) -> Attempt:
    """Run the seeds of a trial, one after the other, until the pruner ends it."""
    tuning, benchmark = study.tuning, study.tuning.at(point)
    torch.optim.Adam([torch.zeros(1)])  # see experiment.run
    started, values, rounds = time.perf_counter(), [], [0]
    kept: list[Checkpoint] = []

    def attempted(pruned: bool) -> Attempt:
        seconds = time.perf_counter() - started + sum(each.seconds_before for each in kept)
        return Attempt(tuple(values), rounds[0], seconds, pruned)

    for seed in tuning.seeds:
        pruning = _Pruning(study, number, values)

        def on_round(here: Round, seed: int = seed, pruning: _Pruning = pruning) -> None:
            rounds[0] += 1
            watch(tuning.mechanism, number, seed, here)
            pruning(here)

        def on_checkpoint(text: str, seconds: float, seed: int = seed) -> None:
            tell(tuning.mechanism, number, seed, text)

        kept.append(checkpoints.of(benchmark.key(tuning.mechanism, seed), on_checkpoint))
        try:
            outcome = validate(benchmark, tuning.mechanism, seed, on_round, kept[-1])
        except _Pruned:
            return attempted(pruned=True)
        except ValueError as error:
            chosen = ", ".join(f"{path}={value}" for path, value in point.items())
            raise ValueError(f"{tuning.mechanism} with {chosen}: {error}") from None
        worst = tuning.metric.worst
        values.append(worst if outcome.ended == "diverged" else pruning.best)
        if values[-1] == worst:  # so is the mean
            break
        if pruning.ends_trial():
            return attempted(pruned=True)
    return attempted(pruned=False)


class _Pruned(Exception):
    """Raised to end the training of a trial that is given up."""


class _Pruning:
    """Reports a run to the pruner: the mean of the earlier seeds' values and its own best so far.

    Rounds are counted through all seeds: the pruner compares trials at the same count.
    """

    def __init__(self, study: Study, number: int, values: list[float]) -> None:
        self.study, self.number, self.values = study, number, values
        self.metric, self.length = study.tuning.metric, study.tuning.max_rounds
        self.before = tuple(values)
        self.best = self.metric.worst

    def __call__(self, here: Round) -> None:
        if self.metric.is_gain(here.valid, self.best):
            self.best = here.valid
        is_due = here.round % max(1, self.length // MAX_REPORTS) == 0 and here.round < self.length
        if is_due and math.isfinite(self.best) and self._gives_up(here.round):
            raise _Pruned

    def ends_trial(self) -> bool:
        """Whether the trial ends with this run, though there are more seeds."""
        has_more = len(self.values) < len(self.study.tuning.seeds)
        return has_more and self._gives_up(self.length)

    def _gives_up(self, at_round: int) -> bool:
        mean = (sum(self.before) + self.best) / (len(self.before) + 1)
        return self.study.report(self.number, len(self.before) * self.length + at_round, mean)
