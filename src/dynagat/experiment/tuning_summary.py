"""The progress of tuning in lines of text, and the summary of what was chosen."""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from dynagat.experiment.benchmark import Benchmark
from dynagat.experiment.jobs import HEADS
from dynagat.experiment.progress import SILENCE, clock
from dynagat.experiment.settings import as_text, short_name, values_of
from dynagat.experiment.study import Study, Trial
from dynagat.experiment.trials import Tuned
from dynagat.experiment.tuning import Tuning
from dynagat.training import Round


class TuningProgress:
    """A line for each trial that ends and, after some silence, for a running one."""

    def __init__(self, studies: list[Study], budget: int, say: Callable[[str], None]) -> None:
        self.say = say
        self.budget = {study.tuning.mechanism: study.limit(budget) for study in studies}
        self.done: Counter[str] = Counter()
        self.best: dict[str, float] = {}
        self.metric = studies[0].tuning.metric
        for study in studies:
            for trial in study.trials():
                self._count(trial)
        self.before = sum(self.done.values())
        if self.before:
            self.say(f"{self.before} of {sum(self.budget.values())} trials are finished already")
        self.started = self.last_line = time.perf_counter()

    def _count(self, trial: Trial) -> None:
        name = trial.mechanism
        if trial.counts and self.done[name] < self.budget[name]:
            self.done[name] += 1
            value, best = trial.value, self.best.get(name, self.metric.worst)
            if value is not None and self.metric.is_gain(value, best):
                self.best[name] = value

    def watch(self, mechanism: str, number: int, seed: int, here: Round) -> None:
        if time.perf_counter() - self.last_line > SILENCE:
            text = f"round {here.round} loss {here.loss:.4f} valid {here.valid:.4f}"
            self.say(f"{mechanism} trial {number} seed {seed}: {text}; {self._all()}")
            self.last_line = time.perf_counter()

    def tell(self, mechanism: str, number: int, seed: int, text: str) -> None:
        self.say(f"{mechanism} trial {number} seed {seed}: {text}")

    def on_trial(self, trial: Trial) -> None:
        self._count(trial)
        name = trial.mechanism
        chosen = " ".join(f"{p.split('.')[-1]}={as_text(v)}" for p, v in trial.settings.items())
        best = f", best {_score(self.best[name])}" if name in self.best else ""
        count = f"{self.done[name]}/{self.budget[name]}"
        self.say(f"{count} {name} {chosen}: {_ending(trial)}{best}; {self._all()}")
        self.last_line = time.perf_counter()

    def _all(self) -> str:
        done, total = sum(self.done.values()), sum(self.budget.values())
        spent, new = time.perf_counter() - self.started, done - self.before
        left = f", about {clock(spent / new * (total - done))} left" if new else ""
        return f"{done} of {total} trials{left}"


def _ending(trial: Trial) -> str:
    if trial.state == "refused":
        return f"skipped: {trial.refusal}"
    value = trial.state if trial.value is None else f"valid {_score(trial.value)}"
    if trial.same_as is not None:
        return f"{value}, the same as trial {trial.same_as}"
    return f"{value} in {trial.seconds:.1f} s"


def _score(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none: it diverged"


def summary_of(tuned: Tuned, benchmark: Benchmark) -> dict[str, Any]:
    """The chosen settings of a mechanism, how they were chosen, and the command that runs them."""
    best, trials = tuned.best, tuned.trials
    return {
        "benchmark": benchmark.name,
        "mechanism": tuned.tuning.mechanism,
        "settings": dict(best.settings),
        "valid": best.value,
        "values": best.values,
        "trial": best.number,
        "trials": len(trials),
        "pruned": sum(trial.state == "pruned" for trial in trials),
        "repeated": sum(trial.same_as is not None for trial in trials),
        "seeds": tuned.tuning.seeds,
        "runs": sum(len(trial.values) for trial in trials if trial.same_as is None),
        "rounds": sum(trial.rounds for trial in trials),
        "seconds": round(sum(trial.seconds for trial in trials), 1),
        "finals": [
            {"trial": each.trial.number, "valid": each.value, "values": each.values}
            for each in tuned.finals
        ],
        "fresh_seeds": tuned.finals[0].seeds if tuned.finals else (),
        "command": shlex.join(command_of(tuned, benchmark)),
    }


def command_of(tuned: Tuned, benchmark: Benchmark) -> list[str]:
    """The command that runs the chosen settings, without those that are the benchmark's own."""
    mechanism, chosen = tuned.tuning.mechanism, tuned.benchmark
    values = values_of(chosen.settings)
    dataset = values.get("data.dataset") if benchmark.by_dataset else None
    own = values_of(benchmark.base(mechanism, dataset))
    command = ["dynagat", "run", benchmark.name, "--mechanism", mechanism]
    if dataset is not None:
        command += ["--set", f"dataset={dataset}"]
    if benchmark.mechanisms[mechanism] != (chosen.network.heads,):
        command += ["--heads", str(chosen.network.heads)]
    for path, value in values.items():
        if value != own[path] and path != HEADS:
            command += ["--set", f"{short_name(benchmark.settings, path)}={as_text(value)}"]
    return [*command, "--seeds", f"{benchmark.seeds[0]}-{benchmark.seeds[-1]}"]


def summary_text(summary: dict[str, Any], tuning: Tuning) -> str:
    """The summary in three lines, or four with finalists."""
    chosen = ", ".join(
        f"{short_name(tuning.benchmark.settings, path)}={as_text(value)}"
        for path, value in summary["settings"].items()
    )
    seeds = ", ".join(map(str, summary["seeds"]))
    rank = "the best" if not summary["finals"] else "one"
    return (
        f"{summary['mechanism']}: {chosen}\n{_finals_text(summary)}"
        f"  valid {_score(summary['valid'])}, the mean of seeds {seeds}; "
        f"{rank} of {summary['trials']} trials ({summary['pruned']} pruned, "
        f"{summary['repeated']} repeated; {clock(summary['seconds'])})\n"
        f"  {summary['command']}"
    )


def _finals_text(summary: dict[str, Any]) -> str:
    """A line on the choice among finalists; empty if there was none."""
    finals, seeds = summary["finals"], ", ".join(map(str, summary["fresh_seeds"]))
    if not finals:
        return ""
    [valid] = [each["valid"] for each in finals if each["trial"] == summary["trial"]]
    rank = f"the best of {len(finals)} finalists"
    return f"  valid {_score(valid)}, the mean of fresh seeds {seeds}; {rank}\n"
