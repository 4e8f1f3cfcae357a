"""PubMed (the appendix's significance table), and Cora and Citeseer by the same code.

The paper lists what was tuned, but not what was chosen, and released no code (D45). Learning rate,
weight decay, number of epochs, row normalisation and the heads of the last layer are ours, the
usual ones for such graphs. Every run has 300 epochs, so that none is cut off, and the validation
accuracy chooses the best round. `tuned` is what `dynagat tune` chose for each mechanism on the
validation nodes alone, with early stopping after 100 epochs without a better one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, final

from torch import nn

from dynagat.benchmarks.node_data import NodeData
from dynagat.benchmarks.ogbn_arxiv import CAVEATS
from dynagat.benchmarks.stacks import Stack, layer_shapes
from dynagat.experiment import Benchmark, Published
from dynagat.metrics import ACCURACY
from dynagat.nn.dropout import Dropout
from dynagat.nn.linear import Linear
from dynagat.nn.network import Layer, Network, make_conv
from dynagat.prediction.nodes import NodeProblem, NodeTask
from dynagat.training import ADDED_LATER, Schedule


@final
@dataclass(frozen=True)
class DropoutStack(Stack):
    """x ← ELU(conv(dropout(x)) + W x), and conv(dropout(x)) + W x in the last layer

    The network of the original GAT on citation graphs. W is the identity between equal widths;
    without `residual` the term is left out. As in the paper's list, `layers` counts hidden layers
    and `hidden` is the width of one head.
    """

    layers: int = 1
    hidden: int = 8
    heads: int = 8
    last_heads: int = 1
    dropout: float = 0.6  # of features and of attention
    bias: bool = True
    share_weights: bool = False  # of GATv2 and DPGAT
    residual: bool = False
    source: Literal["dynagat", "pyg"] = "dynagat"  # whose layers
    # The last layer's output is the mean of its heads, each as wide as the output.
    average: bool = field(default=False, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        self.check(least_layers=0)
        if self.last_heads < 1:
            raise ValueError(f"last_heads must be at least 1, but is {self.last_heads}")

    @property
    def dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.hidden * self.heads

    @property
    def depth(self) -> int:
        return self.layers + 1

    def build(self, problem: NodeProblem, mechanism: str) -> Network:
        options = {"bias": self.bias, "share_weights": self.share_weights, "source": self.source}
        conv = make_conv(mechanism, dropout=self.dropout, **options)
        last = make_conv(mechanism, dropout=self.dropout, concat=not self.average, **options)
        widths = [problem.x.shape[1], *[self.dim] * self.layers, problem.out_dim]
        layers = []
        for shape in layer_shapes(widths, self.heads, self.last_heads):
            width, out, is_last = shape.width, shape.out, shape.position == "last"
            # Drawn before conv, and also where it is not used: the random stream of older records.
            skip = nn.Identity() if width == out else Linear(width, out, bias=False)
            layers.append(
                Layer(
                    (last if is_last else conv)(width, out, shape.heads),
                    before=Dropout(self.dropout),
                    skip=skip if self.residual else None,
                    after=None if is_last else nn.ELU(),
                )
            )
        return Network(layers)


GRID = {
    "layers": (0, 1, 2),
    "hidden": (8, 16, 32),
    "heads": (1, 4, 8),
    "dropout": (0.4, 0.6, 0.8),
    "bias": (True, False),
    "share_weights": (True, False),
    "residual": (True, False),
    # Not in the paper's list.
    "last_heads": (1, 8),
    "average": (True,),
    "weight_decay": (5e-4, 1e-3),
    "scaling": ("none", "rows"),
}

# From 40 trials of three seeds each, none pruned, and the best five on ten fresh seeds:
# results/tuning/pubmed.jsonl
AVERAGED = {"last_heads": 8, "average": True, "scaling": "rows"}
REGULARIZED = {**AVERAGED, "weight_decay": 1e-3}
TUNED = {
    "gat": {**REGULARIZED, "hidden": 16, "bias": False, "share_weights": True},
    "gatv2": {**AVERAGED, "hidden": 32, "dropout": 0.4},
    "dpgat": {**REGULARIZED, "hidden": 16, "share_weights": True},
    "gcn": {**REGULARIZED, "dropout": 0.8, "bias": False},
}
HEADS = {"gat": (8,), "gatv2": (8,), "dpgat": (8,), "gcn": (8,), "sage": (8,), "gin": (8,)}
TUNED_HEADS = {**HEADS, "gat": (4,), "gatv2": (1,), "dpgat": (4,)}

PUBMED = Benchmark(
    name="pubmed",
    title="PubMed: the topic of papers, from 60 of them",
    source="The table of significance in the paper's appendix, 100 runs",
    claim="GATv2 is more accurate than GAT (78.5 against 78.1, p < 0.0001, 100 runs).",
    data=NodeData("pubmed"),
    network=DropoutStack(),
    task=NodeTask(),
    schedule=Schedule(
        lr=0.01,
        weight_decay=5e-4,
        clip=0.0,
        round_passes=5,
        max_rounds=60,  # 300 epochs
        patience=60,  # all of them
        lr_patience=60,
        min_gain=0.0,
    ),
    mechanisms=TUNED_HEADS,
    seeds=range(100),
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=2",),
    published=(
        Published("Table of PubMed", "gat", None, {}, ACCURACY.on("test"), 0.781, 0.0059, 100),
        Published("Table of PubMed", "gatv2", None, {}, ACCURACY.on("test"), 0.785, 0.0038, 100),
    ),
    search=GRID,
    tuned=TUNED,
    caveats=CAVEATS,
)


def _like_pubmed(name: str, title: str) -> Benchmark:
    return replace(
        PUBMED,
        name=name,
        title=title,
        source="Not in the paper",
        claim="",
        data=NodeData(name),
        mechanisms=HEADS,
        seeds=range(20),
        published=(),
        tuned={},
    )


CORA = _like_pubmed("cora", "Cora: the topic of papers, from 140 of them")
CITESEER = _like_pubmed("citeseer", "Citeseer: the topic of papers, from 120 of them")
