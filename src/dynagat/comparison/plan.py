"""Plan: what a comparison runs, chosen from the size of the graph; with reasons."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dynagat.benchmarks.nodes import SCORES, NodeTask
from dynagat.benchmarks.own_graph import OWN_GRAPH, NodeNetwork
from dynagat.data.arrays import fingerprint
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark, Job, grid
from dynagat.experiment.benchmark import Look, Settings
from dynagat.experiment.settings import parse_settings, with_values
from dynagat.report.wording import count, size

MANY_LABELS = 20_000  # training nodes, from which a wider network pays
SMALL, MEDIUM = 2_000_000, 20_000_000  # edges
FEW = 1_000  # training nodes, below which (if they are less than a tenth) a network must be plain
FEW_LABELS = {
    "network.skip": False,
    "network.norm": False,
    "network.dropout": 0.6,
    "network.feature_dropout": 0.6,
    "network.attention_dropout": 0.5,
}
WHOLE_SHARE = 0.4  # of the memory: what a step on the whole graph may take
SAMPLED = 10  # neighbours in each layer
FLOATS_PER_NODE = 14  # times dim and layers: what a step keeps of a node, forward and backward
BYTES_PER_EDGE = 64


@dataclass(frozen=True)
class Plan:
    """A benchmark under its settings, the mechanisms and seeds to run, and why."""

    benchmark: Benchmark
    mechanisms: tuple[str, ...]
    seeds: tuple[int, ...]
    reasons: tuple[str, ...]

    def jobs(self, look: Look | None = None) -> list[Job]:
        """One mechanism after the other for each seed, so that early seeds compare them all."""
        return [
            Job(self.benchmark.with_heads(count), name, seed, look)
            for seed in self.seeds
            for name in self.mechanisms
            for count in self._heads(name)
        ]

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
    """The plan for a stored graph; texts "name=value" in `settings` have the last word."""
    check_choices(mechanisms, seeds, settings)
    if data.folder is None:
        raise ValueError(f"graph {data.name} must be stored before it is compared on: save it")
    if data.about.get("made"):
        raise ValueError(f"graph {data.name} is made up: no mechanism can be judged by it")
    (first,) = grid(OWN_GRAPH.settings, list(settings))
    values = _choose(data, _layers(first))
    values |= {"data.graph": str(data.folder.resolve()), "data.content": fingerprint(data.folder)}
    values |= {path: value for path, [value] in parse_settings(first, list(settings))}
    asked = with_values(OWN_GRAPH.settings, values)  # at once, for one may need another
    default = range(5) if data.num_edges <= SMALL else range(3)
    return Plan(
        OWN_GRAPH.with_settings(asked),
        tuple(dict.fromkeys(mechanisms or OWN_GRAPH.mechanisms)),
        tuple(dict.fromkeys(seeds or default)),
        tuple(_reasons(data, asked)),
    )


def check_choices(
    mechanisms: Sequence[str] | None, seeds: Sequence[int] | None, settings: Sequence[str]
) -> None:
    """What can be refused before a graph is read."""
    known = OWN_GRAPH.mechanisms
    for name in mechanisms or ():
        if name not in known:
            raise ValueError(f"mechanism must be one of {', '.join(known)}, but is {name!r}")
    if seeds is not None and not seeds:
        raise ValueError("seeds must hold at least one number, but are empty")
    for text in settings:
        if text.split("=")[0].strip().removeprefix("data.") in ("graph", "content"):
            raise ValueError(f"a comparison is of the graph it is given, but is set to {text!r}")
        if len(parse_settings(OWN_GRAPH.settings, [text])[0][1]) != 1:
            raise ValueError(f"a comparison has one value for each setting, but not {text!r}")
    grid(OWN_GRAPH.settings, list(settings))  # which refuses what does not go together


def score_of(data: GraphData) -> str:
    """ "accuracy", "roc_auc" or "r_squared": more is better"""
    return SCORES[data.task["kind"]]


def _layers(settings: Settings) -> int:
    return cast(NodeNetwork, settings.network).layers


def _choose(data: GraphData, layers: int) -> dict[str, Any]:
    """Settings by their dotted names."""
    labelled, edges = len(data.split["train"]), data.num_edges
    dim = 128 if labelled >= MANY_LABELS and edges <= SMALL else 64
    if step_bytes(data, dim) <= WHOLE_SHARE * memory() and edges <= MEDIUM:
        rounds, neighbours = 100 if edges <= SMALL else 30, ()
    else:
        rounds, neighbours = 20, (SAMPLED,) * layers
    few = FEW_LABELS if labelled < min(FEW, data.num_nodes // 10) else {}
    return few | {
        "network.dim": dim,
        "task.neighbours": neighbours,
        "schedule.round_passes": 1 if neighbours else 2,
        "schedule.max_rounds": rounds,
        "schedule.patience": rounds // 5,
        "schedule.lr_patience": rounds // 12,
    }


def _reasons(data: GraphData, settings: Settings) -> Iterator[str]:
    """Sentences that say how, and by what."""
    network, task = cast(NodeNetwork, settings.network), cast(NodeTask, settings.task)
    labelled = f"{len(data.split['train']):,} training nodes and {data.num_edges:,} edges"
    yield f"{count(network.layers, 'layer')} of {network.dim} channels, for {labelled}."
    if not network.skip:
        yield "Without skips and norms, and with much dropout, as fits few labels."
    if not _num_features(data):
        yield "Nodes have no features: they are told apart by the size of their degree."
    need = f"about {size(step_bytes(data, network.dim))}"
    there = f"of the {memory() / 1e9:.0f} GB there are"
    if task.neighbours:
        many = ", ".join(map(str, task.neighbours))
        yield f"Trained on samples of {many} neighbours: the whole graph would take {need} {there}."
    else:
        yield f"Trained on the whole graph at once: a step takes {need} {there}."
    schedule = settings.schedule
    passes = schedule.max_rounds * schedule.round_passes
    many = "one pass" if passes == 1 else f"{passes:,} passes"
    yield f"At most {many}, fewer where the validation score stands still."


def step_bytes(data: GraphData, dim: int) -> int:
    """About what a training step on the whole graph takes."""
    per_node = 4 * (_num_features(data) + FLOATS_PER_NODE * 2 * dim)
    return data.num_nodes * per_node + data.num_edges * BYTES_PER_EDGE


def _num_features(data: GraphData) -> int:
    x = data.nodes[data.node_type].arrays.get("x")
    return 0 if x is None else np.shape(x)[1]


def memory() -> int:
    """The machine's, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
