"""Loader: epochs of batches whose neighbours are sampled hop by hop; for nodes and for links."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from dynagat.graph import MAX_ROWS
from dynagat.group import Group
from dynagat.sampling.ahead import work_ahead
from dynagat.sampling.batch import edge_index_of, make_batch
from dynagat.sampling.draw import check_count, check_seed, derive_seed, sample, shuffle
from dynagat.sampling.options import check_options
from dynagat.sampling.reference import Sample
from dynagat.sampling.source import read_source, take_part


class Loader(ABC):
    """Abstract. Each batch is a part of the inputs, with sampled neighbours of their seed nodes.

    The arguments are those of NeighborLoader, without input_nodes.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
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
        rank: int = 0,
        world_size: int = 1,
        **others: Any,
    ) -> None:
        check_options(others)
        self.source = read_source(data)
        self.num_neighbors = _read_fanouts(num_neighbors)
        self.batch_size = check_count("batch_size", batch_size)
        self.prefetch = check_count("prefetch", prefetch, 0)
        self.num_workers = num_workers and check_count("num_workers", num_workers, 0)
        self.seed = check_seed(seed)
        self.replace, self.shuffle, self.drop_last = replace, shuffle, drop_last
        self.transform, self.layered = transform, layered
        self.group = Group(rank, check_count("world_size", world_size))
        if self.batch_size < world_size:
            raise ValueError(
                f"batch_size must be at least world_size={world_size}, but is {batch_size}"
            )
        self.epoch = 0  # of the next iteration

    @property
    @abstractmethod
    def num_inputs(self) -> int:
        """The number of nodes or links in an epoch."""

    @abstractmethod
    def _make(self, positions: np.ndarray, seed: int, threads: int) -> Any:
        """The batch of the inputs at these positions."""

    @property
    def data(self) -> Any:
        """The PyG Data that is sampled from, or None. Changes to it show in new batches."""
        return self.source.data

    @property
    def dataset(self) -> range:
        """As in torch's DataLoader: len(loader.dataset) is the number of inputs."""
        return range(self.num_inputs)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; the same epoch gives the same samples."""
        self.epoch = check_count("epoch", epoch, 0)

    def __len__(self) -> int:
        whole, rest = divmod(self.num_inputs, self.batch_size)
        if rest < self.group.size and whole:  # each part needs an input: the batch before has them
            rest = 0
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self.num_inputs < self.group.size:
            raise ValueError(
                f"world_size must be at most {self.num_inputs}, the number of inputs, "
                f"but is {self.group.size}"
            )
        epoch, self.epoch = self.epoch, self.epoch + 1
        order = np.arange(self.num_inputs)
        if self.shuffle:
            order = shuffle(order, derive_seed(self.seed, epoch))
        depth = 0 if self.num_workers == 0 else self.prefetch
        make = partial(self._make_and_transform, epoch, order)
        return work_ahead(make, len(self), depth, self.num_workers)

    def _make_and_transform(self, epoch: int, order: np.ndarray, n: int, threads: int) -> Any:
        is_last = n == len(self) - 1 and not self.drop_last
        whole = order[n * self.batch_size : None if is_last else (n + 1) * self.batch_size]
        own = [self.group.rank] if self.group.size > 1 else []
        seed = derive_seed(self.seed, epoch, n, *own)
        batch = self._make(whole[self.group.part(len(whole))], seed, threads)
        return batch if self.transform is None else self.transform(batch)

    def _sample(self, nodes: np.ndarray, input_id: np.ndarray, seed: int, threads: int) -> Any:
        """The Batch or Data of distinct seed nodes and their sampled neighbours."""
        drawn = sample(
            self.source.neighbours,
            nodes,
            self.num_neighbors,
            replace=self.replace,
            layered=self.layered,
            seed=seed,
            threads=threads,
        )
        ids = torch.from_numpy(input_id)
        if self.source.data is None or self.layered:
            return self.source.fill(make_batch(drawn, ids, self.layered, threads), threads)
        return self._take_data(drawn, ids, threads)

    def _take_data(self, drawn: Sample, input_id: torch.Tensor, threads: int) -> Any:
        picks = drawn.layers[0]
        part = take_part(self.data, drawn.node, picks.edge, edge_index_of(picks), threads)
        part.input_id = input_id
        part.num_sampled_nodes = list(drawn.new_nodes)
        part.num_sampled_edges = list(drawn.num_edges)
        return part


def _read_fanouts(num_neighbors: Any) -> list[int]:
    if isinstance(num_neighbors, torch.Tensor | np.ndarray):
        num_neighbors = num_neighbors.tolist()
    if not isinstance(num_neighbors, Sequence) or not num_neighbors:
        raise ValueError(f"num_neighbors must be a list with one per hop, but is {num_neighbors!r}")
    for k in num_neighbors:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k == 0 or k < -1:
            raise ValueError(f"num_neighbors must be above 0, or -1 for all, but has {k!r}")
    return [min(int(k), MAX_ROWS) for k in num_neighbors]
