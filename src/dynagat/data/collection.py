"""GraphCollection: many small graphs as one value, and the packing of some of them into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dynagat.data.molecules import BOND, BOND_TYPES, GRAPH
from dynagat.data.store import GraphData, tensor
from dynagat.graph import Graph

NUM_RELATIONS = 1 + len(BOND_TYPES)  # of molecules: self-loops, and each type of bond


@dataclass(frozen=True, eq=False)
class GraphCollection:
    """Graphs whose nodes and edges lie one after the other.

    Graph g has the nodes node_offset[g] .. node_offset[g + 1] - 1, and its edges likewise.
    """

    node_offset: Tensor  # [G + 1] int64
    edge_offset: Tensor  # [G + 1] int64
    query_index: Tensor  # [E] int64, numbers of nodes in the collection
    key_index: Tensor  # [E] int64
    relation: Tensor | None = None  # [E] int64
    num_relations: int = 1
    relation_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.node_offset) != len(self.edge_offset) or not len(self.node_offset):
            raise ValueError(
                "node_offset and edge_offset must have one entry more than there are graphs, "
                f"but have {len(self.node_offset)} and {len(self.edge_offset)}"
            )
        for name in ("query_index", "key_index", "relation"):
            array = getattr(self, name)
            if array is not None and len(array) != self.edge_offset[-1]:
                expected = int(self.edge_offset[-1])
                raise ValueError(f"{name} must have {expected} entries, but has {len(array)}")
        home = self.edge_graph
        for name in ("query_index", "key_index"):
            nodes = getattr(self, name)
            inside = (self.node_offset[home] <= nodes) & (nodes < self.node_offset[home + 1])
            if not inside.all():
                edge = int((~inside).nonzero()[0])
                raise ValueError(
                    f"{name} of edge {edge} must be a node of graph {int(home[edge])}, "
                    f"but is {int(nodes[edge])}"
                )

    def __len__(self) -> int:
        return len(self.node_offset) - 1

    @cached_property
    def num_nodes(self) -> Tensor:  # [G]
        return self.node_offset.diff()

    @cached_property
    def has_loops(self) -> bool:
        return bool((self.query_index == self.key_index).any())

    @property
    def edge_graph(self) -> Tensor:  # [E]
        """The graph of each edge."""
        return torch.arange(len(self)).repeat_interleave(self.edge_offset.diff())

    def pack(self, graphs: Tensor, *, self_loops: bool = False) -> Pack:
        """Join graphs, given by their numbers, into one graph without edges between them.

        `self_loops` gives each node one; with relations, they are of relation 0.
        """
        sizes = self.num_nodes[graphs]
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        edge_counts = self.edge_offset.diff()[graphs]
        edges = _ranges(self.edge_offset[graphs], edge_counts)
        shift = (starts[:-1] - self.node_offset[graphs]).repeat_interleave(edge_counts)
        query, key = self.query_index[edges] + shift, self.key_index[edges] + shift
        relation = None if self.relation is None else self.relation[edges]
        if self_loops and not self.has_loops:  # added here, the edges are grouped only once
            loop = torch.arange(int(starts[-1]))
            query, key = torch.cat([query, loop]), torch.cat([key, loop])
            if relation is not None:
                relation = torch.cat([relation, torch.zeros_like(loop)])
        count = self.num_relations
        graph = Graph.from_edges(
            query, key, int(starts[-1]), relation=relation, num_relations=count
        )
        return Pack(
            graph=graph.with_self_loops() if self_loops and self.has_loops else graph,
            graphs=graphs,
            nodes=_ranges(self.node_offset[graphs], sizes),
            edges=edges,
            node_graph=torch.arange(len(graphs)).repeat_interleave(sizes),
            starts=starts,
        )

    def batches(self, graphs: Tensor, max_nodes: int) -> Iterator[Tensor]:
        """Cut a list of graphs into consecutive batches of at most `max_nodes` nodes.

        A graph with more nodes than that is a batch of its own.
        """
        ends, start = self.num_nodes[graphs].cumsum(0), 0
        while start < len(graphs):
            used = int(ends[start - 1]) if start else 0
            stop = int(torch.searchsorted(ends, used + max_nodes, right=True))
            stop = max(stop, start + 1)
            yield graphs[start:stop]
            start = stop


@dataclass(frozen=True, eq=False)
class Pack:
    """Some graphs of a collection as one graph; n nodes, B graphs."""

    graph: Graph
    graphs: Tensor  # [B]: their numbers in the collection
    nodes: Tensor  # [n]: numbers of the nodes in the collection
    edges: Tensor  # numbers of the edges in the collection, without added self-loops
    node_graph: Tensor  # [n]: the position of each node's graph in `graphs`
    starts: Tensor  # [B + 1]: the first node of each graph


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """[2, 7], [3, 2] -> [2, 3, 4, 7, 8]"""
    before = counts.cumsum(0) - counts
    return torch.arange(int(counts.sum())) + (starts - before).repeat_interleave(counts)


def collection_of(data: GraphData) -> GraphCollection:
    """The graphs of a stored set of molecules: bonds in both directions, relation = bond type.

    Relation 0 is left for self-loops.
    """
    graphs, edges = data.nodes[GRAPH].arrays, data.edges[BOND]
    first, second = (tensor(each).long() for each in (edges.key_index, edges.query_index))
    kind = tensor(np.asarray(edges.arrays["type"])).long()
    sizes, counts = (tensor(np.asarray(graphs[name])) for name in ("num_nodes", "num_edges"))
    return GraphCollection(
        _offsets(sizes),
        2 * _offsets(counts),
        torch.stack([second, first], 1).flatten(),
        torch.stack([first, second], 1).flatten(),
        kind.repeat_interleave(2),
        NUM_RELATIONS,
        ("self-loop", *BOND_TYPES),
    )


def _offsets(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
