"""Graph prediction: one target, or several, for each of many small graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.data.collection import GraphCollection, Pack, collection_of
from dynagat.data.molecules import Molecule, molecule_of
from dynagat.data.store import NODE, SPLITS, GraphData, tensor
from dynagat.metrics import ACCURACY, MEAN_ABSOLUTE_ERROR, METRICS, Metric, find_metric
from dynagat.nn.network import Neighbourhood
from dynagat.placement import moved
from dynagat.prediction.packed import PackedPrediction, PackedTask
from dynagat.prediction.prediction import balanced_weights, mean_and_std, split_of, variety
from dynagat.training import ADDED_LATER, Outcome, Schedule

DEFAULTS = {"classification": ACCURACY, "regression": MEAN_ABSOLUTE_ERROR}


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
    own_metric: Metric | None = None  # default: that of DEFAULTS
    molecule: Callable[[int], Molecule] | None = None  # a graph by its number, if it is one
    target_mean: float = 0.0  # of regression targets before y was standardised
    target_std: float = 1.0

    @property
    def metric(self) -> Metric:
        return self.own_metric or DEFAULTS[self.kind]

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device) -> GraphProblem:
        """The same problem for networks on a device; its graphs are packed on the CPU."""
        x, y, edge_attr = moved((self.x, self.y, self.edge_attr), device)
        return replace(self, x=x, y=y, edge_attr=edge_attr)

    @property
    def totals(self) -> Tensor:
        """[G, features + R]: sums of x over the nodes, and numbers of edges of each relation."""
        graphs = self.collection
        home = torch.arange(len(graphs)).repeat_interleave(graphs.num_nodes)
        sums = self.x.new_zeros(len(graphs), self.x.shape[1]).index_add(0, home, self.x)
        relation = (
            torch.zeros_like(graphs.key_index) if graphs.relation is None else graphs.relation
        )
        code = graphs.edge_graph * graphs.num_relations + relation
        edges = torch.bincount(code, minlength=len(graphs) * graphs.num_relations)
        return torch.cat([sums, edges.view(len(graphs), -1).to(sums.dtype)], dim=1)

    def __post_init__(self) -> None:
        if self.kind not in DEFAULTS:
            raise ValueError(f"kind must be one of {', '.join(DEFAULTS)}, but is {self.kind!r}")
        if self.edge_attr is not None and self.self_loops:
            raise ValueError("self_loops must be False with edge_attr: loops have no features")


def graph_problem(data: GraphData) -> GraphProblem:
    """The problem that stored molecules pose, with standardised targets; a ValueError if none."""
    kind = data.task.get("kind")
    if kind not in DEFAULTS:
        raise ValueError(f"{data.name} must have a target for its molecules, but has {kind}")
    split = split_of(data, "molecules")
    y, mean, std = tensor(np.asarray(data.y)), 0.0, 1.0
    if y.ndim > 1:
        raise ValueError(f"{data.name} must have one target, but has {y.shape[1]}")
    if kind == "regression":
        mean, std = mean_and_std(y[split["train"]], data, "molecules")
        y = ((y.double() - mean) / std).float()[:, None]
    return GraphProblem(
        collection_of(data),
        tensor(np.asarray(data.nodes[NODE].arrays["x"])),
        y,
        split,
        kind,
        1 if kind == "regression" else len(data.task["classes"]),
        molecule=partial(molecule_of, data),
        target_mean=mean,
        target_std=std,
    )


@dataclass(frozen=True)
class GraphTask(PackedTask):
    """See `PackedTask`. Early stopping follows the score on the validation graphs, or the loss."""

    select: Literal["score", "loss"] = "score"
    metric: str = field(default="", metadata=ADDED_LATER)  # "": that of the problem
    # "balanced": each class counts alike in the loss, however many graphs it has.
    class_weights: Literal["none", "balanced"] = field(default="none", metadata=ADDED_LATER)

    def prepare(self, problem: GraphProblem, schedule: Schedule) -> GraphPrediction:
        if problem.kind == "regression" and self.class_weights != "none":
            raise ValueError(f"class_weights={self.class_weights} needs a target with classes")
        if self.metric:
            own = find_metric(self.metric, METRICS[problem.kind])
            problem = replace(problem, own_metric=own)
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
        """The problem's metric and, if it was not the one that was followed, the loss.

        Where a metric was chosen, all others of the kind on the test graphs, too.
        """
        outputs = {part: self.predict(network, part) for part in SPLITS}
        shown = {each.name: each for each in (self.problem.metric, self.metric)}.values()
        values = {each.on(part).name: self.value(each, *outputs[part])
                  for part in SPLITS for each in shown}  # fmt: skip
        if not self.settings.metric:
            return values
        kind = self.problem.kind
        others = {each.on("test").name: self.value(each, *outputs["test"])
                  for each in METRICS[kind]}  # fmt: skip
        return values | others | variety(kind, outputs["test"][0].cpu())

    def value(self, metric: Metric, out: Tensor, target: Tensor) -> float:
        """A metric of the network's output; errors are in the unit of the target."""
        out, target = out.cpu(), target.cpu()
        if self.problem.kind != "regression" or self.problem.target_std == 1:
            return metric.function(out, target)
        scale = self.problem.target_std
        return metric.function(out.double() * scale, target.double() * scale)

    def target(self, graphs: Tensor) -> Tensor:
        return self.problem.y[graphs]

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
        if self.problem.kind == "classification":
            return F.cross_entropy(out, target, weight=self._class_weights)
        return F.mse_loss(out, target) / 2

    @cached_property
    def _class_weights(self) -> Tensor | None:
        if self.settings.class_weights == "none":
            return None
        problem = self.problem
        train = problem.split["train"].to(problem.device)
        return balanced_weights(problem.y[train], problem.out_dim)
