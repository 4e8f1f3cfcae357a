"""dynagat tune: choose settings for each mechanism on validation data, with equal budgets."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dynagat.benchmarks import find
from dynagat.cli.console import explain_errors, note, words
from dynagat.cli.workers import (
    CpusPerRun,
    Device,
    GpusPerRun,
    RayAddress,
    Workers,
    chosen_runner,
)
from dynagat.experiment import Request, Runner
from dynagat.experiment import tune as run_trials
from dynagat.experiment.record import plain
from dynagat.experiment.rescoring import check_finalists, rescore
from dynagat.experiment.settings import parse_numbers
from dynagat.experiment.storage import opened
from dynagat.experiment.study import Study, Trial
from dynagat.experiment.trials import Tuned
from dynagat.experiment.tuning import Sampler, Tuning, tunings_of
from dynagat.experiment.tuning_summary import TuningProgress, summary_of, summary_text
from dynagat.files import write_text

TRIALS, SMOKE_TRIALS = 60, 4
FRESH_SEEDS = "1000-1009"


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
    finalists: Annotated[
        int, typer.Option(help="Best trials that are scored again to choose one; 1: the best.")
    ] = 5,
    fresh_seeds: Annotated[
        str | None, typer.Option(help="Of the finalists; default: 1000-1009.")
    ] = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
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
        runner = chosen_runner(workers, ray, cpus_per_run, gpus_per_run, device)
        chosen = find(benchmark)
        numbers = parse_numbers(seeds or ("0" if smoke else "0-1"), "seeds")
        fresh = parse_numbers(fresh_seeds or ("1000" if smoke else FRESH_SEEDS), "fresh seeds")
        budget = _budget(trials, sampler, smoke)
        request = Request(
            tuple(settings or ()), words(mechanism), seeds=tuple(numbers), smoke=smoke
        )
        tunings = tunings_of(chosen, request, search or [], sampler, prune)
        final = (2 if smoke else finalists), tuple(fresh)
        check_finalists(*final, tunings)
        tunings = _use_grid_if_covered(tunings, budget)
        with opened(storage) as kept:
            studies = [Study(each, kept) for each in tunings]
            _check_data(studies[0])
            results = _tune_shown(studies, budget, storage, runner, final)
            every = [_line(study, trial) for study in studies for trial in study.trials()]
        if out_file is not None:
            lines = [json.dumps(plain({"benchmark": chosen.name, **each})) for each in every]
            write_text(out_file, "".join(f"{line}\n" for line in lines))
        for each in results:
            summary = summary_of(each, chosen)
            print(json.dumps(plain(summary)) if as_json else summary_text(summary, each.tuning))


def _line(study: Study, trial: Trial) -> dict[str, Any]:
    """What --out writes of a trial."""
    fresh = study.fresh(trial.number)
    return asdict(trial) | ({"fresh": fresh} if fresh else {})


def _budget(trials: int | None, sampler: str, smoke: bool) -> int:
    whole = sys.maxsize if sampler == "grid" else TRIALS
    budget = (SMOKE_TRIALS if smoke else whole) if trials is None else trials
    if budget < 1:
        raise ValueError(f"trials must be at least 1, but is {trials}")
    return budget


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


def _tune_shown(
    studies: list[Study],
    budget: int,
    storage: Path,
    workers: int | Runner,
    final: tuple[int, tuple[int, ...]],
) -> list[Tuned]:
    """Trials, then finalists on fresh seeds: `final` holds their number and the seeds."""
    points, refusals = studies[0].points, studies[0].refusals
    if refusals:
        total = len(points) + len(refusals)
        note(f"{len(refusals)} of {total} points of the grid are skipped, such as: {refusals[0]}")
    lost = sum(study.recover() for study in studies)
    if lost:
        note(f"{lost} unfinished trials in {storage}, left by a stopped process, are repeated")
    progress = TuningProgress(studies, budget, note)
    try:
        events = progress.watch, progress.on_trial, progress.tell, note
        results = run_trials(studies, budget, storage, workers, *events)
        if final[0] > 1:
            note(f"the best {final[0]} trials of each mechanism are scored on fresh seeds")
        watching = progress.watch, progress.tell, note
        return rescore(studies, results, *final, storage, workers, *watching)
    except KeyboardInterrupt:
        note(f"stopped; finished trials are in {storage}. The same command continues:")
        note(f"  {shlex.join(['dynagat', *sys.argv[1:]])}")
        raise typer.Exit(130) from None
