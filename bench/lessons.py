"""Lessons: small real graphs, with what is learnt from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch_geometric.datasets import KarateClub

from bench.graphs import Recipe, undirected
from bench.isolation import CannotRun
from dynagat.data.arrays import FolderError
from dynagat.data.catalog import load
from dynagat.data.elements import tensor
from dynagat.data.store import GraphData

KARATE, MOLECULES = "karate", "qm9-batch"
NUM_MOLECULES = 128


@dataclass(frozen=True)
class Lesson:
    """What a network is trained on."""

    x: Tensor  # [N, in]
    edge_index: Tensor  # [2, E] of (key, query)
    out_dim: int
    loss: Callable[[Tensor], Tensor]  # of the output [N, out_dim]


@final
@dataclass(frozen=True)
class Dataset(Recipe):
    """A real graph: of the catalogue, Zachary's karate club, or a batch of QM9's molecules."""

    name: str
    num_nodes: int
    num_edges: int

    def draw(self, generator: Generator) -> Tensor:
        return self.read().edge_index

    def read(self) -> Lesson:
        """Raises CannotRun if its files are missing."""
        if self.name == KARATE:
            data: Any = KarateClub()[0]
            return _classify(data.x, data.edge_index, data.y, data.train_mask.nonzero()[:, 0])
        if self.name == MOLECULES:
            return _first_molecules(_load("qm9"))
        return _nodes_of(_load(self.name))

    def both_directions(self) -> Tensor:
        """[2, E]: both directions of every edge of a graph of the catalogue, without duplicates;
        then one self-loop per node. Raises CannotRun if its files are missing."""
        low, high = _edges_of(_load(self.name)).sort(0).values
        code = torch.unique((low * self.num_nodes + high)[low < high])
        return undirected(code // self.num_nodes, code % self.num_nodes, self.num_nodes)


def _load(name: str) -> GraphData:
    try:
        return load(name)
    except FolderError as error:
        raise CannotRun(str(error)) from error


def _edges_of(data: GraphData) -> Tensor:
    edges = data.sole_edges
    ends = (tensor(np.asarray(index)).long() for index in (edges.key_index, edges.query_index))
    return torch.stack([*ends])


def _nodes_of(data: GraphData) -> Lesson:
    x, y, train = (tensor(np.asarray(a)) for a in (data.x, data.y, data.split["train"]))
    return _classify(x.float(), _edges_of(data), y.long(), train.long())


def _classify(x: Tensor, edge_index: Tensor, y: Tensor, train: Tensor) -> Lesson:
    labels = y[train]
    return Lesson(x, edge_index, int(y.max()) + 1, lambda out: F.cross_entropy(out[train], labels))


def _first_molecules(data: GraphData) -> Lesson:
    """A batch: the network's outputs are added up over each molecule's atoms."""
    arrays, (edges,) = data.nodes["graph"].arrays, data.edges.values()
    atoms = tensor(np.asarray(arrays["num_nodes"][:NUM_MOLECULES])).long()
    bonds = int(np.asarray(arrays["num_edges"][:NUM_MOLECULES]).sum())
    ends = [tensor(np.asarray(i[:bonds])).long() for i in (edges.key_index, edges.query_index)]
    edge_index = torch.stack([torch.cat(ends), torch.cat(ends[::-1])])
    x = tensor(np.asarray(data.nodes["node"].arrays["x"][: int(atoms.sum())])).clone()
    y = tensor(np.asarray(data.y[:NUM_MOLECULES])).clone()
    molecule = torch.repeat_interleave(torch.arange(NUM_MOLECULES), atoms)

    def loss(out: Tensor) -> Tensor:
        return F.mse_loss(torch.zeros_like(y).index_add(0, molecule, out), y)

    return Lesson(x, edge_index, y.shape[1], loss)
