"""Subject: what a comparison is about, nodes or links of one graph, or molecules; its words."""

from __future__ import annotations

from dataclasses import dataclass

from dynagat.benchmarks.own_graph import OWN_GRAPH
from dynagat.benchmarks.own_links import LINK_METRICS, OWN_LINKS
from dynagat.benchmarks.own_molecules import OWN_MOLECULES
from dynagat.data.molecules import GRAPH
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark
from dynagat.metrics import METRICS


@dataclass(frozen=True, eq=False)
class Subject:
    """Which benchmark runs, and the nouns of the sentences about it."""

    benchmark: Benchmark
    whole: str
    rows: str  # what has a target
    node: str  # what attends
    features: str  # what models without a graph use
    tested: str = "The graph"  # what the baselines do without
    metric_path: str = "task.metric"  # the setting that names the metric


NODES = Subject(OWN_GRAPH, "graph", "nodes", "node", "features")
MOLECULES = Subject(OWN_MOLECULES, "molecules", "molecules", "atom", "counts of atoms and bonds")
LINKS = Subject(
    OWN_LINKS, "graph", "links", "node", "features", tested="A network", metric_path="data.metric"
)
KNOWN_METRICS = {**METRICS, "links": LINK_METRICS}  # by kind of target; the first is the default


def subject_of(data: GraphData) -> Subject:
    if data.task.get("kind") == "links":
        return LINKS
    return MOLECULES if data.task.get("node_type") == GRAPH else NODES
