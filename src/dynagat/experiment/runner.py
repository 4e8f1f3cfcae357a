"""Runner: where work is done, with one interface for this process, worker processes and a cluster.

A runner takes work from an iterator when it can start it, so that later work may depend on earlier
results, and yields results in the order in which they arrive.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, final

import torch

from dynagat.group import ALONE, Group

ATTEMPTS = 3  # of work that loses its worker


@dataclass(frozen=True, eq=False)
class Work:
    """A call function(contact, *arguments), made somewhere else.

    Args:
        name: of the work, for messages.
        graph: name or folder of the stored graph that it loads; empty if it needs none.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str
    graph: str = ""


@dataclass(frozen=True)
class Contact:
    """What a worker can do besides its work.

    Args:
        send: passes a message to the process that receives the results.
        ask: passes a question and returns the answer; None in worker processes, which have none.
        shares_files: whether the worker sees the files of that process.
        device: that networks compute on, as `placement.find_device` takes it.
        group: the workers that do the same work together. Only the first of them sends, asks and
            returns the result.
    """

    send: Callable[[Any], None]
    ask: Callable[[Any], Any] | None = None
    shares_files: bool = True
    device: str = "cpu"
    group: Group = ALONE


@dataclass(frozen=True)
class Done:
    """Finished work, and how often it was started: more than once if a worker was lost."""

    work: Work
    result: Any
    attempts: int = 1


Receive = Callable[[Work, Any], Any]  # gets messages and questions; answers questions
Say = Callable[[str], None]  # gets sentences about the workers
Results = Generator[Done, None, None]


class WorkerError(Exception):
    """A worker ended before its work; the message says so."""


class Runner(ABC):
    """Abstract. Where work is done."""

    @abstractmethod
    def run(self, work: Iterator[Work], receive: Receive, say: Say, beside: Path | None) -> Results:
        """Do all work, and yield each piece when it is finished and its messages are received.

        Work may keep files next to `beside`, a file of this process.
        """

    @property
    def group_size(self) -> int:
        """Number of workers that do a piece of work together."""
        return 1


@final
@dataclass(frozen=True)
class ThisProcess(Runner):
    """One piece of work after the other, in this process."""

    device: str = "cpu"

    def run(self, work: Iterator[Work], receive: Receive, say: Say, beside: Path | None) -> Results:
        for each in work:
            answer = partial(receive, each)
            contact = Contact(answer, answer, device=self.device)
            yield Done(each, each.function(contact, *each.arguments))


@final
@dataclass(frozen=True)
class Processes(Runner):
    """Worker processes on this machine, which share its cores."""

    workers: int
    device: str = "cpu"  # which the workers share

    def run(self, work: Iterator[Work], receive: Receive, say: Say, beside: Path | None) -> Results:
        running: dict[Future[Any], tuple[int, Work]] = {}
        by_number: dict[int, Work] = {}
        received: Counter[int] = Counter()

        with Crew(self.workers) as crew:

            def pass_on(seconds: float) -> bool:
                """Pass on a message from a worker, if one arrives within so many seconds."""
                message = crew.receive(seconds)
                if message is None:
                    return False
                number, content = message
                received[number] += 1
                receive(by_number[number], content)
                return True

            while True:
                while len(running) < self.workers and (each := next(work, None)) is not None:
                    number = len(by_number)
                    by_number[number] = each
                    future = crew.submit(_work_in_process, number, each, self.device)
                    running[future] = number, each
                if not running:
                    return
                finished = crew.finished(0.1)
                while pass_on(0):
                    pass
                for future in sorted(finished, key=lambda each: each.exception() is not None):
                    (result, sent), (number, each) = crew.result(future), running.pop(future)
                    while received[number] < sent and pass_on(1):
                        pass
                    yield Done(each, result)


def runner_of(workers: int | Runner, device: str = "cpu") -> Runner:
    """The runner for a number of workers, which compute on a device."""
    if isinstance(workers, Runner):
        if device != "cpu":
            kind = type(workers).__name__
            raise ValueError(
                f"device is {device!r} for a number of workers, but workers is a {kind}, "
                "which has its own"
            )
        return workers
    if workers < 1:
        raise ValueError(f"workers must be at least 1, but is {workers}")
    return ThisProcess(device) if workers == 1 else Processes(workers, device)


def raise_failures(failures: list[str]) -> None:
    """At the end: work that was given up, if any."""
    if failures:
        raise WorkerError(
            f"{'; '.join(failures)}; finished work is stored, and the same command runs what is "
            "missing"
        )


def _work_in_process(number: int, work: Work, device: str) -> tuple[Any, int]:
    """The result, and the number of messages."""
    contact = Contact(lambda message: _messages.put((number, message)), device=device)
    return counted(work, contact)


def counted(work: Work, contact: Contact) -> tuple[Any, int]:
    """The result of work, and the number of messages that it sent."""
    sent = 0

    def send(message: Any) -> None:
        nonlocal sent
        sent += 1
        contact.send(message)

    result = work.function(replace(contact, send=send), *work.arguments)
    return result, sent


class Crew:
    """Worker processes that share the cores; they end with the block.

    They are spawned, since forked ones would share threads with torch.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._messages = context.Queue()
        start = (threads_of(workers), self._messages, os.getpid())
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
        """A message that a worker sent; None if none arrives within so many seconds."""
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


def _start_worker(threads: int, messages: Any, parent: int) -> None:
    global _messages
    _messages = messages
    become_worker(threads, lambda: os.getppid() == parent)


def become_worker(threads: int, is_wanted: Callable[[], bool]) -> None:
    """Leave Ctrl-C to the parent, and exit when it is gone: a killed one can't stop its workers."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_unless, args=(is_wanted,), daemon=True).start()


def _exit_unless(is_wanted: Callable[[], bool]) -> None:
    while is_wanted():
        time.sleep(0.5)
    os._exit(1)


def threads_of(workers: int) -> int:
    """Number of threads of each of several workers on this machine."""
    return max(1, (os.cpu_count() or 1) // workers)
