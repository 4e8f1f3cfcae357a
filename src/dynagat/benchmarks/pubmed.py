"""PubMed (the appendix's significance table), and Cora and Citeseer by the same code.

The paper says what was tuned, not what was chosen, and no code was released (D45). The rate, decay
and passes are ours, usual ones for such graphs, and so is the one head of the last layer. `tuned`
is what `dynagat tune` chose for each mechanism, with one budget, by the validation nodes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dynagat.benchmarks.nodes import NodeData, NodeProblem, NodeTask, check_network, conv_of
from dynagat.benchmarks.ogbn_arxiv import CAVEATS
from dynagat.experiment import Benchmark, Published
from dynagat.nn.network import Network, stack_d
from dynagat.training import Schedule


@dataclass(frozen=True)
class StackD:
    """See `stack_d`. As in the paper's list, `layers` are hidden ones, `hidden` is of a head."""

    layers: int = 1
    hidden: int = 8
    heads: int = 8
    last_heads: int = 1
    dropout: float = 0.6  # of features and of attention
    bias: bool = True
    share_weights: bool = False  # of GATv2 and DPGAT
    residual: bool = False
    source: Literal["dynagat", "pyg"] = "dynagat"  # whose layers

    def __post_init__(self) -> None:
        check_network(self, least_layers=0)

    @property
    def dim(self) -> int:
        return self.hidden * self.heads

    @property
    def depth(self) -> int:
        return self.layers + 1

    def build(self, data: NodeProblem, mechanism: str) -> Network:
        return stack_d(
            conv_of(self, mechanism, dropout=self.dropout),
            [data.x.shape[1], *[self.dim] * self.layers, data.out_dim],
            heads=self.heads,
            last_heads=self.last_heads,
            dropout=self.dropout,
            residual=self.residual,
        )


GRID = {
    "layers": (0, 1, 2),
    "hidden": (8, 16, 32),
    "heads": (1, 4, 8),
    "dropout": (0.4, 0.6, 0.8),
    "bias": (True, False),
    "share_weights": (True, False),
    "residual": (True, False),
}

SHARED = {"layers": 2, "hidden": 16, "share_weights": True, "residual": True}
TUNED = {  # 30 trials of two seeds each: results/tuning/pubmed.jsonl
    "gat": SHARED,
    "gatv2": {**SHARED, "bias": False},
    "dpgat": {**SHARED, "dropout": 0.4},
}

PUBMED = Benchmark(
    name="pubmed",
    title="PubMed: the topic of papers, from 60 of them",
    source="The appendix's table of significance, 100 runs",
    data=NodeData("pubmed"),
    network=StackD(),
    task=NodeTask(),
    schedule=Schedule(
        lr=0.01,
        weight_decay=5e-4,
        clip=0.0,
        round_passes=5,
        max_rounds=20,
        patience=20,
        lr_patience=20,
        min_gain=0.0,
    ),
    mechanisms={"gat": (8,), "gatv2": (8,), "dpgat": (8,), "gcn": (8,), "sage": (8,), "gin": (8,)},
    seeds=range(100),
    metric="test_accuracy",
    smoke=("max_rounds=2",),
    published=(
        Published("Table of PubMed", "gat", None, {}, "test_accuracy", 0.781, 0.0059, 100),
        Published("Table of PubMed", "gatv2", None, {}, "test_accuracy", 0.785, 0.0038, 100),
    ),
    search=GRID,
    tuned=TUNED,
    caveats=CAVEATS,
)


def _alike(name: str, title: str) -> Benchmark:
    return replace(
        PUBMED,
        name=name,
        title=title,
        source="Not in the paper",
        data=NodeData(name),
        seeds=range(20),
        published=(),
        tuned={},
    )


CORA = _alike("cora", "Cora: the topic of papers, from 140 of them")
CITESEER = _alike("citeseer", "Citeseer: the topic of papers, from 120 of them")
