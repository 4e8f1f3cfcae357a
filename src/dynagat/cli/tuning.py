"""tune: choose a benchmark's settings for each mechanism, on validation data, at equal budgets."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dynagat.benchmarks import find
from dynagat.cli.answering import answering, err
from dynagat.cli.benchmarks import named_dataset
from dynagat.experiment import Benchmark
from dynagat.experiment import tune as bring_to_budget
from dynagat.experiment.progress import SILENCE, clock
from dynagat.experiment.record import plain
from dynagat.experiment.settings import (
    as_dict,
    as_text,
    flat,
    grid,
    parse_numbers,
    parse_settings,
    short_name,
)
from dynagat.experiment.storage import opened
from dynagat.experiment.study import Study, Trial
from dynagat.experiment.tune import Tuned
from dynagat.experiment.tuning import HEADS, Sampler, Tuning, choices_of
from dynagat.files import write_text
from dynagat.training import Round

TRIALS, SMOKE_TRIALS = 60, 4


def tune(
    benchmark: str,
    mechanism: Annotated[list[str] | None, typer.Option(help="Default: all it compares.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="For each mechanism; default: 60, or the whole grid.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Of each trial; default: 0-1.")] = None,
    sampler: Annotated[Sampler, typer.Option(help="tpe, or grid: all points, shuffled.")] = "tpe",
    prune: Annotated[bool, typer.Option(help="Give up trials below the median.")] = True,
    workers: Annotated[int, typer.Option(help="Processes; the cores are shared out.")] = 1,
    storage: Annotated[Path, typer.Option(help="The SQLite file of trials.")] = Path("tune.sqlite"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE, for every trial.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=V1,V2,..: adds to the benchmark's grid or changes it."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Few short trials, to see that it works.")
    ] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="All trials, as JSON lines.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line per mechanism.")] = False,
) -> None:
    """Choose settings for each mechanism on validation data; the same command goes on."""
    with answering():
        asked = find(benchmark)
        names = ",".join(mechanism or asked.mechanisms).split(",")
        numbers = parse_numbers(seeds or ("0" if smoke else "0-1"), "seeds")
        budget = _budget(trials, sampler, smoke)
        base, fixed = _base(asked, settings or [], smoke)
        choices = choices_of(asked, search or [], fixed)
        tunings = [
            Tuning(each, name, choices, tuple(numbers), sampler, prune)
            for name, each in _by_mechanism(base, names, HEADS in {*choices, *fixed}).items()
        ]
        tunings = _covered(tunings, budget)
        with opened(storage) as kept:
            studies = [Study(each, kept) for each in tunings]
            _check_data(studies[0])
            found = _tune_shown(studies, budget, storage, workers)
            trials_made = [trial for study in studies for trial in study.trials()]
        if out_file is not None:
            lines = [
                json.dumps(plain({"benchmark": asked.name, **asdict(trial)}))
                for trial in trials_made
            ]
            write_text(out_file, "".join(f"{line}\n" for line in lines))
        for each in found:
            told = told_of(each, asked)
            print(json.dumps(plain(told)) if as_json else _words(told, each.tuning))


def _budget(trials: int | None, sampler: str, smoke: bool) -> int:
    whole = sys.maxsize if sampler == "grid" else TRIALS
    budget = (SMOKE_TRIALS if smoke else whole) if trials is None else trials
    if budget < 1:
        raise ValueError(f"trials must be at least 1, but is {trials}")
    return budget


def _base(asked: Benchmark, assignments: list[str], smoke: bool) -> tuple[Benchmark, set[str]]:
    """The benchmark that all trials start from, and the settings that were fixed by --set."""
    start = asked.base("", named_dataset(assignments))
    given = parse_settings(start, assignments)
    for path, values in given:
        if len(values) > 1:
            raise ValueError(f"--set gives {path} several values; --search chooses among them")
    [settings] = grid(start, [*(asked.smoke if smoke else ()), *assignments])
    return asked.with_settings(settings), {path for path, _ in given}


def _by_mechanism(base: Benchmark, names: list[str], heads_are_given: bool) -> dict[str, Benchmark]:
    """With the first number of heads that the benchmark compares it with, if none was asked for."""
    found = {}
    for name in names:
        if name not in base.mechanisms:
            known = ", ".join(base.mechanisms)
            raise ValueError(f"{base.name} has no mechanism {name!r}; it has {known}")
        found[name] = base if heads_are_given else base.with_heads(base.mechanisms[name][0])
    return found


def _covered(tunings: list[Tuning], budget: int) -> list[Tuning]:
    """A budget that is enough for the whole grid needs no sampler that may propose points twice."""
    number = len(tunings[0].points()[0])
    if budget < number or tunings[0].sampler == "grid":
        return tunings
    _say(f"the grid has {number} points and the budget {budget} trials: each point is tried once")
    return [replace(each, sampler="grid") for each in tunings]


def _check_data(study: Study) -> None:
    missing = study.tuning.at(study.points[0]).data.missing()
    if missing:
        raise ValueError(f"the data of {study.tuning.benchmark.name} are not there: {missing}")


def _tune_shown(studies: list[Study], budget: int, storage: Path, workers: int) -> list[Tuned]:
    points, refusals = studies[0].points, studies[0].refusals
    if refusals:
        total = len(points) + len(refusals)
        _say(f"{len(refusals)} of {total} points of the grid are skipped, such as: {refusals[0]}")
    lost = sum(study.recover() for study in studies)
    if lost:
        _say(f"{lost} unfinished in {storage}, left by a tuner that was stopped: made again")
    progress = TuningProgress(studies, budget)
    try:
        return bring_to_budget(studies, budget, storage, workers, progress.watch, progress.told)
    except KeyboardInterrupt:
        _say(f"stopped; finished trials are in {storage}. The same command goes on:")
        _say(f"  {shlex.join(['dynagat', *sys.argv[1:]])}")
        raise typer.Exit(130) from None


class TuningProgress:
    """A line for each trial that ends; and, after some silence, one of a run that goes on."""

    def __init__(self, studies: list[Study], budget: int) -> None:
        self.budget = {study.tuning.mechanism: study.limit(budget) for study in studies}
        self.done: Counter[str] = Counter()
        self.best: dict[str, float] = {}
        for study in studies:
            for trial in study.trials():
                self._count(trial)
        self.before = sum(self.done.values())
        if self.before:
            _say(f"{self.before} of {sum(self.budget.values())} trials are there already")
        self.started = self.spoke = time.perf_counter()

    def _count(self, trial: Trial) -> None:
        name = trial.mechanism
        if trial.counts and self.done[name] < self.budget[name]:
            self.done[name] += 1
            if trial.value is not None:
                self.best[name] = max(trial.value, self.best.get(name, trial.value))

    def watch(self, mechanism: str, number: int, seed: int, seen: Round) -> None:
        if time.perf_counter() - self.spoke > SILENCE:
            here = f"round {seen.round} loss {seen.loss:.4f} valid {seen.valid:.4f}"
            _say(f"{mechanism} trial {number} seed {seed}: {here}; {self._all()}")
            self.spoke = time.perf_counter()

    def told(self, trial: Trial) -> None:
        self._count(trial)
        name = trial.mechanism
        chosen = " ".join(f"{p.split('.')[-1]}={as_text(v)}" for p, v in trial.settings.items())
        best = f", best {_score(self.best[name])}" if name in self.best else ""
        count = f"{self.done[name]}/{self.budget[name]}"
        _say(f"{count} {name} {chosen}: {_ending(trial)}{best}; {self._all()}")
        self.spoke = time.perf_counter()

    def _all(self) -> str:
        done, total = sum(self.done.values()), sum(self.budget.values())
        spent, new = time.perf_counter() - self.started, done - self.before
        left = f", about {clock(spent / new * (total - done))} left" if new else ""
        return f"{done} of {total} trials{left}"


def _ending(trial: Trial) -> str:
    if trial.state == "refused":
        return f"skipped, for {trial.refusal}"
    value = trial.state if trial.value is None else f"valid {_score(trial.value)}"
    if trial.same_as is not None:
        return f"{value}, as trial {trial.same_as} of the same settings"
    return f"{value} in {trial.seconds:.1f} s"


def _score(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none, for it diverged"


def told_of(tuned: Tuned, asked: Benchmark) -> dict[str, Any]:
    """What was chosen for a mechanism, by what, and the command that runs it."""
    best, trials = tuned.best, tuned.trials
    return {
        "benchmark": asked.name,
        "mechanism": tuned.tuning.mechanism,
        "settings": dict(best.settings),
        "valid": best.value,
        "values": best.values,
        "trial": best.number,
        "trials": len(trials),
        "pruned": sum(trial.state == "pruned" for trial in trials),
        "repeated": sum(trial.same_as is not None for trial in trials),
        "seeds": tuned.tuning.seeds,
        "runs": sum(len(trial.values) for trial in trials if trial.same_as is None),
        "rounds": sum(trial.rounds for trial in trials),
        "seconds": round(sum(trial.seconds for trial in trials), 1),
        "command": shlex.join(command_of(tuned, asked)),
    }


def command_of(tuned: Tuned, asked: Benchmark) -> list[str]:
    """The words that run what was chosen; settings that the benchmark has anyway are left out."""
    mechanism, chosen = tuned.tuning.mechanism, tuned.benchmark
    now = flat(as_dict(chosen.settings))
    dataset = now.get("data.dataset") if asked.by_dataset else None
    before = flat(as_dict(asked.base(mechanism, dataset)))
    words = ["dynagat", "run", asked.name, "--mechanism", mechanism]
    if dataset is not None:
        words += ["--set", f"dataset={dataset}"]
    if asked.mechanisms[mechanism] != (chosen.network.heads,):
        words += ["--heads", str(chosen.network.heads)]
    for path, value in now.items():
        if value != before[path] and path != HEADS:
            words += ["--set", f"{short_name(asked.settings, path)}={as_text(value)}"]
    return [*words, "--seeds", f"{asked.seeds[0]}-{asked.seeds[-1]}"]


def _words(told: dict[str, Any], tuning: Tuning) -> str:
    chosen = ", ".join(
        f"{short_name(tuning.benchmark.settings, path)}={as_text(value)}"
        for path, value in told["settings"].items()
    )
    return (
        f"{told['mechanism']}: {chosen}\n"
        f"  valid {_score(told['valid'])}, the mean of seeds {', '.join(map(str, told['seeds']))}; "
        f"the best of {told['trials']} trials ({told['pruned']} pruned, {told['repeated']} "
        f"repeated; {clock(told['seconds'])})\n"
        f"  {told['command']}"
    )


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)
