"""NeighborLoader: batches of seed nodes with sampled neighbours, compatible with PyG's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from dynagat.sampling.batch import Batch
from dynagat.sampling.loader import Loader


@final
class NeighborLoader(Loader):
    """Batches of seed nodes; hop by hop, num_neighbors[hop] keys of each node are sampled.

    The keys of a node are the sources of its incoming edges, as in PyG. Given a PyG Data, batches
    are Data as from PyG's NeighborLoader. Given a GraphData, a Graph or Neighbours, each is a
    `Batch`. HeteroData is not supported. Samples depend only on (seed, epoch, index of the batch),
    not on the number of threads or on earlier samples.

    Args:
        data: a PyG Data, a GraphData, a Graph or Neighbours.
        num_neighbors: the number of keys to sample per node, by hop from the seeds; -1 means all.
        input_nodes: the seeds, as distinct indices or as a mask of all nodes; None means all nodes.
        replace: whether to sample keys with replacement.
        batch_size: the number of seeds per batch.
        shuffle: whether to shuffle the seeds in every epoch.
        drop_last: whether to drop a last batch of fewer seeds.
        transform: a function that is applied to every batch. It runs in background threads, for
            several batches at once, so that random numbers from torch's global generator come in
            no fixed order. With prefetch=0 it runs in order in the caller's thread, as in PyG.
        layered: whether every hop samples again for all nodes so far, with one Graph per layer, as
            in DGL and in PyG's old NeighborSampler. Else it samples for new nodes only, and layers
            share edges, as in PyG's NeighborLoader. A layered batch is always a `Batch`.
        seed: the seed of all samples.
        prefetch: the number of batches that background threads prepare in advance; 0 for none.
        num_workers: the maximum number of background threads; None means as many as torch has.
            Unlike PyG's workers they are threads, so nothing is copied between processes.
        rank: which part of each batch this loader makes, of `world_size` loaders with the same
            arguments in as many processes, as torch.distributed numbers them.
        world_size: the number of these loaders. Their parts of a batch are disjoint, differ in
            size by at most one seed, and together are the batch of one loader by itself, so that
            all make the same number of batches. If the last batch has fewer seeds than there are
            loaders, they join the batch before.
        others: PyG's other options (options.py). Those that do not change batches are ignored, for
            example is_sorted, persistent_workers, pin_memory and prefetch_factor. Those that would
            are refused unless they are off, for example disjoint, subgraph_type other than
            "directional", time_attr, weight_attr, sampler and generator.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(data, num_neighbors, **options)
        self.input_nodes = read_input_nodes(input_nodes, self.source.num_nodes)
        self.input_id = np.arange(len(self.input_nodes))
        if _is_mask(input_nodes):
            self.input_id = self.input_nodes

    @property
    def num_inputs(self) -> int:
        return len(self.input_nodes)

    def _make(self, positions: np.ndarray, seed: int, threads: int) -> Any:
        nodes, input_id = self.input_nodes[positions], self.input_id[positions]
        batch = self._sample(nodes, input_id, seed, threads)
        if not isinstance(batch, Batch):
            batch.batch_size = len(nodes)
        return batch

    def __repr__(self) -> str:
        return f"NeighborLoader({self.num_inputs} seeds, {self.num_neighbors})"


def read_input_nodes(nodes: Any, num_nodes: int) -> np.ndarray:
    """[seeds] int64, distinct and in range, from indices, a mask, or None for all nodes."""
    if nodes is None:
        nodes = np.arange(num_nodes)
    kind = nodes[0] if isinstance(nodes, tuple) and nodes else nodes
    if isinstance(kind, str):
        raise TypeError(f"input_nodes must be indices or a mask, but names the type {kind!r}")
    nodes = nodes.detach().cpu().numpy() if isinstance(nodes, torch.Tensor) else np.asarray(nodes)
    if nodes.dtype == bool:
        if nodes.shape != (num_nodes,):
            shape = list(nodes.shape)
            raise ValueError(f"input_nodes as a mask must be [{num_nodes}], but is {shape}")
        nodes = np.flatnonzero(nodes)
    if nodes.ndim != 1 or len(nodes) == 0:
        shape = list(nodes.shape)
        raise ValueError(f"input_nodes must be a vector of one node or more, but has shape {shape}")
    if nodes.dtype.kind not in "iu":
        raise TypeError(f"input_nodes must be indices or a mask, but hold {nodes.dtype}")
    return _distinct(nodes.astype(np.int64), num_nodes)


def _is_mask(nodes: Any) -> bool:
    """PyG's input_id are node indices for a mask, but positions in a list of indices."""
    return nodes is not None and np.asarray(nodes).dtype == bool


def _distinct(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    bad = nodes[(nodes < 0) | (nodes >= num_nodes)]
    if len(bad):
        raise ValueError(f"input_nodes must lie in [0, {num_nodes}), but hold {bad[0]}")
    in_order = np.sort(nodes)
    twice = in_order[:-1][in_order[:-1] == in_order[1:]]
    if len(twice):
        raise ValueError(f"input_nodes must hold each node once, but hold {twice[0]} twice")
    return nodes
