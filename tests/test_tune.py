"""Tuning: on validation data only, with equal budgets; no finished trial is repeated."""

import json
import math
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from dynagat.benchmarks import DICTIONARY_LOOKUP, OWN_GRAPH
from dynagat.cli import app
from dynagat.experiment import (
    Benchmark,
    Request,
    Study,
    Tuned,
    Tuning,
    grid,
    jobs_of,
    run,
    tune,
    validate,
)
from dynagat.experiment.interruption import uninterrupted
from dynagat.experiment.rescoring import rescore
from dynagat.experiment.settings import as_text, parse_choices
from dynagat.experiment.storage import opened
from dynagat.experiment.store import StoreError
from dynagat.experiment.tuning import choices_of
from dynagat.experiment.tuning_summary import TuningProgress, command_of, summary_of
from dynagat.metrics import ACCURACY, MEAN_ABSOLUTE_ERROR
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.training import Schedule

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def one_thread(threads):
    threads(1)


# A benchmark whose best settings are known: width 3 and slope 0.5 on the validation data. On the
# test data, these are the worst. Every run adds a line to a file.


@dataclass(frozen=True)
class ToyData:
    log: str = ""

    def load(self, seed):
        return Path(self.log), seed

    def missing(self):
        return None


@dataclass(frozen=True)
class ToyNetwork:
    width: int = 1
    slope: float = 0.0
    heads: int = 1
    parts: tuple[int, ...] = ()

    def __post_init__(self):
        if self.width % self.heads:
            raise ValueError(f"heads must divide width={self.width}, but is {self.heads}")

    def build(self, data, mechanism):
        log, seed = data
        with log.open("a") as file:
            file.write(f"{mechanism} {self.width} {self.slope} {self.heads} {seed}\n")
        network = nn.Linear(1, 1)
        network.valid = 0.9 - abs(self.width - 3) / 10 - abs(self.slope - 0.5) / 100
        network.width = self.width
        return network


@dataclass(frozen=True)
class ToyTask:
    pause: float = 0.0
    measure: str = "accuracy"  # or "error"

    def prepare(self, data, schedule):
        return Toy(data[0], self)


class Toy(Prediction):
    def __init__(self, log, settings):
        self.log, self.settings, self.epochs = log, settings, 0

    @property
    def metric(self):
        return ACCURACY if self.settings.measure == "accuracy" else MEAN_ABSOLUTE_ERROR

    def batches(self, generator):
        time.sleep(self.settings.pause)
        self.epochs += 1
        return iter([None])

    def loss(self, network, batch):
        loss = network.weight.sum()
        return (loss * math.nan if network.width == 9 else loss), 0.0

    def evaluate(self, network, part):
        accuracy = network.valid * (1 - 0.5**self.epochs)
        if part == "test":
            with self.log.open("a") as file:
                file.write("the test data were used\n")
            accuracy = 1 - network.valid
        return accuracy if self.settings.measure == "accuracy" else 1 - accuracy, 1.0

    def microscope_input(self):
        return MicroscopeInput(None)


TOY = Benchmark(
    name="toy",
    title="",
    source="",
    data=ToyData(),
    network=ToyNetwork(),
    task=ToyTask(),
    schedule=Schedule(max_rounds=4),
    mechanisms={"gat": (1, 8), "gatv2": (1,)},
    seeds=range(2, 7),
    metric=ACCURACY.on("test"),
    smoke=(),
    search={"width": (1, 2, 3, 4), "network.slope": (0, 0.5, 1)},
    microscope="none",
)
TOY_ERROR = replace(
    TOY,
    task=ToyTask(measure="error"),
    schedule=Schedule(max_rounds=4, stop_at=0.0),
    metric=MEAN_ABSOLUTE_ERROR.on("test"),
)


def tunings(
    log, *, toy=TOY, texts=(), fixed=(), mechanisms=("gat", "gatv2"), seeds=(0, 1), **options
):
    [settings] = grid(toy.settings, [f"log={log}", *fixed])
    base = toy.with_settings(settings)
    choices = choices_of(base, list(texts))
    return [Tuning(base, name, choices, tuple(seeds), **options) for name in mechanisms]


