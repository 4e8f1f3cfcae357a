"""Model: a trained network with all it takes to use it on other tables; saved as a folder of plain
arrays and JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dynagat.benchmarks.nodes import features_of, problem_of, run_in_parts
from dynagat.benchmarks.own_graph import OWN_GRAPH, NodeNetwork, StoredGraph
from dynagat.comparison.predictions import Predictions
from dynagat.data import arrays as folders
from dynagat.data.arrays import FolderError
from dynagat.data.store import GraphData, tensor
from dynagat.experiment import Record
from dynagat.experiment.record import plain
from dynagat.experiment.settings import restored
from dynagat.nn.network import Network, degrees

KIND = "model"


@dataclass(frozen=True, eq=False)
class Model:
    """predict(data) or predict(edges=, nodes=) gives the predictions for every node of a graph."""

    network: Network
    mechanism: str
    settings: NodeNetwork
    in_dim: int
    task: Mapping[str, Any]  # GraphData's: kind, target, classes
    self_loops: bool = True
    centre: float = 0.0
    spread: float = 1.0
    columns: Mapping[str, Any] | None = None  # how tables become features, if tables they were
    tables: Mapping[str, Any] | None = None  # how they were read
    result: Mapping[str, float | None] | None = None  # what it reached when it was trained

    def predict(
        self,
        data: GraphData | None = None,
        *,
        edges: Path | str | None = None,
        nodes: Path | str | None = None,
        **columns: str | None,
    ) -> Predictions:
        """For every node of a graph, or of tables with the columns that the model was trained on.

        The graph may have grown since, and have nodes that the model has never seen. Columns
        `key`, `query` and `id` may be named, if they have other names than in training.
        """
        if (data is None) == (edges is None) or (edges is None) != (nodes is None):
            raise ValueError("predict takes a graph, or the tables of edges and nodes")
        if data is None:
            data = self._read(edges, nodes, columns)
        out = self.outputs(data)
        ids = data.nodes[data.node_type].arrays.get("id")
        return Predictions.of(out, self.task, ids, self.centre, self.spread)

    def outputs(self, data: GraphData) -> Tensor:
        """[N, out]: what the network gives."""
        graph = data.graph(self_loops=self.self_loops)
        x = features_of(data, degrees(graph))
        if x.shape[1] != self.in_dim:
            found = f"{data.name} has {x.shape[1]}"
            raise ValueError(f"the model reads {self.in_dim} features, but {found}")
        return run_in_parts(self.network, x, graph)

    def _read(self, edges: Any, nodes: Any, named: Mapping[str, str | None]) -> GraphData:
        from dynagat.data.tables import Columns, read_tables

        if self.columns is None or self.tables is None:
            raise ValueError("the model was not trained on tables: give predict a graph instead")
        told = {name: self.tables[name] for name in ("key", "query", "id", "directed")}
        if odd := set(named) - {"key", "query", "id"}:
            raise TypeError(f"predict takes key, query and id of tables, but got {min(odd)!r}")
        told |= {name: column for name, column in named.items() if column is not None}
        columns = Columns.from_dict(self.columns)
        return read_tables(edges, nodes, target=None, columns=columns, **told)

    def save(self, folder: Path | str, *, replace: bool = False) -> Path:
        """Write it as a folder; there as a whole or not at all."""
        with folders.write_folder(folder, KIND, replace=replace) as writer:
            for name, value in self.network.state_dict().items():
                writer.add(f"weights/{name}", value.numpy())
            simple = ("mechanism", "in_dim", "self_loops", "centre", "spread")
            writer.about = {name: getattr(self, name) for name in simple}
            for name in ("task", "columns", "tables"):
                value = getattr(self, name)
                writer.about[name] = None if value is None else dict(value)
            writer.about["result"] = plain(self.result)
            writer.about["settings"] = asdict(self.settings)
        return Path(folder)


def load_model(folder: Path | str) -> Model:
    """The model that was saved in a folder."""
    arrays, about = folders.read_folder(folder, KIND, verify=True)
    try:
        told = dict(about)
        settings = restored(NodeNetwork(), told.pop("settings"))
        width = 1 if told["task"]["kind"] == "regression" else len(told["task"]["classes"])
        network = settings.of_widths(told["mechanism"], told["in_dim"], width)
        weights = {name.removeprefix("weights/"): each for name, each in arrays.items()}
        network.load_state_dict({name: tensor(np.asarray(each)) for name, each in weights.items()})
        return Model(network, settings=settings, **told)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        sentence = f"{folder} was altered: it is no model of this dynagat ({error})"
        raise FolderError(sentence) from None


def model_of(record: Record, weights: bytes, data: GraphData) -> Model:
    """The network of a run on a stored graph, with what the graph tells."""
    settings = OWN_GRAPH.as_recorded(record).settings
    source, shape = cast(StoredGraph, settings.data), cast(NodeNetwork, settings.network)
    problem = problem_of(data, source.self_loops)
    network = shape.build(problem, record.mechanism)
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return Model(
        network,
        record.mechanism,
        shape,
        problem.x.shape[1],
        dict(data.task),
        source.self_loops,
        problem.centre,
        problem.spread,
        data.about.get("columns"),
        data.about.get("tables"),
        dict(record.metrics),
    )
