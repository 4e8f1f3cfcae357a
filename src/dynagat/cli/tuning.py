"""dynagat tune: choose settings for each mechanism on validation data, with equal budgets."""

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
from dynagat.cli.console import explain_errors, note, words
from dynagat.experiment import Benchmark, Request
from dynagat.experiment import tune as run_trials
from dynagat.experiment.jobs import HEADS
from dynagat.experiment.progress import SILENCE, clock
from dynagat.experiment.record import plain
from dynagat.experiment.settings import (
    as_text,
    grid,
    parse_numbers,
    parse_settings,
    short_name,
    values_of,
)
from dynagat.experiment.storage import opened
from dynagat.experiment.study import Study, Trial
from dynagat.experiment.trials import Tuned
from dynagat.experiment.tuning import Sampler, Tuning, choices_of
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
    sampler: Annotated[
        Sampler, typer.Option(help="tpe, or grid: all points in random order.")
    ] = "tpe",
    prune: Annotated[
        bool, typer.Option(help="Give up trials that are worse than the median.")
    ] = True,
    workers: Annotated[int, typer.Option(help="Number of processes, which share the cores.")] = 1,
    storage: Annotated[Path, typer.Option(help="The SQLite file of trials.")] = Path("tune.sqlite"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE, for every trial.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=V1,V2,..: add to the benchmark's grid or change it."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A few short trials, to check that it works.")
    ] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File for all trials, as JSON lines.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line per mechanism.")] = False,
) -> None:
    """Choose settings for each mechanism on validation data. The same command resumes."""
    with explain_errors():
        chosen = find(benchmark)
        names = words(mechanism) or tuple(chosen.mechanisms)
        numbers = parse_numbers(seeds or ("0" if smoke else "0-1"), "seeds")
        budget = _budget(trials, sampler, smoke)
        base, fixed = _base(chosen, settings or [], smoke)
        choices = choices_of(chosen, search or [], fixed)
        tunings = [
            Tuning(each, name, choices, tuple(numbers), sampler, prune)
            for name, each in _by_mechanism(base, names, HEADS in {*choices, *fixed}).items()
        ]
        tunings = _use_grid_if_covered(tunings, budget)
        with opened(storage) as kept:
            studies = [Study(each, kept) for each in tunings]
            _check_data(studies[0])
            results = _tune_shown(studies, budget, storage, workers)
            every = [trial for study in studies for trial in study.trials()]
        if out_file is not None:
            lines = [
                json.dumps(plain({"benchmark": chosen.name, **asdict(trial)})) for trial in every
            ]
            write_text(out_file, "".join(f"{line}\n" for line in lines))
        for each in results:
            summary = summary_of(each, chosen)
            print(json.dumps(plain(summary)) if as_json else _text(summary, each.tuning))


def _budget(trials: int | None, sampler: str, smoke: bool) -> int:
    whole = sys.maxsize if sampler == "grid" else TRIALS
    budget = (SMOKE_TRIALS if smoke else whole) if trials is None else trials
    if budget < 1:
        raise ValueError(f"trials must be at least 1, but is {trials}")
    return budget


def _base(benchmark: Benchmark, assignments: list[str], smoke: bool) -> tuple[Benchmark, set[str]]:
    """The benchmark that all trials start from, and the settings that --set fixes."""
    start = benchmark.base("", Request(tuple(assignments)).dataset)
    given = parse_settings(start, assignments)
    for path, values in given:
        if len(values) > 1:
            raise ValueError(f"--set gives {path} several values; --search chooses among them")
    [settings] = grid(start, [*(benchmark.smoke if smoke else ()), *assignments])
    return benchmark.with_settings(settings), {path for path, _ in given}


def _by_mechanism(
    base: Benchmark, names: tuple[str, ...], heads_are_given: bool
) -> dict[str, Benchmark]:
    """With the first number of heads that the benchmark compares, unless heads are given."""
    for name in names:
        base.check_mechanism(name)
    return {
        name: base if heads_are_given else base.with_heads(base.mechanisms[name][0])
        for name in names
    }


def _use_grid_if_covered(tunings: list[Tuning], budget: int) -> list[Tuning]:
    """With a budget for the whole grid, try each point once instead of sampling."""
    number = len(tunings[0].points()[0])
    if budget < number or tunings[0].sampler == "grid":
        return tunings
    note(f"the grid has {number} points and the budget {budget} trials: each point is tried once")
    return [replace(each, sampler="grid") for each in tunings]


def _check_data(study: Study) -> None:
    missing = study.tuning.at(study.points[0]).data.missing()
    if missing:
        raise ValueError(f"the data of {study.tuning.benchmark.name} are missing: {missing}")


