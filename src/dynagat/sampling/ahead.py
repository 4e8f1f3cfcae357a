"""Working ahead: items made by background threads, handed over in order, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

Item = TypeVar("Item")


def work_ahead(
    make: Callable[[int, int], Item], count: int, depth: int, workers: int | None = None
) -> Iterator[Item]:
    """make(n, threads) for n in order; up to `depth` of them are begun before they are asked for.

    Each background thread works alone, as many of them at once as torch has threads. With a depth
    of 0 the caller makes each item, with all of torch's threads. What `make` raises is raised here.
    When the caller stops early, the threads end with what they have begun.
    """
    if depth == 0:
        for n in range(count):
            yield make(n, torch.get_num_threads())
        return
    size = min(depth, count, workers or torch.get_num_threads())
    if size == 0:
        return
    waiting: deque[Future[Item]] = deque()
    numbers = iter(range(count))
    pool = ThreadPoolExecutor(size, thread_name_prefix="dynagat-sampling")
    try:
        for _ in range(count):
            for n in islice(numbers, depth + 1 - len(waiting)):
                waiting.append(pool.submit(make, n, 1))
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
