"""Toy candidate benchmark: the right candidate has the same feature as the slot."""

from dataclasses import dataclass

import torch

from dynagat.data.collection import GraphCollection
from dynagat.experiment import Benchmark
from dynagat.metrics import ACCURACY
from dynagat.nn.network import Layer, Network, make_conv
from dynagat.nn.readout import CandidateReadout
from dynagat.prediction.candidates import CandidateProblem, CandidateTask
from dynagat.training import Schedule

SIZE = 4  # nodes of a graph: the slot and three candidates, of which some graphs miss one


@dataclass(frozen=True)
class ToyData:
    num_graphs: int = 60

    def load(self, seed):
        generator = torch.Generator().manual_seed(seed)
        count = self.num_graphs
        offset = SIZE * torch.arange(count + 1)
        slot = offset[:-1]
        candidates = slot[:, None] + torch.arange(1, SIZE)
        pairs = torch.cartesian_prod(torch.arange(SIZE), torch.arange(SIZE))
        edges = (slot[:, None, None] + pairs[pairs[:, 0] != pairs[:, 1]]).reshape(-1, 2).T
        graphs = GraphCollection(offset, SIZE * (SIZE - 1) * torch.arange(count + 1), *edges)
        y = torch.randint(2, (count,), generator=generator)
        x = torch.randn(SIZE * count, 5, generator=generator)
        x[slot] = x[candidates[torch.arange(count), y]]
        candidates[::2, -1] = -1
        split = dict(zip(("train", "valid", "test"), torch.arange(count).split(20), strict=True))
        return CandidateProblem(graphs, x, slot, candidates, y, split)

    def missing(self):
        return None


@dataclass(frozen=True)
class ToyNetwork:
    dim: int = 8
    heads: int = 2

    def build(self, problem, mechanism):
        conv = make_conv(mechanism)
        layers = [Layer(conv(problem.x.shape[1], self.dim, self.heads))]
        return Network(layers, readout=CandidateReadout(self.dim))


BENCHMARK = Benchmark(
    name="toy-candidates",
    title="Toy candidates: which node belongs into the slot",
    source="A test",
    data=ToyData(),
    network=ToyNetwork(),
    task=CandidateTask(max_nodes=48),
    schedule=Schedule(lr=0.02, max_rounds=4),
    mechanisms={"gat": (2,), "gatv2": (2,)},
    seeds=range(2),
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=1",),
    search={"lr": (0.02, 0.005)},
)
