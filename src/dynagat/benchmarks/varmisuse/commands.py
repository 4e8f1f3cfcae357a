"""dynagat varmisuse check | evaluate: use a trained network on Python files, and measure it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from dynagat.benchmarks.varmisuse.findings import MAX_USES, THRESHOLD
from dynagat.experiment.counting import counting
from dynagat.experiment.store import DEFAULT_STORE

NAMED = 5  # skipped files that are named for each reason

Model = Annotated[str, typer.Option(help="Key of a finished run, or the start of it.")]
StoreFile = Annotated[Path, typer.Option("--store", help="The SQLite file of records.")]
Threshold = Annotated[
    float, typer.Option(help="Least probability of the suggested variable, to report a use.")
]
Distance = Annotated[
    int | None, typer.Option(help="Edges from a use to keep. Default: as in the training data.")
]


def check(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders with *.py.")],
    model: Model,
    threshold: Threshold = THRESHOLD,
    format: Annotated[
        Literal["text", "json", "sarif"], typer.Option(help="sarif: SARIF 2.1.0, for editors.")
    ] = "text",
    distance: Distance = None,
    store: StoreFile = DEFAULT_STORE,
) -> None:
    """Report the uses of variables that a trained network would rather replace.

    A use is reported if another variable that could stand there is more probable, and at least as
    probable as --threshold. The most certain ones come first. Files are parsed and never executed;
    those that can't be used are counted and named on standard error. The exit code is 0 when it
    worked, also if there are findings.
    """
    from dynagat.benchmarks.varmisuse.check import check as check_files
    from dynagat.benchmarks.varmisuse.model import load_model
    from dynagat.benchmarks.varmisuse.sarif import sarif

    err = Console(stderr=True)
    loaded = load_model(model, store, distance=distance)
    with counting(err) as show:
        report = check_files(
            paths,
            loaded,
            threshold=threshold,
            tell=lambda files, uses: show(f"{files:,} files, {uses:,} uses of variables"),
        )
    _name_skipped(err, report.skipped)
    if format == "text":
        print(report)
    else:
        value: dict[str, Any] = sarif(report) if format == "sarif" else report.to_dict()
        print(json.dumps(value, indent=1))


def evaluate(
    model: Model,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="As in `data import-python`, from which the training data came."),
    ] = None,
    files: Annotated[int, typer.Option(help="Files at most.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of files, uses and variables.")] = 0,
    threshold: Threshold = THRESHOLD,
    max_uses: Annotated[
        int, typer.Option(help="Leave out files with more uses of variables: they take long.")
    ] = MAX_USES,
    distance: Distance = None,
    store: StoreFile = DEFAULT_STORE,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Measure `check` on files of test-unseen, with one use of a variable replaced in each.

    In how many files is the misused variable ranked first, and among the first five? And of the
    uses that are reported, how many are misused?
    """
    from dynagat.benchmarks.varmisuse.measurement import measure
    from dynagat.benchmarks.varmisuse.model import load_model

    err = Console(stderr=True)
    loaded = load_model(model, store, distance=distance)
    with counting(err) as show:
        measurement = measure(
            loaded,
            paths or (),
            files=files,
            seed=seed,
            threshold=threshold,
            max_uses=max_uses,
            tell=lambda done, uses: show(f"{done:,} of {files:,} files, {uses:,} uses"),
        )
    _name_skipped(err, measurement.skipped)
    print(json.dumps(measurement.to_dict(), indent=1) if as_json else measurement)


def _name_skipped(console: Console, skipped: Mapping[str, tuple[str, ...]]) -> None:
    for reason, names in skipped.items():
        more = ", ..." if len(names) > NAMED else ""
        text = f"{len(names):,} skipped: {reason} ({', '.join(names[:NAMED])}{more})"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


COMMANDS: dict[str, Callable[..., None]] = {"check": check, "evaluate": evaluate}
