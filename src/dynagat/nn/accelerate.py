"""accelerate: PyG's attention layers inside a model are replaced by the ones here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv
from dynagat.nn.linear import Linear

# Arguments that PyG keeps as attributes of the same name.
_SHAPE = ("in_channels", "out_channels", "heads", "concat", "edge_dim", "share_weights", "residual")
_RULES = ("negative_slope", "dropout", "add_self_loops", "fill_value", "aggr", "flow")


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate` did: `print` it."""

    model: nn.Module  # the one to use from now on
    replaced: tuple[str, ...]  # paths inside the model; "" is the model itself
    left: tuple[tuple[str, str], ...]  # path, and why

    def __str__(self) -> str:
        lines = [f"replaced {_shown(path)}" for path in self.replaced]
        lines += [f"left {_shown(path)}: {reason}" for path, reason in self.left]
        if "" in self.replaced:
            lines.append("the model is itself a layer, not replaced in place: use report.model")
        return "\n".join(lines) or "no GATConv or GATv2Conv of torch_geometric found"


def accelerate(model: nn.Module) -> Acceleration:
    """Replace every GATConv and GATv2Conv of PyG in `model`, in place, by the one here.

    Parameters stay the same objects, so optimizers go on working. A layer that asks for something
    the one here has not (see the report) is left as it is. Code that looks for PyG's
    `MessagePassing`, as its explainers do, does not see the replaced ones.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, but is a {type(model).__name__}")
    replaced, left = [], []
    outcomes: dict[nn.Module, nn.Module | str] = {}  # a layer met twice is replaced once
    for path, parent, name, layer in list(_layers(model)):
        if layer not in outcomes:
            outcomes[layer] = _replacement(layer)
        outcome = _wrapper(parent) or outcomes[layer]
        if isinstance(outcome, str):
            left.append((path, outcome))
            continue
        replaced.append(path)
        if parent is not None:
            parent._modules[name] = outcome
    own = outcomes.get(model, model)
    return Acceleration(own if isinstance(own, nn.Module) else model, tuple(replaced), tuple(left))


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module | None, str, nn.Module]]:
    """Path, parent, name and module of each attention layer of PyG, under all its paths."""
    kinds = tuple(_kinds())
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, module in modules.items():
        if isinstance(module, kinds):
            above, _, name = path.rpartition(".")
            yield path, modules[above] if path else None, name, module


def _kinds() -> dict[type, type[GATConv] | type[GATv2Conv]]:
    """PyG's classes and ours; none if PyG was never imported, for then no model has its layers."""
    pyg = sys.modules.get("torch_geometric.nn")
    return {} if pyg is None else {pyg.GATConv: GATConv, pyg.GATv2Conv: GATv2Conv}


def _wrapper(parent: nn.Module | None) -> str | None:
    is_compiled = type(parent).__name__ == "OptimizedModule"
    return "it was compiled; accelerate first, then compile" if is_compiled else None


def _replacement(layer: Any) -> nn.Module | str:
    """Our layer with the parameters of PyG's, or the reason why there is none."""
    reason = _obstacle(layer)
    if reason is not None:
        return reason
    arguments = {name: getattr(layer, name) for name in _SHAPE + _RULES if hasattr(layer, name)}
    try:
        with torch.device("meta"):  # draws no random numbers, takes no memory
            ours = _kinds()[type(layer)](**arguments, bias=layer.bias is not None)
    except (TypeError, ValueError) as error:
        return str(error)
    theirs = dict(layer.named_parameters(remove_duplicate=False))
    names = dict(ours.named_parameters(remove_duplicate=False)).keys()
    if names != theirs.keys():
        return f"its parameters are {', '.join(theirs)}, not {', '.join(names)}"
    _adopt(ours, theirs)
    if any(theirs[name] is not p for name, p in ours.named_parameters(remove_duplicate=False)):
        return "it shares weights in another way than its arguments say"
    ours.train(layer.training)
    return ours


def _adopt(ours: nn.Module, theirs: dict[str, nn.Parameter]) -> None:
    for path, parameter in theirs.items():
        owner, _, name = path.rpartition(".")
        module = ours.get_submodule(owner)
        setattr(module, name, parameter)
        if isinstance(module, Linear) and name == "weight":
            is_open = isinstance(parameter, nn.UninitializedParameter)
            module.in_channels = -1 if is_open else parameter.shape[1]


def _obstacle(layer: Any) -> str | None:
    """Why this layer must stay PyG's, if it must."""
    kind = type(layer)
    if kind not in _kinds():
        return f"{kind.__name__} is a subclass, and may compute something else"
    overridden = [name for name in vars(layer) if callable(getattr(kind, name, None))]
    if getattr(layer, "explain", None) or getattr(layer, "_edge_mask", None) is not None:
        return "it is being explained"
    if getattr(layer, "decomposed_layers", 1) != 1:
        return f"it has decomposed_layers={layer.decomposed_layers}"
    if overridden:
        return f"its {overridden[0]} was replaced"
    if layer.aggr not in ("add", "sum"):
        return f"it has aggr={layer.aggr!r}"
    return _altered_part(layer)


def _altered_part(layer: nn.Module) -> str | None:
    """Which part of the layer is no longer as PyG makes it?"""
    linear = sys.modules["torch_geometric.nn"].Linear
    for name, module in layer.named_modules():
        at = name or "it"
        if is_parametrized(module):
            return f"{at} is parametrized"
        if name and "." not in name and name != "aggr_module" and type(module) is not linear:
            return f"{at} is a {type(module).__module__}.{type(module).__name__}"
        if _has_hooks(module):
            return f"{at} has hooks"
    for name, parameter in layer.named_parameters():
        if not parameter.is_floating_point():
            return f"{name} holds {parameter.dtype}"
    return None


def _has_hooks(module: nn.Module) -> bool:
    """Hooks of torch's or PyG's, but for the one by which PyG's Linear waits for its first x."""
    waiting = getattr(module, "_hook", None)
    hooks = {name: value for name, value in vars(module).items() if name.endswith("_hooks")}
    own = {waiting.id} if waiting is not None else set()
    return any(set(value) - own for value in hooks.values() if hasattr(value, "keys"))


def _shown(path: str) -> str:
    return path or "the model itself"
