"""DictionaryLookup (section 4.1, Figures 1 and 3, and the appendix's figure of GIN).

Each of k queries must find the key with its attribute among k keys, and predict that key's value.
Static attention can't: it ranks the keys in the same order for every query.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.benchmarks.dictionary_lookup.dictionary import Dictionary, make_dictionary
from dynagat.benchmarks.dictionary_lookup.network import DictionaryNetwork, LookupGCN, LookupGIN
from dynagat.benchmarks.dictionary_lookup.published import TEST, published
from dynagat.benchmarks.dictionary_lookup.released import read_released
from dynagat.experiment import Benchmark, as_published, departure, improvement
from dynagat.experiment.released import Released
from dynagat.metrics import ACCURACY, Metric
from dynagat.nn.network import ATTENTION
from dynagat.placement import moved
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.training import ADDED_LATER, Outcome, Schedule

EVALUATION_EDGES = 4_000_000  # of a batch in evaluation
SHOWN_GRAPHS = 4  # whose attention goes into a record
MAX_SHOWN_K = 12
MICROSCOPE_GRAPHS = 32  # that the microscope runs on


@dataclass(frozen=True)
class LookupData:
    """The graphs, and which of them are for training."""

    k: int = 10
    num_graphs: int = 32_000
    split: Literal["pairs", "random"] = "pairs"  # whether test graphs have unseen pairs
    train_share: float = 0.8
    valid_share: float = departure(0.5, published=0.0, number="D5")  # of the remaining graphs
    split_seed: int | None = departure(None, published=11, number="D4")  # None: the run's seed
    # Whether validation and test graphs have held-out pairs of their own, or all the same ones, so
    # that the best round is chosen on the pairs that are tested.
    valid_pairs: Literal["own", "shared"] = departure(
        "own", published="shared", number="D5", absent="shared"
    )

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, but is {self.k}")
        if self.num_graphs < 4:
            raise ValueError(f"num_graphs must be at least 4, but is {self.num_graphs}")
        if not 0 < self.train_share < 1:
            raise ValueError(f"train_share must lie between 0 and 1, but is {self.train_share}")
        if not 0 <= self.valid_share < 1:
            raise ValueError(f"valid_share must lie in [0, 1), but is {self.valid_share}")

    def load(self, seed: int) -> Dictionary:
        data = make_dictionary(
            self.k,
            seed=seed if self.split_seed is None else self.split_seed,
            num_graphs=self.num_graphs,
            split=self.split,
            train_share=self.train_share,
            valid_share=self.valid_share,
            valid_pairs=self.valid_pairs,
        )
        for part in ("train", "valid", "test"):
            if not len(getattr(data, part)):
                raise ValueError(f"k={self.k} has too few graphs: none are left for {part}")
        return data

    def missing(self) -> None:
        """The data are generated, so they are never missing."""


@dataclass(frozen=True)
class LookupNetwork:
    """Embeddings, one layer, a linear output; see `DictionaryNetwork`."""

    dim: int = 128
    heads: int = 1
    dropout: float = departure(0.0, published=0.5, number="D1")  # after the layer
    always_drop: bool = departure(False, published=True, number="D1")  # also in evaluation
    # Mechanisms with self-loops and with a bias. GCN always has both, GIN has a term for x_i.
    loops: tuple[str, ...] = departure((), published=("gat",), number="D2")
    bias: tuple[str, ...] = departure((), published=("gat",), number="D2")
    share_weights: bool = True  # D10: W = [W' || W'] in all experiments; Q = K for dpgat (D3)
    # Initial attention vector: |a|, a as drawn, or -|a|. A positive one favours similar keys.
    start: Literal["positive", "glorot", "negative"] = improvement(
        "glorot", improved="positive", number="F1"
    )
    feature_dropout: float = 0.0  # before the layer, once per distinct node
    # After the layer: first the activation, then the norm, as in the released code.
    activation: Literal["none", "relu", "elu", "tanh"] = field(default="none", metadata=ADDED_LATER)
    norm: Literal["none", "layer", "batch"] = field(default="none", metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        if self.dim < 1 or self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads must divide dim={self.dim}, but is {self.heads}")
        for name in ("dropout", "feature_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), but is {getattr(self, name)}")
        for name in ("loops", "bias"):
            odd = set(getattr(self, name)) - set(ATTENTION)
            if odd:
                known = ", ".join(ATTENTION)
                raise ValueError(f"{name} must name some of {known}, but names {sorted(odd)[0]!r}")

    def build(self, problem: Dictionary, mechanism: str) -> DictionaryNetwork:
        return DictionaryNetwork(
            problem.k,
            self._layer(mechanism),
            dim=self.dim,
            loops=mechanism in self.loops,
            dropout=self.dropout,
            always_drop=self.always_drop,
            feature_dropout=self.feature_dropout,
            after=self._after(),
        )

    def _after(self) -> nn.Sequential:
        """Has no parameters unless there is a norm, and then draws no random numbers."""
        activations = {"relu": nn.ReLU, "elu": nn.ELU, "tanh": nn.Tanh}
        norms = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
        parts: list[nn.Module] = []
        if self.activation != "none":
            parts.append(activations[self.activation]())
        if self.norm != "none":
            parts.append(norms[self.norm](self.dim))
        return nn.Sequential(*parts)

    def _layer(self, mechanism: str) -> nn.Module:
        if mechanism == "gin":
            return LookupGIN(self.dim)
        if mechanism == "gcn":
            return LookupGCN(self.dim)
        shared = {} if mechanism == "gat" else {"share_weights": self.share_weights}
        layer = ATTENTION[mechanism](
            self.dim,
            self.dim // self.heads,
            heads=self.heads,
            add_self_loops=False,  # `loops` adds them to the graphs
            bias=mechanism in self.bias,
            **shared,
        )
        if self.start != "glorot":
            sign = 1 if self.start == "positive" else -1
            for vector in layer.attention_vectors():
                vector.data.abs_().mul_(sign)
        return layer


@dataclass(frozen=True)
class LookupSchedule(Schedule):
    """Rounds of at least 20 steps, so that small data sets are not trained for less."""

    round_passes: int = departure(1, published=10, number="D6")
    round_steps: int = departure(20, published=1, number="D6")
    max_rounds: int = departure(1000, published=5000, number="D6")  # 50,000 epochs
    patience: int = departure(25, published=20, number="D6")


@dataclass(frozen=True)
class LookupTask:
    """Predict the value of the key with the query's attribute; scored by accuracy over queries."""

    label_smoothing: float = improvement(0.0, improved=0.1, number="F2")
    # Over all training graphs after the best round, or the mean over that round's steps.
    train_accuracy: Literal["pass", "running"] = departure("pass", published="running", number="D8")
    shown_weights: Literal["best", "last"] = departure("best", published="last", number="D7")

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            given = self.label_smoothing
            raise ValueError(f"label_smoothing must lie in [0, 1), but is {given}")

    def prepare(self, problem: Dictionary, schedule: Schedule) -> Lookup:
        return Lookup(problem, self, schedule.batch_size)


