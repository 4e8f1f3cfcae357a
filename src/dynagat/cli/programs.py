"""dynagat data import-python, import-great, import-programs: graphs of programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dynagat.cli.console import err, explain_errors, note, out
from dynagat.data.programs.cutting import DISTANCE
from dynagat.data.programs.great import import_great
from dynagat.data.programs.importing import Report
from dynagat.data.programs.original import ORIGINAL, import_original
from dynagat.data.programs.python_files import SLOTS_PER_FILE, import_python
from dynagat.experiment.counting import counting

Name = Annotated[str, typer.Option(help="Name of the programs in the store.")]
Graphs = Annotated[
    int | None,
    typer.Option("--graphs", help="Training graphs at most, and a fifth in each other part."),
]
Seed = Annotated[int, typer.Option(help="Seed of the split, the slots and the order.")]
Workers = Annotated[int | None, typer.Option(help="Processes. Default: the cores.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace stored programs of this name.")]


def import_python_files(
    name: Name,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Projects. Default: the standard library and installed packages."),
    ] = None,
    slots_per_file: Annotated[int, typer.Option(help="Slots of a file at most.")] = SLOTS_PER_FILE,
    graphs: Graphs = None,
    distance: Annotated[int, typer.Option(help="Edges from the slot to keep.")] = DISTANCE,
    unseen: Annotated[
        list[str] | None, typer.Option(help="A project for test-unseen. Default: drawn.")
    ] = None,
    seed: Seed = 0,
    workers: Workers = None,
    replace: Replace = False,
) -> None:
    """Turn Python files into program graphs; whole projects are held out for test-unseen."""
    with explain_errors(), _progress() as tell:
        report = import_python(
            paths or (),
            name,
            slots_per_file=slots_per_file,
            max_graphs=graphs,
            distance=distance,
            unseen=unseen or (),
            seed=seed,
            workers=workers,
            replace=replace,
            tell=tell,
        )
    _print(report)


def import_great_file(
    file: Annotated[Path, typer.Argument(help="Functions of the GREAT data set, .jsonl or .gz.")],
    name: Name,
    seed: Seed = 0,
    replace: Replace = False,
) -> None:
    """Turn functions of the data set of GREAT (Hellendoorn et al., 2020) into program graphs."""
    with explain_errors(), _progress() as tell:
        report = import_great(file, name, seed=seed, replace=replace, tell=tell)
    _print(report)


def import_original_files(
    folder: Annotated[Path, typer.Argument(help="Folders PROJECT/graphs-train/*.gz and others.")],
    name: Name = ORIGINAL,
    workers: Workers = None,
    replace: Replace = False,
) -> None:
    """Store the original data set of program graphs, or data in its layout, in chunks of 100."""
    with explain_errors(), _progress() as tell:
        cores = workers or os.cpu_count() or 1
        report = import_original(folder, name, workers=cores, replace=replace, tell=tell)
    _print(report)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    with counting(err) as show:
        yield lambda read, graphs: show(f"{read:,} read, {graphs:,} graphs")


def _print(report: Report) -> None:
    for reason, names in report.named.items():
        count = report.info.skipped[reason]
        more = ", ..." if count > len(names) else ""
        note(f"{count:,} skipped: {reason} ({', '.join(names)}{more})")
    parts = report.info.parts.items()
    counts = ", ".join(f"{part} {counts.graphs:,}" for part, counts in parts)
    out.print(f"{report.info.name}: {counts}", markup=False, highlight=False, soft_wrap=True)
