"""Nodes, edges and a split as PyG's Data or HeteroData; pyg.py describes the mapping of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynagat.data.arrays import Array
from dynagat.data.elements import EDGE, NODE, Edges, EdgeType, Nodes, tensor
from dynagat.data.texts import Texts

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def to_pyg(
    nodes: Mapping[str, Nodes],
    edges: Mapping[EdgeType, Edges],
    split: Mapping[str, np.ndarray],
    node_type: str,
) -> Data | HeteroData:
    """A Data if there is one type of nodes and of edges, else a HeteroData.

    The split is one of the nodes of type `node_type`.
    """
    from torch_geometric.data import Data, HeteroData

    is_plain = list(nodes) == [NODE] and list(edges) == [EDGE]
    data: Any = Data() if is_plain else HeteroData()
    for kind, each in nodes.items():
        _fill_nodes(data if is_plain else data[kind], each)
    for kind, each in edges.items():
        _fill_edges(data if is_plain else data[kind], each)
    for part, index in split.items():
        if part in MASKS:
            mask = torch.zeros(nodes[node_type].count, dtype=torch.bool)
            mask[torch.from_numpy(np.asarray(index, np.int64))] = True
            (data if is_plain else data[node_type])[MASKS[part]] = mask
        else:
            data[part] = tensor(np.asarray(index))
    return data


def _fill_nodes(store: Any, nodes: Nodes) -> None:
    store.num_nodes = nodes.count
    for name, array in nodes.arrays.items():
        if name.startswith("edge_") or name in MASKS.values():
            raise ValueError(
                f"the nodes have an array {name!r}, which PyG would not take for one of nodes; "
                "rename it"
            )
        store[name] = _value(array)


def _fill_edges(store: Any, edges: Edges) -> None:
    index = np.empty((2, edges.count), np.int64)
    index[0], index[1] = edges.key_index, edges.query_index
    store["edge_index"] = torch.from_numpy(index)
    for name, array in edges.arrays.items():
        store[f"edge_{name}"] = _value(array)


def _value(array: Array) -> Any:
    return list(array) if isinstance(array, Texts) else tensor(np.asarray(array))
