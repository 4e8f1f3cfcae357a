"""ogbn-mag (Table 1): the venue of papers, by the citations among them; trained on neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from dynagat.benchmarks.node_data import NodeData
from dynagat.benchmarks.ogbn_arxiv import CAVEATS, OGB_MECHANISMS, sampled_grid
from dynagat.benchmarks.stacks import ResidualStack
from dynagat.data.catalog import load
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark, Published, departure
from dynagat.metrics import ACCURACY
from dynagat.prediction.nodes import NodeTask
from dynagat.training import Schedule


@dataclass(frozen=True)
class MagData(NodeData):
    """One relation of ogbn-mag, in both directions."""

    relation: str = "cites"  # D26: the paper's statistics are those of the whole graph

    def stored(self) -> GraphData:
        return load(self.dataset).only(self.relation)


@dataclass(frozen=True)
class MagTask(NodeTask):
    """Trained on samples of 10 neighbours in each of two layers."""

    neighbours: tuple[int, ...] = (10, 10)
    shuffle: bool = departure(True, published=False, number="D32")


TABLE_1 = {
    ("gat", 1): (32.20, 1.46),
    ("gat", 8): (31.75, 1.60),
    ("dpgat", 1): (32.77, 0.80),
    ("dpgat", 8): (27.74, 9.97),
    ("gatv2", 1): (32.61, 0.44),
    ("gatv2", 8): (32.52, 0.39),
}
OGB_LEADERBOARD = {("gcn", 1): (30.43, 0.25), ("sage", 1): (31.53, 0.15)}

OGBN_MAG = Benchmark(
    name="ogbn-mag",
    title="ogbn-mag: the venue of 736,389 papers",
    source="Table 1 of the paper",
    claim="GATv2 is more accurate than GAT (33.01 against 32.36, p = 0.0018, 30 runs).",
    data=MagData("ogbn-mag"),
    network=ResidualStack(layers=2, dropout=0.5),  # D15: two layers have no middle one
    task=MagTask(),
    schedule=Schedule(
        lr=0.01,
        batch_size=20_000,
        clip=0.0,
        max_rounds=100,
        patience=100,  # D34
        lr_patience=100,
        min_gain=0.0,
    ),
    mechanisms=OGB_MECHANISMS,
    seeds=range(10),  # D33
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=1",),
    published=(
        *Published.from_percents("Table 1", TABLE_1, ACCURACY.on("test"), 10, features="own"),
        *Published.from_percents(
            "OGB's leaderboard", OGB_LEADERBOARD, ACCURACY.on("test"), 10, features="own"
        ),
    ),
    search=sampled_grid(10),
    microscope="glance",
    caveats=CAVEATS,
)
