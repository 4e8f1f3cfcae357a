"""A run is a function of its settings, mechanism and seed, wherever and whenever it runs."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from dynagat.analysis.attentive import look
from dynagat.benchmarks import DICTIONARY_LOOKUP
from dynagat.experiment import (
    Benchmark,
    Job,
    Record,
    Store,
    as_published,
    execute,
    grid,
    revive,
    run,
)

ROOT = Path(__file__).parent.parent
TINY = ("k=4", "max_rounds=2", "dim=16")
every_mechanism = pytest.mark.parametrize("mechanism", DICTIONARY_LOOKUP.mechanisms)


@pytest.fixture(autouse=True)
def one_thread(threads) -> None:
    threads(1)


def lookup(*assignments: str, published: bool = False) -> Benchmark:
    start = DICTIONARY_LOOKUP.settings
    [settings] = grid(as_published(start) if published else start, [*TINY, *assignments])
    return DICTIONARY_LOOKUP.with_settings(settings)


def result(record: Record) -> str:
    """All that must be the same if the run is repeated."""
    told = json.loads(record.to_json())
    for name in ("seconds", "round_seconds", "peak_memory_bytes", "versions", "commit", "created"):
        del told[name]
    return json.dumps(told)


# The record


@every_mechanism
def test_a_record_tells_all_that_was_asked_and_found(mechanism) -> None:
    benchmark = lookup("heads=2")
    record = run(benchmark, mechanism, 3)
    assert (record.benchmark, record.mechanism) == ("dictionary-lookup", mechanism)
    assert (record.heads, record.seed, record.ended) == (2, 3, "budget")
    assert record.key == benchmark.key(mechanism, 3)
    assert (record.setting("k"), record.setting("dim"), record.setting("loops")) == (4, 16, [])
    assert record.fidelity == "changed"  # max_rounds=2 is neither ours nor the release's
    assert not record.converged
    assert [each["round"] for each in record.history] == [1, 2]
    assert set(record.history[0]) == {"round", "step", "loss", "train", "valid", "lr"}
    assert all(0 <= value <= 1 for value in record.metrics.values())
    assert record.metrics["valid_accuracy"] == max(each["valid"] for each in record.history)
    assert record.metrics["test_graph_accuracy"] <= record.metrics["test_accuracy"]
    assert record.seconds > 0
    assert record.peak_memory_bytes > 10**7
    assert {"dynagat", "python", "torch", "numpy", "kernels", "system"} <= set(record.versions)
    assert record.commit
    assert datetime.fromisoformat(record.created).tzinfo is not None


@every_mechanism
def test_a_record_comes_back_from_its_line(mechanism) -> None:
    record = run(lookup(), mechanism, 0)
    again = Record.from_json(record.to_json())
    told = set(json.loads(record.to_json()))
    assert {each.name for each in fields(Record)} - told == {"weights"}
    assert vars(again) == vars(replace(record, weights=None))


@every_mechanism
@pytest.mark.parametrize("published", [False, True])
def test_a_run_can_be_revived_from_its_record_and_weights(mechanism, published, tmp_path) -> None:
    with Store(tmp_path / "records.sqlite") as store:
        store.add(run(lookup("heads=2", published=published), mechanism, 1))
        [record] = store.records()
        benchmark = DICTIONARY_LOOKUP.as_recorded(record)
        assert benchmark.key(mechanism, 1) == record.key
        network, specimen = revive(benchmark, mechanism, 1, store.weights(record.key))
    task = benchmark.task.on(benchmark.data.load(1), benchmark.schedule)
    shown = "last_test_accuracy" if published else "test_accuracy"
    if not benchmark.network.always_drop:
        assert task.score(network, "test") == record.metrics[shown]
    assert network(specimen.given).shape == (*specimen.given.shape, 4)
    assert specimen.marks == {}


def test_another_revision_can_not_be_revived() -> None:
    record = run(lookup(), "gatv2", 0)
    other = replace(DICTIONARY_LOOKUP, revision=99)
    with pytest.raises(ValueError, match=f"run {record.key} is of another revision"):
        other.as_recorded(record)


@every_mechanism
def test_a_run_is_looked_at_when_asked(mechanism) -> None:
    [record] = execute([Job(lookup("heads=2"), mechanism, 0, look)])
    seen = record.exhibits["microscope"]
    if mechanism in ("gcn", "gin"):
        assert "model has no attention layer" in seen["refused"]
        return
    [layer] = seen["layers"]
    assert len(layer["heads"]) == 2
    if mechanism == "gat":
        assert {head["verdict"] for head in layer["heads"]} == {"static"}
    assert Record.from_json(record.to_json()).exhibits["microscope"]["layers"][0]["name"] == "layer"


@pytest.mark.parametrize("mechanism", ["gatv2", "gat", "dpgat"])
def test_the_attention_of_test_graphs_is_shown(mechanism) -> None:
    shown = run(lookup("heads=2"), mechanism, 0).exhibits["attention"]
    values, weights = torch.tensor(shown["values"]), torch.tensor(shown["weights"])
    assert torch.equal(values.sort(dim=1).values, torch.arange(4).expand(len(values), 4))
    assert weights.shape == (len(values), 2, 4, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(values), 2, 4), atol=1e-3, rtol=0)


@pytest.mark.parametrize("mechanism", ["gcn", "gin"])
def test_what_does_not_attend_shows_no_attention(mechanism) -> None:
    assert run(lookup(), mechanism, 0).exhibits == {}


def test_a_run_that_diverges_is_a_record_too(tmp_path) -> None:
    record = run(lookup("lr=1e30"), "gatv2", 0)
    assert (record.ended, record.converged) == ("diverged", False)
    assert math.isnan(record.history[-1]["loss"])
    with Store(tmp_path / "records.sqlite") as store:
        assert store.add(record)
        assert [each.to_json() for each in store.records()] == [record.to_json()]


def test_a_run_told_to_stop_where_it_stands_has_converged() -> None:
    record = run(lookup("stop_at=0.0"), "gatv2", 0)
    assert (record.ended, record.converged, len(record.history)) == ("perfect", True, 1)


# The same again


@pytest.mark.parametrize("published", [False, True], ids=["corrected", "as-published"])
@every_mechanism
def test_a_run_is_the_same_whatever_ran_before(mechanism, published) -> None:
    benchmark = lookup(published=published)
    torch.manual_seed(1)
    first = run(benchmark, mechanism, 1)
    run(benchmark, "gatv2", 0)
    torch.manual_seed(2), random.seed(2), np.random.seed(2)
    assert result(run(benchmark, mechanism, 1)) == result(first)


def test_a_run_leaves_the_global_generators_alone() -> None:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    run(lookup(published=True), "gatv2", 5)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


def test_seeds_draw_other_graphs_and_other_weights() -> None:
    first, second = (run(lookup(), "gatv2", seed) for seed in (0, 1))
    assert first.history[0]["loss"] != second.history[0]["loss"]
    assert first.exhibits != second.exhibits


def test_as_published_every_seed_has_the_graphs_of_seed_11() -> None:
    values = [
        run(lookup(published=True), "gatv2", s).exhibits["attention"]["values"] for s in (0, 1)
    ]
    assert values[0] == values[1]


def test_watching_a_run_hears_every_round_and_changes_nothing() -> None:
    heard = []
    record = run(lookup(), "gatv2", 0, heard.append)
    assert [vars(seen) for seen in heard] == record.history
    assert result(record) == result(run(lookup(), "gatv2", 0))


# Keys


def test_equal_runs_have_equal_keys_and_others_have_not() -> None:
    variants = [lookup(), lookup("k=5"), lookup("lr=0.01"), lookup("loops=gat"), lookup("heads=2")]
    variants += [lookup("split_seed=0"), lookup(published=True), replace(lookup(), revision=2)]
    variants += [replace(lookup(), name="other")]
    jobs = [(each, name, seed) for each in variants for name in ("gat", "gin") for seed in (0, 1)]
    keys = [benchmark.key(name, seed) for benchmark, name, seed in jobs]
    assert len(set(keys)) == len(keys) == 36
    assert lookup("k=4").key("gat", 0) == keys[0] == Job(lookup(), "gat", 0).key
    assert lookup().with_heads(2).key("gat", 0) == lookup("heads=2").key("gat", 0)


def test_what_prose_and_published_numbers_say_is_no_part_of_the_key() -> None:
    other = replace(lookup(), title="", source="", published=(), seeds=range(1), smoke=())
    assert other.key("gat", 0) == lookup().key("gat", 0)


# What is measured


def test_the_train_accuracy_asked_for_changes_no_other_number() -> None:
    by_pass = run(lookup("train_accuracy=pass"), "gatv2", 0)
    running = run(lookup("train_accuracy=running"), "gatv2", 0)
    rest = [{**each.metrics, "train_accuracy": 0} for each in (by_pass, running)]
    assert rest[0] == rest[1]
    best = max(running.history, key=lambda seen: seen["valid"])
    assert running.metrics["train_accuracy"] == best["train"]


def test_as_published_the_test_accuracy_is_the_one_it_was_selected_by() -> None:
    metrics = run(lookup(published=True), "gatv2", 0).metrics
    assert metrics["test_accuracy"] == metrics["valid_accuracy"]


# The door


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("k=0", "k must be at least 1, but is 0"),
        ("k=-3", "k must be at least 1, but is -3"),
        ("num_graphs=3", "num_graphs must be at least 4, but is 3"),
        ("split=fair", "data.split must be one of pairs, random, but is 'fair'"),
        ("train_share=1", "train_share must lie between 0 and 1, but is 1.0"),
        ("valid_share=1", r"valid_share must lie in \[0, 1\), but is 1.0"),
        ("heads=3", "heads must divide dim=128, but is 3"),
        ("heads=0", "heads must divide dim=128, but is 0"),
        ("dropout=1.5", r"dropout must lie in \[0, 1\), but is 1.5"),
        ("feature_dropout=-1", r"feature_dropout must lie in \[0, 1\), but is -1.0"),
        ("loops=foo", "loops must name some of gat, gatv2, dpgat, but names 'foo'"),
        ("bias=gat,foo", "bias must name some of gat, gatv2, dpgat, but names 'foo'"),
        ("start=zero", "network.start must be one of positive, glorot, negative, but is 'zero'"),
        ("lr=0", "lr must be above 0, but is 0.0"),
        ("label_smoothing=2", r"label_smoothing must lie in \[0, 1\), but is 2.0"),
    ],
)
def test_what_can_not_be_is_told_before_anything_runs(text, sentence) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        grid(DICTIONARY_LOOKUP.settings, [text])


def test_an_unknown_mechanism_lists_the_known_ones() -> None:
    sentence = "^dictionary-lookup has no mechanism 'gat2'; it has gatv2, gat, dpgat, gcn, gin$"
    with pytest.raises(ValueError, match=sentence):
        run(lookup(), "gat2", 0)


def test_too_few_graphs_for_all_parts_is_told() -> None:
    with pytest.raises(ValueError, match=r"^k=2 has too few graphs: none is left for train$"):
        run(lookup("k=2", "split=random", "train_share=0.1"), "gatv2", 0)


@pytest.mark.parametrize("settings", [("k=1",), ("k=2",), ("k=2", "valid_share=0"), ("k=3",)])
def test_few_graphs_that_suffice_are_run(settings) -> None:
    assert len(run(lookup(*settings), "gatv2", 0).history) <= 2


def test_a_setting_that_json_can_not_hold_is_refused_before_it_is_stored() -> None:
    schedule = replace(DICTIONARY_LOOKUP.schedule, clip=math.inf)
    with pytest.raises(ValueError, match="JSON"):
        Job(replace(DICTIONARY_LOOKUP, schedule=schedule), "gat", 0).key  # noqa: B018


def test_less_than_one_worker_is_told() -> None:
    with pytest.raises(ValueError, match=r"^workers must be at least 1, but is 0$"):
        list(execute([], workers=0))


# Workers


@pytest.fixture(scope="module")
def crowd():
    """Jobs, their records from two workers, and the rounds that were heard of."""
    torch.set_num_threads(1)
    jobs = [Job(lookup(), name, 0) for name in DICTIONARY_LOOKUP.mechanisms]
    jobs.append(Job(lookup(published=True), "gat", 1))
    heard = defaultdict(list)
    told_before = {}
    for record in execute(jobs, workers=2, watch=lambda job, seen: heard[job.key].append(seen)):
        told_before[record.key] = (record, len(heard[record.key]))
    return jobs, told_before, heard


def test_workers_give_the_records_that_this_process_gives(crowd) -> None:
    jobs, records, _ = crowd
    assert set(records) == {job.key for job in jobs}
    for here in execute(jobs):
        there, _ = records[here.key]
        assert result(there) == result(here)


def test_every_round_of_a_worker_is_heard_before_its_record_comes(crowd) -> None:
    _, records, heard = crowd
    for key, (record, num_heard) in records.items():
        assert [vars(seen) for seen in heard[key]] == record.history
        assert num_heard == len(record.history)


# Kills


def run_all(path: Path | str, workers: int, tell=print) -> None:
    """Sixteen runs into a store; those that it has are not repeated."""
    benchmark = lookup("max_rounds=4")
    jobs = [Job(benchmark, name, seed) for seed in range(8) for name in ("gatv2", "gin")]
    with Store(path) as store:
        have = store.keys()
        todo = [job for job in jobs if job.key not in have]
        tell(f"todo {len(todo)}")
        for record in execute(todo, workers):
            store.add(record)
            tell(record.key)


SCRIPT = """
import functools, sys
from tests.test_experiment import run_all
if __name__ == "__main__":
    run_all(sys.argv[1], 2, functools.partial(print, flush=True))
