"""dynagat theory: the paper's theorems, checked on the layers."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dynagat.cli.console import note


def theory(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one certificate per line.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for theorems.json, the verdicts, and counterexample.svg;"
            " nothing is timed then.",
        ),
    ] = None,
) -> None:
    """Check the paper's theorems by running the layers.

    The drawing shows why DPGAT is weaker than GATv2: a key between two others that no query of
    DPGAT selects.
    """
    from dynagat.analysis import complexity
    from dynagat.analysis import theory as proofs

    every = []
    lots = proofs.certificates, partial(complexity.certificates, timed=folder is None)
    for certify in lots:
        for certificate in certify():
            print(json.dumps(asdict(certificate)) if as_json else f"{certificate}\n", flush=True)
            every.append(certificate)
    if folder is not None:
        from dynagat.report.theorems import write_theorems  # here, because it is slow to import

        note(f"theorems: {write_theorems(every, folder)}")
    if not all(certificate.shown for certificate in every):
        raise typer.Exit(1)
