"""uninterrupted: Ctrl-C waits for the end of a block, or of the function that it decorates."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """For what must not be left half done. Where Ctrl-C means something else, it still does."""
    means_stop = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not means_stop or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if caught:
        raise KeyboardInterrupt
