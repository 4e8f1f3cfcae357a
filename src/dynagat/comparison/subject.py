"""Subject: what a comparison is about, nodes of one graph or many molecules, and its words."""

from __future__ import annotations

from dataclasses import dataclass

from dynagat.benchmarks.own_graph import OWN_GRAPH
from dynagat.benchmarks.own_molecules import OWN_MOLECULES
from dynagat.data.molecules import GRAPH
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark


@dataclass(frozen=True)
class Subject:
    """Which benchmark runs, and the nouns of the sentences about it."""

    benchmark: Benchmark
    whole: str
    rows: str  # what has a target
    node: str  # what attends
    features: str  # what models without a graph use


NODES = Subject(OWN_GRAPH, "graph", "nodes", "node", "features")
MOLECULES = Subject(OWN_MOLECULES, "molecules", "molecules", "atom", "counts of atoms and bonds")


def subject_of(data: GraphData) -> Subject:
    return MOLECULES if data.task.get("node_type") == GRAPH else NODES
