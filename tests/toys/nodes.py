"""Toy node benchmark: the class of a node is that of most of its neighbours' features."""

from dataclasses import dataclass

import torch
from torch import nn

from dynagat.experiment import Benchmark, Published
from dynagat.graph import Graph
from dynagat.metrics import ACCURACY
from dynagat.nn.dropout import Dropout
from dynagat.nn.network import Layer, Network, make_conv
from dynagat.prediction.nodes import NodeProblem, NodeTask
from dynagat.training import Schedule


@dataclass(frozen=True)
class ToyData:
    num_nodes: int = 90

    def load(self, seed):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(3, (self.num_nodes,), generator=generator)
        query = torch.arange(self.num_nodes).repeat_interleave(4)
        same = torch.stack([torch.randperm(self.num_nodes, generator=generator) for _ in range(4)])
        key = same.T.reshape(-1)
        x = torch.eye(3)[y] + 0.3 * torch.randn(self.num_nodes, 3, generator=generator)
        third = self.num_nodes // 3
        parts = torch.arange(self.num_nodes).split(third)
        split = dict(zip(("train", "valid", "test"), parts, strict=True))
        graph = Graph.from_edges(query, key, self.num_nodes)
        return NodeProblem(x, graph, y, split, "classification", 3)

    def missing(self):
        return None


@dataclass(frozen=True)
class ToyNetwork:
    dim: int = 8
    heads: int = 2
    layers: int = 2

    def build(self, problem, mechanism):
        conv = make_conv(mechanism)
        first = Layer(conv(problem.x.shape[1], self.dim, self.heads), after=torch.nn.ReLU())
        return Network([first, Layer(conv(self.dim, problem.out_dim, 1))])


@dataclass(frozen=True)
class DropoutNetwork(ToyNetwork):
    """Dropout of features and of attention, and statistics that change in training."""

    def build(self, problem, mechanism):
        conv, width = make_conv(mechanism, dropout=0.3), self.dim
        after = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), Dropout(0.3))
        first = Layer(conv(problem.x.shape[1], width, self.heads), after=after)
        return Network([first, Layer(conv(width, problem.out_dim, 1))])


BENCHMARK = Benchmark(
    name="toy-nodes",
    title="Toy nodes: the class of nodes",
    source="A test",
    data=ToyData(),
    network=ToyNetwork(),
    task=NodeTask(),
    schedule=Schedule(lr=0.05, max_rounds=4),
    mechanisms={"gat": (2,), "gatv2": (2,)},
    seeds=range(2),
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=1",),
    published=(Published("A table", "gatv2", 2, {}, ACCURACY.on("test"), 0.9, 0.1, 2),),
    search={"lr": (0.05, 0.01)},
)
