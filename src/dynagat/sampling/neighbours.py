"""NeighborLoader: batches of seeds with neighbours sampled around them, in PyG's ways and names."""

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
    """Seeds in batches; around them, hop by hop, num_neighbors[hop] of each node's keys.

    A node's keys are the sources of its incoming edges, as in PyG. Given a PyG Data, batches are
    Data as PyG's NeighborLoader yields them; given a GraphData, a Graph or Neighbours, each is a
    `Batch`. Each pass draws anew, by (seed, number of the pass, number of the batch) and by nothing
    else: neither threads nor what was drawn before matter. HeteroData is not taken.

    Args:
        data: a PyG Data, a GraphData, a Graph or Neighbours.
        num_neighbors: how many keys to sample for a node, by hop from the seeds; -1 means all.
        input_nodes: the seeds: indices, each once, or a mask of all nodes; None means all.
        replace: whether a key may be drawn more than once.
        batch_size: how many seeds a batch has.
        shuffle: whether each pass goes through the seeds in another order.
        drop_last: whether a last batch of fewer seeds is left out.
        transform: what a batch goes through before it is handed out, in the background and for
            several batches at once: it draws from torch's generator in no fixed order. With
            prefetch=0 it is called in order, by the caller's thread, as in PyG.
        layered: whether every hop draws anew for all nodes known so far, one Graph per layer, as
            DGL's sampler and PyG's old NeighborSampler do; else only for new nodes, and layers
            share their edges, as in PyG's NeighborLoader. A layered batch is always a `Batch`.
        seed: of all draws.
        prefetch: how many batches are made ahead, by background threads; 0 for none.
        num_workers: PyG's; how many background threads there are at most. They are threads, so
            nothing is copied between processes; None means as many as torch has.
        others: PyG's other options. Those that change no batch are ignored: is_sorted,
            filter_per_worker, persistent_workers, pin_memory, prefetch_factor and the like. Those
            that would are refused unless they are off: disjoint, subgraph_type other than
            "directional", time_attr, weight_attr, sampler, generator and the like (options.py).
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
        self.input_place = np.arange(len(self.input_nodes))
        if _is_mask(input_nodes):
            self.input_place = self.input_nodes
        self.batch_size = check_count("batch_size", batch_size)
        self.prefetch = check_count("prefetch", prefetch, 0)
        self.num_workers = num_workers and check_count("num_workers", num_workers, 0)
        self.seed = check_seed(seed)
        self.replace, self.shuffle, self.drop_last = replace, shuffle, drop_last
        self.transform, self.layered = transform, layered
        self.epoch = 0  # the number of the next pass

    @property
    def data(self) -> Any:
        """The PyG Data that is sampled from, or None; new batches have what is changed in it."""
        return self.source.data

    @property
    def dataset(self) -> range:
        """As torch's loaders have one: len(loader.dataset) is the number of seeds."""
        return range(len(self.input_nodes))

    def set_epoch(self, epoch: int) -> None:
        """The next pass is the one of this number, and draws as that one does."""
        self.epoch = check_count("epoch", epoch, 0)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.input_nodes), self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        places = np.arange(len(self.input_nodes))
        if self.shuffle:
            places = shuffle(places, derive_seed(self.seed, epoch))
        depth = 0 if self.num_workers == 0 else self.prefetch
        return work_ahead(partial(self._make, epoch, places), len(self), depth, self.num_workers)

    def _make(self, epoch: int, places: np.ndarray, n: int, threads: int) -> Any:
        place = places[n * self.batch_size : (n + 1) * self.batch_size]
        drawn = sample(
            self.source.neighbours,
            self.input_nodes[place],
            self.num_neighbors,
            replace=self.replace,
            layered=self.layered,
            seed=derive_seed(self.seed, epoch, n),
            threads=threads,
        )
        batch = self._finish(drawn, torch.from_numpy(self.input_place[place]), threads)
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
    """[seeds] int64, distinct and in range; from indices, a mask, or None for all."""
    if nodes is None:
        nodes = np.arange(num_nodes)
    named = nodes[0] if isinstance(nodes, tuple) and nodes else nodes
    if isinstance(named, str):
        raise TypeError(f"input_nodes must be indices or a mask, but names the type {named!r}")
    nodes = nodes.detach().cpu().numpy() if isinstance(nodes, torch.Tensor) else np.asarray(nodes)
    if nodes.dtype == bool:
        if nodes.shape != (num_nodes,):
            shape = list(nodes.shape)
            raise ValueError(f"input_nodes as a mask must be [{num_nodes}], but is {shape}")
        nodes = np.flatnonzero(nodes)
    if nodes.ndim != 1 or len(nodes) == 0:
        shape = list(nodes.shape)
        raise ValueError(f"input_nodes must be a list of one node or more, but is {shape}")
    if nodes.dtype.kind not in "iu":
        raise TypeError(f"input_nodes must be indices or a mask, but hold {nodes.dtype}")
    return _distinct(nodes.astype(np.int64), num_nodes)


def _is_mask(nodes: Any) -> bool:
    """Of a mask, PyG's input_id are the nodes; of a list, the places in it."""
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
        raise ValueError(f"num_neighbors must be a list of one per hop, but is {num_neighbors!r}")
    for k in num_neighbors:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k == 0 or k < -1:
            raise ValueError(f"num_neighbors must be above 0, or -1 for all, but has {k!r}")
    return [min(int(k), MAX_ROWS) for k in num_neighbors]
