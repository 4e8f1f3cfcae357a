"""Node prediction on any stored graph: what `dynagat compare` runs for each mechanism and seed.

Every mechanism stands in the same network (nn/network.py), on the same nodes, split and seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat import metrics
from dynagat.data.arrays import fingerprint
from dynagat.data.store import SPLITS, GraphData, find_folder, open_graph, tensor
from dynagat.experiment import Benchmark
from dynagat.graph import Graph
from dynagat.nn.network import Network, degrees, make_network
from dynagat.sampling.inference import infer
from dynagat.sampling.neighbours import NeighborLoader
from dynagat.training import Outcome, Schedule

HEADS = 8
SCORES = {"classification": "accuracy", "multilabel": "roc_auc", "regression": "r_squared"}
DEGREE_COLUMNS = 24
INFERENCE_BATCH = 100_000  # nodes, where a network is not run on the whole graph at once


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """A graph with loops, and what is to be predicted of its nodes."""

    x: Tensor  # [N, features]
    graph: Graph
    y: Tensor  # as in GraphData
    split: Mapping[str, Tensor]
    kind: str
    out_dim: int
    centre: float = 0.0  # of regression targets, over the training nodes
    spread: float = 1.0


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


def problem_of(data: GraphData, self_loops: bool = True) -> NodeProblem:
    """What a stored graph asks, or a sentence that says why it can't be learnt."""
    kind = data.task.get("kind")
    if kind not in SCORES:
        raise ValueError(f"graph {data.name} must have a target for its nodes, but has {kind}")
    split = {part: tensor(data.split[part]) for part in SPLITS if part in data.split}
    for part in SPLITS:
        if not len(split.get(part, ())):
            raise ValueError(f"graph {data.name} has no nodes for {part} in its split")
    y, centre, spread = tensor(data.y), 0.0, 1.0
    if kind == "regression":
        train = y[split["train"]].double()
        centre, spread = float(train.mean()), float(train.std(correction=0))
        if not spread:
            raise ValueError(f"the target of {data.name} is {centre} for all training nodes")
    widths = {"regression": 1, "multilabel": y.shape[-1]}
    out_dim = widths[kind] if kind in widths else len(data.task["classes"])
    graph = data.graph(self_loops=self_loops)
    return NodeProblem(features_of(data, graph), graph, y, split, kind, out_dim, centre, spread)


def features_of(data: GraphData, graph: Graph) -> Tensor:
    """x; of nodes without features, a one in the column ⌊log₂ d⌋ of their number d of keys."""
    x = data.nodes[data.node_type].arrays.get("x")
    if x is not None and np.shape(x)[1]:
        return tensor(np.asarray(x)).float()
    column = degrees(graph).clamp_min(1).double().log2().long().clamp_max(DEGREE_COLUMNS - 1)
    return F.one_hot(column, DEGREE_COLUMNS).float()


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
        if self.dim < 1 or self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads must divide dim={self.dim}, but is {self.heads}")
        if self.layers < 1:
            raise ValueError(f"layers must be at least 1, but is {self.layers}")
        for name in ("dropout", "attention_dropout", "feature_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), but is {getattr(self, name)}")

    def build(self, data: NodeProblem, mechanism: str) -> Network:
        return self.of_widths(mechanism, data.x.shape[1], data.out_dim)

    def of_widths(self, mechanism: str, in_dim: int, out_dim: int) -> Network:
        return make_network(mechanism, in_dim, out_dim, **vars(self))


@dataclass(frozen=True)
class NodeTask:
    """Predict the target of nodes: on the whole graph, or on samples of it."""

    neighbours: tuple[int, ...] = ()  # sampled for each layer, the first layer's first; (): all

    def on(self, data: NodeProblem, schedule: Schedule) -> NodePrediction:
        return NodePrediction(data, self.neighbours, schedule.batch_size)

    def metrics(
        self, task: NodePrediction, network: nn.Module, outcome: Outcome
    ) -> dict[str, float]:
        out = task.outputs(network)
        score = SCORES[task.data.kind]
        found = {f"{part}_{score}": task.measure(out, part) for part in SPLITS}
        return found | {f"test_{name}": value for name, value in task.more(out, "test").items()}

    def exhibits(self, task: NodePrediction, network: nn.Module) -> dict[str, Any]:
        return {}

    def specimen(self, task: NodePrediction) -> tuple[Tensor, Graph]:
        return task.data.x, task.data.graph


