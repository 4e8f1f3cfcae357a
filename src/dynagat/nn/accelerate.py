"""accelerate: replace PyG's attention layers, and torch's dropout, inside a model by dynagat's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from dynagat.nn.dropout import Dropout
from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv
from dynagat.nn.linear import Linear

# Constructor arguments that PyG's layers keep as attributes of the same name.
_SHAPE = ("in_channels", "out_channels", "heads", "concat", "edge_dim", "share_weights", "residual")
_RULES = ("negative_slope", "dropout", "add_self_loops", "fill_value", "aggr", "flow")


@dataclass(frozen=True)
class Acceleration:
    """Report of `accelerate`; print it to see what was replaced."""

    model: nn.Module  # the model to use from now on
    replaced: tuple[str, ...]  # paths inside the model; "" is the model itself
    left: tuple[tuple[str, str], ...]  # path, and the reason
    dropouts: tuple[str, ...] = ()  # paths of replaced nn.Dropout modules

    def __str__(self) -> str:
        lines = [f"replaced {_describe(path)}" for path in self.replaced]
        lines += [f"replaced {_describe(path)}, a dropout" for path in self.dropouts]
        lines += [f"left {_describe(path)}: {reason}" for path, reason in self.left]
        if "" in (*self.replaced, *self.dropouts):
            lines.append(
                "the model itself is a layer, which can't be replaced in place: use report.model"
            )
        if not self.replaced and not self.left:
            lines.append("no GATConv or GATv2Conv of torch_geometric found")
        return "\n".join(lines)


def accelerate(model: nn.Module) -> Acceleration:
    """Replace every GATConv and GATv2Conv of PyG in `model`, in place, by dynagat's; and every
    torch.nn.Dropout by `dynagat.Dropout`, which drops other entries for the same seed.

    Parameters stay the same objects, so optimizers keep working. Layers that use a feature dynagat
    does not support are left as they are; the report lists them. Code that searches for PyG's
    `MessagePassing`, such as its explainers, does not find the replaced layers.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, but is a {type(model).__name__}")
    replaced, left, dropouts = [], [], []
    outcomes: dict[nn.Module, nn.Module | str] = {}  # a shared layer is replaced once
    for path, parent, name, layer in list(_layers(model)):
        if layer not in outcomes:
            outcomes[layer] = _replacement(layer)
        outcome = _compiled_reason(parent) or outcomes[layer]
        if isinstance(outcome, str):
            left.append((path, outcome))
            continue
        (dropouts if isinstance(outcome, Dropout) else replaced).append(path)
        if parent is not None:
            parent._modules[name] = outcome
    own = outcomes.get(model, model)
    own = own if isinstance(own, nn.Module) else model
    return Acceleration(own, tuple(replaced), tuple(left), tuple(dropouts))


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module | None, str, nn.Module]]:
    """Path, parent, name and module of each layer of PyG and dropout, for each of its paths."""
    kinds = (*_kinds(), nn.Dropout)
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, module in modules.items():
        if isinstance(module, kinds):
            above, _, name = path.rpartition(".")
            yield path, modules[above] if path else None, name, module


def _kinds() -> dict[type, type[GATConv] | type[GATv2Conv]]:
    """PyG's class -> ours; empty if PyG was never imported, so that no model can contain it."""
    pyg = sys.modules.get("torch_geometric.nn")
    return {} if pyg is None else {pyg.GATConv: GATConv, pyg.GATv2Conv: GATv2Conv}


def _compiled_reason(parent: nn.Module | None) -> str | None:
    is_compiled = type(parent).__name__ == "OptimizedModule"
    return "it is compiled; call accelerate before torch.compile" if is_compiled else None


