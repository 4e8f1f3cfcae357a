"""Node prediction on any stored graph: what `dynagat compare` runs for each mechanism and seed.

All mechanisms use the same network, nodes, split and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import nn

from dynagat.benchmarks.stacks import Stack, layer_shapes
from dynagat.data.arrays import fingerprint
from dynagat.data.store import find_folder, open_graph
from dynagat.experiment import Benchmark
from dynagat.metrics import ACCURACY
from dynagat.nn.dropout import Dropout
from dynagat.nn.linear import Linear
from dynagat.nn.network import Layer, Network, make_conv
from dynagat.prediction.nodes import NodeProblem, NodeTask, node_problem
from dynagat.training import Schedule

HEADS = 8


@dataclass(frozen=True)
class StoredGraph:
    """Which graph. `content` is its fingerprint: a run belongs to the content of the folder."""

    graph: str = ""  # a folder, or a name in the graph store
    content: str = ""
    self_loops: bool = True

    def load(self, seed: int) -> NodeProblem:
        if not self.graph:
            raise ValueError(self.missing())
        data = open_graph(self.graph)
        if self.content and fingerprint(find_folder(self.graph)) != self.content:
            raise ValueError(f"graph {self.graph} has changed since it was compared on")
        return node_problem(data, self.self_loops)

    def missing(self) -> str | None:
        if self.graph:
            return None
        return "name a graph: --set graph=NAME; `dynagat data list` has the names"


@final
@dataclass(frozen=True)
class NodeNetwork(Stack):
    """x ← dropout(ReLU(LayerNorm(conv(x) + W x))), and conv(x) + W x in the last layer

    The last layer has one head. `skip` and `norm` can be left out.
    """

    dim: int = 64
    heads: int = HEADS
    layers: int = 2
    dropout: float = 0.5
    attention_dropout: float = 0.0
    feature_dropout: float = 0.0
    skip: bool = True
    norm: bool = True

    def build(self, problem: NodeProblem, mechanism: str) -> Network:
        return self.with_widths(mechanism, problem.x.shape[1], problem.out_dim)

    def with_widths(self, mechanism: str, in_dim: int, out_dim: int) -> Network:
        options = {"bias": True, "share_weights": False, "dropout": self.attention_dropout}
        conv = make_conv(mechanism, **options)
        widths, layers = [in_dim, *[self.dim] * (self.layers - 1), out_dim], []
        for shape in layer_shapes(widths, self.heads, last_heads=1):
            width, out = shape.width, shape.out
            norm: list[nn.Module] = [nn.LayerNorm(out)] if self.norm else []
            after = nn.Sequential(*norm, nn.ReLU(), Dropout(self.dropout))
            layers.append(
                Layer(
                    conv(width, out, shape.heads),
                    before=None if layers else Dropout(self.feature_dropout),
                    skip=Linear(width, out, bias=False) if self.skip else None,
                    after=None if shape.position == "last" else after,
                )
            )
        return Network(layers)


OWN_GRAPH = Benchmark(
    name="own-graph",
    title="Node prediction on a stored graph: --set graph=NAME",
    source="Your own graph",
    data=StoredGraph(),
    network=NodeNetwork(),
    task=NodeTask(),
    schedule=Schedule(
        lr=0.01,
        max_rounds=100,
        round_passes=2,
        patience=20,
        lr_patience=8,
        weight_decay=5e-4,
        clip=10.0,
    ),
    mechanisms={"gcn": (1,), "gat": (HEADS,), "gatv2": (HEADS,), "dpgat": (HEADS,)},
    seeds=range(5),
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=3",),
    search={
        "dim": (32, 64, 128),
        "heads": (1, 4, 8),
        "layers": (1, 2, 3),
        "dropout": (0.2, 0.5, 0.7),
        "lr": (0.003, 0.01, 0.03),
    },
)
