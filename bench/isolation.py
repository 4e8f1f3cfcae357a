"""Isolation: fresh processes, limits of time, and the reasons why something could not run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


class CannotRun(RuntimeError):
    """A contender can't take part; the message is the reason that the tables give."""


class OutOfTime(BaseException):
    """Not an Exception, for compilers catch those and carry on in their own way."""


def fresh_process() -> ProcessPoolExecutor:
    """A new interpreter, so that its memory starts and ends with it."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    with fresh_process() as process:
        return process.submit(function, *arguments).result()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """OutOfTime in the main thread once the time is up, or at the end if somebody swallowed it."""
    is_over = False

    def stop(*_: object) -> None:
        nonlocal is_over
        is_over = True
        raise OutOfTime(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if is_over:
        raise OutOfTime(f"took longer than {seconds:g} s")


def reason_of(error: BaseException) -> str:
    """An error in one line of a table."""
    if isinstance(error, CannotRun | OutOfTime):
        return str(error)
    if isinstance(error, BrokenProcessPool):
        return "its process died: a crash, or killed for lack of memory"
    text = str(error).strip().split("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
