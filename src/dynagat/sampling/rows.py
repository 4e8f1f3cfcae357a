"""Neighbours: the keys of each node, for graphs that are only sampled from.

Sampling does not need the transposed rows of a Graph, so that the graph can stay in three arrays on
disk, which are mapped and read on access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dynagat.data.rows import RowOrder, rows_on_disk
from dynagat.data.store import GraphData
from dynagat.graph import MAX_ROWS, Graph
from dynagat.native import kernels
from dynagat.sampling import reference

samplers: Any = (
    reference if kernels is None else kernels
)  # the only switch between native and numpy


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Node i has the keys key_index[rowptr[i] : rowptr[i + 1]].

    `edge_id[p]` is the index of the edge at position p in the caller's list; None means p itself.
    Contiguous arrays are not copied, and may be mapped from files.
    """

    rowptr: np.ndarray  # [N + 1] int32 or int64
    key_index: np.ndarray  # [E] int32 or int64
    edge_id: np.ndarray | None  # [E]
    num_edges: int  # upper bound of edge_id

    @classmethod
    def from_arrays(cls, rowptr: Any, key_index: Any, edge_id: Any = None) -> Neighbours:
        """From tensors or arrays, without a copy. Keys are checked when they are sampled."""
        rowptr, key_index = read_array(rowptr, "rowptr"), read_array(key_index, "key_index")
        edge_id = None if edge_id is None else read_array(edge_id, "edge_id")
        rises = len(rowptr) > 0 and rowptr[0] == 0 and bool((rowptr[:-1] <= rowptr[1:]).all())
        if not rises or rowptr[-1] != len(key_index):
            raise ValueError(f"rowptr must rise from 0 to the {len(key_index)} edges, but does not")
        if edge_id is not None and len(edge_id) != len(key_index):
            raise ValueError(f"edge_id must have {len(key_index)} entries, but has {len(edge_id)}")
        if edge_id is not None and edge_id.min(initial=0) < 0:
            raise ValueError(f"edge_id must not be negative, but holds {edge_id.min()}")
        count = len(key_index) if edge_id is None else int(edge_id.max(initial=-1)) + 1
        return cls(rowptr, key_index, edge_id, count)

    @classmethod
    def from_graph(cls, graph: Graph) -> Neighbours:
        """From the arrays of a graph, including its self-loops."""
        if graph.num_queries != graph.num_keys:
            sizes = f"{graph.num_queries} queries and {graph.num_keys} keys"
            raise ValueError(f"graph must have the same nodes on both sides, but has {sizes}")
        if graph.num_relations > 1 or graph.query_row is not None:
            raise ValueError("graph must have no relations and no query rows to be sampled from")
        if graph.device.type != "cpu":
            raise ValueError(
                f"graph must be on the CPU to be sampled from, but is on {graph.device}"
            )
        arrays = (graph.rowptr, graph.key_index, graph.edge_id)
        return cls(*(array.numpy() for array in arrays), num_edges=graph.num_edges)

    @classmethod
    def from_edges(cls, query_index: Any, key_index: Any, num_nodes: int) -> Neighbours:
        """Group edges (query_index[e], key_index[e]) in any order by query; duplicates are kept."""
        query, key = read_array(query_index, "query_index"), read_array(key_index, "key_index")
        if len(query) != len(key):
            raise ValueError(
                f"query_index and key_index must have the same length, but have {len(query)} "
                f"and {len(key)} entries"
            )
        if isinstance(num_nodes, bool) or not 0 <= num_nodes <= MAX_ROWS:
            raise ValueError(f"num_nodes must lie in [0, {MAX_ROWS}], but is {num_nodes}")
        if len(query) > MAX_ROWS:
            raise ValueError(f"there must be at most {MAX_ROWS} edges, but there are {len(query)}")
        rows = samplers.group_rows(query, key, num_nodes, torch.get_num_threads())
        return cls(*rows, num_edges=len(query))

    @classmethod
    def on_disk(
        cls,
        data: GraphData,
        *,
        both: bool = False,
        loops: bool = True,
        edge_id: bool = False,
    ) -> Neighbours | None:
        """The rows of a large stored graph, mapped from files that are written when first needed.

        None if they would take no more memory than DYNAGAT_MEMORY says, or if the graph is not
        stored.

        Args:
            data: a graph with one type of nodes and edges.
            both: whether to add the other direction of each edge, without duplicates.
            loops: whether to keep self-loops.
            edge_id: whether to keep the index of each edge in the graph; not with `both`.
        """
        arrays = rows_on_disk(data, RowOrder(both, loops, edge_id))
        if arrays is None:
            return None
        rowptr, key, ids = arrays["rowptr"], arrays["key_index"], arrays.get("edge_id")
        return cls(rowptr, key, ids, len(key) if ids is None else data.num_edges)

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """The number of keys of each node."""
        return self.rowptr[nodes + 1] - self.rowptr[nodes]

    def graph(self) -> Graph:
        """The Graph of all edges, in memory; edges are numbered by their position."""
        rowptr, key = (torch.from_numpy(np.asarray(each)) for each in (self.rowptr, self.key_index))
        query = torch.repeat_interleave(
            torch.arange(self.num_nodes, dtype=key.dtype), rowptr.diff()
        )
        return Graph.from_edges(query, key, self.num_nodes)

    @property
    def num_nodes(self) -> int:
        return len(self.rowptr) - 1

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arguments of the samplers."""
        arrays = [self.rowptr, self.key_index]
        return arrays if self.edge_id is None else [*arrays, self.edge_id]


def read_array(array: Any, name: str) -> np.ndarray:
    """A contiguous vector of int32 or int64, without a copy if it is one already."""
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu().numpy()
    array = np.asarray(array)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, but has shape {list(array.shape)}")
    if array.dtype not in (np.int32, np.int64):
        raise TypeError(f"{name} must hold int32 or int64, but holds {array.dtype}")
    return np.ascontiguousarray(array)