def tuned(
    folder, budget, *, workers=1, on_trial=lambda trial: None, storage="tune.sqlite", **options
):
    """The results of tuning, and all trials of each study."""
    path = folder / storage
    with opened(path) as kept:
        studies = [Study(each, kept) for each in tunings(folder / "log", **options)]
        for study in studies:
            study.recover()
        results = tune(studies, budget, path, workers, on_trial=on_trial)
        return results, [study.trials() for study in studies]


def runs(folder):
    return Counter((folder / "log").read_text().splitlines())


class Stop(Exception):
    pass


def stop_after(number):
    """A callback that stops tuning after so many trials, as Ctrl-C would."""
    trials = []

    def on_trial(trial):
        trials.append(trial)
        if len(trials) == number:
            raise Stop

    return on_trial


# The choice


def test_the_choice_is_the_best_on_validation_data_and_uses_no_test_data(tmp_path):
    results, _ = tuned(tmp_path, 12, sampler="grid")
    for each in results:
        assert each.best.settings == {"network.width": 3, "network.slope": 0.5}
        assert each.best.value == pytest.approx(0.9 * (1 - 0.5**4))
    assert "the test data were used" not in runs(tmp_path)
    record = run(results[0].benchmark, "gat", 0)
    assert record.metrics["test_accuracy"] < 0.2  # the worst on the test data
    assert runs(tmp_path)["the test data were used"] == 1


