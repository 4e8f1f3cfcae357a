"""Recipes of the measured graphs: each is a frozen value that always draws the same edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Generator, Tensor

SEED = 0


class Recipe(ABC):
    """Abstract. Edges in PyG's form, [2, E] of (key, query), drawn from a fixed seed."""

    num_nodes: int
    num_edges: int

    def edge_index(self) -> Tensor:
        return self.draw(Generator().manual_seed(SEED))

    @abstractmethod
    def draw(self, generator: Generator) -> Tensor: ...

    def describe(self) -> dict[str, Any]:
        """The recipe as stored in the records."""
        return {"recipe": type(self).__name__, **asdict(self)}  # pyright: ignore


@final
@dataclass(frozen=True)
class PowerLaw(Recipe):
    """Undirected, without duplicates, in the order of PyG's ToUndirected; then self-loops.

    Both ends of an edge are drawn with weights (rank + 10)^-0.55; nodes are ranked at random.
    The default sizes are those of ogbn-arxiv with both directions of each edge.
    """

    num_nodes: int = 169_343
    num_edges: int = 2_484_941  # 2,315,598 and the self-loops

    def draw(self, generator: Generator) -> Tensor:
        num_pairs = (self.num_edges - self.num_nodes) // 2
        count = num_pairs + num_pairs // 8
        pairs = self._distinct_pairs(count, generator)
        while len(pairs) < num_pairs:  # small dense graphs, where many pairs are duplicates
            count *= 2
            pairs = self._distinct_pairs(count, generator)
        pairs = pairs[torch.randperm(len(pairs), generator=generator)[:num_pairs]]
        return undirected(pairs // self.num_nodes, pairs % self.num_nodes, self.num_nodes)

    def _distinct_pairs(self, count: int, generator: Generator) -> Tensor:
        """Up to `count` pairs of nodes i < j, each encoded as i·N + j."""
        total = torch.arange(10, self.num_nodes + 10).double().pow(-0.55).cumsum(0)
        position = torch.rand(2, count, dtype=torch.double, generator=generator) * total[-1]
        rank = torch.searchsorted(total, position).clamp_(max=self.num_nodes - 1)
        ends = torch.randperm(self.num_nodes, generator=generator)[rank]
        low, high = ends.amin(0), ends.amax(0)
        return torch.unique((low * self.num_nodes + high)[low < high])


@final
@dataclass(frozen=True)
class Products(Recipe):
    """Undirected, int32, with the degrees of PowerLaw; duplicates and self-loops may occur.

    The default sizes are those of ogbn-products.
    """

    num_nodes: int = 2_449_029
    num_edges: int = 123_718_280

    def draw(self, generator: Generator) -> Tensor:
        order = torch.randperm(self.num_nodes, generator=generator).int()
        edges = torch.empty(2, self.num_edges, dtype=torch.int32)
        half = self.num_edges // 2
        for end in range(2):
            edges[end, :half] = order[self._ranks(half, generator)]
        edges[0, half:], edges[1, half:] = edges[1, :half], edges[0, :half]
        return edges

    def _ranks(self, count: int, generator: Generator) -> Tensor:
        """Ranks with weights (rank + 10)^-0.55, by inverting the integral of the weights."""
        low, high = 10**0.45, (self.num_nodes + 10) ** 0.45
        position = torch.rand(count, generator=generator).mul_(high - low).add_(low)
        return position.pow_(1 / 0.45).sub_(10).int().clamp_(0, self.num_nodes - 1)


@final
@dataclass(frozen=True)
class Uniform(Recipe):
    """The even graph: both ends of every edge are drawn uniformly from all nodes."""

    num_nodes: int = 169_343
    num_edges: int = 2_484_941

    def draw(self, generator: Generator) -> Tensor:
        return torch.randint(self.num_nodes, (2, self.num_edges), generator=generator)


@final
@dataclass(frozen=True)
class Hub(Recipe):
    """The even graph, except that node 0 is the query, or the key, of `hub_degree` edges."""

    num_nodes: int = 169_343
    num_edges: int = 2_484_941
    hub_degree: int = 1_000_000
    end: str = "query"

    def draw(self, generator: Generator) -> Tensor:
        edges = torch.randint(self.num_nodes, (2, self.num_edges), generator=generator)
        edges[int(self.end == "query"), : self.hub_degree] = 0
        return edges[:, torch.randperm(self.num_edges, generator=generator)]


@final
@dataclass(frozen=True)
class Hubs(Recipe):
    """The even graph, except that each of the first nodes is the query of `hub_degree` edges, and
    the key of as many others."""

    num_nodes: int = 169_343
    num_edges: int = 2_484_941
    num_hubs: int = 10
    hub_degree: int = 100_000

    def draw(self, generator: Generator) -> Tensor:
        edges = torch.randint(self.num_nodes, (2, self.num_edges), generator=generator)
        hub = torch.arange(self.num_hubs).repeat_interleave(self.hub_degree)
        edges[1, : len(hub)] = hub
        edges[0, -len(hub) :] = hub
        return edges[:, torch.randperm(self.num_edges, generator=generator)]


@final
@dataclass(frozen=True)
class Molecules(Recipe):
    """A batch of random trees with one or two ring closures and a self-loop at each atom."""

    num_graphs: int = 2_770
    num_atoms: int = 18

    @property
    def num_nodes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.num_graphs * self.num_atoms

    @property
    def num_edges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        num_rings = self.num_graphs + (self.num_graphs + 1) // 2
        return 2 * (self.num_graphs * (self.num_atoms - 1) + num_rings) + self.num_nodes

    def draw(self, generator: Generator) -> Tensor:
        first = torch.arange(self.num_graphs)[:, None] * self.num_atoms
        atom = torch.arange(1, self.num_atoms).expand(self.num_graphs, -1)
        back = torch.rand(atom.shape, generator=generator) * atom.clamp(max=3)
        parent = atom - 1 - back.long()  # one of the three atoms before, so that degrees stay small
        bonds = [torch.stack([first + parent, first + atom]).flatten(1)]
        for closed, size in ((first, 6), (first[::2], 5)):  # every second molecule has two rings
            last = torch.randint(size - 1, self.num_atoms, closed.shape, generator=generator)
            bonds.append(torch.stack([closed + last - size + 1, closed + last]).flatten(1))
        low, high = torch.cat(bonds, 1)
        return undirected(low, high, self.num_nodes)


@final
@dataclass(frozen=True)
class Dictionaries(Recipe):
    """A batch of DictionaryLookup graphs: each of k queries attends to each of k keys."""

    num_graphs: int = 1_024
    k: int = 10

    @property
    def num_nodes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.num_graphs * 2 * self.k

    @property
    def num_edges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.num_graphs * self.k**2

    def draw(self, generator: Generator) -> Tensor:
        first = torch.arange(self.num_graphs)[:, None, None] * 2 * self.k
        query = torch.arange(self.k)[:, None]
        key = torch.arange(self.k, 2 * self.k)
        shape = (self.num_graphs, self.k, self.k)
        return torch.stack([(first + end).expand(shape).flatten() for end in (key, query)])


def undirected(low: Tensor, high: Tensor, num_nodes: int) -> Tensor:
    """Both directions of each pair, sorted by key and then query; then the self-loops."""
    code = torch.cat([low * num_nodes + high, high * num_nodes + low]).sort().values
    loop = torch.arange(num_nodes)
    return torch.stack([torch.cat([code // num_nodes, loop]), torch.cat([code % num_nodes, loop])])
