"""counting: what a command has done so far, in one line on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dynagat.experiment.progress import SILENCE


@contextmanager
def counting(console: Console) -> Iterator[Callable[[str], None]]:
    """Shows what it is called with: the latest in a terminal, else one now and then."""
    if not console.is_terminal:
        yield _now_and_then(console)
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)
        yield lambda text: bar.update(task, description=text, visible=True)


def _now_and_then(console: Console) -> Callable[[str], None]:
    last = time.perf_counter()

    def show(text: str) -> None:
        nonlocal last
        if time.perf_counter() - last > SILENCE:
            last = time.perf_counter()
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    return show
