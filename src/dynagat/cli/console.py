"""The consoles of the command line: results on standard output, the rest on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from dynagat.experiment.runner import WorkerError
from dynagat.experiment.store import StoreError
from dynagat.ops.devices import ImpossibleBackend

out, err = Console(), Console(stderr=True)
if not out.is_terminal:
    out = Console(width=100)  # a file or a pipe is as wide as a table needs


def note(text: str) -> None:
    """A line on standard error."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def explain_errors() -> Iterator[None]:
    """Errors that the caller can fix end in one sentence and exit code 2."""
    try:
        yield
    except (ValueError, StoreError, WorkerError, ImpossibleBackend) as error:
        _refuse(str(error))
    except MemoryError as error:
        _refuse(f"this takes more memory than there is: {error or 'nothing was written'}")
    except OSError as error:
        _refuse(f"{error.filename or 'a file'}: {error.strerror or error}")


def _refuse(message: str) -> None:
    note(f"dynagat: {message}")
    raise typer.Exit(2)


def words(texts: list[str] | None) -> tuple[str, ...]:
    """The values of an option that may be repeated and may hold commas."""
    return tuple(word for text in texts or () for word in text.split(","))
