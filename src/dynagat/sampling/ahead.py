"""work_ahead: items computed in advance by background threads and yielded in order."""

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
    """Yield make(n, threads) for n in order; up to `depth` items are computed in advance.

    Each item is computed by one background thread; there are at most as many as torch has threads.
    With a depth of 0, the caller computes each item with all of torch's threads. Errors of `make`
    are raised here. When the caller stops early, the threads finish their current items and end.
    """
    if depth == 0:
        for n in range(count):
            yield make(n, torch.get_num_threads())
        return
    size = min(depth, count, workers or torch.get_num_threads())
    if size == 0:
        return
    waiting: deque[Future[Item]] = deque()
    indices = iter(range(count))
    pool = ThreadPoolExecutor(size, thread_name_prefix="dynagat-sampling")
    try:
        for _ in range(count):
            for n in islice(indices, depth + 1 - len(waiting)):
                waiting.append(pool.submit(make, n, 1))
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
