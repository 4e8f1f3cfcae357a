"""A checkpoint alone as a model: the GAT and GATv2 layers that its names and shapes tell of.

The layers are put one after the other with ReLU between, self-loops added and slope 0.2, as
PyG's and DGL's defaults have it. What lies after the last one has no say in what is attended to.
"""

from __future__ import annotations

import importlib.util
import pickle
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from dynagat.nn import GATConv, GATv2Conv
from dynagat.nn.convert import convert

NESTED = ("state_dict", "model_state_dict", "model", "network")  # where trainers put the weights
State = Mapping[str, Tensor]


@final
class AttentionStack(nn.Module):
    """x <- ReLU(layer(x, edge_index)), layer after layer; the last one without the ReLU."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.names = tuple(layers)
        for name, layer in layers.items():  # under the path it has in the checkpoint
            *above, last = name.split(".")
            module: nn.Module = self
            for part in above:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.add_module(last, layer)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        last = self.names[-1]
        for name in self.names:
            x = self.get_submodule(name)(x, edge_index, edge_attr)
            x = x if name == last else x.relu()
        return x


def read_checkpoint(path: Path | str) -> AttentionStack:
    """The attention layers in a file that torch.save wrote a state dict to."""
    state = convert(_state(_load(Path(path)), Path(path)))
    prefixes = list(dict.fromkeys(_prefix(key) for key in state if _is_vector(key)))
    if not prefixes:
        some = ", ".join(list(state)[:4])
        raise ValueError(
            f"{path} holds no GATConv or GATv2Conv; it starts with {some}. The heads of other "
            "layers can't be told: inspect a Python file that exposes model and data"
        )
    _check_rest(state, prefixes, path)
    parts = [{k.removeprefix(p): v for k, v in state.items() if k.startswith(p)} for p in prefixes]
    layers = {}
    for place, (prefix, part) in enumerate(zip(prefixes, parts, strict=True)):
        wide = None if place + 1 == len(parts) else _in_channels(parts[place + 1])
        layers[prefix.rstrip(".") or "layer"] = _layer(part, wide, prefix, path)
    return AttentionStack(layers)


def load_into(model: nn.Module, path: Path | str) -> None:
    """Load a file's state dict into a model, or say what does not fit."""
    try:
        model.load_state_dict(_state(_load(Path(path)), Path(path)))
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path} does not fit the model: {why}") from None


def read_data(path: Path | str) -> dict[str, Tensor]:
    """x, edge_index and more, by name: from .npz, or from .pt of a dict or of PyG's `Data`."""
    path = Path(path)
    try:
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                found: Any = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        else:
            found = _load(path)
    except (ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} can't be read: {error}") from None
    found = found.to_dict() if hasattr(found, "to_dict") else found
    if not isinstance(found, Mapping):
        raise ValueError(
            f"{path} must hold x and edge_index by name, but is a {type(found).__name__}"
        )
    for name in ("x", "edge_index"):
        if name not in found:
            raise ValueError(f"{path} must hold {name}; it holds {', '.join(map(str, found))}")
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _load(path: Path) -> Any:
    """Tensors only, and PyG's `Data` if it is there: no code is run."""
    try:
        with _trusting_data():
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        why = str(error).splitlines()[0] if str(error) else "it is cut short"
        raise ValueError(f"{path} is not a file of tensors that torch.save wrote: {why}") from None


def _trusting_data() -> Any:
    if importlib.util.find_spec("torch_geometric") is None:
        return nullcontext()
    from torch_geometric.data import data, storage

    kinds = [data.Data, data.DataEdgeAttr, data.DataTensorAttr, storage.GlobalStorage]
    return torch.serialization.safe_globals(kinds)


def _state(found: Any, path: Path) -> State:
    for name in NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise ValueError(f"{path} must hold a state dict, but holds a {type(found).__name__}")
    return {str(key).removeprefix("module."): value for key, value in found.items()}


def _is_vector(key: str) -> bool:
    """Is it the name of an attention vector, of which each layer has one?"""
    return key.rpartition(".")[2] in ("att", "att_src")


def _prefix(key: str) -> str:
    """The layer's: "convs.0." of "convs.0.att"."""
    return key[: key.rfind(".") + 1]


def _check_rest(state: State, prefixes: list[str], path: Any) -> None:
    """Refuse what would change the layers' inputs: anything before the last, and norms."""
    keys = list(state)
    last = max(place for place, key in enumerate(keys) if key.startswith(prefixes[-1]))
    for place, key in enumerate(keys):
        is_layers = any(key.startswith(prefix) for prefix in prefixes)
        if not is_layers and (place < last or "norm" in key or "bn" in key):
            raise ValueError(
                f"{path} holds {key}, whose place between the layers a checkpoint does not tell; "
                "inspect a Python file that exposes model and data, with --checkpoint"
            )


def _in_channels(part: State) -> int:
    return part["lin_l.weight" if "att" in part else _gat_weight(part)].shape[1]


def _gat_weight(part: State) -> str:
    return "lin.weight" if "lin.weight" in part else "lin_src.weight"


def _layer(part: State, next_width: int | None, prefix: str, path: Any) -> nn.Module:
    kind = GATv2Conv if "att" in part else GATConv
    _, heads, channels = part["att" if kind is GATv2Conv else "att_src"].shape
    width = part["bias"].shape[0] if "bias" in part else next_width
    edge = part.get("lin_edge.weight")
    layer = kind(
        _in_channels(part) if kind is GATv2Conv or "lin.weight" in part else
        (part["lin_src.weight"].shape[1], part["lin_dst.weight"].shape[1]),
        channels,
        heads=heads,
        concat=width is None or width == heads * channels,
        edge_dim=None if edge is None else edge.shape[1],
        bias="bias" in part,
        residual="res.weight" in part,
    )  # fmt: skip
    try:
        layer.load_state_dict(part)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path}: {prefix}* is not a {kind.__name__} of today: {why}") from None
    return layer
