"""Settings of a comparison on molecules, chosen by their number and size, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from dynagat.benchmarks.qm9 import MoleculeStack
from dynagat.data.molecules import GRAPH
from dynagat.data.store import GraphData
from dynagat.experiment.benchmark import Settings
from dynagat.prediction.graphs import GraphTask
from dynagat.report.wording import count

STEPS = 10  # of an epoch, if its batches are then neither small nor large
SMALLEST, LARGEST = 500, 10_000  # atoms of a batch
MANY = 20_000  # training molecules, from which a wider network and fewer epochs are used


def choose(data: GraphData, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name."""
    train = np.asarray(data.split["train"])
    atoms = int(np.asarray(data.nodes[GRAPH].arrays["num_nodes"])[train].sum())
    rounds = 150 if len(train) < MANY else 60
    return {
        "network.dim": 64 if len(train) < MANY else 128,
        "task.max_nodes": min(max(atoms // STEPS, SMALLEST), LARGEST),
        "schedule.max_rounds": rounds,
        "schedule.patience": min(rounds // 5, 20),
        "schedule.lr_patience": min(rounds // 12, 8),
    }


def reasons(data: GraphData, settings: Settings) -> Iterator[str]:
    """Sentences about the choices."""
    network, task = cast(MoleculeStack, settings.network), cast(GraphTask, settings.task)
    labelled = f"{len(data.split['train']):,} training molecules"
    yield f"{count(network.layers, 'layer')} of {network.dim} channels, for {labelled}."
    yield f"Trained on batches of at most {task.max_nodes:,} atoms."
