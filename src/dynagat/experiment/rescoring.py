"""rescore: the best trials of a tuning on fresh seeds, which choose among them.

The best of many trials is partly the luckiest. Its finalists, the trials with the best values, are
therefore trained again with seeds that no trial used. The finalist with the best mean validation
score over the fresh seeds alone is chosen; of equal ones, the one with the better trial. Test data
are never evaluated.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynagat.experiment.benchmark import validate
from dynagat.experiment.checkpoint import Checkpoints
from dynagat.experiment.execution import graph_of
from dynagat.experiment.runner import Contact, Runner, Say, Work, runner_of
from dynagat.experiment.study import Final, Study, Trial
from dynagat.experiment.trials import Tell, Tuned, Watch, value_of
from dynagat.experiment.tuning import Point, Tuning
from dynagat.placement import find_device
from dynagat.training import Round


def rescore(
    studies: list[Study],
    results: list[Tuned],
    finalists: int,
    seeds: tuple[int, ...],
    storage: Path,
    workers: int | Runner = 1,
    watch: Watch = lambda mechanism, number, seed, round_: None,
    tell: Tell = lambda mechanism, number, seed, text: None,
    say: Say = lambda text: None,
) -> list[Tuned]:
    """The results with their best trials scored again; as they are if there is one finalist.

    Scores are kept in the studies, so that an interrupted rescoring continues.
    """
    check_finalists(finalists, seeds, [study.tuning for study in studies])
    if finalists == 1:
        return results
    chosen = [tuned.ranked[:finalists] for tuned in results]
    path = storage.resolve()
    checkpoints = Checkpoints.beside(path)
    runs = {
        _work(study.tuning, trial, seed, checkpoints): study
        for study, trials in zip(studies, chosen, strict=True)
        for trial in trials
        for seed in seeds
        if seed not in study.fresh(trial.number)
    }

    def receive(work: Work, message: Any) -> None:
        (watch if isinstance(message[-1], Round) else tell)(*message)

    with closing(runner_of(workers).run(iter(runs), receive, say, path)) as scores:
        for done in scores:
            tuning, number, point, seed, _ = done.work.arguments
            runs[done.work].keep_fresh(number, seed, done.result)
            checkpoints.remove([tuning.at(point).key(tuning.mechanism, seed)])
    return [
        replace(tuned, finals=tuple(_final(study, trial, seeds) for trial in trials))
        for study, tuned, trials in zip(studies, results, chosen, strict=True)
    ]


def _work(tuning: Tuning, trial: Trial, seed: int, checkpoints: Checkpoints) -> Work:
    """A finalist with a fresh seed."""
    name = f"{tuning.benchmark.name} {tuning.mechanism} trial {trial.number} seed={seed}"
    arguments = (tuning, trial.number, trial.settings, seed, checkpoints)
    return Work(_score, arguments, name, graph_of(tuning.at(trial.settings)))


def check_finalists(finalists: int, seeds: tuple[int, ...], tunings: list[Tuning]) -> None:
    """Refuse what `rescore` can't use; to be called before the trials, which take long."""
    if finalists < 1:
        raise ValueError(f"finalists must be at least 1, but is {finalists}")
    used = {seed for tuning in tunings for seed in tuning.seeds}
    for seed in seeds:
        if seed in used:
            raise ValueError(f"fresh seeds must differ from those of the trials, but hold {seed}")


def _final(study: Study, trial: Trial, seeds: tuple[int, ...]) -> Final:
    values = study.fresh(trial.number)
    return Final(trial, seeds, tuple(values[seed] for seed in seeds))


def _score(
    contact: Contact,
    tuning: Tuning,
    number: int,
    point: Point,
    seed: int,
    checkpoints: Checkpoints,
) -> float:
    benchmark, mechanism = tuning.at(point), tuning.mechanism

    def report(content: Round | str, seconds: float = 0.0) -> None:
        contact.send((mechanism, number, seed, content))

    key = benchmark.key(mechanism, seed)
    device, kept = contact.device, None
    if contact.shares_files:
        kept = checkpoints.of(key, report, find_device(device))
    outcome = validate(benchmark, mechanism, seed, report, kept, device)
    return value_of(outcome, tuning.metric)
