"""Observers are called with the attention scores and weights of every op call.

While there is an observer, an op also stores its scores and weights, [*, num_edges, H] each; it
makes no second pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Observation:
    """The scores and weights of one op call, by edge id. Unused edge ids hold zeros."""

    rowptr: Tensor  # [num_queries · R + 1]: the rows of the graph, as in `Graph`
    key_index: Tensor  # [E]
    edge_id: Tensor  # [E]
    num_relations: int
    weights: Tensor  # [*, num_edges, H], before dropout
    scores: Tensor  # [*, num_edges, H]


Observer = Callable[[Observation], None]

_observers: tuple[Observer, ...] = ()
_lock = threading.Lock()


def has_observers() -> bool:
    """Is there any observer?"""
    return bool(_observers)


def notify(observation: Observation) -> None:
    for observer in _observers:
        observer(observation)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Within the block, `observer` is called after every op call, in the thread that computes."""
    global _observers
    with _lock:
        _observers = (*_observers, observer)
    try:
        yield
    finally:
        with _lock:
            _observers = tuple(other for other in _observers if other is not observer)