@dataclass(eq=False)
class NodePrediction:
    """The task on a given graph: `training.Task`."""

    data: NodeProblem
    neighbours: tuple[int, ...] = ()
    batch_size: int = 1024
    degree: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.degree = degrees(self.data.graph)

    def batches(self, generator: torch.Generator) -> Iterator[Any]:
        """The whole graph, or samples around the training nodes."""
        if not self.neighbours:
            return iter([None])
        seed = int(torch.randint(2**31, (), generator=generator))
        return iter(
            NeighborLoader(
                self.data.graph,
                num_neighbors=self.neighbours[::-1],  # it counts from the nodes asked about
                batch_size=self.batch_size,
                input_nodes=self.data.split["train"],
                shuffle=True,
                layered=True,
                seed=seed,
            )
        )

    def loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, float]:
        data = self.data
        if batch is None:
            nodes = data.split["train"]
            out = network(data.x, data.graph)[nodes]
        else:
            nodes = batch.node_id[: batch.num_seeds]
            seen = batch.node_id
            out = network(data.x[seen], batch.graphs, self.degree[seen])
        target = self.target(nodes)
        return self.error(out, target), SCORE[data.kind](out.detach(), target)

    def error(self, out: Tensor, target: Tensor) -> Tensor:
        """The mean loss of the nodes of which the target is known."""
        if self.data.kind == "classification":
            return F.cross_entropy(out, target)
        if self.data.kind == "regression":
            return F.mse_loss(out[:, 0], target)
        known = ~target.isnan()
        return F.binary_cross_entropy_with_logits(out[known], target[known])

    def target(self, nodes: Tensor) -> Tensor:
        """In the network's terms."""
        y = self.data.y[nodes]
        if self.data.kind != "regression":
            return y
        return ((y.double() - self.data.centre) / self.data.spread).float()

    def score(self, network: nn.Module, part: str) -> float:
        return self.measure(self.outputs(network), part)

    def measure(self, out: Tensor, part: str) -> float:
        nodes = self.data.split[part]
        return SCORE[self.data.kind](out[nodes], self.target(nodes))

    def more(self, out: Tensor, part: str) -> dict[str, float]:
        """Further numbers; errors are in the target's own unit."""
        nodes = self.data.split[part]
        out, target = out[nodes], self.target(nodes)
        if self.data.kind == "classification":
            return {"macro_f1": metrics.macro_f1(out, target)}
        if self.data.kind == "multilabel":
            return {}
        errors = (metrics.mean_absolute_error, metrics.root_mean_squared_error)
        return {each.__name__: each(out[:, 0], target) * self.data.spread for each in errors}

    @torch.no_grad()
    def outputs(self, network: nn.Module) -> Tensor:
        """[N, out], of all nodes."""
        network.eval()
        if not self.neighbours:
            return network(self.data.x, self.data.graph)
        return run_in_parts(network, self.data.x, self.data.graph)


SCORE: dict[str, Callable[[Tensor, Tensor], float]] = {
    "classification": metrics.accuracy,
    "multilabel": metrics.roc_auc,
    "regression": lambda out, target: metrics.r_squared(out[:, 0], target),
}


@torch.no_grad()
def run_in_parts(
    network: Any, x: Tensor, graph: Graph, batch_size: int = INFERENCE_BATCH
) -> Tensor:
    """What the network gives for every node, layer by layer, in bounded memory.

    The degrees travel as the last column of what the nodes have.
    """
    degree = degrees(graph)[:, None].float()

    def step(layer: nn.Module) -> Callable[[Tensor, Graph], Tensor]:
        def run(both: Tensor, part: Graph) -> Tensor:
            out = layer(both[:, :-1], part, both[:, -1])
            return torch.cat([out, both[: part.num_queries, -1:]], dim=1)

        return run

    network.eval()
    steps = [step(layer) for layer in network.layers]
    out = infer(steps, torch.cat([x, degree], dim=1), graph, batch_size=batch_size)
    return torch.as_tensor(out)[:, :-1]


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
)
