"""Benchmarks: dynagat list | run | report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dynagat.benchmarks import BENCHMARKS, find
from dynagat.benchmarks.commands import OWN_COMMANDS
from dynagat.cli.console import explain_errors, out, words
from dynagat.cli.records import DEFAULT_STORE, StoreFile, gather
from dynagat.cli.running import run_shown
from dynagat.cli.workers import (
    CpusPerRun,
    Ddp,
    Device,
    GpusPerRun,
    RayAddress,
    Workers,
    chosen_runner,
)
from dynagat.experiment import Benchmark, Record, Request, Store, jobs_of
from dynagat.experiment.settings import parse_numbers

# Fields of a record that --json prints.
FIELDS = ("benchmark", "mechanism", "heads", "seed", "settings", "metrics", "seconds",
          "peak_memory_bytes", "converged", "versions")  # fmt: skip


def add_benchmarks(app: typer.Typer) -> None:
    app.command("list")(list_benchmarks)
    app.command()(run)
    app.command()(report)


def add_own_commands(app: typer.Typer) -> None:
    """A group for each benchmark whose trained networks have commands of their own."""
    for name, commands in OWN_COMMANDS.items():
        group = typer.Typer(no_args_is_help=True, help=f"Use trained networks of {name}.")
        for word, command in commands.items():
            group.command(word)(_explained(command))
        app.add_typer(group, name=name)


def _explained(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its errors as one sentence."""

    @wraps(command)
    def explained(*args: Any, **options: Any) -> None:
        with explain_errors():
            command(*args, **options)

    return explained


def list_benchmarks(
    training: Annotated[
        bool,
        typer.Option("--training", help="The paper's training details beside ours, instead."),
    ] = False,
    into: Annotated[
        Path | None, typer.Option(help="With --training: a file, written between its marks.")
    ] = None,
) -> None:
    """List benchmarks, and whether their data are here."""
    if training or into is not None:
        _list_training(into, training)
        return
    for benchmark in BENCHMARKS.values():
        heads = benchmark.mechanisms.items()
        mechanisms = ", ".join(f"{name} ({'/'.join(map(str, n))})" for name, n in heads)
        print(f"{benchmark.name}: {benchmark.title.partition(': ')[2] or benchmark.title}")
        print(f"  mechanisms (heads): {mechanisms}")
        print(f"  data: {benchmark.data.missing() or 'present'}\n")


def _list_training(into: Path | None, training: bool) -> None:
    from dynagat.benchmarks.training_table import training_table, write_training

    with explain_errors():
        if not training:
            raise ValueError("--into is for --training, but that is not given")
        if into is not None:
            write_training(into)
        print(training_table().to_text())


def run(
    benchmark: str,
    mechanism: Annotated[list[str] | None, typer.Option(help="Default: all it compares.")] = None,
    heads: Annotated[list[str] | None, typer.Option(help="Such as 1,8; default: its own.")] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Such as 0-9; default: its own.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="FIELD=VALUE; k=4-20 or lr=0.1,0.01 run all of them."),
    ] = None,
    published: Annotated[
        bool, typer.Option("--as-published", help="Use the settings of the paper's released code.")
    ] = False,
    improved: Annotated[
        bool, typer.Option("--improved", help="Use our improvements, where the benchmark has any.")
    ] = False,
    workers: Workers = 1,
    ddp: Ddp = 1,
    ray: RayAddress = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
    store: StoreFile = DEFAULT_STORE,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="One short run, to check that it works.")
    ] = False,
    inspect_runs: Annotated[
        bool, typer.Option("--inspect", help="Also print how attentive each run's heads are.")
    ] = False,
    microscope: Annotated[
        Literal["whole", "glance", "none"] | None,
        typer.Option(help="How runs are analysed; default: the benchmark's own."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one record per line.")] = False,
) -> None:
    """Run a benchmark; finished runs are not repeated."""
    with explain_errors():
        runner = chosen_runner(workers, ray, cpus_per_run, gpus_per_run, device, ddp)
        chosen = find(benchmark)
        chosen = replace(chosen, microscope=microscope or chosen.microscope)
        request = Request(
            tuple(settings or ()),
            words(mechanism),
            tuple(parse_numbers(",".join(heads), "heads")) if heads else (),
            tuple(parse_numbers(",".join(seeds), "seeds")) if seeds else (),
            published,
            smoke,
            improved,
            ddp,
        )
        jobs = jobs_of(chosen, request)
        with Store(store) as kept:
            run_shown(jobs, kept, runner)
            records = [record for job in jobs if (record := kept.get(job.key)) is not None]
            if as_json:
                _print_json(records, inspect_runs)
            else:
                _print_report(records, chosen)
                if inspect_runs:
                    _print_attention(records, kept, chosen)


def _print_json(records: list[Record], with_microscope: bool) -> None:
    for record in records:
        values = json.loads(record.to_json())
        shown = {name: values[name] for name in FIELDS}
        if with_microscope:
            shown["microscope"] = values["exhibits"].get("microscope")
        print(json.dumps(shown))


def _print_report(records: list[Record], benchmark: Benchmark) -> None:
    from dynagat.report import print_report  # here, because it is slow to import

    print_report(out, records, [benchmark])


def _print_attention(records: list[Record], store: Store, benchmark: Benchmark) -> None:
    """A table for each run, from the weights that the store keeps; or why there is none."""
    from dynagat.report import subjects

    for record in records:
        refusal = record.exhibits.get("microscope", {}).get("refused")
        analysis = refusal or subjects.of_run(record, store, benchmark).analyse()
        print(f"{subjects.title_of(record, benchmark)} (run {record.key[:8]})\n{analysis}\n")


def report(
    benchmarks: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the page.")] = Path("report"),
    store: Annotated[
        Path | None, typer.Option(help="Default: dynagat.sqlite, or none with --records.")
    ] = None,
    records: Annotated[list[Path] | None, typer.Option(help="JSON lines of records.")] = None,
    claims: Annotated[
        Path | None, typer.Option(help="File for a page of the paper's claims and what came out.")
    ] = None,
    theorems: Annotated[
        Path | None, typer.Option(help="For --claims: theorems.json of `dynagat theory --out`.")
    ] = None,
) -> None:
    """Print tables of records, and write a page of them.

    The page has figures and works offline.
    """
    from dynagat.report import print_report, read_theorems, write_report

    with explain_errors():
        shown = [] if theorems is None else read_theorems(theorems)
        chosen = [find(name) for name in benchmarks or BENCHMARKS]
        known = gather(store, records or [], [each.name for each in chosen])
        print_report(out, known, chosen)
        page = write_report(known, chosen, out_folder, claims, shown)
    out.print(f"page: {page}", markup=False, soft_wrap=True)
