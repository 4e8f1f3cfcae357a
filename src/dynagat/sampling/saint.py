"""GraphSAINT (Zeng et al., 2020): subgraphs of nodes sampled by random walks, by node or by edge.

Names and normalisation coefficients are those of PyG. There are three differences from PyG. Walks
step from a node to one of its keys, the sources of its incoming edges, which is against the
direction of edges. Nodes are sampled in proportion to their in-degree, not their out-degree. Edges
are sampled with the paper's probability, of which PyG has the inverse. In an undirected graph only
the last one matters.

PyG and this module differ from the paper in two ways. The paper samples node u in proportion to
Σ_v 1/d_v² over all v that have u as a key. And it scales the message of key u to query v by
count_v / count_uv, which makes sums unbiased; edge_norm is count_u / count_uv.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import torch

from dynagat.sampling.ahead import work_ahead
from dynagat.sampling.batch import Batch, edge_index_of, make_graph
from dynagat.sampling.draw import (
    EDGES,
    NODES,
    WALKS,
    check_count,
    check_seed,
    derive_seed,
    induce,
    take_rows,
    visit,
)
from dynagat.sampling.options import SAINT_IGNORED, SAINT_ONLY, check_options
from dynagat.sampling.reference import Picks
from dynagat.sampling.rows import Neighbours
from dynagat.sampling.source import read_source, take_part

NORM_EPOCH = 2**63  # epochs from here on sample the coefficients


class GraphSAINTSampler(ABC):
    """Abstract. Each step samples nodes and yields the subgraph of all edges among them.

    Given a PyG Data, subgraphs are Data with the attributes of their nodes and edges, n_id and
    e_id. Given a GraphData, a Graph or Neighbours, each is a `Batch` of one graph. Nodes are in
    ascending order. The samples depend only on (seed, epoch, step).

    Args:
        data: a PyG Data, a GraphData, a Graph or Neighbours.
        batch_size: the number of walks, nodes or edges sampled per step.
        num_steps: the number of steps per epoch.
        sample_coverage: how often each node is visited on average to estimate the coefficients
            node_norm and edge_norm; 0 leaves them out.
        seed: the seed of all samples.
        prefetch, num_workers: as in NeighborLoader.
        others: PyG's other options, as in NeighborLoader. `log` and `shuffle` have no effect, and
            save_dir must be None, since the coefficients are not saved.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        *,
        seed: int = 0,
        prefetch: int = 2,
        num_workers: int | None = None,
        **others: Any,
    ) -> None:
        check_options(others, SAINT_IGNORED, SAINT_ONLY)
        self.source = read_source(data)
        self.batch_size = check_count("batch_size", batch_size)
        self.num_steps = check_count("num_steps", num_steps)
        self.sample_coverage = check_count("sample_coverage", sample_coverage, 0)
        self.seed = check_seed(seed)
        self.prefetch = check_count("prefetch", prefetch, 0)
        self.num_workers = num_workers and check_count("num_workers", num_workers, 0)
        self._check_graph(self.source.neighbours)
        self.epoch = 0  # of the next iteration
        self.norms = self._sample_norms() if sample_coverage else None

    @abstractmethod
    def visit(self, seed: int, threads: int) -> np.ndarray:
        """The nodes of a step, each once, in ascending order."""

    def _check_graph(self, neighbours: Neighbours) -> None:
        if len(neighbours.key_index) == 0:
            raise ValueError("data must have at least one edge, but has none")

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; the same epoch gives the same samples."""
        self.epoch = check_count("epoch", epoch, 0)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1

        def make(n: int, threads: int) -> Any:
            return self._finish(*self._subgraph(epoch, n, threads), threads)

        return self._ahead(make)

    def _ahead(self, make: Any) -> Iterator[Any]:
        depth = 0 if self.num_workers == 0 else self.prefetch
        return work_ahead(make, self.num_steps, depth, self.num_workers)

    def _subgraph(self, epoch: int, n: int, threads: int) -> tuple[np.ndarray, Picks]:
        nodes = self.visit(derive_seed(self.seed, epoch, n), threads)
        return nodes, induce(self.source.neighbours, nodes, threads=threads)

    def _finish(self, nodes: np.ndarray, picks: Picks, threads: int) -> Any:
        norms = {}
        if self.norms is not None:
            parts = zip(self.norms, (nodes, picks.edge), strict=True)
            of_nodes, of_edges = (take_rows(norm, index, threads) for norm, index in parts)
            norms = {"node_norm": of_nodes, "edge_norm": of_edges}
        if self.source.data is not None:
            edge_index = edge_index_of(picks)
            part = take_part(self.source.data, nodes, picks.edge, edge_index, threads)
            for name, norm in norms.items():
                part[name] = norm
            return part
        batch = Batch(
            graphs=(make_graph(picks, len(nodes), threads),),
            node_id=torch.from_numpy(nodes),
            edge_id=(torch.from_numpy(picks.edge),),
            num_seeds=len(nodes),
            num_sampled_nodes=(len(nodes),),
            num_sampled_edges=(len(picks.key),),
        )
        return self.source.fill(replace(batch, **norms), threads)

    def _sample_norms(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Count visits over whole epochs until coverage is reached, then apply PyG's formula."""
        neighbours = self.source.neighbours
        node_count = np.zeros(neighbours.num_nodes, np.float32)
        edge_count = np.zeros(neighbours.num_edges, np.float32)
        visits = steps = 0
        while visits < neighbours.num_nodes * self.sample_coverage:
            make = partial(self._subgraph, NORM_EPOCH + steps)
            for nodes, picks in self._ahead(make):
                node_count[nodes] += 1
                edge_count[picks.edge] += 1
                visits += len(nodes)
            steps += self.num_steps
        return normalise(node_count, edge_count, steps, neighbours)


