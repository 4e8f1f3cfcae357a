"""execute: run jobs in this process or in worker processes, and yield their records.

A runner is a function (jobs, watch) that yields records as they finish, in any order. One for a
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
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import torch

from dynagat.experiment.benchmark import Benchmark, run
from dynagat.experiment.checkpoint import Checkpoint, Checkpoints
from dynagat.experiment.record import Record
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

    def run(self, watch: Callable[[Round], None], checkpoint: Checkpoint | None = None) -> Record:
        return run(self.benchmark, self.mechanism, self.seed, watch, checkpoint)


Watch = Callable[[Job, Round], None]
Tell = Callable[[Job, str, float], None]  # see checkpoint.Tell


def execute(
    jobs: list[Job],
    workers: int = 1,
    watch: Watch = lambda job, round: None,
    checkpoints: Checkpoints | None = None,
    tell: Tell = lambda job, text, seconds: None,
) -> Iterator[Record]:
    """Yield the records of jobs as they finish.

    `watch` is called with each round before, `tell` with a sentence about the checkpoint of a run
    that does not start from the beginning or that has none.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, but is {workers}")
    if workers == 1:
        yield from _in_this_process(jobs, watch, checkpoints, tell)
    else:
        yield from _in_processes(jobs, workers, watch, checkpoints, tell)


def _in_this_process(
    jobs: list[Job], watch: Watch, checkpoints: Checkpoints | None, tell: Tell
) -> Iterator[Record]:
    for job in jobs:
        checkpoint = checkpoints and checkpoints.of(job.key, partial(tell, job))
        yield job.run(partial(watch, job), checkpoint)


def _in_processes(
    jobs: list[Job], workers: int, watch: Watch, checkpoints: Checkpoints | None, tell: Tell
) -> Iterator[Record]:
    received: Counter[int] = Counter()
    indices: dict[Future[Record], int] = {}

    with Crew(workers) as crew:

        def pass_on(seconds: float) -> bool:
            """Pass on a message from a worker, if one arrives within so many seconds."""
            message = crew.receive(seconds)
            if message is None:
                return False
            index, *content = message
            if isinstance(content[0], Round):
                received[index] += 1
                watch(jobs[index], *content)
            else:
                tell(jobs[index], *content)
            return True

        for index, job in enumerate(jobs):
            indices[crew.submit(_run_in_worker, index, job, checkpoints)] = index
        while indices:
            finished = crew.finished(0.1)
            while pass_on(0):
                pass
            for future in sorted(finished, key=lambda each: each.exception() is not None):
                record, index = crew.result(future), indices.pop(future)
                while received[index] < len(record.history) and pass_on(1):
                    pass
                yield record


class WorkerError(Exception):
    """A worker process ended before its work; the message says so."""


class Crew:
    """Worker processes that share the cores; they end with the block.

    They are spawned, since forked ones would share threads with torch.
    """

    def __init__(self, workers: int) -> None:
        threads = max(1, (os.cpu_count() or 1) // workers)
        context = multiprocessing.get_context("spawn")
        self._messages = context.Queue()
        start = (threads, self._messages, os.getpid())
        self._pool = ProcessPoolExecutor(workers, context, _start_worker, start)
        # Not concurrent.futures.wait: interrupted, it may leave futures locked, and the pool hangs.
        self._finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:  # those still busy have only checkpoints to save
            process.terminate()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = self._pool.submit(work, *arguments)
        future.add_done_callback(self._finished.put)
        return future

    def receive(self, seconds: float) -> Any:
        """A message that a worker sent by `send`; None if none arrives within so many seconds."""
        try:
            return self._messages.get(timeout=seconds)
        except queue.Empty:
            return None

    def finished(self, seconds: float) -> list[Future[Any]]:
        """All that have finished; waits for one at most so many seconds."""
        try:
            futures = [self._finished.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._finished.empty():
            futures.append(self._finished.get())
        return futures

    @staticmethod
    def result(future: Future[Any]) -> Any:
        """What the work returned; WorkerError if the worker is gone."""
        try:
            return future.result()
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process was killed, perhaps because memory ran out; "
                "finished work is stored, and the same command continues"
            ) from None


_messages: Any = None  # in a worker: the queue to the parent


def send(message: Any) -> None:
    """From a worker to the parent, which calls `Crew.receive`."""
    _messages.put(message)


def _start_worker(threads: int, messages: Any, parent: int) -> None:
    global _messages
    _messages = messages
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    """Exit when the parent is gone: a killed parent can't stop its workers."""
    while os.getppid() == parent:
        threading.Event().wait(0.5)
    os._exit(1)


def _run_in_worker(index: int, job: Job, checkpoints: Checkpoints | None) -> Record:
    def report(*content: Any) -> None:
        send((index, *content))

    return job.run(report, checkpoints and checkpoints.of(job.key, report))
