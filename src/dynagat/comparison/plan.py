"""Plan: what a comparison runs, chosen by the size of the graph, with the reasons."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from dynagat.benchmarks.own_graph import NodeNetwork
from dynagat.comparison import link_plan, molecule_plan
from dynagat.comparison.subject import KNOWN_METRICS, LINKS, MOLECULES, NODES, Subject, subject_of
from dynagat.data.arrays import fingerprint
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark, Job
from dynagat.experiment.benchmark import Settings
from dynagat.experiment.jobs import WORKERS
from dynagat.experiment.settings import parse_settings, values_of, with_values
from dynagat.metrics import ACCURACY, MACRO_F1, ROC_AUC, Metric, find_metric
from dynagat.prediction.graphs import GraphPrediction, GraphTask
from dynagat.prediction.links import LinkPrediction, LinkTask
from dynagat.prediction.nodes import NodePrediction, NodeTask
from dynagat.report.wording import count, size

MANY_LABELS = 20_000  # training nodes, from which a wider network is used
SMALL, MEDIUM = 2_000_000, 20_000_000  # edges
FEW = 1_000  # training nodes, below which (if they are less than a tenth) the network is simpler
UNBALANCED = 0.5  # share of the largest of several classes, from which accuracy misleads
FEW_LABELS = {
    "network.layers": 2,
    "network.projection": False,
    "network.residual": False,
    "network.feed_forward": 0,
    "network.activation": "relu",
    "network.own_path": False,
    "network.norm": False,
    "network.dropout": 0.6,
    "network.feature_dropout": 0.6,
    "network.attention_dropout": 0.5,
    "schedule.lr": 0.01,
    "schedule.weight_decay": 5e-4,
}
WHOLE_SHARE = 0.4  # of the memory, which a step on the whole graph may take
NUM_SAMPLED = 10  # neighbours in each layer
FLOATS_PER_NODE = 14  # times dim and layers: what a training step keeps for a node
BYTES_PER_EDGE = 64


@dataclass(frozen=True)
class Plan:
    """A benchmark with its settings, the mechanisms and seeds to run, and the reasons."""

    benchmark: Benchmark
    mechanisms: tuple[str, ...]
    seeds: tuple[int, ...]
    reasons: tuple[str, ...]
    subject: Subject

    def jobs(self) -> list[Job]:
        """All mechanisms for one seed, then for the next: the first seeds compare them all."""
        return [
            Job(self.benchmark.with_heads(count), name, seed)
            for seed in self.seeds
            for name in self.mechanisms
            for count in self._heads(name)
        ]

    def prediction(self) -> NodePrediction | GraphPrediction | LinkPrediction:
        """The graph, its links, or the molecules, under the settings, as the runs see it."""
        benchmark = self.benchmark
        task = cast("NodeTask | GraphTask | LinkTask", benchmark.task)
        return task.prepare(benchmark.data.load(0), benchmark.schedule)

    def _heads(self, mechanism: str) -> tuple[int, ...]:
        own = self.benchmark.mechanisms[mechanism]
        return own if own == (1,) else (self.benchmark.network.heads,)


def make_plan(
    data: GraphData,
    *,
    mechanisms: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] = (),
) -> Plan:
    """The plan for a stored graph; texts "name=value" in `settings` override the choices."""
    subject = subject_of(data)
    check_choices(mechanisms, seeds, settings, subject)
    if data.folder is None:
        raise ValueError(f"graph {data.name} must be stored before it is compared on: save it")
    start = subject.benchmark.settings
    given = {path: value for path, [value] in parse_settings(start, list(settings))}
    choose, reasons = _CHOICES[subject]
    values = choose(data, given)
    values |= {"data.graph": str(data.folder.resolve()), "data.content": fingerprint(data.folder)}
    metric = _metric(data, given.get(subject.metric_path, ""))
    if subject != LINKS:
        _check_defined(metric, data)
    values |= {"schedule.stop_at": 1.0 if metric.higher_is_better else 0.0}
    values |= given | {subject.metric_path: metric.name}
    chosen = with_values(start, values)  # all at once: some depend on others
    default = range(5) if data.num_edges <= SMALL else range(3)
    return Plan(
        subject.benchmark.with_settings(chosen),
        tuple(dict.fromkeys(mechanisms or subject.benchmark.mechanisms)),
        tuple(dict.fromkeys(seeds or default)),
        (*reasons(data, chosen), *_reasons(data, chosen, subject)),
        subject,
    )


def check_choices(
    mechanisms: Sequence[str] | None,
    seeds: Sequence[int] | None,
    settings: Sequence[str],
    subject: Subject = NODES,
) -> None:
    """Refuse what can be refused before a graph is read, or molecules."""
    benchmark = subject.benchmark
    known = benchmark.mechanisms
    for name in mechanisms or ():
        if name not in known:
            raise ValueError(f"mechanism must be one of {', '.join(known)}, but is {name!r}")
    if seeds is not None and not seeds:
        raise ValueError("seeds must hold at least one number, but are empty")
    for text in settings:
        if text.split("=")[0].strip().removeprefix("data.") in ("graph", "content"):
            raise ValueError(f"a comparison uses the graph it is given, but is set to {text!r}")
        if len(parse_settings(benchmark.settings, [text])[0][1]) != 1:
            raise ValueError(f"a comparison has one value for each setting, but not {text!r}")


def as_settings(metric: str | None, class_weights: str | None) -> list[str]:
    """The options as texts "name=value"."""
    given = {"metric": metric, "class_weights": class_weights}
    return [f"{path}={value}" for path, value in given.items() if value is not None]


def divided_among(workers: int, data: GraphData) -> list[str]:
    """The settings of runs that so many processes make together, as texts "name=value"."""
    if workers > 1 and subject_of(data) != NODES:
        raise ValueError(
            f"--ddp {workers} is for predictions of nodes that are trained on sampled neighbours, "
            f"not for {subject_of(data).rows}"
        )
    return [f"{WORKERS}={workers}"] if workers > 1 else []


def _metric(data: GraphData, name: str) -> Metric:
    """The metric of a name, or else the one that suits the target."""
    return find_metric(name, KNOWN_METRICS[data.task["kind"]]) if name else _suitable(data)[0]


def _check_defined(metric: Metric, data: GraphData) -> None:
    """Refuse parts of the split that no prediction could be scored on."""
    task, y = data.task, np.asarray(data.y)
    width = 1 if task["kind"] == "regression" else len(task["classes"])
    for part in ("valid", "test"):
        target = torch.from_numpy(y[np.asarray(data.split[part])])
        target = target if target.is_floating_point() else target.long()
        if len(target) and math.isnan(metric.function(torch.zeros(len(target), width), target)):
            rows = subject_of(data).rows
            targets = f"the targets of the {len(target):,} {part} {rows}"
            raise ValueError(
                f"{metric.title} can't be computed, since {targets} have no two different values; "
                f"use more labelled {rows}, "
                "another split (--split-seed) or another --metric"
            )


def _suitable(data: GraphData) -> tuple[Metric, str]:
    """The metric for a target, and why."""
    kind = data.task["kind"]
    if kind != "classification":
        return KNOWN_METRICS[kind][0], _WHY[kind]
    if len(data.task["classes"]) == 2:
        return ROC_AUC, "because there are two classes"
    counts = np.bincount(np.asarray(data.y)[np.asarray(data.split["train"])])
    if counts.max() > UNBALANCED * counts.sum():
        share = f"{counts.max() / counts.sum():.0%}"
        return MACRO_F1, f"because {share} of the training {subject_of(data).rows} are of one class"
    rows = subject_of(data).rows
    return ACCURACY, f"because no class holds more than half of the training {rows}"


def _choose(data: GraphData, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name; some depend on those that the user has given."""
    labelled, edges = len(data.split["train"]), data.num_edges
    few = FEW_LABELS if _has_few_labels(data) else {}
    dim = given.get("network.dim", 128 if labelled >= MANY_LABELS and edges <= SMALL else 64)
    depth = few.get("network.layers", 5 if edges <= SMALL else 3)
    layers = given.get("network.layers", depth)
    if step_bytes(data, dim, layers) <= WHOLE_SHARE * memory() and edges <= MEDIUM:
        rounds, neighbours = 150 if edges <= SMALL else 30, ()
    else:
        rounds, layers = 20, given.get("network.layers", 2)
        neighbours = (NUM_SAMPLED,) * layers
    return few | {
        "network.dim": dim,
        "network.layers": layers,
        "task.neighbours": neighbours,
        "schedule.round_passes": 1 if neighbours else 2,
        "schedule.max_rounds": rounds,
        "schedule.patience": min(rounds // 5, 20),
        "schedule.lr_patience": min(rounds // 12, 8),
    }


def _has_few_labels(data: GraphData) -> bool:
    return len(data.split["train"]) < min(FEW, data.num_nodes // 10)


def _reasons(data: GraphData, settings: Settings, subject: Subject) -> Iterator[str]:
    """Sentences about the score and the training."""
    values, schedule = values_of(settings), settings.schedule
    metric = find_metric(values[subject.metric_path], KNOWN_METRICS[data.task["kind"]])
    suitable, reason = _suitable(data)
    yield f"Scored by {metric.title}{f', {reason}' if metric == suitable else ''}."
    if values.get("task.class_weights") == "balanced":
        yield "Every class counts alike in the loss."
    epochs = schedule.max_rounds * schedule.round_passes
    yield f"At most {count(epochs, 'epoch')}; early stopping on the validation score."


def _node_reasons(data: GraphData, settings: Settings) -> Iterator[str]:
    network, task = cast(NodeNetwork, settings.network), cast(NodeTask, settings.task)
    labelled = f"{len(data.split['train']):,} training nodes and {data.num_edges:,} edges"
    yield f"{count(network.layers, 'layer')} of {network.dim} channels, for {labelled}."
    if _has_few_labels(data) and not network.residual:
        yield "Without residual connections, with high dropout, because labels are few."
    if not _num_features(data):
        yield "Nodes have no features: a one-hot encoding of the degree is used."
    need = f"about {size(step_bytes(data, network.dim, network.layers))}"
    available = f"of {memory() / 1e9:.0f} GB of memory"
    if task.neighbours:
        many = ", ".join(map(str, task.neighbours))
        yield f"Trained on {many} sampled neighbours: all would take {need} {available}."
    else:
        yield f"Trained on the whole graph at once: a step takes {need} {available}."


def step_bytes(data: GraphData, dim: int, layers: int) -> int:
    """Estimated memory of a training step on the whole graph."""
    per_node = 4 * (_num_features(data) + FLOATS_PER_NODE * layers * dim)
    return data.num_nodes * per_node + data.num_edges * BYTES_PER_EDGE


def _num_features(data: GraphData) -> int:
    x = data.nodes[data.node_type].arrays.get("x")
    return 0 if x is None else np.shape(x)[1]


def memory() -> int:
    """Physical memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


_WHY = {"regression": "for numbers", "multilabel": "for several labels", "links": "for links"}
_CHOICES = {  # settings by size, and the reasons
    NODES: (_choose, _node_reasons),
    MOLECULES: (molecule_plan.choose, molecule_plan.reasons),
    LINKS: (link_plan.choose, link_plan.reasons),
}
