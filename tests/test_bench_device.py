"""The bench of a GPU without a GPU: on the CPU, with a clock and a turbo-gnn of the tests."""

import time
from types import SimpleNamespace

import pytest
import torch
from bench import contenders, device
from bench.__main__ import main
from bench.cases import FULL, Case, Effort
from bench.cases import make_cases as cpu_cases
from bench.device import DeviceClock, make_cases, measure_with
from bench.device_page import render
from bench.graphs import Uniform
from bench.isolation import CannotRun, check_memory
from bench.records import Entry, Ledger, Record

from dynagat import Graph, ops, placement

CPU = torch.device("cpu")


class Clock:
    """Of the CPU, with an invented peak."""

    def seconds(self, run):
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    def peak_bytes(self, run):
        run()
        return 3_000_000


class Adjacency:
    """turbo-gnn's graph, as its documentation describes it."""

    @classmethod
    def from_edge_list(cls, edges, num_nodes):
        graph = cls()
        graph.graph = Graph.from_edge_index(edges, num_nodes)
        return graph

    def to(self, device):
        return self


def gatv2_aggr(graph, x, x_neighbors, attention_weights, negative_slope):
    a = attention_weights[None]
    return ops.gatv2(x, x_neighbors, a, graph.graph, slope=negative_slope)[0]


TURBO = SimpleNamespace(AdjacencyForwardBackwardWithNodeBuckets=Adjacency, gatv2_aggr=gatv2_aggr)


def tiny(**settings):
    defaults = {"graph": Uniform(60, 400), "heads": 2, "channels": 8, "in_dim": 16}
    defaults |= {"effort": Effort(seconds=0.01, fewest=2, most=3), "device": "cuda"}
    return Case("gpu-tiny", "gpu", **(defaults | settings))


def test_contenders_are_compared_measured_and_shown(monkeypatch):
    monkeypatch.setattr(contenders, "_import_turbo", lambda: TURBO)
    names = ("pyg", "dgl", "turbo-gnn", "dynagat")
    case = tiny(contenders=names)
    records = tuple(measure_with(case, CPU, Clock()))
    found = {(each.contender, each.quantity): each for each in records}
    for name in ("pyg", "turbo-gnn", "dynagat"):
        assert 2 <= len(found[name, "step"].values) <= 3
        assert found[name, "memory"].values == (3_000_000,)
    assert found["turbo-gnn", "gradients against pyg"].values[0] < 1e-5
    assert found["dgl", "step"].reason.startswith("cannot be imported")
    ledger = Ledger(
        ({"device": "cuda:0, a GPU"},), (Entry(case.describe(), 60, 400, 1.0, records),)
    )
    page = render(ledger)
    assert "| gatv2 2×8 | 400 edges | 3 | – | – | 3 | 3 | 1.00× | – | – | 1.00× |" in page
    assert "| device | cuda:0, a GPU |" in page
    assert "DGL is missing in gpu-tiny: cannot be imported" in page


def test_turbo_gnn_that_is_not_there_or_does_not_fit_is_a_remark():
    case = tiny(contenders=("turbo-gnn",))
    [record] = measure_with(case, CPU, Clock())
    assert record == Record("turbo-gnn", "step", reason="is not installed")
    [record] = measure_with(tiny(contenders=("turbo-gnn",), mechanism="gat"), CPU, Clock())
    assert record.reason == "of these mechanisms it has GATv2 only"


def test_a_contender_with_wrong_results_is_not_timed(monkeypatch):
    wrong = SimpleNamespace(**vars(TURBO) | {"gatv2_aggr": lambda *a, **o: 2 * gatv2_aggr(*a, **o)})
    monkeypatch.setattr(contenders, "_import_turbo", lambda: wrong)
    records = list(measure_with(tiny(contenders=("pyg", "turbo-gnn")), CPU, Clock()))
    assert [each.reason for each in records if each.reason] == ["its results differ from pyg"]
    assert [each.contender for each in records if each.quantity == "step" and each.values] == [
        "pyg"
    ]


def test_the_clock_of_a_device_waits_for_it(monkeypatch):
    calls = []

    class Event:
        def __init__(self, enable_timing):
            self.timing = enable_timing

        def record(self):
            calls.append("event")

        def elapsed_time(self, end):
            return 250.0

    there = SimpleNamespace(
        Event=Event,
        synchronize=lambda device: calls.append("wait"),
        reset_peak_memory_stats=lambda device: calls.append("reset"),
        memory_allocated=lambda device: 100,
        max_memory_allocated=lambda device: 350,
    )
    monkeypatch.setattr(device, "module_of", lambda kind: there)
    clock = DeviceClock(torch.device("cuda"))
    assert clock.seconds(lambda: calls.append("run")) == 0.25
    assert calls == ["wait", "event", "run", "event", "wait"]
    calls.clear()
    assert clock.peak_bytes(lambda: calls.append("run")) == 250
    assert calls == ["wait", "reset", "run", "wait"]


def test_memory_is_that_of_the_device(monkeypatch):
    from bench import isolation

    there = SimpleNamespace(mem_get_info=lambda device: (2e9, 8e9))
    monkeypatch.setattr(isolation, "module_of", lambda kind: there)
    check_memory(1e9, torch.device("cuda"))
    with pytest.raises(CannotRun, match=r"needs about 3.0 GB of memory, but 2.0 GB are available"):
        check_memory(3e9, torch.device("cuda"))


def test_the_cases_are_two_graphs_with_all_shapes_and_mechanisms():
    cases = make_cases("cuda")
    assert len({case.name for case in cases}) == len(cases) == 2 * (len(FULL.shapes) + 2)
    hubs = next(case for case in cases if case.group == "gpu hubs")
    degree = torch.bincount(hubs.graph.edge_index()[1])
    assert (degree >= 100_000).sum() == 10
    assert all(case.describe()["device"] == "cuda" for case in cases)
    assert not any("device" in case.describe() for case in cpu_cases(FULL))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "device is cuda, but torch .* finds none of that kind here"),
        (["--device", "cuda", "--quick"], "can't be combined with --quick"),
        (["--device", "auto"], "--device must be a CUDA, ROCm or XPU device, but is cpu"),
    ],
)
def test_without_a_device_one_sentence_says_so(options, message, monkeypatch):
    monkeypatch.setattr(placement, "count_devices", lambda kind: 0)
    with pytest.raises(ValueError, match=message):
        main(options)