def _tune_shown(studies: list[Study], budget: int, storage: Path, workers: int) -> list[Tuned]:
    points, refusals = studies[0].points, studies[0].refusals
    if refusals:
        total = len(points) + len(refusals)
        note(f"{len(refusals)} of {total} points of the grid are skipped, such as: {refusals[0]}")
    lost = sum(study.recover() for study in studies)
    if lost:
        note(f"{lost} unfinished trials in {storage}, left by a stopped process, are repeated")
    progress = TuningProgress(studies, budget)
    try:
        return run_trials(studies, budget, storage, workers, progress.watch, progress.on_trial)
    except KeyboardInterrupt:
        note(f"stopped; finished trials are in {storage}. The same command continues:")
        note(f"  {shlex.join(['dynagat', *sys.argv[1:]])}")
        raise typer.Exit(130) from None


class TuningProgress:
    """A line for each trial that ends and, after some silence, for a running one."""

    def __init__(self, studies: list[Study], budget: int) -> None:
        self.budget = {study.tuning.mechanism: study.limit(budget) for study in studies}
        self.done: Counter[str] = Counter()
        self.best: dict[str, float] = {}
        self.metric = studies[0].tuning.metric
        for study in studies:
            for trial in study.trials():
                self._count(trial)
        self.before = sum(self.done.values())
        if self.before:
            note(f"{self.before} of {sum(self.budget.values())} trials are finished already")
        self.started = self.last_line = time.perf_counter()

    def _count(self, trial: Trial) -> None:
        name = trial.mechanism
        if trial.counts and self.done[name] < self.budget[name]:
            self.done[name] += 1
            worst = self.metric.worst
            if trial.value is not None and self.metric.is_gain(
                trial.value, self.best.get(name, worst)
            ):
                self.best[name] = trial.value

    def watch(self, mechanism: str, number: int, seed: int, here: Round) -> None:
        if time.perf_counter() - self.last_line > SILENCE:
            text = f"round {here.round} loss {here.loss:.4f} valid {here.valid:.4f}"
            note(f"{mechanism} trial {number} seed {seed}: {text}; {self._all()}")
            self.last_line = time.perf_counter()

    def on_trial(self, trial: Trial) -> None:
        self._count(trial)
        name = trial.mechanism
        chosen = " ".join(f"{p.split('.')[-1]}={as_text(v)}" for p, v in trial.settings.items())
        best = f", best {_score(self.best[name])}" if name in self.best else ""
        count = f"{self.done[name]}/{self.budget[name]}"
        note(f"{count} {name} {chosen}: {_ending(trial)}{best}; {self._all()}")
        self.last_line = time.perf_counter()

    def _all(self) -> str:
        done, total = sum(self.done.values()), sum(self.budget.values())
        spent, new = time.perf_counter() - self.started, done - self.before
        left = f", about {clock(spent / new * (total - done))} left" if new else ""
        return f"{done} of {total} trials{left}"


def _ending(trial: Trial) -> str:
    if trial.state == "refused":
        return f"skipped: {trial.refusal}"
    value = trial.state if trial.value is None else f"valid {_score(trial.value)}"
    if trial.same_as is not None:
        return f"{value}, the same as trial {trial.same_as}"
    return f"{value} in {trial.seconds:.1f} s"


def _score(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none: it diverged"


def summary_of(tuned: Tuned, benchmark: Benchmark) -> dict[str, Any]:
    """The chosen settings of a mechanism, how they were chosen, and the command that runs them."""
    best, trials = tuned.best, tuned.trials
    return {
        "benchmark": benchmark.name,
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
        "command": shlex.join(command_of(tuned, benchmark)),
    }


def command_of(tuned: Tuned, benchmark: Benchmark) -> list[str]:
    """The command that runs the chosen settings, without those that are the benchmark's own."""
    mechanism, chosen = tuned.tuning.mechanism, tuned.benchmark
    values = values_of(chosen.settings)
    dataset = values.get("data.dataset") if benchmark.by_dataset else None
    own = values_of(benchmark.base(mechanism, dataset))
    command = ["dynagat", "run", benchmark.name, "--mechanism", mechanism]
    if dataset is not None:
        command += ["--set", f"dataset={dataset}"]
    if benchmark.mechanisms[mechanism] != (chosen.network.heads,):
        command += ["--heads", str(chosen.network.heads)]
    for path, value in values.items():
        if value != own[path] and path != HEADS:
            command += ["--set", f"{short_name(benchmark.settings, path)}={as_text(value)}"]
    return [*command, "--seeds", f"{benchmark.seeds[0]}-{benchmark.seeds[-1]}"]


def _text(summary: dict[str, Any], tuning: Tuning) -> str:
    chosen = ", ".join(
        f"{short_name(tuning.benchmark.settings, path)}={as_text(value)}"
        for path, value in summary["settings"].items()
    )
    seeds = ", ".join(map(str, summary["seeds"]))
    return (
        f"{summary['mechanism']}: {chosen}\n"
        f"  valid {_score(summary['valid'])}, the mean of seeds {seeds}; "
        f"the best of {summary['trials']} trials ({summary['pruned']} pruned, "
        f"{summary['repeated']} repeated; {clock(summary['seconds'])})\n"
        f"  {summary['command']}"
    )
