"""Progress: how far the runs are and how long they will take, on standard error."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dynagat.experiment.execute import Job
from dynagat.experiment.record import Record
from dynagat.training import Round


class Progress:
    """A line per run that goes on, and one for all; on a plain stream, a line per finished run."""

    def __init__(self, console: Console, jobs: list[Job], workers: int) -> None:
        self.console, self.jobs, self.workers = console, jobs, workers
        self.started = time.perf_counter()
        self.begun: dict[str, float] = {}
        self.latest: dict[str, tuple[Job, Round]] = {}
        self.finished: list[Record] = []
        self.live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.live.start()
        self._draw()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.live.stop()

    def watch(self, job: Job, seen: Round) -> None:
        self.begun.setdefault(job.key, time.perf_counter())
        self.latest[job.key] = (job, seen)
        self._draw()

    def finish(self, record: Record) -> None:
        self.latest.pop(record.key, None)
        self.finished.append(record)
        done = f"{len(self.finished)}/{len(self.jobs)}"
        name = f"{record.mechanism} heads={record.heads} seed={record.seed}"
        metrics = " ".join(f"{key}={value:.4f}" for key, value in record.metrics.items())
        line = f"{done} {name} {record.ended} in {record.seconds:.1f} s: {metrics}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        lines = [self._line(job, seen) for job, seen in list(self.latest.values())]
        lines.append(self._all())
        self.live.update(Text("\n".join(lines)))

    def _line(self, job: Job, seen: Round) -> str:
        limit = job.benchmark.schedule.max_rounds
        spent = time.perf_counter() - self.begun[job.key]
        left = spent / seen.round * (limit - seen.round)
        return (
            f"  {job.mechanism} heads={job.benchmark.network.heads} seed={job.seed}: "
            f"round {seen.round}/{limit} loss {seen.loss:.4f} valid {seen.valid:.4f} "
            f"(at most {_clock(left)} left)"
        )

    def _all(self) -> str:
        done, total = len(self.finished), len(self.jobs)
        spent = time.perf_counter() - self.started
        left = (
            f"about {_clock(spent / done * (total - done))} left" if done else "time left unknown"
        )
        return f"{done} of {total} runs, {_clock(spent)} so far, {left}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
