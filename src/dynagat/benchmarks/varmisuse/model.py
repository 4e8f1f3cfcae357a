"""VariableModel: a trained network, which gives each candidate for a slot a probability."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from dynagat.benchmarks.varmisuse.benchmark import VARMISUSE
from dynagat.benchmarks.varmisuse.data import ProgramData
from dynagat.benchmarks.varmisuse.stream import fill, join
from dynagat.benchmarks.varmisuse.task import ProgramTask
from dynagat.data.programs.layout import read_info
from dynagat.data.programs.records import ProgramGraph
from dynagat.data.programs.summary import find_programs
from dynagat.experiment import Store
from dynagat.experiment.store import DEFAULT_STORE
from dynagat.report.subjects import find_run, title_of, weights_of

LANGUAGE = "python"


@dataclass(frozen=True, eq=False)
class VariableModel:
    """A trained network. `load_model` reads it from a store.

    Args:
        key: of the run.
        title: of the run.
        network: in evaluation mode.
        dataset: name or folder of the programs that it was trained on.
        distance: number of edges from a slot within which the program is kept.
        max_nodes: of the graphs that are scored at a time.
    """

    key: str
    title: str
    network: nn.Module
    dataset: str
    distance: int
    max_nodes: int

    @torch.no_grad()
    def log_probabilities(self, graphs: Iterable[ProgramGraph]) -> Iterator[Tensor]:
        """[K] for each graph, float64: ln of the probability of each candidate."""
        for batch in map(join, fill(graphs, self.max_nodes)):
            scores = batch.run(self.network).double()
            exists = batch.candidates >= 0
            if not scores[exists].isfinite().all():
                raise ValueError(f"run {self.key[:8]} diverged: its network gives NaN or infinity")
            for row, mask in zip(scores.log_softmax(1), exists, strict=True):
                yield row[mask]


def load_model(
    run: str, store: Path | str = DEFAULT_STORE, *, distance: int | None = None
) -> VariableModel:
    """The network of a finished run, with the settings of the programs that it was trained on.

    Args:
        run: key of the run, or the start of it.
        store: the SQLite file that holds the run.
        distance: number of edges from a slot within which the program is kept. Default: as in the
            training data, which must be in the graph store.
    """
    if distance is not None and distance < 1:
        raise ValueError(f"distance must be at least 1, but is {distance}")
    with Store(store, must_exist=True) as kept:
        record = find_run(kept, run, {VARMISUSE.name: VARMISUSE}, others="")
        if record.benchmark != VARMISUSE.name:
            raise ValueError(
                f"run {record.key[:8]} must be of {VARMISUSE.name}, but is of {record.benchmark}"
            )
        weights = weights_of(record, kept)
    recorded = VARMISUSE.as_recorded(record)
    network = recorded.network.build(None, record.mechanism)
    dataset = cast(ProgramData, recorded.data).dataset
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return VariableModel(
        record.key,
        title_of(record, VARMISUSE),
        network.eval(),
        dataset,
        _distance(dataset, record.key[:8]) if distance is None else distance,
        cast(ProgramTask, recorded.task).max_nodes,
    )


def _distance(name: str, run: str) -> int:
    """Of the training data; a ValueError if it is not known."""
    folder = find_programs(name)
    if folder is None:
        raise ValueError(
            f"run {run} was trained on the programs {name!r}, which are not in the graph store; "
            "--distance (distance=) must give the distance of `dynagat data import-python`"
        )
    info = read_info(folder)
    distance = info.settings.get("distance")
    if info.language != LANGUAGE or not isinstance(distance, int):
        raise ValueError(
            f"run {run} was trained on {name!r}, which `dynagat data import-python` did not make, "
            "so it does not know the graphs of Python files; train it on a set of that command"
        )
    return distance
