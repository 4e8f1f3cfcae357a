"""Node prediction on any stored graph: what `dynagat compare` runs for each mechanism and seed.

Every mechanism stands in the same network (nn/network.py), on the same nodes, split and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagat.benchmarks.nodes import NodeProblem, NodeTask, check_network, problem_of
from dynagat.data.arrays import fingerprint
from dynagat.data.store import find_folder, open_graph
from dynagat.experiment import Benchmark
from dynagat.nn.network import Network, make_network
from dynagat.training import Schedule

HEADS = 8


@dataclass(frozen=True)
class StoredGraph:
    """Which graph. `content` is its fingerprint: a run belongs to what is in the folder."""

    graph: str = ""  # a folder, or a name in the store
    content: str = ""
    self_loops: bool = True

    def load(self, seed: int) -> NodeProblem:
        if not self.graph:
            raise ValueError(self.missing())
        data = open_graph(self.graph)
        if self.content and fingerprint(find_folder(self.graph)) != self.content:
            raise ValueError(f"graph {self.graph} is no longer the one that was compared on")
        return problem_of(data, self.self_loops)

    def missing(self) -> str | None:
        return None if self.graph else "name one: --set graph=NAME; `dynagat data list` has names"


@dataclass(frozen=True)
class NodeNetwork:
    """See `make_network`."""

    dim: int = 64
    heads: int = HEADS
    layers: int = 2
    dropout: float = 0.5
    attention_dropout: float = 0.0
    feature_dropout: float = 0.0
    skip: bool = True
    norm: bool = True

    def __post_init__(self) -> None:
        check_network(self)

    def build(self, data: NodeProblem, mechanism: str) -> Network:
        return self.of_widths(mechanism, data.x.shape[1], data.out_dim)

    def of_widths(self, mechanism: str, in_dim: int, out_dim: int) -> Network:
        return make_network(mechanism, in_dim, out_dim, **vars(self))


OWN_GRAPH = Benchmark(
    name="own-graph",
    title="Node prediction on a stored graph: --set graph=NAME",
    source="yours",
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
    metric="test_accuracy",
    smoke=("max_rounds=3",),
    search={
        "dim": (32, 64, 128),
        "heads": (1, 4, 8),
        "layers": (1, 2, 3),
        "dropout": (0.2, 0.5, 0.7),
        "lr": (0.003, 0.01, 0.03),
    },
)
