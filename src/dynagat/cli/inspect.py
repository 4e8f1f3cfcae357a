"""dynagat inspect: put a model under the microscope."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynagat.benchmarks import BENCHMARKS, find
from dynagat.cli.console import explain_errors, note
from dynagat.cli.records import DEFAULT_STORE, StoreFile
from dynagat.cli.workers import Device
from dynagat.experiment import Store
from dynagat.placement import find_device

if TYPE_CHECKING:
    from dynagat.report.subjects import Subject


def inspect(
    subject: Annotated[
        str, typer.Argument(help="A benchmark or a run's key; model.py; or weights.pt.")
    ] = "",
    mechanism: Annotated[str | None, typer.Option(help="Of a benchmark's run.")] = None,
    heads: Annotated[int | None, typer.Option(help="Of a benchmark's run.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of a benchmark's run.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Of a benchmark's run: FIELD=VALUE.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="For weights.pt: .npz or .pt with x and edge_index.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="For model.py: weights to load into its model.")
    ] = None,
    released: Annotated[
        Path | None,
        typer.Option(
            help="A checkpoint of the paper's released code, inspected on its benchmark's graphs."
        ),
    ] = None,
    page: Annotated[Path, typer.Option("--out", help="The page.")] = Path("inspect.html"),
    nodes: Annotated[int, typer.Option(help="How many nodes the page shows.")] = 2000,
    store: StoreFile = DEFAULT_STORE,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """How attentive is a model? Prints a table, writes a page.

    model.py defines `model` and `data`, as how_attentive takes them.
    """
    from dynagat.report import subjects
    from dynagat.report.microscope import write_microscope

    with explain_errors():
        place = find_device("cpu" if device is None else device)
        if data is not None and not subjects.is_checkpoint(subject):
            raise ValueError(f"--data is for a checkpoint, but {subject} is none")
        if checkpoint is not None and not subject.endswith(".py"):
            raise ValueError(f"--checkpoint is for a Python file, but {subject} is none")
        run_options = {"mechanism": mechanism, "heads": heads, "seed": seed, "set": settings}
        is_file = subject.endswith(".py") or subjects.is_checkpoint(subject)
        if not subject and released is None:
            raise ValueError("name what to inspect: a benchmark, a run's key, or a file")
        if is_file and released is not None:
            raise ValueError(f"--released is for a benchmark, but {subject} is a file")
        if is_file or released is not None:
            for name, value in run_options.items():
                if value is not None:
                    given = subject if is_file else released
                    raise ValueError(f"--{name} is for a run of the store, but {given} is a file")
        if released is not None:
            every = [find(subject)] if subject else list(BENCHMARKS.values())
            chosen = subjects.of_released(released, every)
        elif subject.endswith(".py"):
            chosen = subjects.of_file(Path(subject), checkpoint)
        elif subjects.is_checkpoint(subject):
            chosen = subjects.of_checkpoint(Path(subject), data)
        else:
            chosen = _run_of(subject, store, mechanism, heads, seed, settings or [])
        for sentence in chosen.notes:
            note(sentence)
        chosen = chosen if device is None else chosen.on(place)
        analysis = chosen.analyse()
        print(json.dumps(analysis.to_dict()) if as_json else analysis)
        path = write_microscope(
            analysis,
            page,
            title=chosen.title,
            names=chosen.names,
            nodes=nodes,
            molecules=chosen.molecules,
            programs=chosen.programs,
        )
    note(f"page: {path}")


def _run_of(
    subject: str,
    store: Path,
    mechanism: str | None,
    heads: int | None,
    seed: int | None,
    settings: list[str],
) -> Subject:
    from dynagat.report import subjects

    with Store(store, must_exist=True) as kept:
        record = subjects.find_run(kept, subject, BENCHMARKS, mechanism, heads, seed, settings)
        return subjects.of_run(record, kept, find(record.benchmark))
