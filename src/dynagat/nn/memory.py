"""Graphs that are remembered for as long as the edges they were built from live, unchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dynagat.graph import INDEX_DTYPES, Graph
from dynagat.native import kernels

Stamp = tuple[Hashable, ...]


@dataclass
class Shelf:
    """The graphs built from one edge tensor while its contents bore this stamp."""

    stamp: Stamp
    graphs: dict[Hashable, Graph] = field(default_factory=dict)


_shelves: MutableMapping[Tensor, MutableMapping[Tensor, Shelf]] = WeakTensorKeyDictionary()
_with_loops: MutableMapping[Graph, Graph] = WeakKeyDictionary()
_lock = threading.Lock()  # held for the look-up and the storing, never while a graph is built


def remember(
    edges: Tensor,
    arrays: tuple[Tensor, ...],
    relation: Tensor | None,
    variant: Hashable,
    build: Callable[[], Graph],
) -> Graph:
    """The graph built before from these edges (and relation) in this variant, or a new one.

    `arrays` are the index arrays inside `edges`; a change in any of them is noticed.
    """
    parts = arrays if relation is None else (*arrays, relation)
    if torch.compiler.is_compiling() or not all(map(_is_observable, parts)):
        return build()
    stamp = tuple(_stamp(part) for part in parts)
    owner = edges if relation is None else relation
    graph = _recall(edges, owner, stamp, variant)
    if graph is None:
        graph = build()
        _store(edges, owner, stamp, variant, graph)
    return graph


def remember_loops(graph: Graph) -> Graph:
    """graph.with_self_loops(), built once for as long as the graph lives."""
    if torch.compiler.is_compiling():
        return graph.with_self_loops()
    with _lock:
        found = _with_loops.get(graph)
    if found is None:
        found = graph.with_self_loops()
        with _lock:
            _with_loops[graph] = found
    return found


def _recall(edges: Tensor, owner: Tensor, stamp: Stamp, variant: Hashable) -> Graph | None:
    with _lock:
        shelf = _shelves.get(edges, {}).get(owner)
        return shelf.graphs.get(variant) if shelf is not None and shelf.stamp == stamp else None


def _store(edges: Tensor, owner: Tensor, stamp: Stamp, variant: Hashable, graph: Graph) -> None:
    with _lock:
        shelves = _shelves.setdefault(edges, WeakTensorKeyDictionary())
        shelf = shelves.get(owner)
        if shelf is None or shelf.stamp != stamp:
            shelf = shelves[owner] = Shelf(stamp)  # what was built from the old contents goes
        shelf.graphs[variant] = graph


def _is_observable(tensor: Tensor) -> bool:
    """Can a change be seen? Not in inference tensors, which have no version, nor in traced ones."""
    is_plain = type(tensor) is Tensor and tensor.dtype in INDEX_DTYPES
    return is_plain and not tensor.is_inference() and not tensor.is_meta


def _stamp(tensor: Tensor) -> Stamp:
    # Writes through numpy or .data leave the version alone: only the contents tell.
    layout = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    return (tensor._version, *layout, checksum(tensor))


def checksum(tensor: Tensor) -> int:
    """A number that almost surely changes when any entry of an integer tensor does."""
    if kernels is not None and tensor.device.type == "cpu" and tensor.is_contiguous():
        num_bytes = tensor.numel() * tensor.element_size()
        return kernels.checksum(tensor.data_ptr(), num_bytes, torch.get_num_threads())
    place = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    # Not linear in the entries, or changes that cancel out would go unseen; products wrap around.
    mixed = (tensor + place * 0x1E3779B97F4A7C15) * 0x3F58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 31)) * 0x14D049BB133111EB
    return int((mixed ^ (mixed >> 29)).sum())
