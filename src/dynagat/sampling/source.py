"""Source: the graph that a loader samples from, made of a PyG Data, a GraphData or a Graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dynagat.data.store import GraphData
from dynagat.graph import Graph, check_edge_index
from dynagat.sampling.batch import Batch
from dynagat.sampling.draw import take_rows
from dynagat.sampling.rows import Neighbours

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Source:
    """The neighbours to sample from, and the tables of which a batch gets the rows of its nodes.

    `data` is the PyG Data from which it was made, if any. Batches are then Data as well.
    """

    neighbours: Neighbours
    tables: Mapping[str, Any]  # "x" and "y", if they exist
    data: Data | None = None

    @property
    def num_nodes(self) -> int:
        return self.neighbours.num_nodes

    def fill(self, batch: Batch, threads: int) -> Batch:
        """The batch with the rows of x and y of its nodes."""
        node = batch.node_id.numpy()
        return replace(batch, **{n: take_rows(t, node, threads) for n, t in self.tables.items()})


def read_source(data: Any) -> Source:
    """From a PyG Data, a GraphData, a Graph or Neighbours; a Source is returned as it is."""
    if isinstance(data, Source):
        return data
    if isinstance(data, Neighbours):
        return Source(data, {})
    if isinstance(data, Graph):
        return Source(Neighbours.from_graph(data), {})
    if isinstance(data, GraphData):
        return _read_stored(data)
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise TypeError("data must have one type of nodes and edges, but is a HeteroData")
    if hasattr(data, "edge_index") and hasattr(data, "is_node_attr"):
        return _read_pyg(data)
    kinds = "a PyG Data, a GraphData, a Graph or Neighbours"
    raise TypeError(f"data must be {kinds}, but is a {type(data).__name__}")


def _read_stored(data: GraphData) -> Source:
    edges, arrays = data.sole_edges, data.nodes[data.node_type].arrays
    rows = Neighbours.on_disk(data, edge_id=True)
    if rows is None:
        rows = Neighbours.from_edges(edges.query_index, edges.key_index, data.num_nodes)
    tables = {name: arrays[name] for name in ("x", "y") if name in arrays}
    return Source(rows, {n: t for n, t in tables.items() if isinstance(t, np.ndarray)})


def _read_pyg(data: Any) -> Source:
    edge_index = data.edge_index
    if edge_index is None:
        raise ValueError("data.edge_index is missing; a sparse adj_t is not supported")
    if hasattr(edge_index, "as_tensor"):  # PyG's EdgeIndex
        edge_index = edge_index.as_tensor()
    check_edge_index(edge_index, "data.edge_index")
    if edge_index.device.type != "cpu":
        raise ValueError(f"data must be on the CPU to be sampled, but is on {edge_index.device}")
    rows = Neighbours.from_edges(edge_index[1], edge_index[0], data.num_nodes)
    tables = {name: data[name] for name in ("x", "y") if isinstance(data.get(name), Tensor)}
    return Source(rows, tables, data)


def take_part(
    data: Any, node: np.ndarray, edge: np.ndarray, edge_index: Tensor, threads: int
) -> Any:
    """A Data like this one, with the attributes of these nodes and edges."""
    part = copy.copy(data)
    for name in list(data.keys()):
        value = data[name]
        if name == "edge_index":
            part.edge_index = edge_index
        elif name == "num_nodes":
            part.num_nodes = len(node)
        elif data.is_node_attr(name):
            part[name] = _select(value, node, data.__cat_dim__(name, value), threads)
        elif data.is_edge_attr(name):
            part[name] = _select(value, edge, data.__cat_dim__(name, value), threads)
    for name, index in (("n_id", node), ("e_id", edge)):
        if name not in data:
            part[name] = torch.from_numpy(index)
    if "x" not in data:  # from which PyG would infer it
        part.num_nodes = len(node)
    return part


def _select(value: Any, index: np.ndarray, axis: int, threads: int) -> Any:
    if isinstance(value, (Tensor, np.ndarray)) and axis == 0:
        return take_rows(value, index, threads)
    if isinstance(value, Tensor):
        return value.index_select(axis, torch.from_numpy(index))
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.take(value, index, axis=axis))
    if isinstance(value, list | tuple):
        return [value[n] for n in index]
    return value[torch.from_numpy(index)]  # PyG's TensorFrame
