"""Prediction on many small graphs, packed into batches: what graphs and candidates share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.data.collection import Pack
from dynagat.data.molecules import Molecule
from dynagat.metrics import Metric
from dynagat.placement import copied_ahead
from dynagat.prediction.prediction import MicroscopeInput, Prediction

MICROSCOPE_GRAPHS = 64  # that the microscope runs on


@dataclass(frozen=True)
class PackedTask:
    """How graphs are packed into batches."""

    max_nodes: int = 10_000  # of a batch

    def __post_init__(self) -> None:
        if self.max_nodes < 1:
            raise ValueError(f"max_nodes must be at least 1, but is {self.max_nodes}")


class PackedPrediction(Prediction):
    """Abstract. Trains on packs of shuffled graphs.

    The problem has a `collection`, targets `y` and a `split` of its graphs, and `self_loops`.
    """

    def __init__(self, problem: Any, settings: PackedTask) -> None:
        self.problem, self.settings = problem, settings

    def to(self, device: torch.device) -> Prediction:
        return type(self)(self.problem.to(device), self.settings)

    @abstractmethod
    def inputs(self, pack: Pack) -> tuple[Any, ...]:
        """Arguments of the network's forward."""

    def run(self, network: nn.Module, pack: Pack) -> Tensor:
        """[B, out]"""
        return network(*self.inputs(pack))

    def mean_loss(self, out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out, target)

    def batches(self, generator: torch.Generator) -> Iterator[Pack]:
        train = self.problem.split["train"]
        return self._packs(train[torch.randperm(len(train), generator=generator)])

    def _packs(self, graphs: Tensor) -> Iterator[Pack]:
        batches = self.problem.collection.batches(graphs, self.settings.max_nodes)
        return copied_ahead(map(self._pack, batches), self.problem.device)

    def _pack(self, graphs: Tensor) -> Pack:
        return self.problem.collection.pack(graphs, self_loops=self.problem.self_loops)

    def loss(self, network: nn.Module, batch: Pack) -> tuple[Tensor, float]:
        out, target = self.run(network, batch), self.problem.y[batch.graphs]
        return self.mean_loss(out, target), self.value(self.metric, out.detach(), target)

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        out, target = self.predict(network, part)
        return self.value(self.metric, out, target), float(self.mean_loss(out, target))

    def value(self, metric: Metric, out: Tensor, target: Tensor) -> float:
        return metric.function(out.cpu(), target.cpu())

    def predict(self, network: nn.Module, part: str) -> tuple[Tensor, Tensor]:
        """Output of the network and targets of a part of the graphs."""
        graphs = self.problem.split[part]
        return self.outputs(network, graphs), self.problem.y[graphs.to(self.problem.device)]

    @torch.no_grad()
    def outputs(self, network: nn.Module, graphs: Tensor) -> Tensor:
        """[graphs, out]"""
        network.eval()
        return torch.cat([self.run(network, pack) for pack in self._packs(graphs)])

    def microscope_input(self) -> MicroscopeInput:
        """Some test graphs, at equal distances: neighbours in a data set are often alike."""
        test = self.problem.split["test"]
        step = max(1, len(test) // MICROSCOPE_GRAPHS)
        [pack] = copied_ahead([self._pack(test[::step][:MICROSCOPE_GRAPHS])], self.problem.device)
        names = self.problem.collection.relation_names
        marks = {} if names is None else {"relations": names}
        molecules = self.molecules(pack)
        atoms = [f"{element}{atom} of {each.name}" for each in molecules.values()
                 for atom, element in enumerate(each.elements)]  # fmt: skip
        return MicroscopeInput(self.inputs(pack), marks, molecules, atoms or None)

    def molecules(self, pack: Pack) -> dict[int, Molecule]:
        """The graphs as molecules, by their first node; empty if they are none."""
        return {}
