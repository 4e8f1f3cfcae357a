"""Link prediction: whether two nodes of a graph are linked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.metrics import ROC_AUC, Metric
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.training import Schedule

MICROSCOPE_PAIRS = 64
SCORED_PAIRS = 1 << 16  # at once, in evaluation


@dataclass(frozen=True, eq=False)
class LinkProblem:
    """A graph to pass messages on, and pairs of nodes that are links or are not."""

    x: Tensor  # [N, features], or what the network's embedding takes
    graph: Graph
    links: Mapping[str, Tensor]  # [n, 2] pairs of nodes, by part
    non_links: Mapping[str, Tensor]  # [m, 2], by part; those of "train" only serve its score
    metric: Metric = ROC_AUC  # of scores and of targets 1 and 0


@dataclass(frozen=True)
class LinkTask:
    """How negative pairs are drawn in training."""

    negatives: int = 1  # for each link, uniformly from all pairs of nodes

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise ValueError(f"negatives must be at least 1, but is {self.negatives}")

    def prepare(self, problem: LinkProblem, schedule: Schedule) -> LinkPrediction:
        return LinkPrediction(problem, self, schedule.batch_size)


@dataclass(eq=False)
class LinkPrediction(Prediction):
    """A link problem under the settings of a task."""

    problem: LinkProblem
    settings: LinkTask = field(default_factory=LinkTask)
    batch_size: int = 1024

    @property
    def metric(self) -> Metric:
        return self.problem.metric

    def batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs [P, 2] and their targets [P]: links, then negatives."""
        links, num_nodes = self.problem.links["train"], len(self.problem.x)
        order = torch.randperm(len(links), generator=generator)
        for some in order.split(self.batch_size):
            size = (len(some) * self.settings.negatives, 2)
            negatives = torch.randint(num_nodes, size, generator=generator)
            yield _labelled(links[some], negatives)

    def loss(self, network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, float]:
        pairs, target = batch
        score = network(self.problem.x, self.problem.graph, pairs)
        return _mean_loss(score, target), self.metric.function(score.detach(), target)

    @torch.no_grad()
    def evaluate(self, network: Any, part: str) -> tuple[float, float]:
        """Encodes the nodes once, then scores pairs in bounded memory."""
        network.eval()
        pairs, target = _labelled(self.problem.links[part], self.problem.non_links[part])
        x = network.encode(self.problem.x, self.problem.graph)
        scores = [network.readout(x, some) for some in pairs.split(SCORED_PAIRS)]
        score = torch.cat(scores)
        return self.metric.function(score, target), float(_mean_loss(score, target))

    def microscope_input(self) -> MicroscopeInput:
        pairs = self.problem.links["test"][:MICROSCOPE_PAIRS]
        return MicroscopeInput((self.problem.x, self.problem.graph, pairs))


def _mean_loss(score: Tensor, target: Tensor) -> Tensor:
    """Mean over links plus mean over negatives of the log loss."""
    losses = F.binary_cross_entropy_with_logits(score, target, reduction="none")
    return losses[target == 1].mean() + losses[target == 0].mean()


def _labelled(links: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    target = torch.cat([torch.ones(len(links)), torch.zeros(len(negatives))])
    return torch.cat([links, negatives]), target
