"""LinkNeighborLoader: batches of links and negatives with sampled neighbours, as PyG's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from dynagat.sampling.batch import Batch
from dynagat.sampling.draw import derive_seed
from dynagat.sampling.loader import Loader
from dynagat.sampling.negatives import Negatives, read_negatives
from dynagat.sampling.source import Source

NEGATIVES = 0  # derives the seed of negatives from that of the batch


@final
class LinkNeighborLoader(Loader):
    """Batches of links, with sampled neighbours of the end points of links and negatives.

    Given a PyG Data, batches are Data as from PyG's LinkNeighborLoader, with edge_label_index and
    edge_label, or with src_index, dst_pos_index and dst_neg_index for triplets. Given a GraphData,
    a Graph or Neighbours, each is a `Batch` with `pairs`, links first, and `pair_label`. The seeds
    are the distinct end points in ascending order, so that pairs are rows of the last layer's
    output. Links that are also edges of the graph are not removed from it. HeteroData is not
    supported. Samples and negatives depend only on (seed, epoch, index of the batch).

    Args:
        data: a PyG Data, a GraphData, a Graph or Neighbours.
        num_neighbors: the number of keys to sample per node, by hop from the seeds; -1 means all.
        edge_label_index: [2, links], the end points of the links; None means all edges.
        edge_label: [links, ...], their labels. With binary negatives, which have the label 0,
            labels that start at 0 are raised by 1. None means 1 for links if there are negatives.
        neg_sampling: "binary" adds random pairs of nodes, "triplet" random second nodes for the
            first node of each link; None adds nothing. A dict such as {"mode": "binary", "amount":
            0.5} or PyG's NegativeSampling also says how many negatives there are per link.
        neg_sampling_ratio: the number of binary negatives per link; short for neg_sampling.
        options: batch_size, which counts links, and the other options of NeighborLoader.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        edge_label_index: Any = None,
        edge_label: Any = None,
        *,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data, num_neighbors, **options)
        self.negatives = read_negatives(neg_sampling, neg_sampling_ratio)
        self.edge_label_index = _read_links(edge_label_index, self.source)
        self.edge_label = _read_labels(edge_label, self.num_inputs, self.negatives)

    @property
    def num_inputs(self) -> int:
        return self.edge_label_index.shape[1]

    def _make(self, positions: np.ndarray, seed: int, threads: int) -> Any:
        pairs = self.edge_label_index[:, positions].astype(np.int64, copy=False)
        if self.negatives is not None:
            own_seed = derive_seed(seed, NEGATIVES)
            others = self.negatives.draw(pairs, self.source.num_nodes, own_seed)
            pairs = np.concatenate([pairs, others], axis=1)
        nodes, local = np.unique(pairs, return_inverse=True)
        local = torch.from_numpy(local.reshape(pairs.shape))  # [2, P]
        batch = self._sample(nodes, positions, seed, threads)
        if isinstance(batch, Batch):
            label = self._label(positions, pairs.shape[1])
            label = None if label is None else label.float()
            return replace(batch, pairs=local.T.contiguous(), pair_label=label)
        return self._with_links(batch, local, positions)

    def _with_links(self, data: Any, local: Tensor, positions: np.ndarray) -> Any:
        """The Data with PyG's attributes for links, instead of those of the whole Data."""
        for name in ("edge_label_index", "edge_label_time"):
            if name in data:
                del data[name]
        count = len(positions)
        if self.negatives is not None and self.negatives.is_triplet:
            data.src_index, data.dst_pos_index = local[0, :count], local[1, :count]
            data.dst_neg_index = local[1, count:].view(count, -1).squeeze(-1)
        else:
            data.edge_label_index = local
            data.edge_label = self._label(positions, local.shape[1])  # None removes it
        return data

    def _label(self, positions: np.ndarray, num_pairs: int) -> Tensor | None:
        """[num_pairs, ...], 0 for negatives; None if there are neither labels nor negatives."""
        if self.edge_label is not None:
            label = self.edge_label[torch.from_numpy(positions)]
        elif self.negatives is not None:
            label = torch.ones(len(positions))
        else:
            return None
        rest = label.new_zeros(num_pairs - len(label), *label.shape[1:])
        return torch.cat([label, rest])

    def __repr__(self) -> str:
        return f"LinkNeighborLoader({self.num_inputs} links, {self.num_neighbors})"


def _read_links(links: Any, source: Source) -> np.ndarray:
    """[2, links] int32 or int64, in range and not empty; may be mapped from a file."""
    if isinstance(links, str | tuple):
        raise TypeError(f"edge_label_index must be a tensor of shape [2, links], but is {links!r}")
    links = _all_edges(source) if links is None else links
    if hasattr(links, "as_tensor"):  # PyG's EdgeIndex
        links = links.as_tensor()
    links = links.detach().cpu().numpy() if isinstance(links, Tensor) else np.asarray(links)
    if links.ndim != 2 or len(links) != 2:
        shape = list(links.shape)
        raise ValueError(f"edge_label_index must have shape [2, links], but has {shape}")
    if links.dtype not in (np.int32, np.int64):
        raise TypeError(f"edge_label_index must hold int32 or int64, but holds {links.dtype}")
    if links.size == 0:
        raise ValueError("edge_label_index must hold at least one link, but is empty")
    for end in (links.min(), links.max()):
        if not 0 <= end < source.num_nodes:
            raise ValueError(f"edge_label_index must lie in [0, {source.num_nodes}), but has {end}")
    return links


def _all_edges(source: Source) -> np.ndarray:
    """[2, E] of (key, query), in the order of edge ids."""
    rows = source.neighbours
    query = np.repeat(np.arange(rows.num_nodes), np.diff(rows.rowptr))
    edges = np.stack([rows.key_index, query])
    return edges if rows.edge_id is None else edges[:, np.argsort(rows.edge_id, kind="stable")]


def _read_labels(label: Any, num_links: int, negatives: Negatives | None) -> Tensor | None:
    if label is None:
        return None
    if negatives is not None and negatives.is_triplet:
        raise ValueError("edge_label must be None for triplets, but is given")
    label = torch.as_tensor(label).detach().cpu()
    if label.ndim == 0 or len(label) != num_links:
        shape = list(label.shape)
        raise ValueError(f"edge_label must have {num_links} labels, but has shape {shape}")
    return label + 1 if negatives is not None and label.min() == 0 else label
