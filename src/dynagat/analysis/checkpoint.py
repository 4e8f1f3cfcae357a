"""Rebuild a model from a checkpoint alone: the GAT and GATv2 layers its names and shapes imply.

The layers are stacked with ReLU between them, with added self-loops and slope 0.2, the defaults of
PyG. Whatever comes after the last attention layer does not affect the attention.
"""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from dynagat.nn import GATConv, GATv2Conv
from dynagat.nn.convert import convert
from dynagat.npz_file import array_names, read_arrays

NESTED = ("state_dict", "model_state_dict", "model", "network")  # common keys for the weights
USED = ("x", "edge_index", "edge_attr", "y", "noise")  # of the arrays in an .npz file
State = Mapping[str, Tensor]


@final
class AttentionStack(nn.Module):
    """x <- ReLU(layer(x, edge_index)) for each layer; no ReLU after the last one."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.names = tuple(layers)
        for name, layer in layers.items():  # at its path in the checkpoint
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
    """The attention layers of a state dict that was saved with torch.save."""
    state = convert(_state(_load(Path(path)), Path(path)))
    prefixes = list(dict.fromkeys(_prefix(key) for key in state if _is_vector(key)))
    if not prefixes:
        names = ", ".join(list(state)[:4])
        raise ValueError(
            f"{path} holds no GATConv or GATv2Conv; it starts with {names}. Other layers can't be "
            "rebuilt from a checkpoint: inspect a Python file that defines model and data"
        )
    _check_rest(state, prefixes, path)
    parts = [{k.removeprefix(p): v for k, v in state.items() if k.startswith(p)} for p in prefixes]
    layers = {}
    widths = [*map(_in_channels, parts[1:]), None]
    for prefix, part, next_width in zip(prefixes, parts, widths, strict=True):
        layers[prefix.rstrip(".") or "layer"] = _layer(part, next_width, prefix, path)
    return AttentionStack(layers)


def load_into(model: nn.Module, path: Path | str) -> None:
    """Load the state dict of a file into a model."""
    try:
        model.load_state_dict(_state(_load(Path(path)), Path(path)))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path} does not fit the model: {reason}") from None


def read_data(path: Path | str) -> dict[str, Tensor]:
    """x, edge_index and other tensors by name, from an .npz file or a saved dict or PyG `Data`."""
    path = Path(path)
    if path.suffix == ".npz":
        data: Any = dict.fromkeys(array_names(path))
        arrays = read_arrays(path, lambda name: name in USED)
        data |= {name: torch.from_numpy(array) for name, array in arrays.items()}
    else:
        data = _load(path)
    data = data.to_dict() if hasattr(data, "to_dict") else data
    if not isinstance(data, Mapping):
        raise ValueError(
            f"{path} must hold a dict with x and edge_index, but holds a {type(data).__name__}"
        )
    for name in ("x", "edge_index"):
        if name not in data:
            raise ValueError(f"{path} must hold {name}; it holds {', '.join(map(str, data))}")
    tensors = {name: value for name, value in data.items() if isinstance(value, Tensor)}
    _check(tensors, path)
    return tensors


def _check(data: Mapping[str, Tensor], path: Path) -> None:
    x, edge_index = (data.get(name, torch.empty(0)) for name in ("x", "edge_index"))
    if x.ndim != 2 or x.is_complex():
        raise ValueError(f"{path}: x must be numbers [N, features], but is {_kind(x)}")
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.dtype != torch.int64:
        raise ValueError(f"{path}: edge_index must be int64 [2, E], but is {_kind(edge_index)}")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _load(path: Path) -> Any:
    """Load tensors and, if PyG is installed, its `Data`; code in the file is never run."""
    try:
        with _allow_pyg_data():
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is truncated"
        raise ValueError(f"{path} is not a file of tensors from torch.save: {reason}") from None


def _allow_pyg_data() -> Any:
    if importlib.util.find_spec("torch_geometric") is None:
        return nullcontext()
    from torch_geometric.data import data, storage

    kinds = [data.Data, data.DataEdgeAttr, data.DataTensorAttr, storage.GlobalStorage]
    return torch.serialization.safe_globals(kinds)


def _state(saved: Any, path: Path) -> State:
    for name in NESTED:
        if isinstance(saved, Mapping) and isinstance(saved.get(name), Mapping):
            saved = saved[name]
    if not isinstance(saved, Mapping) or not all(isinstance(v, Tensor) for v in saved.values()):
        raise ValueError(f"{path} must hold a state dict, but holds a {type(saved).__name__}")
    return {str(key).removeprefix("module."): value for key, value in saved.items()}


def _is_vector(key: str) -> bool:
    """Is it the attention vector by which a layer is recognised?"""
    return key.rpartition(".")[2] in ("att", "att_src")


def _prefix(key: str) -> str:
    """The prefix of a layer: "convs.0." for "convs.0.att"."""
    return key[: key.rfind(".") + 1]


def _check_rest(state: State, prefixes: list[str], path: Any) -> None:
    """Reject modules that would change the layers' inputs: any before the last layer, and norms."""
    keys = list(state)
    last = max(index for index, key in enumerate(keys) if key.startswith(prefixes[-1]))
    for index, key in enumerate(keys):
        is_attention = key.startswith(tuple(prefixes))
        if not is_attention and (index < last or "norm" in key or "bn" in key):
            raise ValueError(
                f"{path} holds {key}, but a checkpoint does not say between which layers it is "
                "used; inspect a Python file that defines model and data, with --checkpoint"
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
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path}: {prefix}* is not a known {kind.__name__}: {reason}") from None
    return layer
