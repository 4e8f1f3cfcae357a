"""Prediction: what every kind of prediction offers to training, to a run and to the microscope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dynagat.data.molecules import Molecule
from dynagat.data.programs.snippets import Snippet
from dynagat.data.store import SPLITS, GraphData, tensor
from dynagat.group import Group
from dynagat.metrics import Metric
from dynagat.training import Outcome


@dataclass(frozen=True, eq=False)
class MicroscopeInput:
    """What the microscope runs a trained network on.

    Args:
        inputs: arguments of the network's forward.
        marks: labels of nodes, noise among edges and names of relations, as `how_attentive` takes
            them.
        molecules: the molecules that the nodes are the atoms of, by their first node.
        names: of the nodes.
        programs: the programs that the nodes are from, by their first node.
    """

    inputs: Any
    marks: Mapping[str, Any] = field(default_factory=dict)
    molecules: Mapping[int, Molecule] = field(default_factory=dict)
    names: Sequence[str] | None = None
    programs: Mapping[int, Snippet] = field(default_factory=dict)


class Prediction(ABC):
    """Abstract. A problem with its training batches, its loss and its scores: `training.Task`."""

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """The metric of the scores."""

    @abstractmethod
    def batches(self, generator: torch.Generator) -> Iterator[Any]:
        """One epoch of training batches."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, float]:
        """Mean loss of a batch, and its score."""

    @abstractmethod
    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        """The metric and the mean loss on a part of the data."""

    @abstractmethod
    def microscope_input(self) -> MicroscopeInput:
        """What the microscope runs the network on."""

    def to(self, device: torch.device) -> Prediction:
        """The same prediction for networks on a device: batches and scores are made there."""
        raise ValueError(f"{type(self).__name__} runs on the CPU only, but device is {device}")

    def together(self, group: Group) -> Prediction:
        """The same for a process of a group; a ValueError if it can't be divided."""
        if group.size > 1:
            kind = type(self).__name__
            raise ValueError(f"{kind} can't be divided among {group.size} processes")
        return self

    def score(self, network: nn.Module, part: str) -> float:
        """The metric on a part of the data."""
        return self.evaluate(network, part)[0]

    def metrics(self, network: nn.Module, outcome: Outcome) -> dict[str, float]:
        """What a record keeps of the network with its best weights."""
        return {self.metric.on(part).name: self.score(network, part) for part in SPLITS}

    def exhibits(self, network: nn.Module) -> dict[str, Any]:
        """What a benchmark's figures are drawn from, as plain lists."""
        return {}


def balanced_weights(y: Tensor, num_classes: int) -> Tensor:
    """[num_classes]: rows / (classes × rows of the class), so that every class counts alike."""
    return len(y) / (num_classes * torch.bincount(y, minlength=num_classes).clamp_min(1).float())


def variety(kind: str, out: Tensor) -> dict[str, float]:
    """What shows that a network predicts the same for every test row."""
    if kind != "classification":
        return {"test_output_std": _spread(out if kind == "regression" else out.sigmoid())}
    classes = float(out.argmax(-1).unique().numel())
    return {"test_output_std": _spread(out.softmax(-1)), "test_predicted_classes": classes}


def _spread(out: Tensor) -> float:
    """Standard deviation over the rows of the output that varies most."""
    return float(out.double().std(0, correction=0).max())


def split_of(data: GraphData, rows: str) -> dict[str, Tensor]:
    """Indices of each part; a ValueError if one is empty. `rows` is the noun of what is split."""
    split = {part: tensor(data.split[part]) for part in SPLITS if part in data.split}
    for part in SPLITS:
        if not len(split.get(part, ())):
            raise ValueError(f"graph {data.name} has no {rows} for {part} in its split")
    return split


def mean_and_std(train: Tensor, data: GraphData, rows: str) -> tuple[float, float]:
    """Of the targets of the training part; a ValueError if they are all equal."""
    mean, std = float(train.double().mean()), float(train.double().std(correction=0))
    if not std:
        raise ValueError(f"the target of {data.name} is {mean} for all training {rows}")
    return mean, std