def test_validating_trains_as_a_run_does():
    [settings] = grid(DICTIONARY_LOOKUP.settings, ["k=4", "dim=16", "max_rounds=2"])
    benchmark = DICTIONARY_LOOKUP.with_settings(settings)
    before = torch.random.get_rng_state()
    outcome = validate(benchmark, "gatv2", 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [vars(each) for each in outcome.history] == run(benchmark, "gatv2", 3).history
    with pytest.raises(ValueError, match="has no mechanism 'gat3'; it has gatv2, gat"):
        validate(benchmark, "gat3", 3)


def test_of_equal_trials_the_earliest_is_chosen(tmp_path):
    texts = ["heads=1,2,4", "width=4", "slope=0.5"]
    [result], _ = tuned(tmp_path, 3, texts=texts, mechanisms=["gat"], sampler="grid")
    assert len({trial.value for trial in result.trials}) == 1
    assert result.best.number == 0


def test_a_diverged_trial_is_the_worst_and_no_error(tmp_path):
    [result], [trials] = tuned(tmp_path, 20, texts=["width=1,9", "slope=0.5"], mechanisms=["gat"])
    diverged = [trial for trial in trials if trial.settings["network.width"] == 9]
    assert diverged
    assert all(trial.state == "complete" and trial.value == -math.inf for trial in diverged)
    assert all(trial.seeds == (0,) for trial in diverged)  # another seed can't improve the mean
    assert result.best.settings["network.width"] == 1


def test_if_all_trials_diverge_the_value_is_infinite(tmp_path):
    [result], _ = tuned(tmp_path, 2, texts=["width=9", "slope=0"], mechanisms=["gat"])
    assert result.best.value == -math.inf


def test_trials_below_the_median_are_pruned_and_never_chosen(tmp_path):
    texts = ["width=1,2,3,4,5,6,7,8,10,11,12", "slope=0.5"]
    options = {"texts": texts, "fixed": ["max_rounds=10"], "sampler": "grid"}
    [result], [trials] = tuned(tmp_path, 11, mechanisms=["gat"], **options)
    pruned = [trial for trial in trials if trial.state == "pruned"]
    complete = [trial for trial in trials if trial.state == "complete"]
    assert pruned
    assert len(complete) + len(pruned) == 11
    assert all(trial.rounds < 20 and trial.value is None for trial in pruned)
    assert all(trial.rounds == 20 and len(trial.values) == 2 for trial in complete)
    assert result.best.settings["network.width"] == 3
    assert result.best.value == max(trial.value for trial in complete)
    assert summary_of(result, TOY)["pruned"] == len(pruned)


def test_nothing_is_pruned_if_pruning_is_off(tmp_path):
    _, [trials] = tuned(tmp_path, 12, mechanisms=["gat"], sampler="grid", prune=False)
    assert {trial.state for trial in trials} == {"complete"}


def test_if_all_trials_were_pruned_there_is_no_best_one(tmp_path):
    with pytest.raises(ValueError, match="the 0 trials of gat were all given up"):
        _ = Tuned(tunings(tmp_path)[0], ()).best


def test_a_lower_is_better_metric_is_minimised(tmp_path):
    results, _ = tuned(tmp_path, 12, toy=TOY_ERROR, sampler="grid", prune=False)
    for each in results:
        assert each.best.settings == {"network.width": 3, "network.slope": 0.5}
        assert each.best.value == pytest.approx(1 - 0.9 * (1 - 0.5**4))
        assert each.best.value == min(trial.value for trial in each.trials)
    record = run(results[0].benchmark, "gat", 0)
    assert record.metrics["test_mean_absolute_error"] == pytest.approx(0.9)


def test_sampling_a_lower_is_better_metric_finds_the_same_points_as_its_opposite(tmp_path):
    options = {"texts": ["width=1-8", "slope=0,0.2,0.4,0.5,0.6"], "mechanisms": ["gat"]}
    chosen = {}
    for toy in (TOY, TOY_ERROR):
        folder = tmp_path / toy.task.measure
        folder.mkdir()
        [result], [trials] = tuned(folder, 20, toy=toy, **options)
        chosen[toy.task.measure] = [(t.settings, t.state) for t in trials], result.best.settings
    assert chosen["accuracy"] == chosen["error"]


def test_trials_above_the_median_error_are_pruned(tmp_path):
    texts = ["width=1,2,3,4,5,6,7,8,10,11,12", "slope=0.5"]
    options = {"texts": texts, "fixed": ["max_rounds=10"], "sampler": "grid"}
    [result], [trials] = tuned(tmp_path, 11, toy=TOY_ERROR, mechanisms=["gat"], **options)
    complete = [trial.value for trial in trials if trial.state == "complete"]
    assert "pruned" in {trial.state for trial in trials}
    assert result.best.settings["network.width"] == 3
    assert result.best.value == min(complete)


def test_a_diverged_trial_has_an_infinite_error_and_is_never_chosen(tmp_path):
    texts = ["width=1,9", "slope=0.5"]
    options = {"texts": texts, "mechanisms": ["gat"], "sampler": "grid"}
    [result], [trials] = tuned(tmp_path, 2, toy=TOY_ERROR, **options)
    assert {t.settings["network.width"]: t.value == math.inf for t in trials} == {1: False, 9: True}
    assert result.best.settings["network.width"] == 1


def test_progress_shows_the_lowest_error_as_the_best(tmp_path):
    path, lines = tmp_path / "tune.sqlite", []
    with opened(path) as kept:
        texts = ["width=1,3,2", "slope=0.5"]
        options = {"texts": texts, "mechanisms": ["gat"], "sampler": "grid", "prune": False}
        studies = [
            Study(each, kept) for each in tunings(tmp_path / "log", toy=TOY_ERROR, **options)
        ]
        progress = TuningProgress(studies, 3, lines.append)
        [result] = tune(studies, 3, path, on_trial=progress.on_trial)
    assert f"best {result.best.value:.4f}; 3 of 3 trials" in lines[-1]


# Points of the grid


def test_every_mechanism_tries_each_point_once_in_the_same_order(tmp_path):
    results, (first, second) = tuned(tmp_path, sys.maxsize, sampler="grid")
    points = [tuple(trial.settings.values()) for trial in first]
    assert len(points) == 12
    assert set(points) == {(w, s) for w in (1, 2, 3, 4) for s in (0.0, 0.5, 1.0)}
    assert points != sorted(points)
    assert [trial.settings for trial in second] == [trial.settings for trial in first]
    assert set(runs(tmp_path).values()) == {1}
    assert all(len(each.trials) == 12 for each in results)


def test_a_smaller_budget_tries_the_first_of_the_shuffled_points(tmp_path):
    _, [some] = tuned(tmp_path, 5, mechanisms=["gat"], sampler="grid", prune=False)
    _, [all_] = tuned(tmp_path, 99, mechanisms=["gat"], sampler="grid", prune=False)
    assert all_[:5] == some
    assert len(all_) == 12


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_points_that_the_settings_refuse_are_skipped_and_not_counted(tmp_path, sampler):
    texts = ["heads=1,2,3", "slope=0.5"]
    _, [trials] = tuned(tmp_path, 7, texts=texts, mechanisms=["gat"], sampler=sampler)
    assert sum(trial.counts for trial in trials) == 7
    refused = [trial for trial in trials if trial.state == "refused"]
    assert bool(refused) == (sampler == "tpe")
    for trial in refused:
        assert trial.settings["network.width"] % trial.settings["network.heads"]
        assert "heads must divide width=" in trial.refusal
    assert sum(runs(tmp_path).values()) <= 14


def test_a_point_that_is_proposed_again_is_not_run_again(tmp_path):
    texts = ["width=2,3", "slope=0.5"]
    [result], [trials] = tuned(tmp_path, 8, texts=texts, mechanisms=["gat"], prune=False)
    assert len(result.trials) == 8
    assert set(runs(tmp_path).values()) == {1}
    for trial in trials:
        if trial.same_as is not None:
            assert trial.settings == trials[trial.same_as].settings
            assert (trial.value, trial.rounds) == (trials[trial.same_as].value, 0)
    assert sum(trial.same_as is None for trial in trials) == 2


# Budgets and resuming


def test_mechanisms_have_equal_budgets_wherever_tuning_stops(tmp_path):
    for number in (5, 3):
        with pytest.raises(Stop):
            tuned(tmp_path, 12, on_trial=stop_after(number))
    results, (first, second) = tuned(tmp_path, 4)
    assert len(first) == len(second) == 4
    assert [len(each.trials) for each in results] == [4, 4]
    # The sampler draws the first trials without looking at scores.
    assert [t.settings for t in first] == [t.settings for t in second]


def test_a_study_with_more_than_its_budget_is_judged_by_its_first_trials(tmp_path):
    tuned(tmp_path, 12, mechanisms=["gat"], sampler="grid")
    results, (first, second) = tuned(tmp_path, 3, sampler="grid")
    assert (len(first), len(second)) == (12, 3)
    assert [len(each.trials) for each in results] == [3, 3]
    assert results[0].best.settings == results[1].best.settings


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_resumed_tuning_continues_as_if_it_had_never_stopped(tmp_path, sampler):
    wide = ["width=1-8", "slope=0,0.2,0.4,0.5,0.6"]
    options = {"texts": wide, "seeds": [0], "mechanisms": ["gat"], "sampler": sampler}
    for number in (4, 8):
        with pytest.raises(Stop):
            tuned(tmp_path, 15, on_trial=stop_after(number), **options)
    in_parts, [trials] = tuned(tmp_path, 15, **options)
    assert set(runs(tmp_path).values()) == {1}
    (tmp_path / "whole").mkdir()
    at_once, [others] = tuned(tmp_path / "whole", 15, **options)
    assert [(t.settings, t.values) for t in trials] == [(t.settings, t.values) for t in others]
    assert in_parts[0].best.settings == at_once[0].best.settings


def test_other_settings_are_another_study(tmp_path):
    [one] = tunings(tmp_path, mechanisms=["gat"])
    others = [
        tunings(tmp_path, mechanisms=["gatv2"]),
        tunings(tmp_path, mechanisms=["gat"], seeds=[0]),
        tunings(tmp_path, mechanisms=["gat"], fixed=["pause=0.1"]),
        tunings(tmp_path, mechanisms=["gat"], texts=["slope=0,1"]),
        tunings(tmp_path, mechanisms=["gat"], sampler="grid"),
        tunings(tmp_path, mechanisms=["gat"], prune=False),
    ]
    assert len({one.key, *(other.key for [other] in others)}) == 7
    [same] = tunings(tmp_path, mechanisms=["gat"], fixed=["width=4"])  # the grid replaces it
    assert same.key == one.key


SCRIPT = """
import sys
from pathlib import Path
from tests.test_tune import tuned
if __name__ == "__main__":
    tuned(Path(sys.argv[1]), 8, workers=int(sys.argv[2]), fixed=["pause=0.02"], prune=False)
"""


def test_killed_tuning_loses_no_finished_trial(tmp_path):
    workers = 2
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(script), str(tmp_path), str(workers)]
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 180
    while not (tmp_path / "log").exists() or sum(runs(tmp_path).values()) < 9:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1)  # until the workers notice that their parent has ended
    with opened(tmp_path / "tune.sqlite") as kept:
        some = [
            Study(t, kept) for t in tunings(tmp_path / "log", fixed=["pause=0.02"], prune=False)
        ]
        finished = [trial for study in some for trial in study.trials() if trial.counts]
        assert sum(study.recover() for study in some) <= 2 * workers
    assert 2 <= len(finished) < 16
    before = runs(tmp_path)
    results, both = tuned(tmp_path, 8, fixed=["pause=0.02"], prune=False)
    assert [len(each.trials) for each in results] == [8, 8]
    now = {(trial.mechanism, trial.number): trial for trials in both for trial in trials}
    for trial in finished:
        assert now[trial.mechanism, trial.number] == trial
        width, slope = trial.settings.values()
        for seed in trial.seeds:
            line = f"{trial.mechanism} {width} {slope} 1 {seed}"
            assert runs(tmp_path)[line] == before[line] == 1


