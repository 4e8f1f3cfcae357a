"""Benchmarks: dynagat list | run | report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from dynagat.benchmarks import BENCHMARKS, find
from dynagat.cli.console import explain_errors, out, words
from dynagat.cli.records import DEFAULT_STORE, StoreFile, gather
from dynagat.cli.running import run_shown
from dynagat.cli.workers import CpusPerRun, Ddp, GpusPerRun, RayAddress, Workers, chosen_runner
from dynagat.experiment import Benchmark, Record, Request, Store, jobs_of
from dynagat.experiment.settings import parse_numbers

# Fields of a record that --json prints.
FIELDS = ("benchmark", "mechanism", "heads", "seed", "settings", "metrics", "seconds",
          "peak_memory_bytes", "converged", "versions")  # fmt: skip


def add_benchmarks(app: typer.Typer) -> None:
    app.command("list")(list_benchmarks)
    app.command()(run)
    app.command()(report)


def list_benchmarks() -> None:
    """List benchmarks, and whether their data are here."""
    for benchmark in BENCHMARKS.values():
        heads = benchmark.mechanisms.items()
        mechanisms = ", ".join(f"{name} ({'/'.join(map(str, n))})" for name, n in heads)
        print(f"{benchmark.name}: {benchmark.title.partition(': ')[2] or benchmark.title}")
        print(f"  mechanisms (heads): {mechanisms}")
        print(f"  data: {benchmark.data.missing() or 'present'}\n")


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
        runner = chosen_runner(workers, ray, cpus_per_run, gpus_per_run, ddp)
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
) -> None:
    """Print tables of records, and write a page of them.

    The page has figures and works offline.
    """
    from dynagat.report import print_report, write_report

    with explain_errors():
        chosen = [find(name) for name in benchmarks or BENCHMARKS]
        known = gather(store, records or [], [each.name for each in chosen])
        print_report(out, known, chosen)
        page = write_report(known, chosen, out_folder, claims)
    out.print(f"page: {page}", markup=False, soft_wrap=True)
