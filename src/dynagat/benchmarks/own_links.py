"""Link prediction on any stored graph: what `dynagat compare --task link` runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dynagat.benchmarks.own_graph import HEADS, open_unchanged
from dynagat.benchmarks.stacks import LinkStack
from dynagat.data.link_split import check_links
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark
from dynagat.link_metrics import HITS_20
from dynagat.metrics import AVERAGE_PRECISION, ROC_AUC, find_metric
from dynagat.prediction.links import LinkProblem, LinkTask, link_problem
from dynagat.training import Schedule

LINK_METRICS = (AVERAGE_PRECISION, ROC_AUC, HITS_20)  # the first is the default

ARRAYS = ("train/edge", "valid/edge", "valid/edge_neg", "test/edge", "test/edge_neg")  # pairs


@final
@dataclass(frozen=True)
class StoredLinks:
    """Which links, and the metric of their scores. `content` is their fingerprint."""

    graph: str = ""  # a folder, or a name in the graph store
    content: str = ""
    metric: str = AVERAGE_PRECISION.name
    self_loops: bool = True

    def load(self, seed: int) -> LinkProblem:
        if not self.graph:
            raise ValueError(self.missing())
        return self.problem(open_unchanged(self.graph, self.content))

    def problem(self, data: GraphData) -> LinkProblem:
        """The links of a graph; a ValueError if a link leaks from one part into another."""
        if data.task.get("kind") == "links":
            _check_layout(data)
            check_links(data)
        metric = find_metric(self.metric, LINK_METRICS)
        further = tuple(each for each in LINK_METRICS if each != metric)
        return link_problem(data, metric, further=further, self_loops=self.self_loops)

    def missing(self) -> str | None:
        if self.graph:
            return None
        return "name stored links: --set graph=NAME; `dynagat compare --task link` stores a table"


def _check_layout(data: GraphData) -> None:
    lacking = [name for name in ARRAYS if name not in data.split]
    if lacking:
        raise ValueError(
            f"the split of {data.name} must have {lacking[0]} to be compared on, but has "
            f"{', '.join(data.split)}. Links with negatives of their own (target_node_neg) are "
            "ranked by their benchmark only, such as `dynagat run ogbl-citation2`; "
            "dynagat.data.split_links splits links again, with pairs as negatives"
        )


OWN_LINKS = Benchmark(
    name="own-links",
    title="Link prediction on a stored graph: --set graph=NAME",
    source="Your own links",
    data=StoredLinks(),
    network=LinkStack(dim=64, heads=HEADS, layers=2, dropout=0.2),
    task=LinkTask(negatives="unlinked"),
    schedule=Schedule(
        lr=0.005,
        batch_size=4096,
        max_rounds=100,
        round_steps=4,
        patience=20,
        lr_patience=8,
        tie_break="loss",
    ),
    mechanisms={"gcn": (1,), "gat": (HEADS,), "gatv2": (HEADS,), "dpgat": (HEADS,)},
    seeds=range(5),
    metric=AVERAGE_PRECISION.on("test"),
    smoke=("max_rounds=3",),
    search={
        "dim": (32, 64, 128),
        "heads": (1, 4, 8),
        "layers": (1, 2, 3),
        "dropout": (0.0, 0.2, 0.5),
        "lr": (0.001, 0.005, 0.01),
    },
)
