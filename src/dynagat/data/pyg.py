"""from_pyg: PyG's Data and HeteroData as GraphData; GraphData.to_pyg is the way back.

edge_attr, edge_weight and edge_year become the edges' attr, weight and year. Every other value with
a row per node becomes an array of the nodes, and one with a row per edge an array of the edges,
which to_pyg names edge_... again. Values of the whole graph are left out. train_mask, val_mask and
test_mask become the split. A mask keeps no order, so the split comes back in the order of the
nodes. Arrays of links, such as "train/edge", keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from dynagat.data.arrays import Array
from dynagat.data.checks import check_ends
from dynagat.data.elements import EDGE, NODE, SPLITS, Edges, EdgeType, Nodes
from dynagat.data.store import GraphData, check_name
from dynagat.data.targets import targets
from dynagat.data.texts import Texts
from dynagat.data.to_pyg import MASKS

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


def from_pyg(data: Data | HeteroData, name: str) -> GraphData:
    """The graph of a Data or HeteroData. At most one node type may have y, which is the target."""
    from torch_geometric.data import HeteroData

    check_name(name)
    is_typed = isinstance(data, HeteroData)
    if is_typed:
        counts = {kind: _count(data[kind], kind) for kind in data.node_types}
        arrays = {kind: _node_arrays(data[kind], counts[kind]) for kind in data.node_types}
        edges = {kind: _edges(data[kind], counts, kind) for kind in data.edge_types}
    else:
        counts = {NODE: _count(data, NODE)}
        arrays = {NODE: _node_arrays(data, counts[NODE])}
        edges = {EDGE: _edges(data, counts, EDGE)}
    labelled = [kind for kind, values in arrays.items() if "y" in values]
    if len(labelled) > 1:
        raise ValueError(f"{name} must have y for one type, but has it for {', '.join(labelled)}")
    about: dict[str, Any] = {"source": "PyG"}
    split: dict[str, np.ndarray] = {}
    if labelled:
        (kind,) = labelled
        arrays[kind]["y"], task = targets(arrays[kind]["y"], f"y of {name}")
        about["task"] = {**task, "node_type": kind, "target": "y"}
        split = _split(data[kind] if is_typed else data, counts[kind])
    if pairs := _pairs(data._global_store if is_typed else data):
        split |= pairs
        about["task"] = {"kind": "links", "node_type": next(iter(counts)), "target": "link"}
    nodes = {kind: Nodes(counts[kind], values) for kind, values in arrays.items()}
    return GraphData(name, nodes, edges, split, about)


def _count(store: Any, kind: str) -> int:
    count = store.num_nodes
    if count is None:
        raise ValueError(
            f"the number of nodes of type {kind!r} is unknown; set num_nodes or node features"
        )
    return int(count)


def _node_arrays(store: Any, count: int) -> dict[str, Array]:
    """The values that have a row per node, except masks and those that belong to edges."""
    arrays: dict[str, Array] = {}
    for name, value in store.to_dict().items():
        if name in MASKS.values() or name.startswith("edge_") or "/" in name:
            continue
        if _has_rows(value, count):
            arrays[name] = _array(value)
    return arrays


def _edges(store: Any, counts: Mapping[str, int], kind: EdgeType) -> Edges:
    what = f"edge_index of edges {'-'.join(kind)}"
    values = store.to_dict()
    index = values.get("edge_index")
    if not isinstance(index, Tensor) or index.ndim != 2 or len(index) != 2:
        raise ValueError(f"{what} must be a tensor of shape [2, edges]; adj_t is not supported")
    key, query = index.detach().cpu().numpy()
    check_ends(key, counts[kind[0]], what)
    check_ends(query, counts[kind[2]], what)
    arrays: dict[str, Array] = {}
    for name, value in values.items():
        is_nodes = kind == EDGE and counts[NODE] == len(key) and not name.startswith("edge_")
        if name == "edge_index" or "/" in name or is_nodes:
            continue
        short = name.removeprefix("edge_")
        is_twice = isinstance(values.get(short), Tensor) and _has_rows(values[short], len(key))
        if short != name and is_twice:
            raise ValueError(f"edges {'-'.join(kind)} must have {short} or {name}, but have both")
        if _has_rows(value, len(key)):
            arrays[short] = _array(value)
    return Edges(key, query, arrays)


def _has_rows(value: Any, count: int) -> TypeGuard[Tensor | list[str]]:
    """Whether it is a tensor or a list of strings with this number of rows."""
    if isinstance(value, Tensor):
        return value.ndim > 0 and len(value) == count
    is_texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return is_texts and len(value) == count


def _array(value: Tensor | list[str]) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else Texts.of(value)


def _split(store: Any, count: int) -> dict[str, np.ndarray]:
    split = {}
    for part, name in MASKS.items():
        if name not in store:
            continue
        mask = store[name]
        if mask.dtype != torch.bool or tuple(mask.shape) != (count,):
            actual = f"{str(mask.dtype).removeprefix('torch.')} of shape {list(mask.shape)}"
            raise ValueError(f"{name} must be booleans of shape [{count}], but is {actual}")
        split[part] = mask.nonzero()[:, 0].cpu().numpy()
    return split


def _pairs(store: Any) -> dict[str, np.ndarray]:
    return {
        name: value.cpu().numpy()
        for name, value in store.to_dict().items()
        if isinstance(value, Tensor) and name.partition("/")[0] in SPLITS and "/" in name
    }
