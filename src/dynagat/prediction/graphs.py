"""Graph prediction: one target, or several, for each of many small graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.data.collection import GraphCollection, Pack
from dynagat.data.molecules import Molecule
from dynagat.data.store import SPLITS
from dynagat.metrics import ACCURACY, MEAN_ABSOLUTE_ERROR, Metric
from dynagat.nn.network import Neighbourhood
from dynagat.prediction.packed import PackedPrediction, PackedTask
from dynagat.training import Outcome, Schedule

METRICS = {"classification": ACCURACY, "regression": MEAN_ABSOLUTE_ERROR}


@dataclass(frozen=True, eq=False)
class GraphProblem:
    """Graphs, and what is to be predicted for each of them."""

    collection: GraphCollection
    x: Tensor  # [N, features], or what the network's embedding takes
    y: Tensor  # [G] int64 of classes, or [G, T] float32
    split: Mapping[str, Tensor]  # numbers of graphs
    kind: str  # "classification" or "regression"
    out_dim: int
    edge_attr: Tensor | None = None  # [E, features]
    self_loops: bool = True
    own_metric: Metric | None = None  # default: that of METRICS
    molecule: Callable[[int], Molecule] | None = None  # a graph by its number, if it is one

    @property
    def metric(self) -> Metric:
        return self.own_metric or METRICS[self.kind]

    def __post_init__(self) -> None:
        if self.kind not in METRICS:
            raise ValueError(f"kind must be one of {', '.join(METRICS)}, but is {self.kind!r}")
        if self.edge_attr is not None and self.self_loops:
            raise ValueError("self_loops must be False with edge_attr: loops have no features")


@dataclass(frozen=True)
class GraphTask(PackedTask):
    """See `PackedTask`. Early stopping follows the score on the validation graphs, or the loss."""

    select: Literal["score", "loss"] = "score"

    def prepare(self, problem: GraphProblem, schedule: Schedule) -> GraphPrediction:
        return GraphPrediction(problem, self)


@final
class GraphPrediction(PackedPrediction):
    """The network takes (x, neighbourhood, graph of each node, number of graphs)."""

    problem: GraphProblem
    settings: GraphTask

    @property
    def metric(self) -> Metric:
        if self.settings.select == "score":
            return self.problem.metric
        return Metric("loss", "loss", lambda *given: float(self.mean_loss(*given)), False)

    def metrics(self, network: nn.Module, outcome: Outcome) -> dict[str, float]:
        """The problem's metric and, if it was not the one that was followed, the loss."""
        values: dict[str, float] = {}
        for part in SPLITS:
            out, target = self.predict(network, part)
            metrics = {each.name: each for each in (self.problem.metric, self.metric)}
            for metric in metrics.values():
                values[metric.on(part).name] = metric.function(out, target)
        return values

    def inputs(self, pack: Pack) -> tuple[Tensor, Neighbourhood, Tensor, int]:
        edge_attr = self.problem.edge_attr
        own = None if edge_attr is None else edge_attr[pack.edges]
        near = Neighbourhood(pack.graph, edge_attr=own)
        return self.problem.x[pack.nodes], near, pack.node_graph, len(pack.graphs)

    def molecules(self, pack: Pack) -> dict[int, Molecule]:
        molecule = self.problem.molecule
        pairs = zip(pack.starts.tolist(), pack.graphs.tolist(), strict=False)  # starts: one more
        return {} if molecule is None else {first: molecule(graph) for first, graph in pairs}

    def mean_loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy, or half the mean squared error."""
        is_class = self.problem.kind == "classification"
        return F.cross_entropy(out, target) if is_class else F.mse_loss(out, target) / 2
