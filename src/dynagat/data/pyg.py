"""From PyG's Data and HeteroData to GraphData, and back.

edge_attr and edge_weight are the edges' attr and weight, edge_year their year; everything else with
a row per node belongs to the nodes, and with a row per edge to the edges: it comes back as edge_...
What belongs to the whole graph is left out. train_mask, val_mask and test_mask are the split: a
mask keeps no order, so the split that comes back is in the order of the nodes. Arrays of links keep
their names, such as "train/edge".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from dynagat.data.arrays import Array
from dynagat.data.checks import check_ends
from dynagat.data.store import (
    EDGE,
    NODE,
    SPLITS,
    Edges,
    EdgeType,
    GraphData,
    Nodes,
    check_name,
    tensor,
)
from dynagat.data.targets import targets
from dynagat.data.texts import Texts

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def from_pyg(data: Data | HeteroData, name: str) -> GraphData:
    """The graph of a Data or HeteroData; of types, one may have y, which is what is predicted."""
    from torch_geometric.data import HeteroData

    check_name(name)
    is_typed = isinstance(data, HeteroData)
    if is_typed:
        counts = {kind: _count(data[kind], kind) for kind in data.node_types}
        held = {kind: _node_values(data[kind], counts[kind]) for kind in data.node_types}
        edges = {kind: _edges(data[kind], counts, kind) for kind in data.edge_types}
    else:
        counts = {NODE: _count(data, "nodes")}
        held = {NODE: _node_values(data, counts[NODE])}
        edges = {EDGE: _edges(data, counts, EDGE)}
    labelled = [kind for kind, values in held.items() if "y" in values]
    if len(labelled) > 1:
        raise ValueError(f"{name} must have y for one type, but has it for {', '.join(labelled)}")
    about: dict[str, Any] = {"source": "PyG"}
    split: dict[str, np.ndarray] = {}
    if labelled:
        (kind,) = labelled
        held[kind]["y"], task = targets(held[kind]["y"], f"y of {name}")
        about["task"] = {**task, "node_type": kind, "target": "y"}
        split = _split(data[kind] if is_typed else data, counts[kind])
    if pairs := _pairs(data._global_store if is_typed else data):
        split |= pairs
        about["task"] = {"kind": "links", "node_type": next(iter(counts)), "target": "link"}
    nodes = {kind: Nodes(counts[kind], values) for kind, values in held.items()}
    return GraphData(name, nodes, edges, split, about)


def _count(store: Any, what: str) -> int:
    count = store.num_nodes
    if count is None:
        raise ValueError(f"{what}: there is nothing that tells how many nodes there are")
    return int(count)


def _node_values(store: Any, count: int) -> dict[str, Array]:
    """What has a row for each node, save masks and what belongs to edges."""
    found: dict[str, Array] = {}
    for name, value in store.to_dict().items():
        if name in MASKS.values() or name.startswith("edge_") or "/" in name:
            continue
        if isinstance(value, Tensor) and value.ndim and len(value) == count:
            found[name] = value.detach().cpu().numpy()
        elif _is_texts(value) and len(value) == count:
            found[name] = Texts.of(value)
    return found


def _is_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _edges(store: Any, counts: Mapping[str, int], kind: EdgeType) -> Edges:
    what = f"edge_index of edges {'-'.join(kind)}"
    held = store.to_dict()
    index = held.get("edge_index")
    if not isinstance(index, Tensor) or index.ndim != 2 or len(index) != 2:
        raise ValueError(f"{what} must be a tensor of shape [2, edges]; adj_t is not read")
    key, query = index.detach().cpu().numpy()
    check_ends(key, counts[kind[0]], what)
    check_ends(query, counts[kind[2]], what)
    found: dict[str, Array] = {}
    for name, value in held.items():
        is_nodes = kind == EDGE and counts[NODE] == len(key) and not name.startswith("edge_")
        if name == "edge_index" or "/" in name or is_nodes:
            continue
        short = name.removeprefix("edge_")
        if short != name and short in held and _has_rows(held[short], len(key)):
            raise ValueError(f"edges {'-'.join(kind)} must have {short} or {name}, but have both")
        if isinstance(value, Tensor) and _has_rows(value, len(key)):
            found[short] = value.detach().cpu().numpy()
        elif _is_texts(value) and len(value) == len(key):
            found[short] = Texts.of(value)
    return Edges(key, query, found)


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


def _split(store: Any, count: int) -> dict[str, np.ndarray]:
    found = {}
    for part, name in MASKS.items():
        if name not in store:
            continue
        mask = store[name]
        if mask.dtype != torch.bool or tuple(mask.shape) != (count,):
            told = f"{str(mask.dtype).removeprefix('torch.')} of shape {list(mask.shape)}"
            raise ValueError(f"{name} must be booleans of shape [{count}], but is {told}")
        found[part] = mask.nonzero()[:, 0].cpu().numpy()
    return found


def _pairs(store: Any) -> dict[str, np.ndarray]:
    return {
        name: value.cpu().numpy()
        for name, value in store.to_dict().items()
        if isinstance(value, Tensor) and name.partition("/")[0] in SPLITS and "/" in name
    }


def to_pyg(data: GraphData) -> Data | HeteroData:
    """A Data if there is one type of nodes and of edges, else a HeteroData."""
    from torch_geometric.data import Data, HeteroData

    if list(data.nodes) == [NODE] and list(data.edges) == [EDGE]:
        found: Any = Data()
        _fill_nodes(found, data.nodes[NODE])
        _fill_edges(found, data.edges[EDGE])
        _fill_split(found, found, data)
        return found
    found = HeteroData()
    for kind, nodes in data.nodes.items():
        _fill_nodes(found[kind], nodes)
    for kind, edges in data.edges.items():
        _fill_edges(found[kind], edges)
    if data.split:
        _fill_split(found, found[data.node_type], data)
    return found


def _fill_nodes(store: Any, nodes: Nodes) -> None:
    store.num_nodes = nodes.count
    for name, array in nodes.arrays.items():
        if name.startswith("edge_") or name in MASKS.values():
            raise ValueError(f"PyG would not take the nodes' {name} for one; call it otherwise")
        store[name] = _value(array)


def _fill_edges(store: Any, edges: Edges) -> None:
    index = np.empty((2, edges.count), np.int64)
    index[0], index[1] = edges.key_index, edges.query_index
    store["edge_index"] = torch.from_numpy(index)
    for name, array in edges.arrays.items():
        store[f"edge_{name}"] = _value(array)


def _fill_split(whole: Any, store: Any, data: GraphData) -> None:
    for part, index in data.split.items():
        if part in MASKS:
            mask = torch.zeros(data.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(np.asarray(index, np.int64))] = True
            store[MASKS[part]] = mask
        else:
            whole[part] = tensor(np.asarray(index))


def _value(array: Array) -> Any:
    return list(array) if isinstance(array, Texts) else tensor(np.asarray(array))
