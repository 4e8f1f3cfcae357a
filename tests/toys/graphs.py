"""Toy graph benchmark: the mean feature of molecules with two kinds of bonds, an error metric."""

from dataclasses import dataclass

import torch

from dynagat.data.collection import GraphCollection
from dynagat.experiment import Benchmark, Published
from dynagat.metrics import MEAN_ABSOLUTE_ERROR
from dynagat.nn.network import Layer, Network, make_conv
from dynagat.nn.readout import MeanReadout
from dynagat.prediction.graphs import GraphProblem, GraphTask
from dynagat.training import Schedule

RELATIONS = 2
ERROR = MEAN_ABSOLUTE_ERROR.on("test")


@dataclass(frozen=True)
class ToyData:
    num_graphs: int = 60

    def load(self, seed):
        generator = torch.Generator().manual_seed(seed)
        size, count = 4, self.num_graphs  # complete graphs of four atoms
        offset = size * torch.arange(count + 1)
        pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size))
        query, key = (offset[:-1, None, None] + pairs[pairs[:, 0] != pairs[:, 1]]).reshape(-1, 2).T
        relation = torch.randint(RELATIONS, query.shape, generator=generator)
        edge_offset = size * (size - 1) * torch.arange(count + 1)
        graphs = GraphCollection(offset, edge_offset, query, key, relation, RELATIONS)
        x = torch.randn(size * count, 4, generator=generator)
        y = x[:, :1].view(count, size).mean(1, keepdim=True)
        split = dict(zip(("train", "valid", "test"), torch.arange(count).split(20), strict=True))
        return GraphProblem(graphs, x, y, split, "regression", 1)

    def missing(self):
        return None


@dataclass(frozen=True)
class ToyNetwork:
    dim: int = 8
    heads: int = 2

    def build(self, problem, mechanism):
        conv = make_conv(mechanism, num_relations=RELATIONS)
        layers = [Layer(conv(self.dim, self.dim, self.heads), skip=torch.nn.Identity())]
        embedding = torch.nn.Linear(problem.x.shape[1], self.dim)
        return Network(layers, embedding=embedding, readout=MeanReadout(self.dim, 1))


BENCHMARK = Benchmark(
    name="toy-graphs",
    title="Toy graphs: a number for each molecule",
    source="A test",
    data=ToyData(),
    network=ToyNetwork(),
    task=GraphTask(max_nodes=40),
    schedule=Schedule(lr=0.02, max_rounds=4, stop_at=0.0),
    mechanisms={"gat": (2,), "gatv2": (2,)},
    seeds=range(2),
    metric=ERROR,
    smoke=("max_rounds=1",),
    published=(Published("A table", "gatv2", 2, {}, ERROR, 0.1, 0.01, 2),),
    search={"lr": (0.02, 0.005)},
)
