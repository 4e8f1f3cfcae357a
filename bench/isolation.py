"""Isolation: fresh processes, time limits, and the reasons why something could not run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

from bench.machine import available_bytes
from dynagat.placement import CPU, module_of


class CannotRun(RuntimeError):
    """A contender cannot run; the message is the reason shown in the report."""


class OutOfTime(BaseException):
    """Not an Exception, because compilers catch those and continue."""


def fresh_process() -> ProcessPoolExecutor:
    """A new interpreter, whose memory holds nothing from earlier measurements."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    with fresh_process() as process:
        return process.submit(function, *arguments).result()


def check_memory(needed: float, device: torch.device = CPU) -> None:
    """Raise CannotRun if fewer than `needed` bytes are available on a device."""
    there: Any = module_of(device.type) if device.type in ("cuda", "xpu") else None
    available = available_bytes() if there is None else there.mem_get_info(device)[0]
    if needed > available:
        raise CannotRun(
            f"needs about {needed / 1e9:.1f} GB of memory, "
            f"but {available / 1e9:.1f} GB are available"
        )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the main thread when the time is up.

    If the code inside catches it and continues, it is raised again at the end of the block.
    """
    is_over = False

    def stop(*_: object) -> None:
        nonlocal is_over
        is_over = True
        raise OutOfTime(f"took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if is_over:
        raise OutOfTime(f"took longer than {seconds:g} s")


def reason_of(error: BaseException) -> str:
    """An error as one line for the report."""
    if isinstance(error, CannotRun | OutOfTime):
        return str(error)
    if isinstance(error, BrokenProcessPool):
        return "its process died: it crashed or ran out of memory"
    text = str(error).strip().split("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
