"""NodeModel: a model that predicts the nodes of a graph, given as such or as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

from torch import Tensor

from dynagat.benchmarks.own_graph import StoredGraph
from dynagat.comparison.model import Model
from dynagat.comparison.predictions import Predictions
from dynagat.data.store import GraphData
from dynagat.nn.network import Network
from dynagat.prediction.nodes import (
    all_degrees,
    degree_features,
    has_features,
    infer_nodes,
    node_features,
    node_problem,
)
from dynagat.prediction.prediction import MicroscopeInput
from dynagat.sampling.rows import Neighbours


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class NodeModel(Model):
    """predict(data) or predict(edges=, nodes=) returns predictions for every node of a graph."""

    self_loops: bool = True
    columns: Mapping[str, Any] | None = None  # how tables become features, if it saw tables
    tables: Mapping[str, Any] | None = None  # how the tables were read

    @classmethod
    def seen(cls, data: GraphData, source: Any) -> dict[str, Any]:
        """What a model keeps of the graph it was trained on."""
        self_loops = cast(StoredGraph, source).self_loops
        problem = node_problem(data, self_loops)
        return {
            "in_dim": problem.x.shape[1],
            "target_mean": problem.target_mean,
            "target_std": problem.target_std,
            "self_loops": self_loops,
            "columns": data.about.get("columns"),
            "tables": data.about.get("tables"),
        }

    def predict(
        self,
        data: GraphData | None = None,
        /,
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
        rows, loops = Neighbours.on_disk(data, loops=not self.self_loops), self.self_loops
        edges = data.graph(self_loops=loops) if rows is None else rows
        loops = loops and rows is not None  # else the graph has them
        is_own = has_features(data)
        x = node_features(data) if is_own else degree_features(all_degrees(edges) + int(loops))
        if x.shape[1] != self.in_dim:
            raise ValueError(
                f"the model reads {self.in_dim} features, but {data.name} has {x.shape[1]}"
            )
        return infer_nodes(cast(Network, self.network), x, edges, self_loops=loops).cpu()

    def microscope_input(self, data: GraphData) -> MicroscopeInput:
        """The whole graph."""
        problem = node_problem(data, self.self_loops)
        marks = {"labels": problem.y} if problem.kind == "classification" else {}
        ids = data.nodes[data.node_type].arrays.get("id")
        names = None if ids is None else [str(each) for each in ids]
        return MicroscopeInput((problem.x, problem.graph), marks, names=names)

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
