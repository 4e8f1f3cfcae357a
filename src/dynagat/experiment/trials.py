"""tune: the same number of trials for every mechanism, judged on validation data only.

The mechanisms take turns, so that whenever tuning is stopped, all have had as many trials.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dynagat.experiment.benchmark import Benchmark, validate
from dynagat.experiment.checkpoint import Checkpoint, Checkpoints
from dynagat.experiment.execution import graph_of
from dynagat.experiment.runner import Contact, Runner, Say, Work, runner_of
from dynagat.experiment.storage import connect
from dynagat.experiment.study import MAX_REPORTS, Attempt, Final, Study, Trial
from dynagat.experiment.tuning import Point, Tuning
from dynagat.metrics import Metric
from dynagat.placement import find_device
from dynagat.training import Outcome, Round

Watch = Callable[[str, int, int, Round], None]  # mechanism, trial, seed
Tell = Callable[[str, int, int, str], None]  # the same, and a sentence about the checkpoint
OnTrial = Callable[[Trial], None]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning a mechanism."""

    tuning: Tuning
    trials: tuple[Trial, ...]  # those within the budget
    finals: tuple[Final, ...] = ()  # the best of them on fresh seeds, the best trial first

    @property
    def best(self) -> Trial:
        """The final with the best value, of equal ones the first; without finals the best trial."""
        if not self.finals:
            return self.ranked[0]
        return max(self.finals, key=lambda final: self._sign * final.value).trial

    @property
    def ranked(self) -> list[Trial]:
        """The complete trials of different points, the best first; of equal ones the earliest."""
        complete = [t for t in self.trials if t.value is not None and t.same_as is None]
        if not complete:
            name, number = self.tuning.mechanism, len(self.trials)
            raise ValueError(f"the {number} trials of {name} were all given up; allow more trials")
        return sorted(complete, key=lambda t: (-self._sign * (t.value or 0.0), t.number))

    @property
    def _sign(self) -> int:
        return 1 if self.tuning.metric.higher_is_better else -1

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark under the chosen settings."""
        return self.tuning.at(self.best.settings)


def tune(
    studies: list[Study],
    budget: int,
    storage: Path,
    workers: int | Runner = 1,
    watch: Watch = lambda mechanism, number, seed, round_: None,
    on_trial: OnTrial = lambda trial: None,
    tell: Tell = lambda mechanism, number, seed, text: None,
    say: Say = lambda text: None,
) -> list[Tuned]:
    """Run trials until each study has its budget; `on_trial` is called with every ended trial.

    `workers` is a number of processes, or where to run instead, such as a `Cluster`. Long runs of
    trials keep checkpoints in a folder next to the storage until the trial has ended. `watch` is
    called with each round, `tell` when a run continues from a checkpoint, `say` with sentences
    about the workers.
    """
    if budget < 1:
        raise ValueError(f"trials must be at least 1, but is {budget}")
    runner, path = runner_of(workers), storage.resolve()
    checkpoints = Checkpoints.beside(path)
    running: dict[Work, tuple[Study, Trial]] = {}

    def trials() -> Iterator[Work]:
        while chosen := _next(studies, budget, on_trial):
            study, trial = chosen
            tuning, point = study.tuning, trial.settings
            name = f"{tuning.benchmark.name} {tuning.mechanism} trial {trial.number}"
            arguments = (tuning, path, trial.number, point, checkpoints)
            work = Work(_attempt, arguments, name, graph_of(tuning.at(point)))
            running[work] = chosen
            yield work

    def receive(work: Work, message: Any) -> bool | None:
        if isinstance(message, Report):
            return running[work][0].report(message.trial, message.step, message.score)
        (watch if isinstance(message[-1], Round) else tell)(*message)

    with closing(runner.run(trials(), receive, say, path)) as results:  # also after Ctrl-C
        for done in results:
            for ended in _end(*running.pop(done.work), done.result, checkpoints):
                on_trial(ended)
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


def _end(study: Study, trial: Trial, result: Attempt, checkpoints: Checkpoints) -> list[Trial]:
    ended, tuning = study.tell(trial.number, result), study.tuning
    benchmark = tuning.at(trial.settings)
    checkpoints.remove([benchmark.key(tuning.mechanism, seed) for seed in tuning.seeds])
    return ended


_studies: dict[tuple[Path, str], Study] = {}  # in a worker process: the studies it has opened


@dataclass(frozen=True)
class Report:
    """A validation score of a trial; the answer is whether to give it up."""

    trial: int
    step: int
    score: float


Judge = Callable[[int, int, float], bool]  # trial, step, score; see Study.report


def _attempt(
    contact: Contact,
    tuning: Tuning,
    storage: Path,
    number: int,
    point: Point,
    checkpoints: Checkpoints,
) -> Attempt:
    """Where workers can't ask the process that keeps the trials, they open its file."""
    ask, place = contact.ask, (storage, tuning.key)
    if ask is None and place not in _studies:
        _studies[place] = Study(tuning, connect(storage))

    def judge(trial: int, step: int, score: float) -> bool:
        return (
            ask(Report(trial, step, score)) if ask else _studies[place].report(trial, step, score)
        )

    def report(*message: Any) -> None:
        contact.send(message)

    kept = checkpoints if contact.shares_files else None
    return attempt(tuning, number, point, judge, report, kept, report, contact.device)


