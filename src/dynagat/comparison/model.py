"""Model: a trained network with everything needed to apply it to other tables; saved as a folder of
plain arrays and JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dynagat.benchmarks.own_graph import OWN_GRAPH, NodeNetwork, StoredGraph
from dynagat.comparison.predictions import Predictions
from dynagat.data import arrays as folders
from dynagat.data.arrays import FolderError
from dynagat.data.store import GraphData, tensor
from dynagat.experiment import Record
from dynagat.experiment.record import plain
from dynagat.experiment.settings import restored
from dynagat.nn.network import Network, degrees
from dynagat.prediction.nodes import infer_nodes, node_features, node_problem

KIND = "model"
SIMPLE = ("mechanism", "in_dim", "self_loops", "target_mean", "target_std")
FILE_NAMES = {"target_mean": "centre", "target_std": "spread"}  # in the folder's JSON


@dataclass(frozen=True, eq=False)
class Model:
    """predict(data) or predict(edges=, nodes=) returns predictions for every node of a graph."""

    network: Network
    mechanism: str
    settings: NodeNetwork
    in_dim: int
    task: Mapping[str, Any]  # GraphData's: kind, target, classes
    self_loops: bool = True
    target_mean: float = 0.0  # of regression targets
    target_std: float = 1.0
    columns: Mapping[str, Any] | None = None  # how tables become features, if it saw tables
    tables: Mapping[str, Any] | None = None  # how the tables were read
    result: Mapping[str, float | None] | None = None  # its metrics in training

    def predict(
        self,
        data: GraphData | None = None,
        *,
        edges: Path | str | None = None,
        nodes: Path | str | None = None,
        **columns: str | None,
    ) -> Predictions:
        """Predict for every node of a graph, or of tables with the columns seen in training.

        The graph may have new nodes and edges. `key`, `query` and `id` name columns that are called
        differently than in training.
        """
        if (data is None) == (edges is None) or (edges is None) != (nodes is None):
            raise ValueError("predict takes a graph, or the tables of edges and nodes")
        if data is None:
            data = self._read(edges, nodes, columns)
        out = self.outputs(data)
        ids = data.nodes[data.node_type].arrays.get("id")
        name = data.about.get("tables", {}).get("id", "id")
        return Predictions.of(out, self.task, ids, self.target_mean, self.target_std, id_name=name)

    def outputs(self, data: GraphData) -> Tensor:
        """[N, out]: output of the network."""
        graph = data.graph(self_loops=self.self_loops)
        x = node_features(data, degrees(graph))
        if x.shape[1] != self.in_dim:
            raise ValueError(
                f"the model reads {self.in_dim} features, but {data.name} has {x.shape[1]}"
            )
        return infer_nodes(self.network, x, graph)

    def _read(self, edges: Any, nodes: Any, named: Mapping[str, str | None]) -> GraphData:
        from dynagat.data.tables import Columns, read_tables

        if self.columns is None or self.tables is None:
            raise ValueError("the model was not trained on tables: give predict a graph instead")
        options = {name: self.tables[name] for name in ("key", "query", "id", "directed")}
        if odd := set(named) - {"key", "query", "id"}:
            raise TypeError(f"predict takes key, query and id of tables, but got {min(odd)!r}")
        options |= {name: column for name, column in named.items() if column is not None}
        columns = Columns.from_dict(self.columns)
        return read_tables(edges, nodes, target=None, columns=columns, **options)

    def save(self, folder: Path | str, *, replace: bool = False) -> Path:
        """Write it as a folder, whole or not at all."""
        with folders.write_folder(folder, KIND, replace=replace) as writer:
            for name, value in self.network.state_dict().items():
                writer.add(f"weights/{name}", value.numpy())
            writer.about = {FILE_NAMES.get(name, name): getattr(self, name) for name in SIMPLE}
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
        values = dict(about)
        for name, stored in FILE_NAMES.items():
            values[name] = values.pop(stored)
        settings = restored(NodeNetwork(), values.pop("settings"))
        task = values["task"]
        width = 1 if task["kind"] == "regression" else len(task["classes"])
        network = settings.with_widths(values["mechanism"], values["in_dim"], width)
        weights = {name.removeprefix("weights/"): each for name, each in arrays.items()}
        network.load_state_dict({name: tensor(np.asarray(each)) for name, each in weights.items()})
        return Model(network, settings=settings, **values)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"{folder} was altered: it is no model of this dynagat ({error})"
        raise FolderError(message) from None


def model_of(record: Record, weights: bytes, data: GraphData) -> Model:
    """The network of a run on a stored graph, with the metadata of the graph."""
    settings = OWN_GRAPH.as_recorded(record).settings
    source, shape = cast(StoredGraph, settings.data), cast(NodeNetwork, settings.network)
    problem = node_problem(data, source.self_loops)
    network = shape.build(problem, record.mechanism)
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return Model(
        network,
        record.mechanism,
        shape,
        problem.x.shape[1],
        dict(data.task),
        source.self_loops,
        problem.target_mean,
        problem.target_std,
        data.about.get("columns"),
        data.about.get("tables"),
        dict(record.metrics),
    )
