"""ogbl-ddi, an extra of ours: which drugs interact. Each drug interacts with 500 on average.

Nodes have no features: the network learns a table of them. OGB's own script trains GCN and
GraphSAGE in the same way. The paper expects dynamic attention to help where degrees are high.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from dynagat.benchmarks.link_data import LinkData
from dynagat.benchmarks.ogbl_collab import LINK_MECHANISMS
from dynagat.benchmarks.stacks import LinkStack
from dynagat.experiment import Benchmark, Published
from dynagat.link_metrics import hits_metric
from dynagat.prediction.links import LinkTask
from dynagat.report.findings import Findings
from dynagat.report.headline import analysed, groups
from dynagat.report.judgement import Judgement, compared, context_of
from dynagat.report.parts import Extras
from dynagat.report.rows import OURS, RIVAL
from dynagat.training import Schedule

HITS_10, HITS_20, HITS_30 = map(hits_metric, (10, 20, 30))


@final
@dataclass(frozen=True)
class DrugData(LinkData):
    """Drugs that interact."""

    dataset: str = "ogbl-ddi"

    METRIC = HITS_20
    FURTHER = (HITS_10, HITS_30)


def _judge(findings: Findings) -> Iterator[Judgement]:
    """GATv2 against GAT, with what the microscope says of their heads."""
    rows_of = {context_of(rows[0]): rows for rows in groups(findings.rows)}
    for each in compared(findings, findings.benchmark.claim):
        pair = [row for row in rows_of[each.context] if row.mechanism in (OURS, RIVAL)]
        yield replace(each, numbers=" ".join([each.numbers, *analysed(pair)]))


def _extras(findings: Findings) -> Extras:
    return Extras(judge=_judge)


OGB_BASELINE = {"norm": False, "residual": "none"}  # in both fidelities: OGB's script for ddi
OGB_LEADERBOARD = {("gcn", 1): (37.07, 5.07), ("sage", 1): (53.90, 4.74)}

OGBL_DDI = Benchmark(
    name="ogbl-ddi",
    title="ogbl-ddi: which of 4,267 drugs interact",
    source="OGB's leaderboard; not in the paper",
    claim="Dynamic attention helps where degrees are high, as the paper conjectures: GATv2 predicts"
    " interactions better than GAT (each drug has 500 on average).",
    data=DrugData(),
    network=LinkStack(dim=256, layers=2, dropout=0.5),
    task=LinkTask(negatives="unlinked"),
    schedule=Schedule(
        lr=0.005,
        batch_size=65_536,
        clip=1.0,
        clip_parts=True,
        round_passes=5,
        max_rounds=40,
        patience=40,
        lr_patience=40,
        min_gain=0.0,
    ),
    mechanisms=LINK_MECHANISMS,
    seeds=range(10),
    metric=HITS_20.on("test"),
    smoke=("max_rounds=1", "round_passes=1", "dim=8", "batch_size=400000"),
    published=tuple(
        Published.from_percents("OGB's leaderboard", OGB_LEADERBOARD, HITS_20.on("test"), 10)
    ),
    search={"dim": (64, 128, 256), "dropout": (0.0, 0.3, 0.5), "lr": (0.001, 0.005, 0.01)},
    tuned={"gcn": OGB_BASELINE, "sage": OGB_BASELINE},
    tuned_by="Settings of OGB's own script",
    microscope="glance",
    extras=_extras,
)
