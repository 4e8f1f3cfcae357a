"""Observers: who is told the weights and scores of every op while it computes them.

An observer costs the op one more array [*, num_edges, H], and no second pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sight:
    """What one call of an op computed, by edge number; numbers that no edge bears hold zeros."""

    rowptr: Tensor  # [num_queries · R + 1]: the rows of the graph, as in `Graph`
    key_index: Tensor  # [E]
    edge_id: Tensor  # [E]
    num_relations: int
    weights: Tensor  # [*, num_edges, H], before dropout
    scores: Tensor  # [*, num_edges, H]


Observer = Callable[[Sight], None]

_observers: tuple[Observer, ...] = ()
_lock = threading.Lock()


def are_there() -> bool:
    return bool(_observers)


def tell(sight: Sight) -> None:
    for observer in _observers:
        observer(sight)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Within the block the observer is told, in the thread that computes, of every call."""
    global _observers
    with _lock:
        _observers = (*_observers, observer)
    try:
        yield
    finally:
        with _lock:
            _observers = tuple(each for each in _observers if each is not observer)
