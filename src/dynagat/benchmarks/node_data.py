"""NodeData: a data set of the catalogue, or a graph of the graph store, as a node problem.

Its features can be scaled, and its split replaced by a random one for each seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dynagat.data.arrays import FolderError
from dynagat.data.catalog import CATALOG, load, missing
from dynagat.data.problems import check_split
from dynagat.data.store import GraphData, open_graph, stored_names
from dynagat.data.structure import structural_features
from dynagat.data.tables.split import parts_of, stratified
from dynagat.prediction.nodes import NodeProblem, node_problem
from dynagat.sampling.rows import Neighbours
from dynagat.training import ADDED_LATER

SHARES = (0.6, 0.2, 0.2)  # of a random split
Scaling = Literal["none", "rows", "columns"]


@dataclass(frozen=True)
class NodeData:
    """A graph by its name."""

    dataset: str = "pubmed"
    self_loops: bool = True  # existing ones are removed, and each node gets one
    # Its own features, or those that data/structure.py computes from the graph. The results of
    # computed features can't be compared with the paper's.
    features: Literal["own", "structure"] = "own"
    # "rows": the absolute values of each node's features sum to 1. "columns": each feature has
    # mean 0 and standard deviation 1 over all nodes.
    scaling: Scaling = field(default="none", metadata=ADDED_LATER)
    # "random": 60/20/20 per cent of the labelled nodes, stratified by class, drawn with the seed
    # of the run.
    split: Literal["own", "random"] = field(default="own", metadata=ADDED_LATER)

    RETIRED: ClassVar[Mapping[str, Any]] = {"made": False}
    BOTH: ClassVar[bool] = True  # whether each edge is added in the other direction

    def load(self, seed: int) -> NodeProblem:
        return self.problem(self.stored(), seed)

    def problem(self, stored: GraphData, seed: int) -> NodeProblem:
        """The problem of a graph as it is stored. The edges of a large graph stay on disk."""
        rows = None
        if self.features != "structure":  # which is computed from the whole graph
            rows = Neighbours.on_disk(stored, both=self.BOTH, loops=not self.self_loops)
        data = stored if rows is not None else self.directed(stored)
        return node_problem(self.with_features(self.checked(data, seed)), self.self_loops, rows)

    def checked(self, data: GraphData, seed: int) -> GraphData:
        """The graph with the split of the run; a ValueError if the split is not sound."""
        if self.split == "random":
            data = with_random_split(data, seed)
        check_split(data)
        return data

    def stored(self) -> GraphData:
        """The graph as it is stored."""
        return load(self.dataset)

    def directed(self, stored: GraphData) -> GraphData:
        """The graph with the directions of edges that are learnt from."""
        return stored.symmetric() if self.BOTH else stored

    def with_features(self, data: GraphData) -> GraphData:
        """The graph with the features of the settings, scaled."""
        nodes = data.nodes[data.node_type]
        if self.features == "structure":
            x = structural_features(data.graph()).numpy()
        elif "x" in nodes.arrays and self.scaling != "none":
            x = np.asarray(data.x, dtype=np.float32)
        elif "x" in nodes.arrays or not self._should_have_features:
            return data
        else:
            raise FolderError(self._lacks_features)
        with_x = replace(nodes, arrays={**nodes.arrays, "x": scaled(x, self.scaling)})
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


def scaled(x: np.ndarray, scaling: Scaling) -> np.ndarray:
    """[N, features] scaled as `NodeData.scaling` says; rows or columns of zeros stay zeros."""
    if scaling == "none":
        return x
    wide = x.astype(np.float64)
    if scaling == "rows":
        size = np.abs(wide).sum(1, keepdims=True)
    else:
        wide -= wide.mean(0)
        size = wide.std(0)
    return (wide / np.where(size > 0, size, 1)).astype(np.float32)


def with_random_split(data: GraphData, seed: int) -> GraphData:
    """The graph with a random split of its labelled nodes, stratified by class."""
    if data.task.get("kind") != "classification":
        kind = data.task.get("kind")
        raise ValueError(f"split=random needs classes, but the target of {data.name} is {kind}")
    y = np.asarray(data.y)
    part = np.full(len(y), -1, np.int8)
    labelled = np.flatnonzero(y >= 0)
    part[labelled] = stratified(y[labelled], SHARES, np.random.default_rng(seed))
    return replace(data, split=parts_of(part), folder=None)


@dataclass(frozen=True)
class SymmetricNodeData(NodeData):
    """A data set that already has each edge in both directions."""

    BOTH: ClassVar[bool] = False
