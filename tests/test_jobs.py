"""Jobs: which settings, heads and seeds a request stands for, and which of its runs are lacking."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from torch import nn

from dynagat.benchmarks import BENCHMARKS, EDGE_NOISE
from dynagat.experiment import Benchmark, Job, Request, Settings, Store, departure, jobs_of
from dynagat.experiment.jobs import lacking, run_lacking, variants
from dynagat.experiment.store import StoreError
from dynagat.metrics import ACCURACY
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.training import Schedule

# A benchmark in which every source of settings has another width. Every run adds a line to a file.


@dataclass(frozen=True)
class ToyData:
    dataset: str = "small"
    log: str = ""

    def load(self, seed):
        with Path(self.log).open("a") as file:
            file.write(f"{self.dataset} {seed}\n")

    def missing(self):
        return None


@dataclass(frozen=True)
class ToyNetwork:
    width: int = departure(1, published=4, number="D1")
    depth: int = 1
    heads: int = 1

    def __post_init__(self):
        if self.heads > 99:
            raise ValueError(f"heads must be at most 99, but is {self.heads}")

    def build(self, problem, mechanism):
        return nn.Linear(1, 1)


@dataclass(frozen=True)
class ToyTask:
    def prepare(self, problem, schedule):
        return Toy()


class Toy(Prediction):
    @property
    def metric(self):
        return ACCURACY

    def batches(self, generator):
        return iter([None])

    def loss(self, network, batch):
        return network.weight.sum(), 0.5

    def evaluate(self, network, part):
        return 0.5, 1.0

    def microscope_input(self):
        return MicroscopeInput(None)


def of_width(width: int, dataset: str = "") -> Settings:
    return Settings(ToyData(dataset), ToyNetwork(width), ToyTask(), Schedule(max_rounds=1))


TOY = Benchmark(
    name="toy",
    title="",
    source="",
    data=ToyData(),
    network=ToyNetwork(),
    task=ToyTask(),
    schedule=Schedule(max_rounds=1),
    mechanisms={"gat": (1, 8), "gatv2": (1,)},
    seeds=range(3),
    metric=ACCURACY.on("test"),
    smoke=("width=5",),
    by_dataset={"small": of_width(1), "large": of_width(2), "": of_width(9)},
    published_heads={"small": {"gat": (2,)}, "large": {"gat": (3,)}},
    microscope="none",
)
TUNED = replace(TOY, tuned={"gat": {"width": 3}})
SWEPT = replace(TUNED, sweep={"width": (6, 7)})


def widths(benchmark: Benchmark, mechanism: str = "gat", *settings: str, **request) -> list[int]:
    chosen = variants(benchmark, mechanism, Request(settings, **request))
    return [each.network.width for each in chosen]


def heads(benchmark: Benchmark, mechanism: str = "gat", *settings: str, **request) -> list[int]:
    request = Request(settings, (mechanism,), seeds=(0,), **request)
    return [job.benchmark.network.heads for job in jobs_of(benchmark, request)]


# Settings


def test_without_a_request_the_settings_are_the_benchmarks_own():
    assert widths(TOY) == [1]
    assert [each.settings for each in variants(TOY, "gat", Request())] == [TOY.settings]


def test_settings_for_the_data_set_replace_the_benchmarks():
    assert widths(TOY, "gat", "dataset=large") == [2]
    assert widths(TOY, "gat", "dataset=unheard-of") == [9]


def test_tuned_settings_replace_those_for_the_data_set():
    assert widths(TUNED, "gat", "dataset=large") == [3]
    assert widths(TUNED, "gatv2", "dataset=large") == [2]  # of another mechanism


def test_published_settings_replace_tuned_ones():
    assert widths(TUNED, "gat", "dataset=large", as_published=True) == [4]


def test_smoke_settings_replace_published_ones():
    assert widths(TUNED, "gat", "dataset=large", as_published=True, smoke=True) == [5]


def test_the_sweep_replaces_all_but_what_is_set():
    assert widths(SWEPT, "gat", "dataset=large", as_published=True) == [6, 7]
    assert widths(SWEPT, "gat", "width=8", "dataset=large", as_published=True) == [8]
    assert widths(SWEPT, "gat", "network.width=8") == [8]


def test_a_smoke_run_does_not_sweep():
    assert widths(SWEPT, smoke=True) == [5]


def test_what_is_set_replaces_smoke_settings():
    assert widths(SWEPT, "gat", "width=8", smoke=True) == [8]


def test_a_setting_with_several_values_gives_every_combination_with_the_sweep():
    chosen = variants(SWEPT, "gat", Request(("depth=1-2",)))
    values = [(each.network.width, each.network.depth) for each in chosen]
    assert values == [(6, 1), (6, 2), (7, 1), (7, 2)]


def test_the_last_data_set_that_is_named_counts():
    assert Request().dataset is None
    assert Request(("dataset=large", "width=1")).dataset == "large"
    assert Request(("dataset=large", "data.dataset = small")).dataset == "small"
    [chosen] = variants(TOY, "gat", Request(("dataset=small", "dataset=large")))
    assert (chosen.data.dataset, chosen.network.width) == ("large", 2)


def test_a_bad_setting_is_refused():
    with pytest.raises(ValueError, match=r"^there is no setting 'colour'; there are data\.dataset"):
        jobs_of(TOY, Request(("colour=red",)))
    with pytest.raises(ValueError, match=r"^network\.width must be a whole number, but is 'wide'$"):
        jobs_of(TOY, Request(("width=wide",)))


# Heads


def test_without_a_request_the_heads_are_those_that_the_benchmark_compares():
    assert heads(TOY) == [1, 8]
    assert heads(TOY, "gatv2") == [1]


def test_as_published_the_heads_are_those_of_the_released_code():
    assert heads(TOY, as_published=True) == [2]
    assert heads(TOY, "gat", "dataset=large", as_published=True) == [3]
    assert heads(TOY, "gat", "dataset=unheard-of", as_published=True) == [1, 8]
    assert heads(TOY, "gatv2", as_published=True) == [1]  # the released code has none for it


def test_tuned_heads_replace_published_ones():
    tuned = replace(TOY, tuned={"gat": {"heads": 4}})
    assert heads(tuned) == heads(tuned, as_published=True) == [4]
    assert heads(tuned, "gatv2") == [1]


def test_heads_that_are_set_replace_tuned_ones():
    tuned = replace(TOY, tuned={"gat": {"heads": 4}})
    assert heads(tuned, "gat", "heads=7") == heads(tuned, "gat", "network.heads=7") == [7]
    assert heads(tuned, "gat", "heads=6-7") == [6, 7]


def test_requested_heads_replace_all_others():
    tuned = replace(TOY, tuned={"gat": {"heads": 4}})
    request = {"heads": (5, 6), "as_published": True}
    assert heads(tuned, "gat", **request) == heads(tuned, "gatv2", **request) == [5, 6]
    with pytest.raises(ValueError, match=r"^heads must be at most 99, but is 100$"):
        heads(TOY, heads=(100,))


# Jobs


def test_there_is_a_job_for_each_mechanism_variant_number_of_heads_and_seed():
    jobs = jobs_of(TOY, Request(("width=2-3",)))
    values = [(j.mechanism, j.benchmark.network.width, j.benchmark.network.heads, j.seed)
              for j in jobs]  # fmt: skip
    assert values == [
        (name, width, count, seed)
        for name, counts in (("gat", (1, 8)), ("gatv2", (1,)))
        for width in (2, 3)
        for count in counts
        for seed in (0, 1, 2)
    ]


def test_only_requested_mechanisms_and_seeds_are_run():
    jobs = jobs_of(TOY, Request(mechanisms=("gatv2",), seeds=(7, 5)))
    assert [(job.mechanism, job.seed) for job in jobs] == [("gatv2", 7), ("gatv2", 5)]


def test_a_smoke_run_has_the_first_seed_only_unless_seeds_are_requested():
    assert {job.seed for job in jobs_of(TOY, Request(smoke=True))} == {0}
    assert {job.seed for job in jobs_of(TOY, Request(smoke=True, seeds=(1, 2)))} == {1, 2}


def test_an_unknown_mechanism_is_refused_before_any_job_is_listed():
    with pytest.raises(ValueError, match=r"^toy has no mechanism 'gat3'; it has gat, gatv2$"):
        jobs_of(TOY, Request(mechanisms=("gat", "gat3")))


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_every_benchmark_has_jobs_with_different_keys(benchmark):
    for request in (Request(), Request(smoke=True), Request(as_published=True)):
        keys = [job.key for job in jobs_of(benchmark, request)]
        assert len(set(keys)) == len(keys) > 0
        sweep = 1 if request.smoke else math.prod(map(len, benchmark.sweep.values()))
        seeds = 1 if request.smoke else len(benchmark.seeds)
        assert len(keys) >= len(benchmark.mechanisms) * seeds * sweep


def test_edge_noise_has_the_published_heads_of_its_data_set():
    for dataset, expected in (("ogbn-arxiv", 8), ("ogbn-mag", 1)):
        request = Request((f"dataset={dataset}",), ("gat",), seeds=(0,), as_published=True)
        assert {job.benchmark.network.heads for job in jobs_of(EDGE_NOISE, request)} == {expected}


# Running what a store lacks


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "records.sqlite") as opened:
        yield opened


def jobs_with(log: Path, *seeds: int) -> list[Job]:
    return jobs_of(TOY, Request((f"log={log}",), ("gatv2",), seeds=seeds))


def test_only_the_lacking_jobs_run_and_each_once(log, store):
    first = list(run_lacking(jobs_with(log, 0, 1), store))
    assert [record.seed for record in first] == [0, 1]
    jobs = [*jobs_with(log, 2, 0, 1), *jobs_with(log, 3, 2)]
    assert [job.seed for job in lacking(jobs, store)] == [2, 3]
    assert [record.seed for record in run_lacking(jobs, store)] == [2, 3]
    assert log.read_text().split() == ["small", "0", "small", "1", "small", "2", "small", "3"]
    assert lacking(jobs, store) == []
    assert list(run_lacking(jobs, store)) == []


def test_a_record_is_stored_before_it_is_yielded(log, store):
    runs = run_lacking(jobs_with(log, 0, 1), store)
    record = next(runs)
    assert store.keys() == {record.key}
    runs.close()  # as after an interruption
    assert [job.seed for job in lacking(jobs_with(log, 0, 1), store)] == [1]


def test_rounds_are_watched(log, store):
    seen = []
    jobs = jobs_with(log, 0, 1)
    list(run_lacking(jobs, store, watch=lambda job, here: seen.append((job.seed, here.round))))
    assert seen == [(0, 1), (1, 1)]


def test_jobs_that_differ_in_their_microscope_only_are_the_same_run(log, store):
    [job] = jobs_with(log, 0)
    other = replace(job, benchmark=replace(job.benchmark, microscope="glance"))
    assert len(lacking([job, other], store)) == 1


def test_a_store_that_cant_be_read_stops_before_the_first_run(log, store):
    store.close()
    with pytest.raises(StoreError, match="closed"):
        list(run_lacking(jobs_with(log, 0), store))
    assert not log.exists()


def test_what_was_tuned_on_a_data_set_replaces_what_was_tuned_in_general():
    both = replace(TUNED, tuned_on={"large": {"gat": {"width": 9}}})
    assert widths(both, "gat", "dataset=large") == [9]
    assert both.tuned_for("gat", "small") == TUNED.tuned["gat"]
    assert both.tuned_for("gatv2", "large") == {}


def test_improved_is_refused_where_there_are_no_improvements_and_beside_as_published():
    with pytest.raises(ValueError, match="toy has no improvements of ours; leave out --improved"):
        jobs_of(TOY, Request(improved=True))
    with pytest.raises(ValueError, match="--as-published and --improved exclude each other"):
        jobs_of(TOY, Request(improved=True, as_published=True))