"""


def start(path: Path, mark: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DYNAGAT_TEST": mark}
    command = [sys.executable, "-c", SCRIPT, str(path)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def processes_with(mark: str) -> list[int]:
    """Those whose environment carries the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        if f"DYNAGAT_TEST={mark}".encode() in environment:
            found.append(int(folder.name))
    return found


def kill(process: subprocess.Popen[str], mark: str) -> list[str]:
    """What it told, once it and all that it started are gone."""
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = processes_with(mark)
    for orphan in left:
        os.kill(orphan, signal.SIGKILL)
    assert not left, "workers outlive their parent"
    return process.communicate()[0].splitlines()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_workers_that_still_start_end_with_a_killed_parent(tmp_path) -> None:
    mark = uuid.uuid4().hex
    process = start(tmp_path / "records.sqlite", mark)
    assert process.stdout is not None
    assert process.stdout.readline() == "todo 16\n"
    while len(processes_with(mark)) < 4:  # itself, two workers, and who looks after their queues
        time.sleep(0.02)
    time.sleep(0.3)  # they have heard what to import, and import it
    assert kill(process, mark) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_killed_runs_go_on_where_they_were_and_end_with_every_record(tmp_path) -> None:
    path, mark = tmp_path / "records.sqlite", uuid.uuid4().hex
    process = start(path, mark)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(4)]
    time.sleep(random.Random(0).uniform(0, 0.05))
    told = set(lines[1:] + kill(process, mark))
    with Store(path) as store:
        assert told <= store.keys()
        num_left = 16 - len(store.keys())
    assert lines[0] == "todo 16"
    assert 0 < num_left < 14
    heard: list[str] = []
    run_all(path, 1, heard.append)
    assert heard[0] == f"todo {num_left}"
    assert len(set(heard[1:]) - told) == num_left
    with Store(path) as store:
        records = {record.key: record for record in store.records()}
    assert told | set(heard[1:]) <= set(records)
    assert len(records) == 16
    here = run(lookup("max_rounds=4"), "gatv2", 0)
    assert result(records[here.key]) == result(here)


def test_what_a_process_imports_is_no_part_of_a_runs_time() -> None:
    code = """
import sys, time
from dynagat.benchmarks import find
from dynagat.experiment import grid
from dynagat.experiment.benchmark import run
clock, seen = time.perf_counter, []
time.perf_counter = lambda: (seen.append("torch._dynamo" in sys.modules), clock())[1]
asked = find("dictionary-lookup")
(settings,) = grid(asked.settings, ["k=2", "max_rounds=1"])
run(asked.with_settings(settings), "gat", 0)
sys.exit(len(set(seen)) != 1)  # Adam imports it, for seconds
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
