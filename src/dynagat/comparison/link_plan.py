"""Settings of a comparison on links, chosen by their number, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from dynagat.benchmarks.stacks import LinkStack
from dynagat.data.store import GraphData
from dynagat.experiment.benchmark import Settings
from dynagat.prediction.links import LinkTask
from dynagat.prediction.nodes import has_features
from dynagat.report.wording import count

STEPS = 8  # of an epoch, if its batches are then neither small nor large
SMALLEST, LARGEST = 1 << 10, 1 << 16  # links of a batch
LARGE = 20_000_000  # edges, from which neighbours are sampled
MANY = 2_000_000  # edges, from which there are fewer epochs
SAMPLED = 10  # neighbours in each layer


def choose(data: GraphData, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name."""
    rounds = 100 if data.num_edges <= MANY else 30
    layers = given.get("network.layers", 2)
    links = data.num_edges // 2
    return {
        "task.neighbours": (SAMPLED,) * layers if data.num_edges > LARGE else (),
        "schedule.batch_size": min(max(links // STEPS, SMALLEST), LARGEST),
        "schedule.max_rounds": rounds,
        "schedule.patience": rounds // 5,
        "schedule.lr_patience": rounds // 12,
    }


def reasons(data: GraphData, settings: Settings) -> Iterator[str]:
    """Sentences about the choices."""
    network, task = cast(LinkStack, settings.network), cast(LinkTask, settings.task)
    links = f"{data.num_edges // 2:,} training links between {data.num_nodes:,} nodes"
    yield f"{count(network.layers, 'layer')} of {network.dim} channels, for {links}."
    if not has_features(data):
        yield "Nodes have no features: the network learns a vector for each."
    where = f"{SAMPLED} sampled neighbours" if task.neighbours else "the whole graph"
    yield f"Trained on {where}, with batches of at most {settings.schedule.batch_size:,} links."
