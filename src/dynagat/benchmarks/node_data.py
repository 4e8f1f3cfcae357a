"""NodeData: a data set of the catalogue, or a graph of the graph store, as a node problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from dynagat.data.arrays import FolderError
from dynagat.data.catalog import CATALOG, load, missing
from dynagat.data.problems import check_split
from dynagat.data.store import GraphData, open_graph, stored_names
from dynagat.data.structure import structural_features
from dynagat.prediction.nodes import NodeProblem, node_problem


@dataclass(frozen=True)
class NodeData:
    """A graph by its name."""

    dataset: str = "pubmed"
    self_loops: bool = True  # existing ones are removed, and each node gets one
    # Its own features, or those that data/structure.py computes from the graph. The results of
    # computed features can't be compared with the paper's.
    features: Literal["own", "structure"] = "own"

    RETIRED: ClassVar[Mapping[str, Any]] = {"made": False}

    def load(self, seed: int) -> NodeProblem:
        return node_problem(self.with_features(self.checked()), self.self_loops)

    def checked(self) -> GraphData:
        """The graph; a ValueError if its split is not sound."""
        data = self.read()
        check_split(data)
        return data

    def read(self) -> GraphData:
        """The graph with each edge in both directions."""
        return load(self.dataset).symmetric()

    def with_features(self, data: GraphData) -> GraphData:
        nodes = data.nodes[data.node_type]
        if self.features == "structure":
            x = structural_features(data.graph()).numpy()
        elif "x" in nodes.arrays or not self._should_have_features:
            return data
        else:
            raise FolderError(self._lacks_features)
        with_x = replace(nodes, arrays={**nodes.arrays, "x": x})
        return replace(data, nodes={**data.nodes, data.node_type: with_x}, folder=None)

    def missing(self) -> str | None:
        """How to get the data if they are missing; None if they are present.

        Reads only the list of a stored graph's arrays: the files may have many gigabytes.
        """
        if self.dataset not in stored_names():
            return missing(self.dataset)
        if self.features == "structure" or not self._should_have_features:
            return None
        try:
            data = open_graph(self.dataset, verify=False)
            nodes = data.nodes.get(data.node_type)
        except (ValueError, OSError) as error:
            return str(error)
        return None if nodes and "x" in nodes.arrays else self._lacks_features

    @property
    def _should_have_features(self) -> bool:
        """Other graphs may have none: see `node_features`."""
        return self.dataset in CATALOG and CATALOG[self.dataset].features > 0

    @property
    def _lacks_features(self) -> str:
        return (
            f"{self.dataset} is here without its features; `dynagat data get {self.dataset}` gets "
            "them, or --set features=structure computes others from the graph"
        )


@dataclass(frozen=True)
class SymmetricNodeData(NodeData):
    """A data set that already has each edge in both directions."""

    def read(self) -> GraphData:
        return load(self.dataset)