class Lookup(Prediction):
    """The task on given graphs."""

    def __init__(self, problem: Dictionary, settings: LookupTask, batch_size: int) -> None:
        self.problem, self.settings, self.batch_size = problem, settings, batch_size
        self.parts = {p: torch.from_numpy(getattr(problem, p)) for p in ("train", "valid", "test")}

    def to(self, device: torch.device) -> Lookup:
        other = copy(self)
        other.parts = moved(self.parts, device)
        return other

    @property
    def metric(self) -> Metric:
        return ACCURACY

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        train = self.parts["train"]
        order = torch.randperm(len(train), generator=generator).to(train.device)
        return iter(train[order].split(self.batch_size))

    def loss(self, network: nn.Module, batch: Tensor) -> tuple[Tensor, float]:
        logits = network(batch)
        score = float((logits.argmax(-1) == batch).float().mean())
        return self._loss(logits, batch, "mean"), score

    def _loss(self, logits: Tensor, values: Tensor, reduction: str) -> Tensor:
        smoothing = self.settings.label_smoothing
        return F.cross_entropy(logits.flatten(0, 1), values.flatten(), label_smoothing=smoothing,
                               reduction=reduction)  # fmt: skip

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        right, loss = self.is_right(network, part)
        return float(right.double().mean()), loss

    @torch.no_grad()
    def is_right(self, network: nn.Module, part: str) -> tuple[Tensor, float]:
        """[graphs, k] of booleans, and the mean loss."""
        network.eval()
        size = max(1, EVALUATION_EDGES // self.problem.k**2)
        right, losses = [], []
        for values in self.parts[part].split(size):
            logits = network(values)
            right.append(logits.argmax(-1) == values)
            losses.append(float(self._loss(logits, values, "sum")))
        return torch.cat(right).cpu(), sum(losses) / self.parts[part].numel()

    def metrics(self, network: nn.Module, outcome: Outcome) -> dict[str, float]:
        """Of the best round's weights; and the train and test accuracy of the last round's."""
        is_running = self.settings.train_accuracy == "running"
        train = outcome.best.train if is_running else self.score(network, "train")
        is_selected_by_test = self.problem.valid is self.problem.test
        valid, right = outcome.best.valid, self.is_right(network, "test")[0]
        network.load_state_dict(outcome.last_state)
        last = {f"last_{part}_accuracy": self.score(network, part) for part in ("train", "test")}
        if self.settings.shown_weights == "best":
            network.load_state_dict(outcome.best_state)
        return {
            "train_accuracy": train,
            "valid_accuracy": valid,
            # With dropout always on, another evaluation would give another value.
            "test_accuracy": valid if is_selected_by_test else float(right.double().mean()),
            "test_graph_accuracy": float(right.all(dim=1).double().mean()),
            **last,
        }

    def exhibits(self, network: Any) -> dict[str, Any]:
        """The attention of the first test graphs, for Figure 1."""
        if self.problem.k > MAX_SHOWN_K or isinstance(network.layer, (LookupGIN, LookupGCN)):
            return {}
        values = self.parts["test"][:SHOWN_GRAPHS]
        weights = network.eval().attention(values)
        shown = [[[[round(x, 4) for x in row] for row in head] for head in graph] for graph in
                 weights.tolist()]  # fmt: skip
        return {"attention": {"values": values.tolist(), "weights": shown}}

    def microscope_input(self) -> MicroscopeInput:
        """The first test graphs."""
        return MicroscopeInput(self.parts["test"][:MICROSCOPE_GRAPHS])


def _extras(findings: Any) -> Any:
    from dynagat.benchmarks.dictionary_lookup.report import extras  # imports matplotlib

    return extras(findings)


def _released(path: Path) -> Released:
    return read_released(path, as_published(DICTIONARY_LOOKUP.settings))


DICTIONARY_LOOKUP = Benchmark(
    name="dictionary-lookup",
    title="DictionaryLookup: k queries look up the values of k keys",
    source="Section 4.1 and Figures 1 and 3 of the paper, and its appendix's figure of GIN",
    claim="GATv2 looks up every value at every k (100%); GAT can not: its attention is static."
    " GAT with 8 heads fits the training graphs, but fails on unseen pairs.",
    data=LookupData(),
    network=LookupNetwork(),
    task=LookupTask(),
    schedule=LookupSchedule(),
    mechanisms={"gatv2": (1,), "gat": (1, 8), "dpgat": (1,), "gcn": (1,), "gin": (1,)},
    seeds=range(3),
    metric=TEST,
    smoke=("k=5", "max_rounds=5"),
    published=published(),
    caveats={"valid_pairs=shared": "validation and test share held-out pairs"},
    extras=_extras,
    released=_released,
)
