"""A run is a function of its settings, mechanism and seed, wherever and whenever it runs."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from dynagat.analysis.glance import glance
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
from dynagat.experiment.runner import Crew, WorkerError
from tests.kills import Sweep, jobs_of

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
    """Everything that must be the same if the run is repeated."""
    values = json.loads(record.to_json())
    for name in ("seconds", "round_seconds", "peak_memory_bytes", "versions", "commit", "created"):
        del values[name]
    return json.dumps(values)


# The record


@every_mechanism
def test_a_record_has_the_settings_and_the_results_of_its_run(mechanism) -> None:
    benchmark = lookup("heads=2")
    record = run(benchmark, mechanism, 3)
    assert (record.benchmark, record.mechanism) == ("dictionary-lookup", mechanism)
    assert (record.heads, record.seed, record.ended) == (2, 3, "budget")
    assert record.key == benchmark.key(mechanism, 3)
    assert (record.setting("k"), record.setting("dim"), record.setting("loops")) == (4, 16, [])
    assert (
        record.fidelity == "changed"
    )  # max_rounds=2 is neither the corrected nor the published value
    assert not record.converged
    assert [each["round"] for each in record.history] == [1, 2]
    assert set(record.history[0]) == {"round", "step", "loss", "train", "valid", "lr", "valid_loss"}
    assert all(0 <= value <= 1 for value in record.metrics.values())
    assert record.metrics["valid_accuracy"] == max(each["valid"] for each in record.history)
    assert record.metrics["test_graph_accuracy"] <= record.metrics["test_accuracy"]
    assert record.seconds > 0
    assert record.peak_memory_bytes > 10**7
    assert {"dynagat", "python", "torch", "numpy", "kernels", "system"} <= set(record.versions)
    assert record.commit
    assert datetime.fromisoformat(record.created).tzinfo is not None


@every_mechanism
def test_a_record_is_restored_from_its_line(mechanism) -> None:
    record = run(lookup(), mechanism, 0)
    again = Record.from_json(record.to_json())
    written = set(json.loads(record.to_json()))
    assert {each.name for each in fields(Record)} - written == {"weights", "attempts"}
    assert vars(again) == vars(replace(record, weights=None))


@every_mechanism
@pytest.mark.parametrize("published", [False, True])
def test_a_run_can_be_revived_from_its_record_and_weights(mechanism, published, tmp_path) -> None:
    with Store(tmp_path / "records.sqlite") as store:
        store.add(run(lookup("heads=2", published=published), mechanism, 1))
        [record] = store.records()
        benchmark = DICTIONARY_LOOKUP.as_recorded(record)
        assert benchmark.key(mechanism, 1) == record.key
        network, given = revive(benchmark, mechanism, 1, store.weights(record.key))
    prediction = benchmark.task.prepare(benchmark.data.load(1), benchmark.schedule)
    shown = "last_test_accuracy" if published else "test_accuracy"
    if not benchmark.network.always_drop:
        assert prediction.score(network, "test") == record.metrics[shown]
    assert network(given.inputs).shape == (*given.inputs.shape, 4)
    assert given.marks == {}


def test_a_record_of_another_revision_cant_be_revived() -> None:
    record = run(lookup(), "gatv2", 0)
    other = replace(DICTIONARY_LOOKUP, revision=99)
    with pytest.raises(ValueError, match=f"run {record.key} is of another revision"):
        other.as_recorded(record)


@every_mechanism
def test_a_run_is_put_under_the_microscope(mechanism) -> None:
    [record] = execute([Job(lookup("heads=2"), mechanism, 0)])
    analysis = record.exhibits["microscope"]
    if mechanism in ("gcn", "gin"):
        assert "model has no attention layer" in analysis["refused"]
        return
    [layer] = analysis["layers"]
    assert len(layer["heads"]) == 2
    if mechanism == "gat":
        assert {head["weighted_agreement"]["value"] for head in layer["heads"]} == {1}
    assert Record.from_json(record.to_json()).exhibits["microscope"]["layers"][0]["name"] == "layer"


def test_the_benchmark_says_how_closely_its_runs_are_analysed() -> None:
    whole, brief, none = (
        run(replace(lookup(), microscope=how), "gatv2", 0) for how in ("whole", "glance", "none")
    )
    assert lookup().microscope == "whole"
    assert "microscope" not in none.exhibits
    network, given = revive(lookup(), "gatv2", 0, none.weights)
    assert brief.exhibits["microscope"] == glance(network, given.inputs)
    assert brief.exhibits["microscope"] != whole.exhibits["microscope"]
    assert whole.key == brief.key == none.key  # the analysis does not change the run
    assert whole.metrics == brief.metrics == none.metrics


@pytest.mark.parametrize("mechanism", ["gatv2", "gat", "dpgat"])
def test_a_record_has_the_attention_of_some_test_graphs(mechanism) -> None:
    shown = run(lookup("heads=2"), mechanism, 0).exhibits["attention"]
    values, weights = torch.tensor(shown["values"]), torch.tensor(shown["weights"])
    assert torch.equal(values.sort(dim=1).values, torch.arange(4).expand(len(values), 4))
    assert weights.shape == (len(values), 2, 4, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(values), 2, 4), atol=1e-3, rtol=0)


@pytest.mark.parametrize("mechanism", ["gcn", "gin"])
def test_a_mechanism_without_attention_has_none_in_its_record(mechanism) -> None:
    exhibits = run(lookup(), mechanism, 0).exhibits
    assert set(exhibits) == {"microscope"}
    assert set(exhibits["microscope"]) == {"refused"}


def test_a_run_that_diverges_is_a_record_too(tmp_path) -> None:
    record = run(lookup("lr=1e30"), "gatv2", 0)
    assert (record.ended, record.converged) == ("diverged", False)
    assert math.isnan(record.history[-1]["loss"])
    with Store(tmp_path / "records.sqlite") as store:
        assert store.add(record)
        assert [each.to_json() for each in store.records()] == [record.to_json()]


def test_a_run_that_reaches_stop_at_has_converged() -> None:
    record = run(lookup("stop_at=0.0"), "gatv2", 0)
    assert (record.ended, record.converged, len(record.history)) == ("perfect", True, 1)


# Repeated runs


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


def test_each_seed_draws_its_own_graphs_and_weights() -> None:
    first, second = (run(lookup(), "gatv2", seed) for seed in (0, 1))
    assert first.history[0]["loss"] != second.history[0]["loss"]
    assert first.exhibits != second.exhibits


def test_as_published_every_seed_has_the_same_graphs() -> None:
    values = [
        run(lookup(published=True), "gatv2", s).exhibits["attention"]["values"] for s in (0, 1)
    ]
    assert values[0] == values[1]


def test_watching_a_run_receives_every_round_and_changes_nothing() -> None:
    rounds = []
    record = run(lookup(), "gatv2", 0, rounds.append)
    assert [vars(each) for each in rounds] == record.history
    assert result(record) == result(run(lookup(), "gatv2", 0))


# Keys


def test_only_equal_runs_have_equal_keys() -> None:
    variants = [lookup(), lookup("k=5"), lookup("lr=0.01"), lookup("loops=gat"), lookup("heads=2")]
    variants += [lookup("split_seed=0"), lookup(published=True), replace(lookup(), revision=2)]
    variants += [replace(lookup(), name="other")]
    jobs = [(each, name, seed) for each in variants for name in ("gat", "gin") for seed in (0, 1)]
    keys = [benchmark.key(name, seed) for benchmark, name, seed in jobs]
    assert len(set(keys)) == len(keys) == 36
    assert lookup("k=4").key("gat", 0) == keys[0] == Job(lookup(), "gat", 0).key
    assert lookup().with_heads(2).key("gat", 0) == lookup("heads=2").key("gat", 0)


def test_texts_and_published_numbers_are_not_part_of_the_key() -> None:
    other = replace(lookup(), title="", source="", published=(), seeds=range(1), smoke=())
    assert other.key("gat", 0) == lookup().key("gat", 0)


# Metrics


def test_the_kind_of_train_accuracy_changes_no_other_metric() -> None:
    by_epoch = run(lookup("train_accuracy=pass"), "gatv2", 0)
    running = run(lookup("train_accuracy=running"), "gatv2", 0)
    rest = [{**each.metrics, "train_accuracy": 0} for each in (by_epoch, running)]
    assert rest[0] == rest[1]
    best = max(running.history, key=lambda each: each["valid"])
    assert running.metrics["train_accuracy"] == best["train"]


def test_as_published_the_best_round_is_selected_by_the_test_accuracy() -> None:
    metrics = run(lookup(published=True), "gatv2", 0).metrics
    assert metrics["test_accuracy"] == metrics["valid_accuracy"]


# Bad settings


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_bad_settings_are_refused_before_anything_runs(text, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        grid(DICTIONARY_LOOKUP.settings, [text])


def test_an_unknown_mechanism_lists_the_known_ones() -> None:
    message = "^dictionary-lookup has no mechanism 'gat2'; it has gatv2, gat, dpgat, gcn, gin$"
    with pytest.raises(ValueError, match=message):
        run(lookup(), "gat2", 0)


def test_too_few_graphs_for_a_part_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^k=2 has too few graphs: none are left for train$"):
        run(lookup("k=2", "split=random", "train_share=0.1"), "gatv2", 0)


@pytest.mark.parametrize("settings", [("k=1",), ("k=2",), ("k=2", "valid_share=0"), ("k=3",)])
def test_few_graphs_are_enough_if_every_part_has_some(settings) -> None:
    assert len(run(lookup(*settings), "gatv2", 0).history) <= 2


def test_a_setting_that_json_cant_hold_is_refused_before_it_is_stored() -> None:
    schedule = replace(DICTIONARY_LOOKUP.schedule, clip=math.inf)
    with pytest.raises(ValueError, match="JSON"):
        Job(replace(DICTIONARY_LOOKUP, schedule=schedule), "gat", 0).key  # noqa: B018


def test_less_than_one_worker_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^workers must be at least 1, but is 0$"):
        list(execute([], workers=0))


# Workers


@pytest.fixture(scope="module")
def by_workers():
    """Jobs, their records from two workers, and the rounds that were received."""
    torch.set_num_threads(1)
    jobs = [Job(lookup(), name, 0) for name in DICTIONARY_LOOKUP.mechanisms]
    jobs.append(Job(lookup(published=True), "gat", 1))
    rounds = defaultdict(list)
    records = {}
    for record in execute(jobs, workers=2, watch=lambda job, here: rounds[job.key].append(here)):
        records[record.key] = (record, len(rounds[record.key]))
    return jobs, records, rounds


def test_workers_give_the_same_records_as_this_process(by_workers) -> None:
    jobs, records, _ = by_workers
    assert set(records) == {job.key for job in jobs}
    for here in execute(jobs):
        there, _ = records[here.key]
        assert result(there) == result(here)


def test_every_round_of_a_worker_is_received_before_its_record(by_workers) -> None:
    _, records, rounds = by_workers
    for key, (record, num_before) in records.items():
        assert [vars(each) for each in rounds[key]] == record.history
        assert num_before == len(record.history)


# Kills


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_workers_that_are_starting_end_with_a_killed_parent(tmp_path) -> None:
    sweep = Sweep(tmp_path / "records.sqlite", jobs_of(2, 4), workers=2)
    while len(sweep.workers()) < 2:
        time.sleep(0.02)
    time.sleep(0.3)  # the workers import modules
    os.kill(sweep.process, signal.SIGKILL)
    assert sweep.wait() == (-signal.SIGKILL, [])


def test_an_error_says_that_a_worker_was_killed() -> None:
    with Crew(1) as crew:
        crew.submit(os._exit, 1)
        while not (finished := crew.finished(1)):
            pass
        with pytest.raises(WorkerError, match=r"^a worker process was killed, .* continues$"):
            crew.result(finished[0])


def test_the_time_of_a_run_does_not_include_imports() -> None:
    code = """
import sys, time
from dynagat.benchmarks import find
from dynagat.experiment import grid
from dynagat.experiment.benchmark import run
clock, seen = time.perf_counter, []
time.perf_counter = lambda: (seen.append("torch._dynamo" in sys.modules), clock())[1]
lookup = find("dictionary-lookup")
(settings,) = grid(lookup.settings, ["k=2", "max_rounds=1"])
run(lookup.with_settings(settings), "gat", 0)
sys.exit(len(set(seen)) != 1)  # Adam imports it, which takes seconds
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
