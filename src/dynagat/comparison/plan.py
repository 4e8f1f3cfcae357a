"""Plan: what a comparison runs, chosen by the size of the graph, with the reasons."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dynagat.benchmarks.own_graph import OWN_GRAPH, NodeNetwork
from dynagat.data.arrays import fingerprint
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark, Job, grid
from dynagat.experiment.benchmark import Settings
from dynagat.experiment.settings import parse_settings, with_values
from dynagat.prediction.nodes import NodeTask
from dynagat.report.wording import count, size

MANY_LABELS = 20_000  # training nodes, from which a wider network is used
SMALL, MEDIUM = 2_000_000, 20_000_000  # edges
FEW = 1_000  # training nodes, below which (if they are less than a tenth) the network is simpler
FEW_LABELS = {
    "network.skip": False,
    "network.norm": False,
    "network.dropout": 0.6,
    "network.feature_dropout": 0.6,
    "network.attention_dropout": 0.5,
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

    def jobs(self) -> list[Job]:
        """All mechanisms for one seed, then for the next: the first seeds compare them all."""
        return [
            Job(self.benchmark.with_heads(count), name, seed)
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
    """The plan for a stored graph; texts "name=value" in `settings` override the choices."""
    check_choices(mechanisms, seeds, settings)
    if data.folder is None:
        raise ValueError(f"graph {data.name} must be stored before it is compared on: save it")
    (first,) = grid(OWN_GRAPH.settings, list(settings))
    values = _choose(data, _layers(first))
    values |= {"data.graph": str(data.folder.resolve()), "data.content": fingerprint(data.folder)}
    values |= {path: value for path, [value] in parse_settings(first, list(settings))}
    chosen = with_values(OWN_GRAPH.settings, values)  # all at once: some depend on others
    default = range(5) if data.num_edges <= SMALL else range(3)
    return Plan(
        OWN_GRAPH.with_settings(chosen),
        tuple(dict.fromkeys(mechanisms or OWN_GRAPH.mechanisms)),
        tuple(dict.fromkeys(seeds or default)),
        tuple(_reasons(data, chosen)),
    )


def check_choices(
    mechanisms: Sequence[str] | None, seeds: Sequence[int] | None, settings: Sequence[str]
) -> None:
    """Refuse what can be refused before a graph is read."""
    known = OWN_GRAPH.mechanisms
    for name in mechanisms or ():
        if name not in known:
            raise ValueError(f"mechanism must be one of {', '.join(known)}, but is {name!r}")
    if seeds is not None and not seeds:
        raise ValueError("seeds must hold at least one number, but are empty")
    for text in settings:
        if text.split("=")[0].strip().removeprefix("data.") in ("graph", "content"):
            raise ValueError(f"a comparison uses the graph it is given, but is set to {text!r}")
        if len(parse_settings(OWN_GRAPH.settings, [text])[0][1]) != 1:
            raise ValueError(f"a comparison has one value for each setting, but not {text!r}")
    grid(OWN_GRAPH.settings, list(settings))  # refuses values that do not fit each other


def _layers(settings: Settings) -> int:
    return cast(NodeNetwork, settings.network).layers


def _choose(data: GraphData, layers: int) -> dict[str, Any]:
    """Settings by dotted name."""
    labelled, edges = len(data.split["train"]), data.num_edges
    dim = 128 if labelled >= MANY_LABELS and edges <= SMALL else 64
    if step_bytes(data, dim) <= WHOLE_SHARE * memory() and edges <= MEDIUM:
        rounds, neighbours = 100 if edges <= SMALL else 30, ()
    else:
        rounds, neighbours = 20, (NUM_SAMPLED,) * layers
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
    """Sentences about the choices."""
    network, task = cast(NodeNetwork, settings.network), cast(NodeTask, settings.task)
    labelled = f"{len(data.split['train']):,} training nodes and {data.num_edges:,} edges"
    yield f"{count(network.layers, 'layer')} of {network.dim} channels, for {labelled}."
    if not network.skip:
        yield "Without skip connections and norms, and with high dropout, because labels are few."
    if not _num_features(data):
        yield "Nodes have no features: a one-hot encoding of the degree is used."
    need = f"about {size(step_bytes(data, network.dim))}"
    available = f"of {memory() / 1e9:.0f} GB of memory"
    if task.neighbours:
        many = ", ".join(map(str, task.neighbours))
        yield f"Trained on {many} sampled neighbours: all would take {need} {available}."
    else:
        yield f"Trained on the whole graph at once: a step takes {need} {available}."
    schedule = settings.schedule
    epochs = schedule.max_rounds * schedule.round_passes
    yield f"At most {count(epochs, 'epoch')}; early stopping on the validation score."


def step_bytes(data: GraphData, dim: int) -> int:
    """Estimated memory of a training step on the whole graph."""
    per_node = 4 * (_num_features(data) + FLOATS_PER_NODE * 2 * dim)
    return data.num_nodes * per_node + data.num_edges * BYTES_PER_EDGE


def _num_features(data: GraphData) -> int:
    x = data.nodes[data.node_type].arrays.get("x")
    return 0 if x is None else np.shape(x)[1]


def memory() -> int:
    """Physical memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
