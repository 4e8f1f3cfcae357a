"""Study: the trials of a tuning, kept by Optuna in an SQLite file. Ended trials survive a kill.

One process creates and ends trials; workers report validation scores meanwhile. Ctrl-C waits for
the file, so that no trial is left half written.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynagat.experiment.interruption import uninterrupted
from dynagat.experiment.settings import as_text
from dynagat.experiment.tuning import Point, Tuning

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

MAX_REPORTS = 10  # to the pruner in a run: each waits for the disk
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "lost", "RUNNING": "running"}


@dataclass(frozen=True)
class Trial:
    """A point of the grid that was tried."""

    mechanism: str
    number: int
    settings: Point
    seeds: tuple[int, ...]  # of the runs that ended
    values: tuple[float, ...]  # best validation score of each; infinite if it diverged
    state: str  # "complete", "pruned", "refused" by the settings, "running", or "lost" in a kill
    value: float | None  # mean of the values of a complete trial
    seconds: float
    rounds: int
    same_as: int | None = None  # an earlier trial of the same point, whose values are copied
    refusal: str = ""

    @property
    def counts(self) -> bool:
        """Whether it counts towards the budget."""
        return self.state in ("complete", "pruned")


@dataclass(frozen=True)
class Final:
    """A trial that was scored again, on seeds that no trial used."""

    trial: Trial
    seeds: tuple[int, ...]
    values: tuple[float, ...]  # validation score of each seed

    @property
    def value(self) -> float:
        return sum(self.values) / len(self.values)


@dataclass(frozen=True)
class Attempt:
    """Result of the runs of a trial."""

    values: tuple[float, ...]
    rounds: int
    seconds: float
    pruned: bool


class Study:
    """The trials of one tuning.

    Args:
        tuning: what is tuned.
        storage: Optuna's, see `experiment.storage`.
    """

    def __init__(self, tuning: Tuning, storage: RDBStorage) -> None:
        import optuna

        self.tuning = tuning
        self.points, self.refusals = tuning.points()
        random.Random(0).shuffle(self.points)  # the same order for every mechanism
        self._texts = {p: {as_text(v): v for v in vs} for p, vs in tuning.choices.items()}
        self._distributions: dict[str, Any] = {
            path: optuna.distributions.CategoricalDistribution(list(texts))
            for path, texts in self._texts.items()
        }
        # The first fifth of a run is never pruned, nor are the first five trials.
        warm_up = tuning.max_rounds // 5
        self._pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=warm_up)
        self._storage = optuna.storages.get_storage(storage)  # caches ended trials
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=f"{tuning.benchmark.name} {tuning.mechanism} {tuning.key}",
            direction="maximize" if tuning.metric.higher_is_better else "minimize",
            load_if_exists=True,
        )

    def limit(self, budget: int) -> int:
        """Number of trials to make: a grid has only so many points."""
        return min(budget, len(self.points)) if self.tuning.sampler == "grid" else budget

    @uninterrupted()
    def trials(self) -> list[Trial]:
        return [self._read(each) for each in self._study.get_trials(deepcopy=False)]

    def _read(self, frozen: FrozenTrial) -> Trial:
        notes = frozen.user_attrs
        values = tuple(notes.get("values", ()))
        return Trial(
            mechanism=self.tuning.mechanism,
            number=frozen.number,
            settings={path: self._texts[path][text] for path, text in frozen.params.items()},
            seeds=self.tuning.seeds[: len(values)],
            values=values,
            state="refused" if "refusal" in notes else STATES[frozen.state.name],
            value=frozen.value if frozen.state.name == "COMPLETE" else None,
            seconds=notes.get("seconds", 0.0),
            rounds=notes.get("rounds", 0),
            same_as=notes.get("same_as"),
            refusal=notes.get("refusal", ""),
        )

    @uninterrupted()
    def recover(self) -> int:
        """Give up the trials that a killed process left running; returns how many."""
        left = [trial for trial in self.trials() if trial.state == "running"]
        for trial in left:
            self._end(trial.number, "FAIL")
        return len(left)

    @uninterrupted()
    def ask(self) -> Trial:
        """The next trial: to be run, or already ended if it is refused or repeats another.

        A trial of a point that is running just now stays "running" and ends with its twin.
        """
        earlier = self.trials()
        self._create(earlier)
        trial = self.trials()[-1]
        refusal = self.tuning.refusal(trial.settings)
        if refusal:
            self._note(trial.number, refusal=refusal)
            self._end(trial.number, "PRUNED")
        twins = [t for t in earlier if t.settings == trial.settings and (t.counts or _runs(t))]
        if twins:
            self._note(trial.number, same_as=twins[0].number)
            if twins[0].counts:
                self._copy(twins[0], trial.number)
        return self.trials()[-1]

    def _create(self, earlier: list[Trial]) -> None:
        import optuna

        point = self._next_point(earlier)
        if point is None:
            # Seeded for each trial, so that a resumed study continues as if it had never stopped.
            number = sum(trial.state != "lost" for trial in earlier)
            self._study.sampler = optuna.samplers.TPESampler(seed=_seed(number))
            self._study.ask(self._distributions)
            return
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params={path: as_text(value) for path, value in point.items()},
            distributions=self._distributions,
        )
        self._study.add_trial(trial)

    def _next_point(self, earlier: list[Trial]) -> Point | None:
        """The next point of the grid, or one that was lost; None if the sampler chooses.

        Optuna's GridSampler would propose refused points too, and some points twice.
        """
        kept = [trial for trial in earlier if trial.state != "lost"]
        if self.tuning.sampler == "grid":
            tried = [trial.settings for trial in kept]
            return next(point for point in self.points if point not in tried)
        for lost in earlier:
            again = any(t.number > lost.number and t.settings == lost.settings for t in kept)
            is_whole = len(lost.settings) == len(self._texts)
            if lost.state == "lost" and is_whole and not again:
                return lost.settings
        return None

    @uninterrupted()
    def tell(self, number: int, attempt: Attempt) -> list[Trial]:
        """End a trial and those of the same point that waited for it; returns all of them."""
        mean = sum(attempt.values) / len(attempt.values) if attempt.values else None
        self._note(
            number,
            values=list(attempt.values),
            seconds=round(attempt.seconds, 3),
            rounds=attempt.rounds,
        )
        if attempt.pruned:
            self._end(number, "PRUNED")
        else:
            self._end(number, "COMPLETE", mean)
        ended = self.trials()
        waiting = [t.number for t in ended if t.same_as == number and _runs(t)]
        for each in waiting:
            self._copy(ended[number], each)
        return [trial for trial in self.trials() if trial.number in (number, *waiting)]

    def _copy(self, twin: Trial, number: int) -> None:
        self._note(number, values=list(twin.values))
        if twin.state == "complete":
            self._end(number, "COMPLETE", twin.value)
            return
        last = self._study.get_trials(deepcopy=False)[twin.number]
        if last.last_step is not None:
            self.report(number, last.last_step, last.intermediate_values[last.last_step])
        self._end(number, "PRUNED")

    @uninterrupted()
    def report(self, number: int, step: int, score: float) -> bool:
        """Report a validation score; True if the trial should be given up."""
        if not self.tuning.prune:
            return False
        self._storage.set_trial_intermediate_value(self._id(number), step, score)
        return self._pruner.prune(self._study, self._storage.get_trial(self._id(number)))

    @uninterrupted()
    def fresh(self, number: int) -> dict[int, float]:
        """Validation scores of a trial's settings by fresh seed; see experiment.rescoring."""
        kept = self._study.user_attrs.get(f"fresh {number}", {})
        return {int(seed): value for seed, value in kept.items()}

    @uninterrupted()
    def keep_fresh(self, number: int, seed: int, value: float) -> None:
        self._study.set_user_attr(f"fresh {number}", {**self.fresh(number), seed: value})

    def _note(self, number: int, **notes: Any) -> None:
        for name, value in notes.items():
            self._storage.set_trial_user_attr(self._id(number), name, value)

    def _end(self, number: int, state: str, value: float | None = None) -> None:
        from optuna.trial import TrialState

        self._study.tell(number, value, state=TrialState[state])

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)


def _runs(trial: Trial) -> bool:
    return trial.state == "running"


def _seed(number: int) -> int:
    """Unrelated for consecutive numbers, the same for every mechanism."""
    return int.from_bytes(hashlib.sha256(json.dumps(["tpe", number]).encode()).digest()[:4], "big")
