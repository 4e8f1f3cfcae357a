"""Checkpoints: an interrupted run continues to the same bits; unusable checkpoints are not used."""

import hashlib
import io
import json
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from dynagat import files
from dynagat.benchmarks import DICTIONARY_LOOKUP
from dynagat.cli.running import run_shown
from dynagat.experiment import (
    Checkpoints,
    Job,
    Store,
    Study,
    as_published,
    environment,
    grid,
    run_lacking,
    tune,
    validate,
)
from dynagat.experiment.checkpoint import VARIABLE
from dynagat.experiment.jobs import lacking
from dynagat.experiment.storage import opened
from dynagat.experiment.tuning import Tuning
from dynagat.prediction.nodes import NodePrediction, NodeTask
from dynagat.training import Schedule
from tests import kills
from tests.toys import candidates, graphs, links, nodes

# Long enough for the learning rate to drop and for patience to matter.
SCHEDULE = Schedule(lr=0.05, max_rounds=6, lr_patience=0, patience=3, batch_size=8, stop_at=2)
NODES = replace(nodes.BENCHMARK, network=nodes.DropoutNetwork(), schedule=SCHEDULE)
[PUBLISHED] = grid(as_published(DICTIONARY_LOOKUP.settings), ["k=4", "max_rounds=6", "dim=16"])
BENCHMARKS = {
    "full batch": NODES,
    "sampled": replace(NODES, task=NodeTask(neighbours=(2, 2))),
    "random walks": replace(NODES, task=NodeTask(roots=20, steps=3)),
    "graphs": replace(graphs.BENCHMARK, schedule=replace(SCHEDULE, stop_at=0)),
    "links": replace(links.BENCHMARK, schedule=SCHEDULE),
    "candidates": replace(candidates.BENCHMARK, schedule=SCHEDULE),
    "dictionary": DICTIONARY_LOOKUP.with_settings(PUBLISHED),
}
for each in BENCHMARKS:  # the microscope is no part of training
    BENCHMARKS[each] = replace(BENCHMARKS[each], microscope="none")
FULL, SAMPLED = Job(BENCHMARKS["full batch"], "gatv2", 0), Job(BENCHMARKS["sampled"], "gat", 1)
TIMES = ("seconds", "round_seconds", "peak_memory_bytes", "versions", "created")


@pytest.fixture(autouse=True)
def after_every_round(threads, monkeypatch):
    threads(1)
    monkeypatch.setenv(VARIABLE, "0")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "records.sqlite") as store:
        yield store


@pytest.fixture
def checkpoints(store):
    return Checkpoints.beside(store.path)


def result(record):
    """Everything that must be the same if the run is repeated, to the last bit."""
    values = json.loads(record.to_json())
    weights = torch.load(io.BytesIO(record.weights), weights_only=True)
    return (
        {name: value for name, value in values.items() if name not in TIMES},
        {name: value.numpy().tobytes() for name, value in weights.items()},
    )


@cache
def undisturbed(name, mechanism, seed):
    return result(Job(BENCHMARKS[name], mechanism, seed).run(lambda here: None))


class Stopped(Exception):
    pass


def stop_in(round_):
    """A `watch` that interrupts a run in a round, before its checkpoint is written."""

    def watch(job, here):
        if here.round == round_:
            raise Stopped

    return watch


def interrupt(job, store, round_):
    with pytest.raises(Stopped):
        list(run_lacking([job], store, 1, stop_in(round_)))


def finish(job, store):
    """The record, and what was told about the checkpoint."""
    told = []
    [record] = run_lacking([job], store, tell=lambda job, text, seconds: told.append(text))
    return record, told


# The same bits


@pytest.mark.parametrize("name", BENCHMARKS)
def test_an_interrupted_run_continues_to_the_same_bits(name, store, checkpoints):
    mechanism = next(iter(BENCHMARKS[name].mechanisms))
    job = Job(BENCHMARKS[name], mechanism, 0)
    for round_ in (2, 4):
        interrupt(job, store, round_)
        assert (checkpoints.folder / f"{job.key}.pt").exists()
    record, told = finish(job, store)
    epochs = job.benchmark.schedule.round_passes - 1  # of round 4, before its last one
    more = f" and {epochs} of the next one's epochs" if epochs else ""
    assert told == [f"continues after round 3{more}"]
    assert len(record.history) >= 4
    assert result(record) == undisturbed(name, mechanism, 0)
    assert not checkpoints.folder.exists()


