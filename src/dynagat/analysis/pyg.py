"""What `capture` needs from PyG, which is optional: its softmax, its hooks and its ids."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from types import ModuleType
from typing import Any

from torch import Tensor, nn

ANY = "*"  # any relation
Observer = Callable[[Tensor, Tensor], None]  # called with scores and weights


def attends(module: nn.Module) -> bool:
    """Is it a `MessagePassing` layer, of PyG or of the user, with a softmax over edges?"""
    conv = sys.modules.get("torch_geometric.nn.conv")
    return (
        conv is not None
        and isinstance(module, conv.MessagePassing)
        and bool(_softmax_names(module))
    )


def hook_edges(layer: Any, before: Callable, after: Callable) -> Iterator[Any]:
    """Hooks that get the edges: `before` each step of a layer, `after` it has propagated."""
    yield layer.register_edge_update_forward_pre_hook(before)
    yield layer.register_propagate_forward_pre_hook(before)
    yield layer.register_propagate_forward_hook(after)


@contextmanager
def observing_softmax(layers: Iterable[nn.Module], observer: Observer) -> Iterator[None]:
    """Within the block, call `observer` with the scores and weights of each softmax of `layers`."""
    global _observers
    with _lock:
        names = {name for layer in layers for name in _softmax_names(layer)}
        _observers = (*_observers, observer)
        for name in names:
            _patch(*name)
    try:
        yield
    finally:
        with _lock:
            _observers = tuple(each for each in _observers if each is not observer)
            for name in names:
                _unpatch(*name)


def is_data(data: Any) -> bool:
    """Is it a `Data`, a `HeteroData` or a batch of them?"""
    module = sys.modules.get("torch_geometric.data.data")
    return module is not None and isinstance(data, module.BaseData)


def ids_of(batch: Any, name: str) -> Tensor | dict[Any, Tensor] | None:
    """`n_id` or `e_id` of a sampled batch, as a dict if the batch is heterogeneous."""
    if batch is None:
        return None
    has_types = hasattr(batch, "node_types")
    ids = batch.collect(name, allow_empty=True) if has_types else getattr(batch, name, None)
    if ids is None or (has_types and not ids):
        raise ValueError(f"batch has no {name}; pass its global ids as nodes= and edges=")
    return ids


def edge_type_of(layer: str, nodes: Any, edges: Any) -> tuple[str, str, str] | None:
    """The last edge type in a layer's path, in the form that HeteroConv or to_hetero uses."""
    names = [re.sub(r"[<>]", "", name).replace("#", ".") for name in layer.split(".")[::-1]]
    kinds = list(edges) if isinstance(edges, Mapping) else []
    if isinstance(nodes, Mapping):  # then the node types of both ends are known
        kinds += [(key, ANY, query) for key, query in product(nodes, nodes)]
    for name, kind in product(names, kinds):
        plain = tuple(re.sub("[ :-]", "_", part) for part in kind)  # to_hetero's Python names
        if _is_joined(name, kind, "___") or _is_joined(name, plain, "__"):
            return kind
    return None


def _is_joined(name: str, kind: tuple[str, ...], by: str) -> bool:
    key, relation, query = kind
    if relation != ANY:
        return name == by.join(kind)
    return name.startswith(key + by) and name[len(key + by) :].endswith(by + query)


def of_type(ids: Any, kind: Any) -> Tensor | None:
    """The ids of one type, or all ids if they have no types."""
    return ids.get(kind) if isinstance(ids, Mapping) else ids


Name = tuple[ModuleType, str]  # a module, and its name for PyG's softmax
_observers: tuple[Observer, ...] = ()  # immutable: another thread may be iterating over it
_lock = threading.Lock()
_patched: dict[Name, tuple[int, Callable]] = {}  # number of open blocks, and the original


def _softmax_names(layer: nn.Module) -> set[Name]:
    """The names of PyG's softmax in the modules that define a layer's classes."""
    utils = sys.modules.get("torch_geometric.utils")
    if utils is None:
        return set()
    names = {kind.__module__ for kind in type(layer).__mro__}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return {
        (module, name)
        for module in modules
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "observed_softmax", value) is utils.softmax
    }


def _patch(module: ModuleType, name: str) -> None:
    count, original = _patched.get((module, name), (0, getattr(module, name)))
    if count == 0:
        setattr(module, name, _observed(original))
    _patched[module, name] = (count + 1, original)


def _unpatch(module: ModuleType, name: str) -> None:
    count, original = _patched.pop((module, name))
    if count == 1:
        setattr(module, name, original)
    else:
        _patched[module, name] = (count - 1, original)


def _observed(softmax: Callable) -> Callable:
    @functools.wraps(softmax)
    def observed(src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        weight = softmax(src, *args, **kwargs)
        for observer in _observers:
            observer(src, weight)
        return weight

    observed.observed_softmax = softmax  # type: ignore[attr-defined]
    return observed
