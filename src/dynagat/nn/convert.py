"""Rename state dicts of older PyG and of DGL to the names of dynagat and of PyG 2.5 and later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Group:
    """The entries of one layer, and the shapes that the target's layer expects."""

    prefix: str
    entries: State  # names without the prefix
    shapes: Mapping[str, torch.Size] | None  # of the target's layer, if a target was given

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.entries:
            raise ValueError(f"state_dict has {self.prefix}* but no {self.prefix}{name}")
        return self.entries[name]


@dataclass(frozen=True)
class Naming:
    """How one library names a layer's entries."""

    required: frozenset[str]  # a layer with all these names follows this naming
    consumed: frozenset[str]  # names that `rename` replaces
    rename: Callable[[Group], dict[str, Tensor]]


def convert(state_dict: State, target: nn.Module | None = None) -> dict[str, Tensor]:
    """A state dict of PyG 1.6 to 2.4, of DGL or of the paper's code, with current names.

    Attention layers are recognised by name anywhere in a model's state dict; entries of other
    modules are copied. GATConv, GATv2Conv and the paper's DPGAT are supported. `state_dict` itself
    is not changed.

    Args:
        state_dict: the saved state dict. Shared matrices must still be equal.
        target: the model that will load it. It decides whether a GATConv has one matrix or a pair
            (default: one if both are equal), and whether the heads are averaged (default: no),
            which DGL leaves to the caller.
    """
    shapes = None if target is None else _shapes(target)
    converted = dict(state_dict)
    for prefix in sorted({key[: key.rfind(".", 0, _tail(key)) + 1] for key in state_dict}):
        entries = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
        naming = next((each for each in NAMINGS if each.required <= entries.keys()), None)
        if naming is None:
            continue
        group = Group(prefix, entries, None if shapes is None else _under(prefix, shapes))
        renamed = naming.rename(group)
        for name in naming.consumed & entries.keys():
            del converted[prefix + name]
        converted |= {prefix + name: value for name, value in renamed.items()}
    return converted


def _tail(key: str) -> int:
    """The position before which the layer's prefix ends: `lin_l.weight` counts as one name."""
    is_inner = key.endswith((".weight", ".bias"))
    return key.rfind(".") if is_inner else len(key)


def _shapes(target: nn.Module) -> dict[str, torch.Size | None]:
    return {k: None if is_lazy(v) else v.shape for k, v in target.state_dict().items()}


def _under(prefix: str, shapes: Mapping) -> dict:
    return {key[len(prefix) :]: v for key, v in shapes.items() if key.startswith(prefix)}


def _old_pyg_gat(group: Group) -> dict[str, Tensor]:
    """PyG 1.6 and 1.7: left is the source, right is the target."""
    vectors = {"att_src": group["att_l"], "att_dst": group["att_r"]}
    return vectors | _matrices(group, "lin_l.weight", "lin_r.weight", "att_l")


def _tied_pyg_gat(group: Group) -> dict[str, Tensor]:
    """PyG 2.0 to 2.4: one module with two names, unless in_channels is a pair."""
    return _matrices(group, "lin_src.weight", "lin_dst.weight", "att_src")


def _dgl_gat(group: Group) -> dict[str, Tensor]:
    """el = ⟨attn_l, source⟩, er = ⟨attn_r, target⟩, so left is the source, as in PyG."""
    renamed = {"att_src": group["attn_l"], "att_dst": group["attn_r"]}
    source = "fc.weight" if "fc.weight" in group.entries else "fc_src.weight"
    renamed |= _matrices(group, source, "fc_dst.weight", "attn_l")
    return renamed | _dgl_output(group, "attn_l")


def _dgl_gatv2(group: Group) -> dict[str, Tensor]:
    """The value is computed by fc_src, so it is lin_l; only res_fc gives the output a bias."""
    renamed = {"att": group["attn"]}
    for theirs, ours in (("fc_src", "lin_l"), ("fc_dst", "lin_r")):
        _check_rows(group, f"{theirs}.weight", "attn")
        renamed[f"{ours}.weight"] = group[f"{theirs}.weight"]
        if "fc_src.bias" in group.entries:
            renamed[f"{ours}.bias"] = group[f"{theirs}.bias"]
    output = _dgl_output(group, "attn")
    if "lin_l.bias" in renamed and "bias" not in output:
        output["bias"] = _averaged_if_needed(
            group, "bias", torch.zeros_like(renamed["lin_l.bias"]), "attn"
        )
    return renamed | output


