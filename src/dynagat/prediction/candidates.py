"""Candidate prediction: which of several candidate nodes belongs into a slot of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from dynagat.data.collection import GraphCollection, Pack
from dynagat.graph import Graph
from dynagat.metrics import ACCURACY, Metric
from dynagat.prediction.packed import PackedPrediction, PackedTask
from dynagat.training import Schedule


@dataclass(frozen=True, eq=False)
class CandidateProblem:
    """Graphs, each with a slot and candidates for it."""

    collection: GraphCollection
    x: Tensor  # [N, features], or what the network's embedding takes
    slot: Tensor  # [G]: a node of each graph, by its number in the collection
    candidates: Tensor  # [G, K]: nodes likewise; -1 where a graph has fewer than K
    y: Tensor  # [G]: position of the right candidate
    split: Mapping[str, Tensor]  # numbers of graphs
    self_loops: bool = True


@dataclass(frozen=True)
class CandidateTask(PackedTask):
    """See `PackedTask`."""

    def prepare(self, problem: CandidateProblem, schedule: Schedule) -> CandidatePrediction:
        return CandidatePrediction(problem, self)


@final
class CandidatePrediction(PackedPrediction):
    """The network takes (x, graph, slot and node of each candidate), and gives a score for each."""

    problem: CandidateProblem

    @property
    def metric(self) -> Metric:
        return ACCURACY

    def inputs(self, pack: Pack) -> tuple[Tensor, Graph, Tensor, Tensor]:
        candidates = self.problem.candidates[pack.graphs]
        exists = candidates >= 0
        shift = pack.starts[:-1] - self.problem.collection.node_offset[pack.graphs]
        slot = (self.problem.slot[pack.graphs] + shift)[:, None].expand_as(candidates)
        candidate = candidates + shift[:, None]
        return self.problem.x[pack.nodes], pack.graph, slot[exists], candidate[exists]

    def run(self, network: nn.Module, pack: Pack) -> Tensor:
        """[B, K]: scores of the candidates, -inf where a graph has fewer."""
        exists = self.problem.candidates[pack.graphs] >= 0
        scores = network(*self.inputs(pack))
        return scores.new_full(exists.shape, -torch.inf).masked_scatter(exists, scores)
