"""Node prediction on any stored graph: what `dynagat compare` runs for each mechanism and seed.

All mechanisms use the same network, nodes, split and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

from torch import nn

from dynagat.benchmarks.stacks import LayerShape, Stack, layer_shapes
from dynagat.data.arrays import fingerprint
from dynagat.data.store import GraphData, find_folder, open_graph
from dynagat.experiment import Benchmark
from dynagat.metrics import ACCURACY
from dynagat.nn.dropout import Dropout
from dynagat.nn.linear import Linear
from dynagat.nn.network import Layer, MakeConv, Network, make_conv
from dynagat.prediction.nodes import NodeProblem, NodeTask, node_problem
from dynagat.sampling.rows import Neighbours
from dynagat.training import Schedule

HEADS = 8
ACTIVATIONS: dict[str, Any] = {"relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU}


@dataclass(frozen=True)
class StoredGraph:
    """Which graph. `content` is its fingerprint: a run belongs to the content of the folder."""

    graph: str = ""  # a folder, or a name in the graph store
    content: str = ""
    self_loops: bool = True

    def load(self, seed: int) -> NodeProblem:
        if not self.graph:
            raise ValueError(self.missing())
        data = open_unchanged(self.graph, self.content)
        rows = Neighbours.on_disk(data, loops=not self.self_loops)
        return node_problem(data, self.self_loops, rows)

    def missing(self) -> str | None:
        if self.graph:
            return None
        return "name a graph: --set graph=NAME; `dynagat data list` has the names"


def open_unchanged(graph: str, content: str) -> GraphData:
    """Open a stored graph; a ValueError if `content`, unless empty, is not its fingerprint."""
    data = open_graph(graph)
    if content and fingerprint(find_folder(graph)) != content:
        raise ValueError(f"graph {graph} has changed since it was compared on")
    return data


@final
@dataclass(frozen=True)
class NodeNetwork(Stack):
    """x ← dropout(f(LayerNorm(g(conv(x) + W x)))), and conv(x) + W x in the last layer

    f is the activation, W x the path of the node's own features, and g the feed-forward block,
    g(h) = W₂ dropout(f(W₁ h)). Each of W x, g and the norm can be left out.

    With `projection`, all layers have the width `dim`: x starts as dropout(f(W x)), and a linear
    layer follows the last one. With `residual` too, x ← x + dropout(g(conv(z) + W z)), where z is
    LayerNorm(x); f takes the place of g if there is none.
    """

    dim: int = 64
    heads: int = HEADS  # without projection, the last layer has one
    layers: int = 5
    dropout: float = 0.2
    attention_dropout: float = 0.0
    feature_dropout: float = 0.0
    activation: Literal["relu", "elu", "gelu"] = "gelu"
    norm: bool = True
    own_path: bool = True
    projection: bool = True
    residual: bool = True
    feed_forward: int = 2  # width of W₁ h in units of dim; 0: no g

    def check(self, least_layers: int = 1) -> None:
        super().check(least_layers)
        if self.residual and not self.projection:
            raise ValueError("residual=true needs projection=true, so that x keeps its width")
        if self.feed_forward < 0:
            raise ValueError(f"feed_forward must not be negative, but is {self.feed_forward}")

    def build(self, problem: NodeProblem, mechanism: str) -> Network:
        return self.with_widths(mechanism, problem.x.shape[1], problem.out_dim)

    def with_widths(self, mechanism: str, in_dim: int, out_dim: int) -> Network:
        options = {"bias": True, "share_weights": False, "dropout": self.attention_dropout}
        conv = make_conv(mechanism, **options)
        if self.projection:
            return self._projected(conv, in_dim, out_dim)
        layers: list[Layer] = []
        for shape in layer_shapes(
            [in_dim, *[self.dim] * (self.layers - 1), out_dim], self.heads, last_heads=1
        ):
            before = None if layers else Dropout(self.feature_dropout)
            is_last = shape.position == "last"
            layers.append(self._last_layer(conv, shape, before) if is_last
                          else self._layer(conv, shape, before))  # fmt: skip
        return Network(layers)

    def _projected(self, conv: MakeConv, in_dim: int, out_dim: int) -> Network:
        embedding = nn.Sequential(
            Dropout(self.feature_dropout),
            nn.Linear(in_dim, self.dim),
            ACTIVATIONS[self.activation](),
            Dropout(self.dropout),
        )
        shape = LayerShape(self.dim, self.dim, self.heads, "middle")
        make = self._residual_layer if self.residual else self._layer
        layers = [make(conv, shape) for _ in range(self.layers)]
        norm = self._norm(self.dim) if self.residual else []
        readout = nn.Sequential(*norm, nn.Linear(self.dim, out_dim))
        return Network(layers, embedding=embedding, readout=readout)

    def _layer(self, conv: MakeConv, shape: LayerShape, before: nn.Module | None = None) -> Layer:
        activation = ACTIVATIONS[self.activation]()
        return Layer(
            conv(shape.width, shape.out, shape.heads),
            before=before,
            own=self._own(shape),
            inner=nn.Sequential(*self._feed_forward(shape.out)),
            after=nn.Sequential(*self._norm(shape.out), activation, Dropout(self.dropout)),
        )

    def _last_layer(self, conv: MakeConv, shape: LayerShape, before: nn.Module | None) -> Layer:
        made = conv(shape.width, shape.out, shape.heads)
        return Layer(made, before=before, own=self._own(shape))

    def _residual_layer(self, conv: MakeConv, shape: LayerShape) -> Layer:
        block = self._feed_forward(self.dim) or [ACTIVATIONS[self.activation]()]
        return Layer(
            conv(shape.width, shape.out, shape.heads),
            before=nn.Sequential(*self._norm(shape.width)),
            own=self._own(shape),
            inner=nn.Sequential(*block, Dropout(self.dropout)),
            skip=nn.Identity(),
        )

    def _own(self, shape: LayerShape) -> nn.Module | None:
        return Linear(shape.width, shape.out, bias=False) if self.own_path else None

    def _norm(self, width: int) -> list[nn.Module]:
        return [nn.LayerNorm(width)] if self.norm else []

    def _feed_forward(self, width: int) -> list[nn.Module]:
        if not self.feed_forward:
            return []
        inner = self.feed_forward * width
        middle = [ACTIVATIONS[self.activation](), Dropout(self.dropout)]
        return [nn.Linear(width, inner), *middle, nn.Linear(inner, width)]


OWN_GRAPH = Benchmark(
    name="own-graph",
    title="Node prediction on a stored graph: --set graph=NAME",
    source="Your own graph",
    data=StoredGraph(),
    network=NodeNetwork(),
    task=NodeTask(),
    schedule=Schedule(
        lr=0.003,
        max_rounds=150,
        round_passes=2,
        patience=20,
        lr_patience=8,
        clip=10.0,
        tie_break="loss",
    ),
    mechanisms={"gcn": (1,), "gat": (HEADS,), "gatv2": (HEADS,), "dpgat": (HEADS,)},
    seeds=range(5),
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=3",),
    revision=2,
    search={
        "dim": (32, 64, 128),
        "heads": (1, 4, 8),
        "layers": (2, 3, 5),
        "dropout": (0.2, 0.5, 0.7),
        "lr": (0.001, 0.003, 0.01),
    },
)
