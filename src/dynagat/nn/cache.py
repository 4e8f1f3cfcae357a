"""A cache of graphs: each is kept until the edges it was built from change or are deleted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dynagat.graph import INDEX_DTYPES, Graph
from dynagat.native import kernels

Fingerprint = tuple[Hashable, ...]


@dataclass
class Entry:
    """The graphs built from one edge tensor while its contents had this fingerprint."""

    fingerprint: Fingerprint
    graphs: dict[Hashable, Graph] = field(default_factory=dict)


@dataclass(frozen=True)
class Latest:
    """The graph that was loaded last, which is usually the next one, too; all of it weak."""

    edges: ref[Tensor]
    owner: ref[Tensor]
    fingerprint: Fingerprint
    variant: Hashable
    graph: ref[Graph]

    def load(
        self, edges: Tensor, owner: Tensor, fingerprint: Fingerprint, variant: Hashable
    ) -> Graph | None:
        is_same = self.edges() is edges and self.owner() is owner
        is_same = is_same and self.fingerprint == fingerprint and self.variant == variant
        return self.graph() if is_same else None


_latest: Latest | None = None  # replaced as a whole, so that it needs no lock
_entries: MutableMapping[Tensor, MutableMapping[Tensor, Entry]] = WeakTensorKeyDictionary()
_with_loops: MutableMapping[Graph, Graph] = WeakKeyDictionary()
_lock = threading.Lock()  # held while reading or writing the cache, never while building a graph


def cached_graph(
    edges: Tensor,
    arrays: tuple[Tensor, ...],
    relation: Tensor | None,
    variant: Hashable,
    build: Callable[[], Graph],
) -> Graph:
    """The graph built earlier from these edges (and relation) in this variant, or a new one.

    `arrays` are the index arrays inside `edges`; a change in any of them is detected.
    """
    global _latest
    tensors = arrays if relation is None else (*arrays, relation)
    if torch.compiler.is_compiling() or not all(map(_is_cacheable, tensors)):
        return build()
    fingerprint = tuple(_fingerprint(tensor) for tensor in tensors)
    owner = edges if relation is None else relation
    call = (edges, owner, fingerprint, variant)
    graph = None if _latest is None else _latest.load(*call)
    if graph is None:
        graph = _load(*call)
        if graph is None:
            with torch.inference_mode(False):  # later calls may need gradients
                graph = build()
            _store(*call, graph)
        _latest = Latest(ref(edges), ref(owner), fingerprint, variant, ref(graph))
    return graph


def latest_graph(edges: Tensor, variant: Hashable) -> Graph | None:
    """`cached_graph` without a relation, if its answer is the graph that was loaded last."""
    latest = _latest
    if latest is None or latest.edges() is not edges or torch.compiler.is_compiling():
        return None
    return latest.load(edges, edges, (_fingerprint(edges),), variant)


def cached_self_loops(graph: Graph) -> Graph:
    """graph.with_self_loops(), built once per graph."""
    if torch.compiler.is_compiling():
        return graph.with_self_loops()
    with _lock:
        looped = _with_loops.get(graph)
    if looped is None:
        with torch.inference_mode(False):
            looped = graph.with_self_loops()
        with _lock:
            _with_loops[graph] = looped
    return looped


def _load(
    edges: Tensor, owner: Tensor, fingerprint: Fingerprint, variant: Hashable
) -> Graph | None:
    with _lock:
        entry = _entries.get(edges, {}).get(owner)
        if entry is None or entry.fingerprint != fingerprint:
            return None
        return entry.graphs.get(variant)


def _store(
    edges: Tensor, owner: Tensor, fingerprint: Fingerprint, variant: Hashable, graph: Graph
) -> None:
    with _lock:
        entries = _entries.setdefault(edges, WeakTensorKeyDictionary())
        entry = entries.get(owner)
        if entry is None or entry.fingerprint != fingerprint:
            entry = entries[owner] = Entry(fingerprint)  # drops graphs of the old contents
        entry.graphs[variant] = graph


def _is_cacheable(tensor: Tensor) -> bool:
    """Can a change be detected? Inference tensors have no version, traced ones no contents."""
    is_plain = type(tensor) is Tensor and tensor.dtype in INDEX_DTYPES
    return is_plain and not tensor.is_inference() and not tensor.is_meta


def _fingerprint(tensor: Tensor) -> Fingerprint:
    # Writes through numpy or .data do not change the version, so the contents are hashed too; not
    # on other devices, where numpy can't write and where to read a number is to wait for it.
    contents = checksum(tensor) if tensor.device.type == "cpu" else 0
    layout = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    return (tensor._version, *layout, contents)


def checksum(tensor: Tensor) -> int:
    """A number that almost surely changes when any entry of an integer tensor does."""
    if kernels is not None and tensor.device.type == "cpu" and tensor.is_contiguous():
        num_bytes = tensor.numel() * tensor.element_size()
        return kernels.checksum(tensor.data_ptr(), num_bytes, torch.get_num_threads())
    position = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    # Not linear in the entries, so that changes can't cancel out; products wrap around.
    mixed = (tensor + position * 0x1E3779B97F4A7C15) * 0x3F58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 31)) * 0x14D049BB133111EB
    return int((mixed ^ (mixed >> 29)).sum())
