"""dynagat theory: the paper's theorems, checked on the layers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def theory(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one certificate per line.")
    ] = False,
) -> None:
    """Check the paper's theorems by running the layers."""
    from dynagat.analysis import complexity
    from dynagat.analysis import theory as proofs

    all_shown = True
    for certify in (proofs.certificates, complexity.certificates):
        for certificate in certify():
            print(json.dumps(asdict(certificate)) if as_json else f"{certificate}\n", flush=True)
            all_shown &= certificate.shown
    if not all_shown:
        raise typer.Exit(1)
