"""execute: run jobs in this process, in worker processes or on a cluster; yield their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynagat.experiment.benchmark import Benchmark, run
from dynagat.experiment.checkpoint import Checkpoint, Checkpoints
from dynagat.experiment.record import Record
from dynagat.experiment.runner import Contact, Runner, Say, Work, runner_of
from dynagat.group import ALONE, Group
from dynagat.placement import find_device
from dynagat.training import Round


@dataclass(frozen=True)
class Job:
    """A run to make."""

    benchmark: Benchmark
    mechanism: str
    seed: int

    @property
    def key(self) -> str:
        return self.benchmark.key(self.mechanism, self.seed)

    def run(
        self,
        watch: Callable[[Round], None],
        checkpoint: Checkpoint | None = None,
        device: str = "cpu",
        group: Group = ALONE,
    ) -> Record:
        return run(self.benchmark, self.mechanism, self.seed, watch, checkpoint, device, group)


Watch = Callable[[Job, Round], None]
Tell = Callable[[Job, str, float], None]  # see checkpoint.Tell


def execute(
    jobs: list[Job],
    workers: int | Runner = 1,
    watch: Watch = lambda job, round: None,
    checkpoints: Checkpoints | None = None,
    tell: Tell = lambda job, text, seconds: None,
    say: Say = lambda text: None,
    beside: Path | None = None,
) -> Iterator[Record]:
    """Yield the records of jobs as they finish.

    Args:
        jobs: what to run.
        workers: number of processes, or where to run instead, such as a `Cluster`.
        watch: called with each round before.
        checkpoints: of the runs.
        tell: called with a sentence about the checkpoint of a run that does not start from the
            beginning or that has none.
        say: called with sentences about the workers.
        beside: the file next to which the checkpoints are.
    """
    runner = runner_of(workers)
    for job in jobs:
        job.benchmark.check_workers(runner.group_size)

    def receive(work: Work, message: Any) -> None:
        job = work.arguments[0]
        if isinstance(message, Round):
            watch(job, message)
        else:
            tell(job, *message)

    work = (Work(_run, (job, checkpoints), _name(job), graph_of(job.benchmark)) for job in jobs)
    with closing(runner.run(work, receive, say, beside)) as results:  # also after Ctrl-C
        for done in results:
            again = done.attempts > 1
            yield replace(done.result, attempts=done.attempts) if again else done.result


def graph_of(benchmark: Benchmark) -> str:
    """Name or folder of the stored graph that the runs of a benchmark load; empty if none."""
    data = benchmark.data
    return str(getattr(data, "graph", "") or getattr(data, "dataset", ""))


def _name(job: Job) -> str:
    return f"{job.benchmark.name} {job.mechanism} seed={job.seed}"


def _run(contact: Contact, job: Job, checkpoints: Checkpoints | None) -> Record:
    def tell(*content: Any) -> None:
        contact.send(content)

    device, kept = contact.device, None
    if checkpoints and contact.shares_files and contact.group.rank == 0:
        kept = checkpoints.of(job.key, tell, find_device(device))
    return job.run(contact.send, kept, device, contact.group)
