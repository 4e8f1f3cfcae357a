"""Batch: a sample of a graph, as a value: a Graph per layer, and the ids of nodes and edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dynagat.graph import Graph
from dynagat.sampling.draw import transpose
from dynagat.sampling.reference import Picks, Sample

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Batch:
    """Layer l maps the rows of the keys of graphs[l] to rows of its queries.

    The queries are the first keys. All nodes are keys of graphs[0], and the seeds are the queries
    of the last graph: `for layer, graph in zip(layers, batch.graphs): x = layer(x, graph)`.
    Edges of a graph are numbered from 0; edge_id holds their indices in the whole graph. A subgraph
    of GraphSAINT is one graph for all layers, whose queries and keys are the same nodes.
    """

    graphs: tuple[Graph, ...]  # in the order of the layers
    node_id: Tensor  # [n] int64, the seeds first
    edge_id: tuple[Tensor, ...]  # [E] int64, for each graph
    num_seeds: int
    num_sampled_nodes: tuple[int, ...]  # seeds, then new nodes by hop
    num_sampled_edges: tuple[int, ...]  # by hop
    input_id: Tensor | None = None  # int64: positions in input_nodes, or in edge_label_index
    x: Tensor | None = None  # [n, features]
    y: Tensor | None = None  # [n]
    layered: bool = False
    node_norm: Tensor | None = None  # [n]
    edge_norm: Tensor | None = None  # [E]
    pairs: Tensor | None = None  # [P, 2] int64: seeds by position; links, then negatives
    pair_label: Tensor | None = None  # [P] float: 0 for negatives

    @property
    def num_nodes(self) -> int:
        return len(self.node_id)

    def with_self_loops(self) -> Batch:
        """Give every query of every graph one self-loop, numbered after the edges of the graph."""
        return replace(self, graphs=tuple(graph.with_self_loops() for graph in self.graphs))

    def to_pyg(self) -> Data:
        """The Data that the loader would yield for a Data; triplets become labelled pairs."""
        from torch_geometric.data import Data

        if self.layered:
            raise ValueError(
                "a layered batch has different edges in each layer, so it is no single Data; "
                "use its graphs, or sample with layered=False"
            )
        graph = self.graphs[0]
        edge_index = torch.stack([graph.key_index.long(), graph.query_index.long()])
        data = Data(x=self.x, y=self.y, edge_index=edge_index, num_nodes=self.num_nodes)
        data.n_id, data.e_id = self.node_id, self.edge_id[0]
        if self.input_id is not None:
            data.input_id = self.input_id
            data.num_sampled_nodes = list(self.num_sampled_nodes)
            data.num_sampled_edges = list(self.num_sampled_edges)
            if self.pairs is None:
                data.batch_size = self.num_seeds
        if self.pairs is not None:
            data.edge_label_index, data.edge_label = self.pairs.T.contiguous(), self.pair_label
        for name in ("node_norm", "edge_norm"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        return data


def make_batch(sample: Sample, input_id: Tensor, layered: bool, threads: int) -> Batch:
    """A Graph for each layer; unless layered, each is a prefix of the same rows."""
    nodes, edges = (list(accumulate(counts)) for counts in (sample.new_nodes, sample.num_edges))
    hops = reversed(range(len(edges)))
    if layered:
        layers = [(sample.layers[hop], hop) for hop in hops]
    else:
        layers = [(_first(sample.layers[0], nodes[hop], edges[hop]), hop) for hop in hops]
    return Batch(
        graphs=tuple(make_graph(picks, nodes[hop + 1], threads) for picks, hop in layers),
        node_id=torch.from_numpy(sample.node),
        edge_id=tuple(torch.from_numpy(picks.edge) for picks, _ in layers),
        num_seeds=nodes[0],
        num_sampled_nodes=tuple(sample.new_nodes),
        num_sampled_edges=tuple(sample.num_edges),
        input_id=input_id,
        layered=layered,
    )


def _first(picks: Picks, num_queries: int, num_edges: int) -> Picks:
    return Picks(picks.rowptr[: num_queries + 1], picks.key[:num_edges], picks.edge[:num_edges])


def make_graph(picks: Picks, num_keys: int, threads: int) -> Graph:
    """The Graph of sampled edges, numbered by position; adds the transposed rows."""
    sides = transpose(picks, num_keys, threads)
    edge_id = np.arange(len(picks.key), dtype=np.int32)
    arrays = (picks.rowptr, picks.key, edge_id, *sides)
    return Graph(
        *map(torch.from_numpy, arrays),
        num_queries=len(picks.rowptr) - 1,
        num_keys=num_keys,
        num_edges=len(picks.key),
    )


def edge_index_of(picks: Picks) -> Tensor:
    """PyG's [2, E] of (key, query), int64."""
    query = np.repeat(np.arange(len(picks.rowptr) - 1), np.diff(picks.rowptr))
    return torch.from_numpy(np.stack([picks.key.astype(np.int64), query]))
