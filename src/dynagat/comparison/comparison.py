"""compare: train GCN, GAT, GATv2 and DPGAT with the same seeds; say which to use."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from dynagat.comparison.answer import answer
from dynagat.comparison.baselines import Baseline, baselines
from dynagat.comparison.folder import RECORDS, check_same, store_graph
from dynagat.comparison.link_baselines import link_baselines
from dynagat.comparison.model import Model
from dynagat.comparison.models import model_of
from dynagat.comparison.plan import Plan, as_settings, divided_among, make_plan
from dynagat.comparison.results import (
    MechanismResult,
    baseline_table,
    differences,
    results_of,
    score_table,
)
from dynagat.data.store import GraphData
from dynagat.experiment import Job, Record, Runner, Store, run_lacking
from dynagat.experiment.record import plain
from dynagat.experiment.runner import runner_of
from dynagat.experiment.store import StoreError
from dynagat.metrics import Metric
from dynagat.placement import find_device
from dynagat.prediction.links import LinkPrediction

Run = Callable[[list[Job], Store, int | Runner], None]  # runs the jobs that the store lacks


@dataclass(frozen=True, eq=False)
class Comparison:
    """Print it for the answer; `best` is the model to use."""

    name: str
    task: dict[str, Any]
    metric: Metric
    plan: Plan
    results: tuple[MechanismResult, ...]  # the best on the validation part first
    baselines: tuple[Baseline, ...]
    sentences: tuple[str, ...]
    best: Model

    @property
    def records(self) -> list[Record]:
        return [run for each in self.results for run in each.runs]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for JSON."""
        values = {
            "graph": self.name,
            "task": self.task,
            "score": self.metric.name,
            "answer": list(self.sentences),
            "plan": list(self.plan.reasons),
            "mechanisms": [_values(each) for each in self.results],
            "baselines": [
                {"name": each.mechanism, "uses": each.uses, "scores": each.scores}
                for each in self.baselines
            ],
            "differences": [vars(each) for each in differences(self.results[0], self.results[1:])],
        }
        return plain(values)

    def __str__(self) -> str:
        tables = [score_table(self.results), baseline_table(self.baselines)]
        return "\n\n".join(["\n".join(self.sentences), *(each.to_text() for each in tables)])


def _values(result: MechanismResult) -> dict[str, Any]:
    return {
        "mechanism": result.mechanism,
        "heads": result.heads,
        "scores": {part: result.values(part) for part in ("train", "valid", "test")},
        "metrics": [dict(run.metrics) for run in result.runs],
        "seconds": result.seconds,
        "peak_memory_bytes": result.memory,
        "attends": dict(Counter(focus for focus, _ in result.verdicts)),
        "ranking": dict(Counter(ranking for _, ranking in result.verdicts)),
    }


def compare(
    data: GraphData,
    *,
    mechanisms: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] = (),
    metric: str | None = None,
    class_weights: str | None = None,
    workers: int | Runner = 1,
    device: str = "cpu",
    folder: Path | str | None = None,
    run: Run | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Train every mechanism with every seed, analyse its attention, and test the differences.

    Args:
        data: with features, a target and a split, as `read_tables` or `read_molecules`
            returns it; or links, as `read_links` and `split_links` return them.
        mechanisms: some of gcn, gat, gatv2 and dpgat; default: all.
        seeds: of initial weights and dropout; default: 0 to 4, or to 2 from 2 million edges on.
        settings: texts such as "dim=128" or "max_rounds=50", instead of those chosen by size.
        metric: of the scores, such as "macro_f1"; it also decides when training stops. Default:
            ROC-AUC for two classes or several labels, macro F1 if more than half of the training
            nodes or molecules are of one class, else accuracy; R² for regression; average
            precision for links.
        class_weights: "balanced" weighs the loss so that every class counts alike.
        workers: number of processes, or where to train instead, such as a `Cluster`, or
            `Distributed` processes that share every batch of sampled neighbours.
        device: that networks are trained on, such as "cuda" or "auto", a GPU if there is one; for a
            number of workers.
        folder: where the graph, the records and the best model are saved; runs that it has are not
            repeated, and runs on another graph or with other settings are an error. Default:
            nowhere.
        run: how to run the jobs that a store lacks; default: without showing progress.
        tell: called with each sentence about the chosen settings before the runs start.
    """
    find_device(device)
    with ExitStack() as cleanup:
        at = folder or cleanup.enter_context(tempfile.TemporaryDirectory(prefix="dynagat-"))
        stored = data if data.folder else store_graph(
            Path(at), lambda path: data.save(path, replace=True)
        )  # fmt: skip
        size = runner_of(workers).group_size
        texts = [*settings, *as_settings(metric, class_weights), *divided_among(size, stored)]
        plan = make_plan(stored, mechanisms=mechanisms, seeds=seeds, settings=texts)
        for reason in plan.reasons:
            tell(reason)
        jobs, prediction = plan.jobs(), plan.prediction()
        with Store(Path(at, RECORDS)) as store:
            check_same(store, plan)
            (run or _run_silently)(jobs, store, runner_of(workers, device))
            records = [store.get(job.key) for job in jobs]
            finished = [each for each in records if each is not None]
            results = results_of(finished, prediction.metric, plan.subject)
            best = _best(results, store, stored)
        others = _baselines(prediction, plan)
        if folder:
            best.save(Path(at, "model"), replace=True)
    sentences = tuple(answer(results, others))
    return Comparison(data.name, dict(data.task), prediction.metric, plan, tuple(results),
                      tuple(others), sentences, best)  # fmt: skip


def _baselines(prediction: Any, plan: Plan) -> list[Baseline]:
    if isinstance(prediction, LinkPrediction):
        return link_baselines(prediction, plan.seeds)
    return baselines(prediction, plan.seeds)


def _run_silently(jobs: list[Job], store: Store, workers: int | Runner) -> None:
    for _ in run_lacking(jobs, store, workers):
        pass


def _best(results: Sequence[MechanismResult], store: Store, data: GraphData) -> Model:
    record = results[0].best_run
    weights, name = store.weights(record.key), f"weights of run {record.key[:8]}"
    if weights is None:
        raise StoreError(f"store {store.path} has no {name}")
    try:
        return model_of(record, weights, data)
    except (UnpicklingError, RuntimeError, ValueError, LookupError, EOFError):  # torch's
        raise StoreError(f"store {store.path} was altered: the {name} can't be read") from None