def _replacement(layer: Any) -> nn.Module | str:
    """Our layer with the parameters of PyG's, or the reason why it can't be replaced."""
    if isinstance(layer, nn.Dropout):
        return _dropout(layer)
    reason = _obstacle(layer)
    if reason is not None:
        return reason
    arguments = {name: getattr(layer, name) for name in _SHAPE + _RULES if hasattr(layer, name)}
    try:
        with torch.device("meta"):  # uses no random numbers and no memory
            ours = _kinds()[type(layer)](**arguments, bias=layer.bias is not None)
    except (TypeError, ValueError) as error:
        return str(error)
    theirs = dict(layer.named_parameters(remove_duplicate=False))
    names = dict(ours.named_parameters(remove_duplicate=False)).keys()
    if names != theirs.keys():
        return f"its parameters are {', '.join(theirs)}, not {', '.join(names)}"
    _adopt(ours, theirs)
    if any(theirs[name] is not p for name, p in ours.named_parameters(remove_duplicate=False)):
        return "its weights are not shared as its arguments say"
    ours.train(layer.training)
    return ours


def _dropout(module: nn.Dropout) -> nn.Module | str:
    if type(module) is not nn.Dropout:
        return f"{type(module).__name__} is a subclass, which may compute something else"
    if module.inplace or _has_hooks(module):
        return "it works in place" if module.inplace else "it has hooks"
    parts = (*module.named_parameters(), *module.named_buffers(), *module.named_children())
    changed = _overridden(module) + [name for name, _ in parts]
    if changed:
        return f"its {changed[0]} was replaced or added"
    try:
        return Dropout(module.p).train(module.training)
    except ValueError as error:
        return str(error)


def _adopt(ours: nn.Module, theirs: dict[str, nn.Parameter]) -> None:
    for path, parameter in theirs.items():
        owner, _, name = path.rpartition(".")
        module = ours.get_submodule(owner)
        setattr(module, name, parameter)
        if isinstance(module, Linear) and name == "weight":
            module.in_channels = -1 if module.is_lazy else parameter.shape[1]


def _obstacle(layer: Any) -> str | None:
    """Why this layer can't be replaced, or None."""
    kind = type(layer)
    if kind not in _kinds():
        return f"{kind.__name__} is a subclass, which may compute something else"
    overridden = _overridden(layer)
    if getattr(layer, "explain", None) or getattr(layer, "_edge_mask", None) is not None:
        return "an explainer is using it"
    if getattr(layer, "decomposed_layers", 1) != 1:
        return f"it has decomposed_layers={layer.decomposed_layers}"
    if overridden:
        return f"its {overridden[0]} was replaced"
    if layer.aggr not in ("add", "sum"):
        return f"it has aggr={layer.aggr!r}"
    return _altered_part(layer)


def _overridden(module: nn.Module) -> list[str]:
    """The methods that this module has instead of those of its class."""
    return [name for name in vars(module) if callable(getattr(type(module), name, None))]


def _altered_part(layer: nn.Module) -> str | None:
    """How a part of the layer differs from what PyG creates, or None."""
    linear = sys.modules["torch_geometric.nn"].Linear
    for name, module in layer.named_modules():
        part = name or "it"
        if is_parametrized(module):
            return f"{part} is parametrized"
        if name and "." not in name and name != "aggr_module" and type(module) is not linear:
            return f"{part} is a {type(module).__module__}.{type(module).__name__}"
        if _has_hooks(module):
            return f"{part} has hooks"
    for name, _ in layer.named_buffers():
        return f"it has the buffer {name}"
    for name, parameter in layer.named_parameters():
        if not parameter.is_floating_point():
            return f"{name} has dtype {parameter.dtype}"
    return None


def _has_hooks(module: nn.Module) -> bool:
    """Any hooks of torch or PyG, except the one with which a lazy PyG Linear initialises itself?"""
    lazy_hook = getattr(module, "_hook", None)
    hooks = {name: value for name, value in vars(module).items() if name.endswith("_hooks")}
    ignored = {lazy_hook.id} if lazy_hook is not None else set()
    return any(set(value) - ignored for value in hooks.values() if hasattr(value, "keys"))


def _describe(path: str) -> str:
    return path or "the model itself"
