"""NeighborLoader: batches of seed nodes with sampled neighbours, compatible with PyG's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from dynagat.graph import MAX_ROWS
from dynagat.sampling.ahead import work_ahead
from dynagat.sampling.batch import edge_index_of, make_batch
from dynagat.sampling.draw import check_count, check_seed, derive_seed, sample, shuffle
from dynagat.sampling.options import check_options
from dynagat.sampling.reference import Sample
from dynagat.sampling.source import read_source, take_part


class NeighborLoader:
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
        *,
        replace: bool = False,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        transform: Callable[[Any], Any] | None = None,
        layered: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        num_workers: int | None = None,
        **others: Any,
    ) -> None:
        check_options(others)
        self.source = read_source(data)
        self.num_neighbors = _read_fanouts(num_neighbors)
        self.input_nodes = read_input_nodes(input_nodes, self.source.num_nodes)
        self.input_id = np.arange(len(self.input_nodes))
        if _is_mask(input_nodes):
            self.input_id = self.input_nodes
        self.batch_size = check_count("batch_size", batch_size)
        self.prefetch = check_count("prefetch", prefetch, 0)
        self.num_workers = num_workers and check_count("num_workers", num_workers, 0)
        self.seed = check_seed(seed)
        self.replace, self.shuffle, self.drop_last = replace, shuffle, drop_last
        self.transform, self.layered = transform, layered
        self.epoch = 0  # of the next iteration

    @property
    def data(self) -> Any:
        """The PyG Data that is sampled from, or None. Changes to it show in new batches."""
        return self.source.data

    @property
    def dataset(self) -> range:
        """As in torch's DataLoader: len(loader.dataset) is the number of seeds."""
        return range(len(self.input_nodes))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; the same epoch gives the same samples."""
        self.epoch = check_count("epoch", epoch, 0)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.input_nodes), self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        order = np.arange(len(self.input_nodes))
        if self.shuffle:
            order = shuffle(order, derive_seed(self.seed, epoch))
        depth = 0 if self.num_workers == 0 else self.prefetch
        return work_ahead(partial(self._make, epoch, order), len(self), depth, self.num_workers)

    def _make(self, epoch: int, order: np.ndarray, n: int, threads: int) -> Any:
        positions = order[n * self.batch_size : (n + 1) * self.batch_size]
        drawn = sample(
            self.source.neighbours,
            self.input_nodes[positions],
            self.num_neighbors,
            replace=self.replace,
            layered=self.layered,
            seed=derive_seed(self.seed, epoch, n),
            threads=threads,
        )
        batch = self._finish(drawn, torch.from_numpy(self.input_id[positions]), threads)
        return batch if self.transform is None else self.transform(batch)

    def _finish(self, drawn: Sample, input_id: torch.Tensor, threads: int) -> Any:
        data = self.source.data
        if data is None or self.layered:
            batch = make_batch(drawn, input_id, self.layered, threads)
            return self.source.fill(batch, threads)
        picks = drawn.layers[0]
        part = take_part(data, drawn.node, picks.edge, edge_index_of(picks), threads)
        part.input_id, part.batch_size = input_id, len(input_id)
        part.num_sampled_nodes = list(drawn.new_nodes)
        part.num_sampled_edges = list(drawn.num_edges)
        return part

    def __repr__(self) -> str:
        return f"NeighborLoader({len(self.input_nodes)} seeds, {self.num_neighbors})"


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


def _read_fanouts(num_neighbors: Any) -> list[int]:
    if isinstance(num_neighbors, torch.Tensor | np.ndarray):
        num_neighbors = num_neighbors.tolist()
    if not isinstance(num_neighbors, Sequence) or not num_neighbors:
        raise ValueError(f"num_neighbors must be a list with one per hop, but is {num_neighbors!r}")
    for k in num_neighbors:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k == 0 or k < -1:
            raise ValueError(f"num_neighbors must be above 0, or -1 for all, but has {k!r}")
    return [min(int(k), MAX_ROWS) for k in num_neighbors]
