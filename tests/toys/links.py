"""Toy link benchmark: links join nodes of one community."""

from dataclasses import dataclass

import torch

from dynagat.experiment import Benchmark
from dynagat.graph import Graph
from dynagat.metrics import ROC_AUC
from dynagat.nn.network import Layer, Network, make_conv
from dynagat.nn.readout import PairReadout
from dynagat.prediction.links import LinkProblem, LinkTask
from dynagat.training import Schedule


@dataclass(frozen=True)
class ToyData:
    num_nodes: int = 40

    def load(self, seed):
        generator = torch.Generator().manual_seed(seed)
        community = torch.arange(self.num_nodes) % 2
        pairs = torch.combinations(torch.arange(self.num_nodes))
        is_link = community[pairs[:, 0]] == community[pairs[:, 1]]
        links, others = pairs[is_link], pairs[~is_link]
        links = links[torch.randperm(len(links), generator=generator)]
        known, *held_out = links.split([len(links) - 80, 40, 40])
        parts = ("train", "valid", "test")
        both = torch.cat([known, known.flip(1)])
        edges = Graph.from_edges(both[:, 0], both[:, 1], self.num_nodes)
        x = torch.randn(self.num_nodes, 6, generator=generator)
        positive = dict(zip(parts, (known, *held_out), strict=True))
        negative = dict(zip(parts, others[:120].split(40), strict=True))
        return LinkProblem(x, edges, positive, negative)

    def missing(self):
        return None


@dataclass(frozen=True)
class ToyNetwork:
    dim: int = 8
    heads: int = 2

    def build(self, problem, mechanism):
        conv = make_conv(mechanism)
        layers = [Layer(conv(problem.x.shape[1], self.dim, self.heads))]
        return Network(layers, readout=PairReadout(self.dim))


BENCHMARK = Benchmark(
    name="toy-links",
    title="Toy links: which nodes are linked",
    source="A test",
    data=ToyData(),
    network=ToyNetwork(),
    task=LinkTask(ratio=2),
    schedule=Schedule(lr=0.02, max_rounds=4, batch_size=64),
    mechanisms={"gat": (2,), "gatv2": (2,)},
    seeds=range(2),
    metric=ROC_AUC.on("test"),
    smoke=("max_rounds=1",),
    search={"ratio": (1, 2)},
)