def attempt(
    tuning: Tuning,
    number: int,
    point: Point,
    judge: Judge,
    watch: Watch,
    checkpoints: Checkpoints | None,
    tell: Tell,
    device: str = "cpu",
) -> Attempt:
    """Run the seeds of a trial, one after the other, until the pruner ends it."""
    benchmark = tuning.at(point)
    torch.optim.Adam([torch.zeros(1)])  # see experiment.run
    started, values, rounds = time.perf_counter(), [], [0]
    kept: list[Checkpoint] = []

    def attempted(pruned: bool) -> Attempt:
        seconds = time.perf_counter() - started + sum(each.seconds_before for each in kept)
        return Attempt(tuple(values), rounds[0], seconds, pruned)

    for seed in tuning.seeds:
        pruning = _Pruning(tuning, judge, number, values)

        def on_round(here: Round, seed: int = seed, pruning: _Pruning = pruning) -> None:
            rounds[0] += 1
            watch(tuning.mechanism, number, seed, here)
            pruning(here)

        def on_checkpoint(text: str, seconds: float, seed: int = seed) -> None:
            tell(tuning.mechanism, number, seed, text)

        key = benchmark.key(tuning.mechanism, seed)
        place = find_device(device)
        kept += [checkpoints.of(key, on_checkpoint, place)] if checkpoints else []
        try:
            checkpoint = kept[-1] if kept else None
            outcome = validate(benchmark, tuning.mechanism, seed, on_round, checkpoint, device)
        except _Pruned:
            return attempted(pruned=True)
        except ValueError as error:
            chosen = ", ".join(f"{path}={value}" for path, value in point.items())
            raise ValueError(f"{tuning.mechanism} with {chosen}: {error}") from None
        values.append(value_of(outcome, tuning.metric))
        if values[-1] == tuning.metric.worst:  # so is the mean
            break
        if pruning.ends_trial():
            return attempted(pruned=True)
    return attempted(pruned=False)


def value_of(outcome: Outcome, metric: Metric) -> float:
    """The validation score of the best round; the worst one of all if the run diverged."""
    score = outcome.best.valid
    return metric.worst if outcome.ended == "diverged" or math.isnan(score) else score


class _Pruned(Exception):
    """Raised to end the training of a trial that is given up."""


class _Pruning:
    """Reports a run to the pruner: the mean of the earlier seeds' values and its own best so far.

    Rounds are counted through all seeds: the pruner compares trials at the same count.
    """

    def __init__(self, tuning: Tuning, judge: Judge, number: int, values: list[float]) -> None:
        self.tuning, self.judge, self.number, self.values = tuning, judge, number, values
        self.metric, self.length = tuning.metric, tuning.max_rounds
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
        has_more = len(self.values) < len(self.tuning.seeds)
        return has_more and self._gives_up(self.length)

    def _gives_up(self, at_round: int) -> bool:
        mean = (sum(self.before) + self.best) / (len(self.before) + 1)
        return self.judge(self.number, len(self.before) * self.length + at_round, mean)
