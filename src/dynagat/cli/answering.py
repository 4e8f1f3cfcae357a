"""How the command line answers: results on one console, progress and trouble on the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from dynagat.experiment.store import StoreError

out, err = Console(), Console(stderr=True)
if not out.is_terminal:
    out = Console(width=100)  # a file or a pipe is as wide as a table needs


@contextmanager
def answering() -> Iterator[None]:
    """Trouble that the caller can mend ends in one sentence and exit code 2."""
    try:
        yield
    except (ValueError, StoreError) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename or 'a file'}: {error.strerror or error}")


def _refuse(sentence: str) -> None:
    err.print(f"dynagat: {sentence}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(2)