def test_a_run_that_was_interrupted_after_training_does_not_train_again(store, monkeypatch):
    def fail(*arguments):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("dynagat.prediction.nodes.NodePrediction.exhibits", fail)
        with pytest.raises(Stopped):
            finish(FULL, store)
    with monkeypatch.context() as patch:
        patch.setattr("dynagat.training._train_round", fail)
        record, _ = finish(FULL, store)
    assert result(record) == undisturbed("full batch", "gatv2", 0)


class StoppingTask(NodeTask):
    def prepare(self, problem, schedule):
        return StoppingPrediction(problem, self, schedule.batch_size)


class StoppingPrediction(NodePrediction):
    def batches(self, generator):
        EPOCHS.append(self)
        for batch in super().batches(generator):
            if len(EPOCHS) == 5:
                raise Stopped
            yield batch


EPOCHS = []


def test_a_run_continues_after_the_last_epoch_of_an_unfinished_round(store):
    schedule = replace(SCHEDULE, round_passes=3, max_rounds=2)
    benchmark = replace(NODES, schedule=schedule, task=StoppingTask(neighbours=(2, 2)))
    job = Job(replace(benchmark, microscope="none"), "gatv2", 0)
    EPOCHS.clear()
    with pytest.raises(Stopped):
        finish(job, store)
    record, told = finish(job, store)
    assert told == ["continues after round 1 and 1 of the next one's epochs"]
    assert len(EPOCHS) == 7  # the fifth one twice
    assert result(record) == result(job.run(lambda here: None))


def test_rounds_and_time_before_an_interruption_count(store, checkpoints):
    slow, seen = [], []

    def stop_late(job, here):
        slow.append(here)
        time.sleep(0.1)
        if here.round == 3:
            raise Stopped

    with pytest.raises(Stopped):
        list(run_lacking([FULL], store, 1, stop_late))
    [record] = run_lacking([FULL], store, 1, lambda job, here: seen.append(here))
    assert [vars(each) for each in seen] == record.history
    assert seen[:2] == slow[:2]
    assert len(record.round_seconds) == len(record.history)
    assert record.seconds > 0.2


# Kills


def in_killed_process(work):
    """Fork a process that must be killed by a signal during its work."""
    process = os.fork()
    if not process:
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL


def kill_in(round_):
    def watch(job, here):
        if here.round == round_:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@forks
@pytest.mark.parametrize("name", ["full batch", "sampled"])
def test_the_command_continues_a_killed_run_and_says_so(name, tmp_path, capsys):
    path, job = tmp_path / "records.sqlite", Job(BENCHMARKS[name], "gatv2", 0)
    in_killed_process(lambda: list(run_lacking([job], Store(path), 1, kill_in(4))))
    with Store(path) as store:
        run_shown([job], store, 1)
        [record] = store.records()
        record = replace(record, weights=store.weights(record.key))
    assert "seed=0: continues after round 3\n" in capsys.readouterr().err
    assert result(record) == undisturbed(name, "gatv2", 0)
    assert not Checkpoints.beside(path).folder.exists()


@forks
def test_killed_workers_continue_their_runs(tmp_path):
    path, told = tmp_path / "records.sqlite", []
    in_killed_process(lambda: list(run_lacking([FULL, SAMPLED], Store(path), 2, kill_in(4))))
    with Store(path) as store:
        jobs = lacking([FULL, SAMPLED], store)
        records = run_lacking(jobs, store, 2, tell=lambda job, text, _: told.append(text))
        results = {record.key: result(record) for record in records}
    assert results == {job.key: result(job.run(lambda here: None)) for job in jobs}
    assert told
    assert all(text.startswith("continues after round ") for text in told)


