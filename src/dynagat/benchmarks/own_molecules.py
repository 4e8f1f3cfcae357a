"""Prediction for any stored molecules: what `dynagat compare --graphs` runs for each mechanism."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from dynagat.benchmarks.own_graph import open_unchanged
from dynagat.benchmarks.qm9 import MoleculeStack
from dynagat.data.molecules import NUMBER, SYMBOLS
from dynagat.data.store import GraphData
from dynagat.experiment import Benchmark
from dynagat.metrics import ACCURACY
from dynagat.prediction.graphs import GraphProblem, GraphTask, graph_problem
from dynagat.training import Schedule

HEADS = 4
OTHERS = ("B", "Si", "P", "S", "Cl", "Se", "Br", "I")  # elements that QM9 lacks
LARGEST = 100.0  # about the largest atomic number


@final
@dataclass(frozen=True)
class StoredMolecules:
    """Which molecules. `content` is their fingerprint, as for a graph."""

    graph: str = ""  # a folder, or a name in the graph store
    content: str = ""

    def load(self, seed: int) -> GraphProblem:
        if not self.graph:
            raise ValueError(self.missing())
        return molecule_problem(open_unchanged(self.graph, self.content))

    def missing(self) -> str | None:
        if self.graph:
            return None
        return "name stored molecules: --set graph=NAME; `dynagat compare --graphs` stores a table"


def molecule_problem(data: GraphData) -> GraphProblem:
    problem = graph_problem(data)
    return replace(problem, x=atom_inputs(problem.x))


def atom_inputs(x: Tensor) -> Tensor:
    """[N, 15] -> [N, 23]: further elements are one-hot, and the atomic number is at most about 1.

    QM9's five elements need neither; for a heavier one, the number alone would saturate the tanh.
    """
    number = x[:, NUMBER : NUMBER + 1]
    others = torch.tensor([SYMBOLS.index(symbol) for symbol in OTHERS])
    scaled = torch.cat([x[:, :NUMBER], number / LARGEST, x[:, NUMBER + 1 :]], dim=1)
    return torch.cat([scaled, (number == others).float()], dim=1)


OWN_MOLECULES = Benchmark(
    name="own-molecules",
    title="Prediction for stored molecules: --set graph=NAME",
    source="Your own molecules",
    data=StoredMolecules(),
    network=MoleculeStack(dim=64, heads=HEADS, layers=4),
    task=GraphTask(max_nodes=2_000),
    schedule=Schedule(
        lr=0.002,
        max_rounds=150,
        patience=20,
        lr_patience=8,
        tie_break="loss",
    ),
    mechanisms={"gcn": (1,), "gat": (HEADS,), "gatv2": (HEADS,), "dpgat": (HEADS,)},
    seeds=range(5),
    metric=ACCURACY.on("test"),
    smoke=("max_rounds=3",),
    search={
        "dim": (32, 64, 128),
        "heads": (1, 4, 8),
        "layers": (2, 4, 8),
        "dropout": (0.0, 0.1, 0.3),
        "lr": (0.0005, 0.002, 0.005),
    },
)
