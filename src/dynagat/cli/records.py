"""dynagat records export | import: records as JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dynagat.benchmarks import find
from dynagat.cli.console import explain_errors, out
from dynagat.experiment import Record, Store
from dynagat.experiment.store import DEFAULT_STORE, read_lines
from dynagat.files import write_text

records_app = typer.Typer(no_args_is_help=True, help="Export and import records as JSON lines.")

StoreFile = Annotated[Path, typer.Option("--store", help="The SQLite file of records.")]


@records_app.command("export")
def export_records(
    benchmarks: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Default: standard output.")
    ] = None,
    store: StoreFile = DEFAULT_STORE,
) -> None:
    """Write records as JSON lines."""
    with explain_errors(), Store(store, must_exist=True) as kept:
        names = [find(name).name for name in benchmarks or ()]
        text = "".join(f"{record.to_json()}\n" for record in kept.records(names))
        if out_file is None:
            sys.stdout.write(text)
        else:
            write_text(out_file, text)


@records_app.command("import")
def import_records(files: list[Path], store: StoreFile = DEFAULT_STORE) -> None:
    """Add records from JSON lines: all records of a file, or none if a line is bad."""
    with explain_errors(), Store(store) as kept:
        for path in files:
            new = kept.import_lines(path.read_text().splitlines(), str(path))
            out.print(f"{path}: {new} new", markup=False, soft_wrap=True)


def gather(store: Path | None, files: list[Path], names: list[str]) -> list[Record]:
    """Records of the files and of the store; of the default store only without files."""
    known: dict[str, Record] = {}
    for path in files:
        for record in read_lines(path.read_text().splitlines(), str(path)):
            known.setdefault(record.key, record)
    if store is not None or not files:
        with Store(store or DEFAULT_STORE, must_exist=True) as kept:
            for record in kept.records(names):
                known.setdefault(record.key, record)
    return [record for record in known.values() if record.benchmark in names]