@forks
@pytest.mark.parametrize("moment", ["flush", "os.replace"])
def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(moment, tmp_path, monkeypatch):
    path, count = tmp_path / "records.sqlite", []

    def die_in_third(*arguments):
        count.append(arguments)
        if len(count) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return proper(*arguments)

    proper = os.replace if moment == "os.replace" else files.flush
    with monkeypatch.context() as patch:
        patch.setattr(f"dynagat.files.{moment}", die_in_third)
        in_killed_process(lambda: list(run_lacking([FULL], Store(path))))
    with Store(path) as store:
        record, told = finish(FULL, store)
    assert told == ["continues after round 2"]
    assert result(record) == undisturbed("full batch", "gatv2", 0)
    assert not Checkpoints.beside(path).folder.exists()


# Checkpoints that are not used


def changed_header(content, **changes):
    header, _, rest = content[:-32].partition(b"\n")
    content = json.dumps(json.loads(header) | changes).encode() + b"\n" + rest
    return content + hashlib.sha256(content).digest()


def other_version(content):
    versions = json.loads(content.partition(b"\n")[0])["versions"]
    return changed_header(content, versions=versions | {"torch": "1.0"})


BAD = {
    "empty": (lambda content: b"", "is damaged"),
    "short": (lambda content: content[: len(content) // 2], "is damaged"),
    "text": (lambda content: b"not a checkpoint\n" * 10, "is damaged"),
    "other run": (lambda content: changed_header(content, key="0" * 32), "is of another run"),
    "other format": (lambda content: changed_header(content, format=0), "is of another run"),
    "other torch": (other_version, f"was written by torch 1.0, but this is {torch.__version__}"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_checkpoint_that_cant_be_used_is_named_and_the_run_starts_again(name, store, checkpoints):
    interrupt(FULL, store, 4)
    path = checkpoints.folder / f"{FULL.key}.pt"
    change, message = BAD[name]
    path.write_bytes(change(path.read_bytes()))
    record, told = finish(FULL, store)
    assert told == [f"starts from the beginning: checkpoint {path} {message}"]
    assert result(record) == undisturbed("full batch", "gatv2", 0)
    assert not checkpoints.folder.exists()


def test_a_flipped_bit_anywhere_is_noticed(store, checkpoints):
    interrupt(FULL, store, 2)
    path, told = checkpoints.folder / f"{FULL.key}.pt", []
    content = path.read_bytes()
    for position in range(0, len(content), len(content) // 50):
        flipped = bytearray(content)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        with checkpoints.of(FULL.key, lambda text, seconds: told.append(text)) as checkpoint:
            assert checkpoint.load() is None
    assert set(told) == {f"starts from the beginning: checkpoint {path} is damaged"}
    path.write_bytes(content)
    with checkpoints.of(FULL.key) as checkpoint:
        assert checkpoint.load() is not None


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_loading_a_checkpoint_runs_no_code(store, checkpoints, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with checkpoints.of(FULL.key) as checkpoint:
        checkpoint.save(Evil)
    record, told = finish(FULL, store)
    path = checkpoints.folder / f"{FULL.key}.pt"
    assert told == [f"starts from the beginning: checkpoint {path} holds more than numbers"]
    assert not (tmp_path / "evil").exists()
    assert result(record) == undisturbed("full batch", "gatv2", 0)


# Several processes


def test_two_processes_never_share_a_checkpoint(store, checkpoints):
    interrupt(FULL, store, 3)
    path = checkpoints.folder / f"{FULL.key}.pt"
    content = path.read_bytes()
    with checkpoints.of(FULL.key) as other:
        assert other.load() is not None
        record, told = finish(FULL, store)
        assert told == ["runs without a checkpoint: another process continues this run"]
        assert path.read_bytes() == content
    checkpoints.remove([FULL.key])
    assert not checkpoints.folder.exists()
    assert result(record) == undisturbed("full batch", "gatv2", 0)


def test_of_two_processes_that_start_a_run_the_first_keeps_the_checkpoint(store, checkpoints):
    with checkpoints.of(FULL.key) as other:
        other.save(dict)
        (checkpoints.folder / f"{FULL.key}.pt").unlink()
        _, told = finish(FULL, store)
    assert told == ["runs without a checkpoint: another process makes the same run"]


def test_a_lock_that_another_process_removes_just_then_is_created_again(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "a.lock"
    removals = [lambda: shutil.rmtree(path.parent), path.unlink]

    def lock_late(file, *, wait):
        if removals:
            removals.pop()()
        lock(file, wait=wait)

    lock = files.lock
    monkeypatch.setattr(files, "lock", lock_late)
    with files.claimed(path):
        assert removals == []
        with pytest.raises(BlockingIOError), files.claimed(path):
            pass
        assert path.exists()
    assert not path.exists()


def test_checkpoints_of_stored_runs_are_removed(store, checkpoints):
    """A process may be killed after it stored a record, or while it wrote its first checkpoint."""
    finish(FULL, store)
    with checkpoints.of(FULL.key) as other:
        other.save(dict)
    (checkpoints.folder / f".{FULL.key}.pt.abc").write_text("unfinished")
    assert list(run_lacking([FULL], store)) == []
    assert not checkpoints.folder.exists()


# When checkpoints are written


def test_short_runs_write_no_checkpoint(store, checkpoints, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    interrupt(FULL, store, 4)
    assert not checkpoints.folder.exists()


@pytest.mark.parametrize(
    ("seconds", "writing", "written"),
    [(0, 1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, 0, [3, 6]), (1, 0.125, [1, 4, 7]), (100, 0, [])],
)
def test_checkpoints_are_not_written_more_often_than_needed(
    seconds, writing, written, tmp_path, monkeypatch
):
    clock, rounds = [0.0], []
    environment.commit()  # starts a process, which needs the true time
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def state(round_):
        rounds.append(round_)
        clock[0] += writing
        return {}

    with Checkpoints(tmp_path, seconds).of("0" * 32) as checkpoint:
        for round_ in range(1, 9):
            clock[0] += 1
            checkpoint.save(lambda round_=round_: state(round_))
    assert rounds == written


def test_a_checkpoint_that_cant_be_written_does_not_stop_the_run(store, checkpoints):
    checkpoints.folder.write_text("a file")
    record, told = finish(FULL, store)
    assert told == [f"runs without a checkpoint: {checkpoints.folder}: File exists"]
    assert result(record) == undisturbed("full batch", "gatv2", 0)


@pytest.mark.parametrize("text", ["often", "-1", "nan", ""])
def test_the_time_between_checkpoints_must_be_a_number(text, store, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"^{VARIABLE} must be a number of .*, but is '{text}'$"):
        list(run_lacking([FULL], store))


# Trials


def test_a_trial_continues_from_its_checkpoint(tmp_path):
    tuning = Tuning(BENCHMARKS["sampled"], "gat", {"schedule.lr": (0.05,)}, (0, 1), "grid")
    path, told = tmp_path / "trials.sqlite", []

    def stop(mechanism, number, seed, here):
        if (seed, here.round) == (1, 3):
            raise Stopped

    with opened(path) as storage:
        study = Study(tuning, storage)
        with pytest.raises(Stopped):
            tune([study], 1, path, watch=stop)
        assert study.recover() == 1
        [tuned] = tune([study], 1, path, tell=lambda *words: told.append(words[2:]))
    assert told[1] == (1, "continues after round 2")
    runs = [validate(tuning.benchmark, "gat", seed) for seed in (0, 1)]
    values = tuple(max(each.valid for each in run.history) for run in runs)
    assert tuned.best.values == values
    assert tuned.best.rounds == sum(len(run.history) for run in runs)
    assert not Checkpoints.beside(path).folder.exists()


# Two sweeps on one store


@forks
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_two_sweeps_on_one_store_lose_nothing_when_they_are_killed(tmp_path):
    trial = kills.Trial(tmp_path, kills.jobs_of(4, 10), workers=1, max_wait=0.3)
    counts = trial.run(8)
    assert counts["runs continued"] > 0
    assert counts["kills of a sweep"] == 8
