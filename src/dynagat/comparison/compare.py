"""compare: train GCN, GAT, GATv2 and DPGAT on a graph, on the same seeds, and say which to use."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from dynagat.analysis.attentive import look
from dynagat.comparison.answer import answer
from dynagat.comparison.model import Model, model_of
from dynagat.comparison.plan import Plan, make_plan, score_of
from dynagat.comparison.rows import Row, differences, rows_of
from dynagat.comparison.table import plain_table
from dynagat.data.store import GraphData
from dynagat.experiment import Job, Record, Store, execute
from dynagat.experiment.record import plain
from dynagat.experiment.store import StoreError

Run = Callable[[list[Job], Store, int], None]  # runs what the store lacks


@dataclass(frozen=True, eq=False)
class Comparison:
    """`print` it for the answer; `best` is the model to use."""

    name: str
    task: dict[str, Any]
    score: str  # "accuracy", "roc_auc" or "r_squared": more is better
    plan: Plan
    rows: tuple[Row, ...]  # the best on the validation nodes first
    sentences: tuple[str, ...]
    best: Model

    @property
    def records(self) -> list[Record]:
        return [run for row in self.rows for run in row.runs]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        told = {
            "graph": self.name,
            "task": self.task,
            "score": self.score,
            "answer": list(self.sentences),
            "plan": list(self.plan.reasons),
            "mechanisms": [self._row(row) for row in self.rows],
            "differences": [vars(each) for each in differences(self.rows[0], self.rows[1:])],
        }
        return plain(told)

    def _row(self, row: Row) -> dict[str, Any]:
        scores = {part: row.values(part) for part in ("train", "valid", "test")}
        return {
            "mechanism": row.mechanism,
            "heads": row.heads,
            "scores": scores,
            "metrics": [dict(run.metrics) for run in row.runs],
            "seconds": row.seconds,
            "peak_memory_bytes": row.memory,
            "verdicts": dict(row.verdicts),
        }

    def __str__(self) -> str:
        return "\n".join([*self.sentences, "", *plain_table(self.rows)])


def compare(
    data: GraphData,
    *,
    mechanisms: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] = (),
    workers: int = 1,
    folder: Path | str | None = None,
    run: Run | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train every mechanism on every seed, look at its attention, and test the differences.

    Args:
        data: with features, a target and a split; as `read_tables` gives it.
        mechanisms: of gcn, gat, gatv2 and dpgat; default: all.
        seeds: of initial weights and dropout; default: 0 to 4, or to 2 from 2 million edges on.
        settings: texts such as "dim=128" or "max_rounds=50", over what the size suggests.
        workers: processes to train in.
        folder: where the graph, the records and the best model go; what it has of them already is
            not run again. Default: nowhere.
        run: how to run the jobs that a store lacks; default: without a word.
        tell: hears, before they run, how and why so.
    """
    with ExitStack() as cleanup:
        at = folder or cleanup.enter_context(tempfile.TemporaryDirectory(prefix="dynagat-"))
        stored = data if data.folder else data.save(Path(at, "graph"), replace=True)
        plan = make_plan(stored, mechanisms=mechanisms, seeds=seeds, settings=settings)
        for reason in plan.reasons:
            tell(reason)
        jobs = plan.jobs(look)
        with Store(Path(at, "records.sqlite")) as store:
            (run or run_jobs)(jobs, store, workers)
            found = [store.get(job.key) for job in jobs]
            rows = rows_of([record for record in found if record is not None], score_of(stored))
            best = _best(rows, store, stored)
        if folder:
            best.save(Path(at, "model"), replace=True)
    return Comparison(
        data.name, dict(data.task), score_of(data), plan, tuple(rows), tuple(answer(rows)), best
    )


def run_jobs(jobs: list[Job], store: Store, workers: int) -> None:
    """Run what the store lacks."""
    have = store.keys()
    for record in execute([job for job in jobs if job.key not in have], workers):
        store.add(record)


def _best(rows: Sequence[Row], store: Store, data: GraphData) -> Model:
    record = rows[0].best_run
    weights, name = store.weights(record.key), f"weights of run {record.key[:8]}"
    if weights is None:
        raise StoreError(f"store {store.path} has no {name}")
    try:
        return model_of(record, weights, data)
    except (UnpicklingError, RuntimeError, ValueError, LookupError, EOFError):  # torch's
        raise StoreError(f"store {store.path} was altered: the {name} can't be read") from None
