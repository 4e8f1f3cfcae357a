"""What capture needs to know of PyG, which need not be there: its softmax, its hooks, its ids."""

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

ANY = "*"  # relation
Hear = Callable[[Tensor, Tensor], None]


def attends(module: nn.Module) -> bool:
    """Is it a layer of PyG, or a user's own on top of PyG, that has a softmax over edges?"""
    conv = sys.modules.get("torch_geometric.nn.conv")
    return conv is not None and isinstance(module, conv.MessagePassing) and bool(_places(module))


def hook_edges(layer: Any, before: Callable, after: Callable) -> Iterator[Any]:
    """Tell which edges a layer computes on, before each step, and when it has propagated."""
    yield layer.register_edge_update_forward_pre_hook(before)
    yield layer.register_propagate_forward_pre_hook(before)
    yield layer.register_propagate_forward_hook(after)


@contextmanager
def overhearing(layers: Iterable[nn.Module], hear: Hear) -> Iterator[None]:
    """Within the block, `hear` gets the scores and the weights of each softmax of these layers."""
    global _ears
    with _lock:
        places = {place for layer in layers for place in _places(layer)}
        _ears = (*_ears, hear)
        for place in places:
            _listen(*place)
    try:
        yield
    finally:
        with _lock:
            _ears = tuple(each for each in _ears if each is not hear)
            for place in places:
                _leave_alone(*place)


def is_data(data: Any) -> bool:
    """Is it a `Data`, a `HeteroData` or a batch of them?"""
    module = sys.modules.get("torch_geometric.data.data")
    return module is not None and isinstance(data, module.BaseData)


def ids_of(batch: Any, name: str) -> Tensor | dict[Any, Tensor] | None:
    """`n_id` or `e_id` of a sampled batch; by type, if it has types; None if it has none."""
    if batch is None:
        return None
    has_types = hasattr(batch, "node_types")
    found = batch.collect(name, allow_empty=True) if has_types else getattr(batch, name, None)
    if found is None or (has_types and not found):
        raise ValueError(f"batch has no {name}; give its global ids as nodes= and edges=")
    return found


def edge_type_of(layer: str, nodes: Any, edges: Any) -> tuple[str, str, str] | None:
    """The edge type that is last in a layer's path, as HeteroConv or to_hetero writes it."""
    names = [re.sub(r"[<>]", "", name).replace("#", ".") for name in layer.split(".")[::-1]]
    kinds = list(edges) if isinstance(edges, Mapping) else []
    if isinstance(nodes, Mapping):  # which tell a type's ends
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
    """The ids of one type; the ids themselves, if they have no types."""
    return ids.get(kind) if isinstance(ids, Mapping) else ids


# The softmax, in each module that calls it: (module, name) -> how many listen, and the real one.
Place = tuple[ModuleType, str]
_ears: tuple[Hear, ...] = ()  # never changed, but replaced: another thread may be going through it
_lock = threading.Lock()
_listened: dict[Place, tuple[int, Callable]] = {}


def _places(layer: nn.Module) -> set[Place]:
    """The names under which the modules that a layer's classes are defined in have the softmax."""
    utils = sys.modules.get("torch_geometric.utils")
    if utils is None:
        return set()
    names = {kind.__module__ for kind in type(layer).__mro__}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return {
        (module, name)
        for module in modules
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "overheard", value) is utils.softmax
    }


def _listen(module: ModuleType, name: str) -> None:
    count, real = _listened.get((module, name), (0, getattr(module, name)))
    if count == 0:
        setattr(module, name, _overheard(real))
    _listened[module, name] = (count + 1, real)


def _leave_alone(module: ModuleType, name: str) -> None:
    count, real = _listened.pop((module, name))
    if count == 1:
        setattr(module, name, real)
    else:
        _listened[module, name] = (count - 1, real)


def _overheard(softmax: Callable) -> Callable:
    @functools.wraps(softmax)
    def told(src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        weight = softmax(src, *args, **kwargs)
        for hear in _ears:
            hear(src, weight)
        return weight

    told.overheard = softmax  # type: ignore[attr-defined]
    return told
