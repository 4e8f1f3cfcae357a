"""execute: runs in this process or in worker processes; whoever asks gets records as they finish.

A runner is a function of jobs and a watch that yields their records, in any order. One for a
cluster has the same form.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from dynagat.experiment.benchmark import Benchmark, Look, run
from dynagat.experiment.record import Record
from dynagat.training import Round


@dataclass(frozen=True)
class Job:
    """A run to be made."""

    benchmark: Benchmark
    mechanism: str
    seed: int
    look: Look | None = None  # at the network, when it is trained

    @property
    def key(self) -> str:
        return self.benchmark.key(self.mechanism, self.seed)

    def run(self, watch: Callable[[Round], None]) -> Record:
        return run(self.benchmark, self.mechanism, self.seed, watch, self.look)


Watch = Callable[[Job, Round], None]


def execute(
    jobs: list[Job], workers: int = 1, watch: Watch = lambda job, round: None
) -> Iterator[Record]:
    """The records of the jobs, as they finish. `watch` hears of every round before its record."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, but is {workers}")
    if workers == 1:
        yield from _in_this_process(jobs, watch)
    else:
        yield from _in_processes(jobs, workers, watch)


def _in_this_process(jobs: list[Job], watch: Watch) -> Iterator[Record]:
    for job in jobs:
        yield job.run(lambda seen, job=job: watch(job, seen))


def _in_processes(jobs: list[Job], workers: int, watch: Watch) -> Iterator[Record]:
    heard: Counter[int] = Counter()
    numbers: dict[Future[Record], int] = {}

    with Crew(workers) as crew:

        def hear(seconds: float) -> bool:
            """Pass on a round that a worker tells, if there is one within so many seconds."""
            told = crew.hear(seconds)
            if told is None:
                return False
            number, seen = told
            heard[number] += 1
            watch(jobs[number], seen)
            return True

        for number, job in enumerate(jobs):
            numbers[crew.submit(_run_in_worker, number, job)] = number
        while numbers:
            done = crew.taken(0.1)
            while hear(0):
                pass
            for future in sorted(done, key=lambda each: each.exception() is not None):
                record, number = future.result(), numbers.pop(future)
                while heard[number] < len(record.history) and hear(1):
                    pass
                yield record


class Crew:
    """Worker processes, each with its part of the cores; they end with the block.

    Spawned, for forked ones would share threads with torch.
    """

    def __init__(self, workers: int) -> None:
        threads = max(1, (os.cpu_count() or 1) // workers)
        context = multiprocessing.get_context("spawn")
        self._told = context.Queue()
        start = (threads, self._told, os.getpid())
        self._pool = ProcessPoolExecutor(workers, context, _start_worker, start)
        # Not concurrent.futures.wait: interrupted, it may leave futures locked, and the pool hangs.
        self._ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:  # those still busy have nothing to save
            process.terminate()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = self._pool.submit(work, *arguments)
        future.add_done_callback(self._ended.put)
        return future

    def hear(self, seconds: float) -> Any:
        """What a worker told by `tell`, if there is something within so many seconds."""
        try:
            return self._told.get(timeout=seconds)
        except queue.Empty:
            return None

    def taken(self, seconds: float) -> list[Future[Any]]:
        """All that have ended, if one does within so many seconds."""
        try:
            found = [self._ended.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            found.append(self._ended.get())
        return found


_told: Any = None  # in a worker: where it tells


def tell(what: Any) -> None:
    """From a worker, to who hears the crew."""
    _told.put(what)


def _start_worker(threads: int, told: Any, parent: int) -> None:
    global _told
    _told = told
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A killed parent can't stop its workers: they look after themselves."""
    while os.getppid() == parent:
        threading.Event().wait(0.5)
    os._exit(1)


def _run_in_worker(number: int, job: Job) -> Record:
    return job.run(lambda seen: tell((number, seen)))
