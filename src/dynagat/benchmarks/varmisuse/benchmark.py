"""VarMisuse: which variable belongs into a slot of a program.

The network chooses among up to five variables, of which one was there. SeenProj tests on other
files of the training projects, UnseenProj on other projects. `--set dataset=NAME` takes any set of
programs in the graph store.
"""

from __future__ import annotations

from typing import Any

from dynagat.benchmarks.varmisuse.data import ProgramData
from dynagat.benchmarks.varmisuse.network import ProgramStack
from dynagat.benchmarks.varmisuse.published import published
from dynagat.benchmarks.varmisuse.task import TESTS, ProgramTask
from dynagat.data.programs.stored import UNSEEN
from dynagat.experiment import Benchmark
from dynagat.training import Schedule


def _extras(findings: Any) -> Any:
    from dynagat.benchmarks.varmisuse.report import extras

    return extras(findings)


VARMISUSE = Benchmark(
    name="varmisuse",
    title="VarMisuse: which variable belongs into a slot of a program",
    source="The paper's VarMisuse table, 5 runs",
    claim="GATv2 finds misused variables better than GAT (88.0 against 86.9, p = 0.048, 5 runs).",
    data=ProgramData(),
    network=ProgramStack(),
    task=ProgramTask(),
    schedule=Schedule(
        lr=0.00015,
        lr_graphs=30,
        clip=1.0,
        clip_each=True,
        max_rounds=10_000,
        patience=5,
        lr_patience=10_000,  # the learning rate stays
        min_gain=0.0,
    ),
    mechanisms={"gat": (8,), "gatv2": (8,), "dpgat": (8,), "gcn": (1,), "gin": (1,)},
    seeds=range(1, 6),
    metric=TESTS[UNSEEN],
    smoke=("chunks=1", "max_rounds=1", "layers=2", "dim=16"),
    published=published(),
    tuned_by="Settings of the paper's released code",
    tuned={
        "gcn": {"layers": 10, "dim": 128, "activation": "relu", "max_nodes": 74_999,
                "lr_graphs": 0},
        "gin": {"layers": 6, "dim": 128, "activation": "relu", "dropout": 0.2, "dense_every": 1,
                "residual_every": 2, "norm": True},
    },
    microscope="glance",
    extras=_extras,
)  # fmt: skip
