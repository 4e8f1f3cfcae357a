"""Progress: how far the runs are and how long they will take, on standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dynagat.experiment.execute import Job
from dynagat.experiment.record import Record
from dynagat.experiment.settings import as_dict, flat
from dynagat.training import Round

SILENCE = 20  # seconds after which a plain stream hears of runs that go on


class Progress:
    """A line per run that goes on, and one for all; on a plain stream, one per finished run and,
    after some silence, one of a run that goes on."""

    def __init__(self, console: Console, jobs: list[Job]) -> None:
        self.console, self.jobs = console, jobs
        self.started = time.perf_counter()
        self.varied = _varied(jobs)
        self.begun: dict[str, float] = {}
        self.latest: dict[str, tuple[Job, Round]] = {}
        self.finished: list[Record] = []
        self.spoke = self.started
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
        if not self.console.is_terminal and time.perf_counter() - self.spoke > SILENCE:
            self._say(f"{self._line(job, seen).strip()}; {self._all()}")
        self._draw()

    def finish(self, record: Record) -> None:
        self.latest.pop(record.key, None)
        self.finished.append(record)
        done = f"{len(self.finished)}/{len(self.jobs)}"
        name = self._name(record.mechanism, record.heads, record.seed, record.settings)
        metrics = " ".join(f"{key}={value:.4f}" for key, value in record.metrics.items())
        line = f"{done} {name} {record.ended} in {record.seconds:.1f} s: {metrics}"
        self._say(line)
        self._draw()

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self.spoke = time.perf_counter()

    def _draw(self) -> None:
        lines = [self._line(job, seen) for job, seen in list(self.latest.values())]
        lines.append(self._all())
        self.live.update(Text("\n".join(lines)))

    def _line(self, job: Job, seen: Round) -> str:
        limit = job.benchmark.schedule.max_rounds
        spent = time.perf_counter() - self.begun[job.key]
        left = spent / seen.round * (limit - seen.round)
        told = as_dict(job.benchmark.settings)
        name = self._name(job.mechanism, job.benchmark.network.heads, job.seed, told)
        return (
            f"  {name}: "
            f"round {seen.round}/{limit} loss {seen.loss:.4f} valid {seen.valid:.4f} "
            f"(at most {clock(left)} left)"
        )

    def _name(self, mechanism: str, heads: int, seed: int, settings: Mapping[str, Any]) -> str:
        values = flat(settings)
        varied = "".join(f" {path.split('.')[-1]}={values[path]}" for path in self.varied)
        return f"{mechanism} heads={heads}{varied} seed={seed}"

    def _all(self) -> str:
        done, total = len(self.finished), len(self.jobs)
        spent = time.perf_counter() - self.started
        left = f", about {clock(spent / done * (total - done))} left" if done else ""
        return f"{done} of {total} runs, {clock(spent)} so far{left}"


def _varied(jobs: list[Job]) -> list[str]:
    """The settings in which the jobs differ, but the heads, which are always told."""
    told = [flat(as_dict(job.benchmark.settings)) for job in jobs]
    paths = [path for path in told[0] if any(each[path] != told[0][path] for each in told)]
    return [path for path in paths if not path.endswith(".heads")]


def clock(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
