"""Progress of runs and the time left, on standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dynagat.experiment.execution import Job
from dynagat.experiment.record import Record
from dynagat.experiment.settings import flat, values_of
from dynagat.training import Round

SILENCE = 20  # seconds after which a plain stream gets a line about a running run
SHOWN_METRICS = 5  # of a finished run


class Progress:
    """In a terminal, a line for each running run and one for all. On a plain stream, a line for
    each finished run and, after some silence, for a running one."""

    def __init__(self, console: Console, jobs: list[Job]) -> None:
        self.console, self.jobs = console, jobs
        self.started = time.perf_counter()
        self.varied = _varied_settings(jobs)
        self.start_times: dict[str, float] = {}
        self.latest: dict[str, tuple[Job, Round]] = {}
        self.finished: list[Record] = []
        self.last_line = self.started
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

    def watch(self, job: Job, here: Round) -> None:
        self.start_times.setdefault(job.key, time.perf_counter())
        self.latest[job.key] = (job, here)
        if not self.console.is_terminal and time.perf_counter() - self.last_line > SILENCE:
            self._print(f"{self._line(job, here).strip()}; {self._all()}")
        self._draw()

    def tell(self, job: Job, text: str, seconds: float) -> None:
        """A sentence about a run that took so many seconds before."""
        self.start_times[job.key] = time.perf_counter() - seconds
        self._print(f"{self._title(job)}: {text}")

    def say(self, text: str) -> None:
        """A sentence about the workers."""
        self._print(text)

    def finish(self, record: Record) -> None:
        self.latest.pop(record.key, None)
        self.finished.append(record)
        count = f"{len(self.finished)}/{len(self.jobs)}"
        name = self._name(record.mechanism, record.heads, record.seed, flat(record.settings))
        first = list(record.metrics.items())[:SHOWN_METRICS]
        metrics = " ".join(f"{key}={value:.4f}" for key, value in first)
        self._print(f"{count} {name} {record.ended} in {record.seconds:.1f} s: {metrics}")
        self._draw()

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self.last_line = time.perf_counter()

    def _draw(self) -> None:
        lines = [self._line(job, here) for job, here in list(self.latest.values())]
        lines.append(self._all())
        self.live.update(Text("\n".join(lines)))

    def _line(self, job: Job, here: Round) -> str:
        limit = job.benchmark.schedule.max_rounds
        spent = time.perf_counter() - self.start_times[job.key]
        left = spent / here.round * (limit - here.round)
        return (
            f"  {self._title(job)}: "
            f"round {here.round}/{limit} loss {here.loss:.4f} valid {here.valid:.4f} "
            f"(at most {clock(left)} left)"
        )

    def _title(self, job: Job) -> str:
        values = values_of(job.benchmark.settings)
        return self._name(job.mechanism, job.benchmark.network.heads, job.seed, values)

    def _name(self, mechanism: str, heads: int, seed: int, values: Mapping[str, Any]) -> str:
        shown = [path for path in self.varied if path in values]  # records leave out some
        varied = "".join(f" {path.split('.')[-1]}={values[path]}" for path in shown)
        return f"{mechanism} heads={heads}{varied} seed={seed}"

    def _all(self) -> str:
        done, total = len(self.finished), len(self.jobs)
        spent = time.perf_counter() - self.started
        left = f", about {clock(spent / done * (total - done))} left" if done else ""
        return f"{done} of {total} runs, {clock(spent)} so far{left}"


def _varied_settings(jobs: list[Job]) -> list[str]:
    """The settings in which the jobs differ, except the heads, which are always shown."""
    every = [values_of(job.benchmark.settings) for job in jobs]
    paths = [path for path in every[0] if any(each[path] != every[0][path] for each in every)]
    return [path for path in paths if not path.endswith(".heads")]


def clock(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