def normalise(
    node_count: np.ndarray, edge_count: np.ndarray, num_samples: int, neighbours: Neighbours
) -> tuple[torch.Tensor, torch.Tensor]:
    """node_norm_i = samples / (count_i · N),  edge_norm_ij = count_j / count_ij, as in PyG.

    A node that was never visited counts as 0.1 visits. edge_norm of an edge that was never visited
    is 10⁴ if its key was visited, else 0.1.
    """
    of_key = np.zeros_like(edge_count)
    position = slice(None) if neighbours.edge_id is None else neighbours.edge_id
    of_key[position] = node_count[neighbours.key_index]
    with np.errstate(divide="ignore", invalid="ignore"):
        edge_norm = np.clip(of_key / edge_count, 0, 1e4)
    edge_norm[np.isnan(edge_norm)] = 0.1
    seen = np.where(node_count == 0, np.float32(0.1), node_count)
    node_norm = np.float32(num_samples) / seen / np.float32(len(node_count))
    return torch.from_numpy(node_norm), torch.from_numpy(edge_norm)


@final
class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Random walks of `walk_length` steps from random nodes, each step to a random key."""

    def __init__(
        self,
        data: Any,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        **options: Any,
    ) -> None:
        self.walk_length = check_count("walk_length", walk_length)
        super().__init__(data, batch_size, num_steps, sample_coverage, **options)

    def _check_graph(self, neighbours: Neighbours) -> None:
        if neighbours.num_nodes == 0:  # edges are not needed: a walk stays at a node without keys
            raise ValueError("data must have at least one node, but has none")

    def visit(self, seed: int, threads: int) -> np.ndarray:
        rows, length = self.source.neighbours, self.walk_length
        return visit(rows, WALKS, self.batch_size, length=length, seed=seed, threads=threads)


@final
class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Nodes sampled with replacement, in proportion to their number of keys."""

    def visit(self, seed: int, threads: int) -> np.ndarray:
        return visit(self.source.neighbours, NODES, self.batch_size, seed=seed, threads=threads)


@final
class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Both ends of edges, sampled with replacement.

    The probability of an edge is proportional to 1 / degree of its query. In an undirected graph,
    that of a pair {i, j} is thus proportional to 1/degree_i + 1/degree_j, as in the paper.
    """

    def visit(self, seed: int, threads: int) -> np.ndarray:
        rows = self.source.neighbours
        return visit(rows, EDGES, self.batch_size, live=self.live, seed=seed, threads=threads)

    @cached_property
    def live(self) -> np.ndarray:
        """The nodes that have at least one key."""
        return np.flatnonzero(np.diff(self.source.neighbours.rowptr))
