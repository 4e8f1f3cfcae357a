"""predict_molecules: a run of a benchmark on molecules, such as QM9, applied to others."""

from __future__ import annotations

import io
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from dynagat.comparison.predictions import Predictions
from dynagat.data.molecules import GRAPH
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark, Record
from dynagat.placement import CPU
from dynagat.prediction.graphs import GraphProblem, GraphTask


@runtime_checkable
class KnowsMolecules(Protocol):
    """Settings of data whose networks can predict molecules that are read from SMILES."""

    def of_molecules(self, data: GraphData) -> GraphProblem:
        """The molecules as the network takes them; a ValueError if it can't."""
        ...

    def in_units(self, out: Tensor, problem: GraphProblem) -> dict[str, np.ndarray]:
        """Columns of predictions, from the network's output."""
        ...


def predict_molecules(
    record: Record,
    weights: bytes,
    benchmark: Benchmark,
    data: GraphData,
    device: torch.device = CPU,
) -> Predictions:
    """Predictions of a finished run for molecules as `read_molecules` returns them."""
    recorded = benchmark.as_recorded(record)
    source, task = recorded.data, recorded.task
    if not isinstance(source, KnowsMolecules):
        raise ValueError(f"run {record.key[:8]} of {benchmark.name} predicts no molecules")
    problem = source.of_molecules(data)
    network = recorded.network.build(problem, record.mechanism)
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    prediction = cast(GraphTask, task).prepare(problem.to(device), recorded.schedule)
    out = prediction.outputs(network.to(device), torch.arange(len(problem.collection))).cpu()
    columns = source.in_units(out, problem)
    values, names = np.stack(list(columns.values()), axis=1), tuple(columns)
    name, ids = data.about["molecules"]["smiles"], data.nodes[GRAPH].arrays["id"]
    return Predictions(ids, values, None, names, record.benchmark, name)