def _paper_dpgat(group: Group) -> dict[str, Tensor]:
    """The paper's class inherits att_l and att_r from GATConv but never uses them."""
    key, query = ("lin_l", "lin_r") if "lin_l.weight" in group.entries else ("fc_src", "fc_dst")
    renamed = {"lin_l": key, "lin_r": query, "lin_v": "v_layer"}
    return {f"{ours}.weight": group[f"{theirs}.weight"] for ours, theirs in renamed.items()}


def _matrices(group: Group, source: str, target: str, vector: str) -> dict[str, Tensor]:
    """lin.weight if keys and queries share one matrix, else lin_src.weight and lin_dst.weight."""
    key = group[source]
    query = group.entries.get(target, key)
    _check_rows(group, source, vector)
    is_shared = query is key or (
        not is_lazy(key) and not is_lazy(query) and torch.equal(key, query)
    )
    share = is_shared if group.shapes is None else "lin_src.weight" not in group.shapes
    if share and not is_shared:
        raise ValueError(
            f"{group.prefix}{source} and {group.prefix}{target} differ, but the target's layer has "
            "one matrix for both; create it with a pair as in_channels"
        )
    return {"lin.weight": key} if share else {"lin_src.weight": key, "lin_dst.weight": query}


def _dgl_output(group: Group, vector: str) -> dict[str, Tensor]:
    """Residual and bias; a bias of the residual becomes the output's bias."""
    named = (("bias", "bias"), ("res_fc.bias", "bias"), ("res_fc.weight", "res.weight"))
    return {
        ours: _averaged_if_needed(group, ours, group[theirs], vector)
        for theirs, ours in named
        if theirs in group.entries
    }


def _averaged_if_needed(group: Group, name: str, value: Tensor, vector: str) -> Tensor:
    """[H·C, ...], or its mean over heads [C, ...] if the target averages the heads."""
    heads, channels = group[vector].shape[-2:]
    shape = None if group.shapes is None else group.shapes.get(name)
    is_averaged = shape is not None and shape[0] == channels and heads > 1
    return value.unflatten(0, (heads, channels)).mean(0) if is_averaged else value


def _check_rows(group: Group, name: str, vector: str) -> None:
    weight, a = group[name], group[vector]
    if a.dim() != 3 or (not is_lazy(weight) and weight.shape[0] != a[0].numel()):
        shape = "lazy" if is_lazy(weight) else list(weight.shape)
        raise ValueError(
            f"{group.prefix}{vector} must have shape [1, H, C] and {group.prefix}{name} must have "
            f"H·C rows, but their shapes are {list(a.shape)} and {shape}"
        )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DGL = "bias res_fc.weight res_fc.bias"

NAMINGS = (
    Naming(
        _names("lin_l.weight lin_r.weight v_layer.weight"),
        _names("lin_l.weight lin_r.weight v_layer.weight att_l att_r"),
        _paper_dpgat,
    ),
    Naming(
        _names("fc_src.weight fc_dst.weight v_layer.weight"),
        _names("fc_src.weight fc_dst.weight v_layer.weight attn_l attn_r"),
        _paper_dpgat,
    ),
    Naming(
        _names("att_l lin_l.weight"),
        _names("att_l att_r lin_l.weight lin_r.weight"),
        _old_pyg_gat,
    ),
    Naming(
        _names("att_src lin_src.weight"),
        _names("lin_src.weight lin_dst.weight"),
        _tied_pyg_gat,
    ),
    Naming(_names("attn_l fc.weight"), _names("attn_l attn_r fc.weight " + _DGL), _dgl_gat),
    Naming(
        _names("attn_l fc_src.weight"),
        _names("attn_l attn_r fc_src.weight fc_dst.weight " + _DGL),
        _dgl_gat,
    ),
    Naming(
        _names("attn fc_src.weight"),
        _names("attn fc_src.weight fc_src.bias fc_dst.weight fc_dst.bias " + _DGL),
        _dgl_gatv2,
    ),
)
