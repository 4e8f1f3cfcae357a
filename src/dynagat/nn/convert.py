"""State dicts of older PyG and of DGL, renamed to what the layers here, and PyG 2.5 on, read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Group:
    """The entries of one layer: what came before their names, and the shapes that are wanted."""

    prefix: str
    entries: State  # by name, without the prefix
    wanted: Mapping[str, torch.Size] | None  # of the target's layer, if a target was given

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.entries:
            raise ValueError(f"state_dict has {self.prefix}* but no {self.prefix}{name}")
        return self.entries[name]


@dataclass(frozen=True)
class Spelling:
    """How one library names a layer's entries."""

    marks: frozenset[str]  # a layer that has all these names is of this kind
    consumed: frozenset[str]  # the names that `rename` reads
    rename: Callable[[Group], dict[str, Tensor]]


def convert(state_dict: State, target: nn.Module | None = None) -> dict[str, Tensor]:
    """A state dict of PyG 1.6 - 2.4, of DGL or of the paper's code, in today's names.

    Layers are found by their names anywhere in a whole model's state dict; entries of other modules
    pass through. GATConv, GATv2Conv and the paper's DPGAT are known. The argument is left alone.

    Args:
        state_dict: what was saved. Matrices that were tied must still be equal.
        target: the model that will load it. It decides what the names alone do not: whether a
            GATConv has one matrix or a pair (without it: one, if both are equal), and whether heads
            are averaged (without it: not), as DGL leaves that to the caller.
    """
    shapes = None if target is None else _shapes(target)
    converted = dict(state_dict)
    for prefix in sorted({key[: key.rfind(".", 0, _tail(key)) + 1] for key in state_dict}):
        entries = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
        spelling = next((s for s in SPELLINGS if s.marks <= entries.keys()), None)
        if spelling is None:
            continue
        group = Group(prefix, entries, None if shapes is None else _under(prefix, shapes))
        renamed = spelling.rename(group)
        for name in spelling.consumed & entries.keys():
            del converted[prefix + name]
        converted |= {prefix + name: value for name, value in renamed.items()}
    return converted


def _tail(key: str) -> int:
    """Where the name inside a layer starts to matter: `lin_l.weight` counts as one name."""
    is_inner = key.endswith((".weight", ".bias"))
    return key.rfind(".") if is_inner else len(key)


def _shapes(target: nn.Module) -> dict[str, torch.Size | None]:
    return {k: None if is_lazy(v) else v.shape for k, v in target.state_dict().items()}


def _under(prefix: str, shapes: Mapping) -> dict:
    return {key[len(prefix) :]: v for key, v in shapes.items() if key.startswith(prefix)}


def _old_pyg_gat(group: Group) -> dict[str, Tensor]:
    """PyG 1.6 and 1.7: left is the source, right the target."""
    vectors = {"att_src": group["att_l"], "att_dst": group["att_r"]}
    return vectors | _matrices(group, "lin_l.weight", "lin_r.weight", "att_l")


def _tied_pyg_gat(group: Group) -> dict[str, Tensor]:
    """PyG 2.0 to 2.4: one module under two names, unless in_channels is a pair."""
    return _matrices(group, "lin_src.weight", "lin_dst.weight", "att_src")


def _dgl_gat(group: Group) -> dict[str, Tensor]:
    """el = ⟨attn_l, source⟩, er = ⟨attn_r, target⟩, so left is the source here, too."""
    renamed = {"att_src": group["attn_l"], "att_dst": group["attn_r"]}
    source = "fc.weight" if "fc.weight" in group.entries else "fc_src.weight"
    renamed |= _matrices(group, source, "fc_dst.weight", "attn_l")
    return renamed | _dgl_output(group, "attn_l")


def _dgl_gatv2(group: Group) -> dict[str, Tensor]:
    """The value is that of fc_src, so it is lin_l; the output has a bias only inside res_fc."""
    renamed = {"att": group["attn"]}
    for theirs, ours in (("fc_src", "lin_l"), ("fc_dst", "lin_r")):
        _check_rows(group, f"{theirs}.weight", "attn")
        renamed[f"{ours}.weight"] = group[f"{theirs}.weight"]
        if "fc_src.bias" in group.entries:
            renamed[f"{ours}.bias"] = group[f"{theirs}.bias"]
    output = _dgl_output(group, "attn")
    if "lin_l.bias" in renamed and "bias" not in output:
        output["bias"] = _fitted(group, "bias", torch.zeros_like(renamed["lin_l.bias"]), "attn")
    return renamed | output


