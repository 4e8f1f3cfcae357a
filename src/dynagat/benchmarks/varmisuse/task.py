"""Training and scoring on programs: which candidate belongs into the slot."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from dynagat.benchmarks.varmisuse.baselines import baselines
from dynagat.benchmarks.varmisuse.stream import ProgramProblem, join
from dynagat.data.programs.chunks import read_one
from dynagat.data.programs.labels import decode
from dynagat.data.programs.records import RELATIONS
from dynagat.data.programs.snippets import Snippet
from dynagat.data.programs.stored import SEEN, UNSEEN
from dynagat.experiment import departure
from dynagat.metrics import ACCURACY, Metric
from dynagat.placement import CPU, copied_ahead, moved
from dynagat.prediction.candidates import CandidateBatch
from dynagat.prediction.packed import PackedTask
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.training import Outcome, Schedule

MICROSCOPE_NODES = 10_000  # of the graphs that the microscope runs on
TESTS = {
    SEEN: replace(ACCURACY, name="seen_accuracy", title="accuracy on seen projects"),
    UNSEEN: replace(ACCURACY, name="unseen_accuracy", title="accuracy on unseen projects"),
}


def strict_accuracy(scores: Tensor, target: Tensor) -> float:
    """Fraction of rows in which the right candidate has a higher score than every other."""
    right = scores.gather(1, target[:, None])
    others = scores.scatter(1, target[:, None], -torch.inf)
    return float((right > others).all(1).double().mean())


@dataclass(frozen=True)
class ProgramTask(PackedTask):
    """See `PackedTask`. `ties` says what a right candidate counts that shares the highest score."""

    max_nodes: int = 49_999
    # The right candidate is the first, so that argmax finds it among equals.
    ties: Literal["wrong", "right"] = departure("wrong", published="right", number="D40")

    def prepare(self, problem: ProgramProblem, schedule: Schedule) -> ProgramPrediction:
        return ProgramPrediction(problem, self)


@final
class ProgramPrediction(Prediction):
    """The network takes (labels, graph, slot and node of each candidate), and scores each."""

    def __init__(self, problem: ProgramProblem, settings: ProgramTask) -> None:
        self.problem, self.settings = problem, settings
        self.device = CPU

    def to(self, device: torch.device) -> ProgramPrediction:
        other = copy(self)
        other.device = device
        return other

    def _batches(self, part: str, seed: int | None = None) -> Iterator[CandidateBatch]:
        return copied_ahead(self.problem.batches(part, self.settings.max_nodes, seed), self.device)

    @property
    def metric(self) -> Metric:
        is_strict = self.settings.ties == "wrong"
        return replace(ACCURACY, function=strict_accuracy) if is_strict else ACCURACY

    def batches(self, generator: Generator) -> Iterator[CandidateBatch]:
        seed = int(torch.randint(2**62, (), generator=generator))
        return self._batches("train", seed)

    def loss(self, network: nn.Module, batch: CandidateBatch) -> tuple[Tensor, float]:
        scores = batch.run(network)
        score = self.metric.function(scores.detach().cpu(), batch.y.cpu())
        return F.cross_entropy(scores, batch.y), score

    @torch.no_grad()
    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        network.eval()
        pairs = [(batch.run(network), batch.y) for batch in self._batches(part)]
        scores, y = (torch.cat(each) for each in zip(*pairs, strict=True))
        return self.metric.function(scores.cpu(), y.cpu()), float(F.cross_entropy(scores, y))

    def metrics(self, network: nn.Module, outcome: Outcome) -> dict[str, float]:
        """On validation and test programs; the training part is large, and not measured again."""
        named = {"valid": self.metric.on("valid"), **TESTS}
        return {metric.name: self.score(network, part) for part, metric in named.items()}

    def exhibits(self, network: nn.Module) -> dict[str, dict[str, dict[str, float]]]:
        """What guesses without a network reach, by part of the tests."""
        return {"baselines": {part: baselines(self.problem.evidence(part)) for part in TESTS}}

    def microscope_input(self) -> MicroscopeInput:
        """Some programs of other projects."""
        graphs, programs, nodes = [], {}, 0
        for (path, number), graph in self.problem.placed(UNSEEN, seed=0):
            if graphs and nodes + graph.num_nodes > MICROSCOPE_NODES:
                break
            programs[nodes] = Snippet.of(read_one(path, number))
            graphs.append(graph)
            nodes += graph.num_nodes
        batch = join(graphs)
        labels = [decode(codes) for codes in batch.x.codes.numpy()]
        names = [labels[label] for label in batch.x.label.tolist()]
        inputs, marks = moved(batch.inputs, self.device), {"relations": RELATIONS}
        return MicroscopeInput(inputs, marks, names=names, programs=programs)
