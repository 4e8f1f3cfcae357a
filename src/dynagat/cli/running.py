"""run_shown: run the jobs that a store lacks, with progress; Ctrl-C loses no finished run."""

from __future__ import annotations

import shlex
import sys

import typer

from dynagat.cli.console import err, note
from dynagat.experiment import Job, Runner, Store, run_lacking
from dynagat.experiment.jobs import lacking
from dynagat.experiment.progress import Progress


def run_shown(jobs: list[Job], store: Store, workers: int | Runner) -> None:
    todo = lacking(jobs, store)
    if len(todo) < len(jobs):
        note(f"{len(jobs) - len(todo)} of {len(jobs)} runs are already in {store.path}")
    if not todo:
        return
    with Progress(err, todo) as progress:
        try:
            events = progress.watch, progress.tell, progress.say
            for record in run_lacking(todo, store, workers, *events):
                progress.finish(record)
        except KeyboardInterrupt:
            progress.stop()
            note(f"stopped; finished runs are in {store.path}. The same command continues:")
            note(f"  {shlex.join(['dynagat', *sys.argv[1:]])}")
            raise typer.Exit(130) from None
