"""LinkData: a link data set of the catalogue, or one of the graph store, as a link problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dynagat.data.arrays import FolderError
from dynagat.data.catalog import CATALOG, load, missing
from dynagat.data.store import GraphData
from dynagat.metrics import Metric
from dynagat.prediction.links import LinkProblem, link_problem
from dynagat.prediction.nodes import has_features


@dataclass(frozen=True)
class LinkData:
    """Abstract. The links of a graph; subclasses say which metrics judge their scores."""

    dataset: str
    self_loops: bool = True  # existing ones are removed, and each node gets one

    METRIC: ClassVar[Metric]
    FURTHER: ClassVar[tuple[Metric, ...]] = ()

    def load(self, seed: int) -> LinkProblem:
        data = self.read()
        entry = CATALOG.get(self.dataset)
        if entry is not None and entry.features and not has_features(data):
            raise FolderError(f"{self.dataset} is here without its features; {entry.how}")
        return link_problem(
            data,
            self.METRIC,
            further=self.FURTHER,
            self_loops=self.self_loops,
            test_data=self.read_test(data),
        )

    def read(self) -> GraphData:
        """The graph with its training links, each in both directions."""
        return load(self.dataset)

    def read_test(self, data: GraphData) -> GraphData | None:
        """The graph to score test links on; None if it is the same."""
        return None

    def missing(self) -> str | None:
        return missing(self.dataset)