def test_two_workers_run_exactly_the_budget(tmp_path):
    ended = []
    results, both = tuned(tmp_path, 9, workers=2, on_trial=ended.append, prune=False)
    assert [len(each.trials) for each in results] == [9, 9]
    assert all(trial.state == "complete" for trials in both for trial in trials)
    assert sorted((t.mechanism, t.number) for t in ended) == sorted(
        (t.mechanism, t.number) for trials in both for t in trials
    )
    assert set(runs(tmp_path).values()) == {1}


def test_a_storage_is_used_by_one_process_at_a_time(tmp_path):
    path = tmp_path / "tune.sqlite"
    with opened(path), pytest.raises(StoreError, match="in use by another process"), opened(path):
        pass
    with opened(path):
        pass


def test_ctrl_c_waits_for_uninterrupted_work():
    done = []

    @uninterrupted()
    def work():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        done.append(True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done


# The command that runs the chosen settings


def test_the_command_means_exactly_the_chosen_settings(tmp_path):
    texts = ["heads=1,2", "width=2,4", "parts=;1,2", "max_rounds=3"]
    for each in tuned(tmp_path, 3, texts=texts, fixed=["pause=0.001"])[0]:
        words = shlex.split(shlex.join(command_of(each, TOY)))
        name = each.tuning.mechanism
        assert words[:5] == ["dynagat", "run", "toy", "--mechanism", name]
        options = list(zip(words[5::2], words[6::2], strict=True))
        given = {word: [value for each, value in options if each == word] for word, _ in options}
        assert given["--seeds"] == ["2-6"]
        heads = tuple(map(int, given.get("--heads", ())))
        jobs = jobs_of(TOY, Request(tuple(given["--set"]), (name,), heads))
        assert [job.key for job in jobs] == [each.benchmark.key(name, seed) for seed in TOY.seeds]


@pytest.mark.parametrize("value", [True, False, 3, -3, 1e-05, 0.6, (), (10, 5), None])
def test_a_value_can_be_parsed_from_its_text(value):
    @dataclass(frozen=True)
    class Field:
        field: type(value)  # type: ignore[valid-type]

    kinds = {tuple: tuple[int, ...], type(None): int | None}
    Field.__annotations__["field"] = kinds.get(type(value), type(value))
    assert parse_choices(Field(value), f"field={as_text(value)}") == ("field", (value,))


def test_the_grids_of_the_benchmarks_can_be_searched():
    for benchmark in (OWN_GRAPH, TOY):
        choices = choices_of(benchmark, [])
        assert len(choices) == len(benchmark.search)
        points, _ = Tuning(benchmark, "gat", choices, (0,)).points()
        assert points


# Finalists on fresh seeds. `valid` of a network below is 0.01 lower for an even fresh seed if its
# width is 3, which the trials choose, and 0.1 higher if it is 2.


@dataclass(frozen=True)
class LuckyNetwork(ToyNetwork):
    def build(self, data, mechanism):
        network = super().build(data, mechanism)
        if data[1] >= 100:
            network.valid += {3: -0.01 * (data[1] % 2 == 0), 2: 0.1}.get(self.width, 0.0)
        return network


LUCKY = replace(TOY, network=LuckyNetwork(), search={"width": (1, 2, 3, 4)})


def rescored(folder, finalists=3, seeds=(100, 101), workers=1, watch=lambda *_: None):
    path = folder / "tune.sqlite"
    with opened(path) as kept:
        every = tunings(folder / "log", toy=LUCKY, sampler="grid")
        studies = [Study(each, kept) for each in every]
        results = tune(studies, 4, path)
        return rescore(studies, results, finalists, seeds, path, workers, watch)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_finalist_with_the_best_mean_over_fresh_seeds_is_chosen(tmp_path, workers):
    for each in rescored(tmp_path, workers=workers):
        assert each.finals[0].trial.settings == {"network.width": 3}
        assert len(each.finals) == 3
        assert each.best.settings == {"network.width": 2}
        [chosen] = [final for final in each.finals if final.trial == each.best]
        assert chosen.value == pytest.approx(0.8 + 0.1 - 0.005, abs=0.06)
        assert chosen.value == sum(chosen.values) / 2
        assert summary_of(each, LUCKY)["settings"] == {"network.width": 2}
    assert "the test data were used" not in runs(tmp_path)


def test_with_one_finalist_the_best_trial_is_chosen(tmp_path):
    for each in rescored(tmp_path, finalists=1):
        assert each.finals == ()
        assert each.best.settings == {"network.width": 3}


def test_an_interrupted_rescoring_repeats_no_finished_run(tmp_path):
    def stop(mechanism, number, seed, here):
        if mechanism == "gatv2":
            raise Stop

    with pytest.raises(Stop):
        rescored(tmp_path, watch=stop)
    rescored(tmp_path)
    fresh = {line: n for line, n in runs(tmp_path).items() if line.split()[-1] in ("100", "101")}
    assert len(fresh) == 2 * 3 * 2
    assert sum(fresh.values()) == 2 * 3 * 2 + 1  # the one that was stopped


# The command line


def dynagat(*words, cwd, code=0):
    here = os.getcwd()
    os.chdir(cwd)
    try:
        done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    finally:
        os.chdir(here)
    assert done.exit_code == code, done.stderr
    return done


LOOKUP = ["tune", "dictionary-lookup", "--smoke", "--mechanism", "gat,gatv2"]
LOOKUP += ["--search", "lr=0.01,0.001", "--search", "dim=8,12", "--search", "heads=2,8"]


def test_tune_prints_commands_that_run(tmp_path):
    done = dynagat(*LOOKUP, "--sampler", "grid", "--out", "trials.jsonl", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert [lines[0].split(":")[0], lines[4].split(":")[0]] == ["gat", "gatv2"]
    assert "the mean of fresh seeds 1000; the best of 2 finalists" in lines[1]
    assert "one of 4 trials" in lines[2]
    skipped = "2 of 8 points of the grid are skipped, such as: heads must divide dim=12, but is 8"
    assert skipped in done.stderr
    assert "8 of 8 trials" in done.stderr
    trials = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert Counter(trial["mechanism"] for trial in trials) == {"gat": 4, "gatv2": 4}
    assert sum("fresh" in trial for trial in trials) == 4
    again = dynagat(*LOOKUP, "--sampler", "grid", "--json", cwd=tmp_path)
    assert "8 of 8 trials are finished already" in again.stderr
    for line in again.stdout.splitlines():
        summary = json.loads(line)
        assert f"  {summary['command']}" in lines
        words = [*shlex.split(summary["command"])[1:], "--seeds", "0", "--json"]
        words.remove("--seeds")
        words.remove("0-2")
        record = json.loads(dynagat(*words, cwd=tmp_path).stdout)
        assert record["heads"] == summary["settings"]["network.heads"]
        assert record["settings"]["schedule"]["lr"] == summary["settings"]["schedule.lr"]
        assert record["metrics"]["valid_accuracy"] == pytest.approx(summary["valid"], abs=1e-4)


def test_heads_that_are_not_searched_are_the_first_that_the_benchmark_compares(tmp_path):
    words = ["tune", "dictionary-lookup", "--smoke", "--search", "dim=8", "--trials", "1"]
    text = dynagat(*words, "--mechanism", "gat", cwd=tmp_path).stdout
    assert "dynagat run dictionary-lookup --mechanism gat --heads 1 --set k=5 --set dim=8" in text
    text = dynagat(*words, "--mechanism", "gatv2", cwd=tmp_path).stdout
    assert "dynagat run dictionary-lookup --mechanism gatv2 --set k=5 --set dim=8" in text
    words += ["--set", "heads=4", "--mechanism", "gat"]
    assert "--mechanism gat --heads 4 --set k=5" in dynagat(*words, cwd=tmp_path).stdout


def test_ctrl_c_says_how_to_continue(tmp_path):
    rates = ",".join(f"0.{number:03}" for number in range(1, 400))
    words = [*LOOKUP, "--search", f"lr={rates}", "--trials", "300", "--workers", "2"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the child inherits it
    try:
        command, pipe = [sys.executable, "-m", "dynagat", *words], subprocess.PIPE
        child = subprocess.Popen(command, cwd=tmp_path, stderr=pipe, stdout=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    for line in child.stderr:
        if line.startswith("1/"):
            break
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert out == ""
    assert "finished trials are in tune.sqlite. The same command continues:" in err
    assert "dynagat tune dictionary-lookup --smoke" in err
    assert "Traceback" not in err


LR = ["--search", "lr=0.1,0.2"]
GRID = ["--sampler", "grid", "--seeds", "0", "--set", "max_rounds=1", "--mechanism", "gatv2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dictionary"], "there is no benchmark 'dictionary'"),
        (["dictionary-lookup"], "dictionary-lookup has no grid to search; name one"),
        (["dictionary-lookup", *LR, "--mechanism", "gat3"], "has no mechanism 'gat3'"),
        (["dictionary-lookup", *LR, "--trials", "0"], "trials must be at least 1, but is 0"),
        (["dictionary-lookup", *LR, "--workers", "0"], "workers must be at least 1, but is 0"),
        (
            ["dictionary-lookup", *LR, "--finalists", "0"],
            "finalists must be at least 1, but is 0",
        ),
        (
            ["dictionary-lookup", *LR, "--fresh-seeds", "1-2"],
            "fresh seeds must differ from those of the trials, but hold 1",
        ),
        (["dictionary-lookup", *LR, "--seeds", "x"], "seeds must be numbers and ranges"),
        (["dictionary-lookup", "--search", "lr"], "choices must be written name=value,value"),
        (["dictionary-lookup", "--search", "rate=1,2"], "there is no setting 'rate'; there are"),
        (["dictionary-lookup", "--search", "lr=a,b"], "schedule.lr must be a number, but is 'a'"),
        (
            ["dictionary-lookup", *LR, "--search", "dropout=0.5,2"],
            "no point of the grid can have network.dropout=2.0: dropout must lie in [0, 1)",
        ),
        (["dictionary-lookup", *LR, "--set", "k=4-6"], "--set gives data.k several values"),
        (["dictionary-lookup", *LR, "--set", "lr=0.1"], "lr can't be both set and searched"),
        (["dictionary-lookup", *LR, "--set", "dim=0"], "heads must divide dim=0, but is 1"),
        (
            ["dictionary-lookup", "--search", "k=1-500", "--search", "dim=1-500"],
            "a grid must have at most 100,000 points, but this has 250,000",
        ),
        (["dictionary-lookup", *LR, "--storage", "."], "storage . is a folder, not a file"),
        (["dictionary-lookup", *LR, "--storage", "text"], "text can't be used: file is not"),
        (["dictionary-lookup", *LR, "--storage", "other"], "other is a database of another"),
        (["own-graph"], "the data of own-graph are missing: name a graph: --set graph=NAME"),
        (
            ["dictionary-lookup", "--search", "k=3", "--set", "valid_share=0.01",
             "--set", "valid_pairs=shared", *GRID],
            "gatv2 with data.k=3: k=3 has too few graphs: none are left for",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(tmp_path, words, message):
    (tmp_path / "text").write_text("no database, but longer than the header of one" * 100)
    with sqlite3.connect(tmp_path / "other") as database:
        database.execute("CREATE TABLE song (title TEXT)")
    database.close()
    done = dynagat("tune", *words, cwd=tmp_path, code=2)
    assert done.stdout == ""
    *notes, last = done.stderr.strip().splitlines()
    assert last.startswith("dynagat: ")
    assert message in last
    assert all("each point is tried once" in line for line in notes)


def test_consecutive_trials_are_drawn_differently(tmp_path):
    _, [trials] = tuned(
        tmp_path, 8, texts=["width=1-8", "slope=0,0.1,0.2,0.3"], mechanisms=["gat"], seeds=[0]
    )
    assert any(a.settings != b.settings for a, b in pairwise(trials))
    assert len({tuple(trial.settings.values()) for trial in trials}) > 4