def _paper_dpgat(group: Group) -> dict[str, Tensor]:
    """The paper's class inherits att_l and att_r from GATConv, and never uses them."""
    key, query = ("lin_l", "lin_r") if "lin_l.weight" in group.entries else ("fc_src", "fc_dst")
    renamed = {"lin_l": key, "lin_r": query, "lin_v": "v_layer"}
    return {f"{ours}.weight": group[f"{theirs}.weight"] for ours, theirs in renamed.items()}


def _matrices(group: Group, source: str, target: str, vector: str) -> dict[str, Tensor]:
    """`lin.weight`, if keys and queries share one matrix; else that of lin_src and of lin_dst."""
    key = group[source]
    query = group.entries.get(target, key)
    _check_rows(group, source, vector)
    is_one = query is key or (not is_lazy(key) and not is_lazy(query) and torch.equal(key, query))
    wants_one = is_one if group.wanted is None else "lin_src.weight" not in group.wanted
    if wants_one and not is_one:
        raise ValueError(
            f"{group.prefix}{source} and {group.prefix}{target} differ, but the target's layer has "
            "one matrix for both; make it with in_channels as a pair"
        )
    return {"lin.weight": key} if wants_one else {"lin_src.weight": key, "lin_dst.weight": query}


def _dgl_output(group: Group, vector: str) -> dict[str, Tensor]:
    """Residual and bias; where the residual has a bias, it is the output's."""
    named = (("bias", "bias"), ("res_fc.bias", "bias"), ("res_fc.weight", "res.weight"))
    return {
        ours: _fitted(group, ours, group[theirs], vector)
        for theirs, ours in named
        if theirs in group.entries
    }


def _fitted(group: Group, name: str, value: Tensor, vector: str) -> Tensor:
    """[H·C, ...], or its mean over heads if the target has room for C rows only."""
    heads, channels = group[vector].shape[-2:]
    shape = None if group.wanted is None else group.wanted.get(name)
    is_mean = shape is not None and shape[0] == channels and heads > 1
    return value.unflatten(0, (heads, channels)).mean(0) if is_mean else value


def _check_rows(group: Group, name: str, vector: str) -> None:
    weight, a = group[name], group[vector]
    if a.dim() != 3 or (not is_lazy(weight) and weight.shape[0] != a[0].numel()):
        shape = "open" if is_lazy(weight) else list(weight.shape)
        raise ValueError(
            f"{group.prefix}{vector} must be [1, H, C] and {group.prefix}{name} have H·C rows, "
            f"but they are {list(a.shape)} and {shape}"
        )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DGL = "bias res_fc.weight res_fc.bias"

SPELLINGS = (
    Spelling(
        _names("lin_l.weight lin_r.weight v_layer.weight"),
        _names("lin_l.weight lin_r.weight v_layer.weight att_l att_r"),
        _paper_dpgat,
    ),
    Spelling(
        _names("fc_src.weight fc_dst.weight v_layer.weight"),
        _names("fc_src.weight fc_dst.weight v_layer.weight attn_l attn_r"),
        _paper_dpgat,
    ),
    Spelling(
        _names("att_l lin_l.weight"),
        _names("att_l att_r lin_l.weight lin_r.weight"),
        _old_pyg_gat,
    ),
    Spelling(
        _names("att_src lin_src.weight"),
        _names("lin_src.weight lin_dst.weight"),
        _tied_pyg_gat,
    ),
    Spelling(_names("attn_l fc.weight"), _names("attn_l attn_r fc.weight " + _DGL), _dgl_gat),
    Spelling(
        _names("attn_l fc_src.weight"),
        _names("attn_l attn_r fc_src.weight fc_dst.weight " + _DGL),
        _dgl_gat,
    ),
    Spelling(
        _names("attn fc_src.weight"),
        _names("attn fc_src.weight fc_src.bias fc_dst.weight fc_dst.bias " + _DGL),
        _dgl_gatv2,
    ),
)
