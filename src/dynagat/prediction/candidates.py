"""Candidate prediction: which of several candidate nodes belongs into a slot of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor, nn

from dynagat.data.collection import GraphCollection, Pack
from dynagat.graph import Graph
from dynagat.metrics import ACCURACY, Metric
from dynagat.placement import moved
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

    @property
    def device(self) -> torch.device:
        return self.y.device

    def to(self, device: torch.device) -> CandidateProblem:
        """The same problem for networks on a device; its graphs are packed on the CPU."""
        names = ("x", "slot", "candidates", "y")
        arrays = moved({name: getattr(self, name) for name in names}, device)
        return replace(self, **arrays)


@dataclass(frozen=True, eq=False)
class CandidateBatch:
    """B graphs as one, without edges between them."""

    x: Any  # what the network's embedding takes
    graph: Graph
    slot: Tensor  # [B]: nodes of the graph
    candidates: Tensor  # [B, K]: nodes of the graph; -1 where one has fewer than K
    y: Tensor  # [B]: position of the right candidate

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def inputs(self) -> tuple[Any, Graph, Tensor, Tensor]:
        """(x, graph, slot and node of each candidate), the arguments of the network."""
        exists = self.candidates >= 0
        slot = self.slot[:, None].expand_as(self.candidates)
        return self.x, self.graph, slot[exists], self.candidates[exists]

    def run(self, network: nn.Module) -> Tensor:
        """[B, K]: scores of the candidates, -inf where a graph has fewer."""
        exists, scores = self.candidates >= 0, network(*self.inputs)
        return scores.new_full(exists.shape, -torch.inf).masked_scatter(exists, scores)


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

    def inputs(self, pack: Pack) -> tuple[Any, Graph, Tensor, Tensor]:
        return self._batch(pack).inputs

    def run(self, network: nn.Module, pack: Pack) -> Tensor:
        return self._batch(pack).run(network)

    @cached_property
    def _first_node(self) -> Tensor:  # [G + 1]: of each graph
        return self.problem.collection.node_offset.to(self.problem.device)

    def _batch(self, pack: Pack) -> CandidateBatch:
        problem, graphs = self.problem, pack.graphs
        shift = pack.starts[:-1] - self._first_node[graphs]
        candidates = problem.candidates[graphs]
        here = torch.where(candidates < 0, candidates, candidates + shift[:, None])
        slot, y = problem.slot[graphs] + shift, problem.y[graphs]
        return CandidateBatch(problem.x[pack.nodes], pack.graph, slot, here, y)
