"""run_shown: run what a store lacks, with progress; Ctrl-C loses no finished run."""

from __future__ import annotations

import shlex
import sys

import typer

from dynagat.cli.answering import err
from dynagat.experiment import Job, Store, execute
from dynagat.experiment.progress import Progress


def run_shown(jobs: list[Job], store: Store, workers: int) -> None:
    """Run what the store lacks, and add each record as it comes."""
    have = store.keys()
    todo = list({job.key: job for job in jobs if job.key not in have}.values())
    if len(todo) < len(jobs):
        err.print(f"{len(jobs) - len(todo)} of {len(jobs)} runs are in {store.path} already")
    if not todo:
        return
    with Progress(err, todo) as progress:
        try:
            for record in execute(todo, workers, progress.watch):
                store.add(record)
                progress.finish(record)
        except KeyboardInterrupt:
            progress.stop()
            err.print(f"stopped; finished runs are in {store.path}. The same command goes on:")
            err.print(f"  {shlex.join(['dynagat', *sys.argv[1:]])}", markup=False, soft_wrap=True)
            raise typer.Exit(130) from None
