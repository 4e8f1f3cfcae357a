"""The bench: graphs, measurements, cases, records, the report and the demo."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench import (
    contenders,
    importing,
    isolation,
    larger_than_memory,
    links,
    programs,
    relational,
    sweep,
    tables,
    training,
    workers,
)
from bench.__main__ import FULL_PATH, choose, main
from bench.cases import FIRST_FIVE, FULL, LONG, QUICK, Case, Effort, make_cases
from bench.contenders import draw_inputs, start
from bench.demo import fit_to_memory, render_demo
from bench.goals import GOALS
from bench.graphs import Dictionaries, Hub, Hubs, Molecules, PowerLaw, Products, Recipe, Uniform
from bench.isolation import CannotRun, OutOfTime, in_fresh_process, reason_of, time_limit
from bench.large_graph import LargeGraph
from bench.lessons import KARATE, MOLECULES, Dataset
from bench.machine import ROOT
from bench.measure import TOLERANCE, measure
from bench.memory import RESET, memory_of_steps
from bench.records import (
    Entry,
    Ledger,
    Record,
    geometric_mean,
    read_ledger,
    write_ledger,
)
from bench.report import render, render_readme
from bench.synthetic_ogb import make_ogb
from bench.trials import alternation, repetitions

from dynagat.data.catalog import CATALOG
from dynagat.data.store import flat
from dynagat.experiment.runner import Contact
from tests.groups import in_group

POWER_LAW = PowerLaw(3_000, 43_000)
RECIPES = (
    POWER_LAW,
    Uniform(500, 8_000),
    Hub(500, 8_000, 3_000),
    Hubs(500, 8_000, 4, 900),
    Molecules(21),
    Dictionaries(6, 5),
    Products(500, 8_000),
    LargeGraph(500, 8_000, 4),
)
ONCE = Effort(seconds=0.01, fewest=2, most=3)


def tiny(group: str = "layers", **settings) -> Case:
    defaults = {"graph": Uniform(60, 400), "heads": 2, "channels": 8, "in_dim": 16, "effort": ONCE}
    return Case("tiny", group, **(defaults | settings))


# Graphs


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_a_recipe_always_draws_the_same_edges_in_the_right_number(recipe: Recipe) -> None:
    edges = recipe.edge_index()
    assert edges.shape == (2, recipe.num_edges)
    assert 0 <= int(edges.min()) <= int(edges.max()) < recipe.num_nodes
    assert torch.equal(edges, recipe.edge_index())


def test_a_power_law_graph_is_undirected_with_self_loops_and_a_few_high_degrees() -> None:
    key, query = POWER_LAW.edge_index()
    codes, back = key * POWER_LAW.num_nodes + query, query * POWER_LAW.num_nodes + key
    assert len(codes.unique()) == POWER_LAW.num_edges
    assert torch.equal(codes.sort().values, back.sort().values)
    assert torch.equal(key[key == query], torch.arange(POWER_LAW.num_nodes))
    even = Uniform(POWER_LAW.num_nodes, POWER_LAW.num_edges).edge_index()
    assert query.bincount().max() > 4 * even[1].bincount().max()


@pytest.mark.parametrize(("end", "row"), [("key", 0), ("query", 1)])
def test_a_hub_is_the_query_or_the_key_of_its_edges(end: str, row: int) -> None:
    degrees = [ends.bincount()[0] for ends in Hub(500, 8_000, 3_000, end).edge_index()]
    assert degrees[row] >= 3_000
    assert degrees[1 - row] < 100


def test_molecules_are_separate_and_connected_and_have_37_directed_bonds() -> None:
    recipe = Molecules(20)
    edges = recipe.edge_index()
    assert torch.equal(edges[0] // 18, edges[1] // 18)
    assert (recipe.num_edges - recipe.num_nodes) / recipe.num_graphs == 37
    reached = torch.eye(recipe.num_nodes)[:: recipe.num_atoms]  # from each first atom
    adjacency = torch.zeros(recipe.num_nodes, recipe.num_nodes)
    adjacency[edges[0], edges[1]] = 1
    for _ in range(recipe.num_atoms):
        reached = (reached @ adjacency).clamp(max=1)
    assert reached.sum() == recipe.num_nodes


def test_a_dictionary_joins_every_query_with_every_key_and_nothing_else() -> None:
    key, query = Dictionaries(3, 4).edge_index()
    assert torch.equal(key // 8, query // 8)
    assert set(zip((query % 8).tolist(), (key % 8).tolist(), strict=True)) == {
        (i, 4 + j) for i in range(4) for j in range(4)
    }


# Synthetic data


def test_synthetic_files_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_ogb("ogbl-ddi", tmp_path / name, nodes=20, seed=3)
    for path in (tmp_path / "one" / "raw").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "raw" / path.name).read_bytes()
    with pytest.raises(ValueError, match="must be empty"):
        make_ogb("ogbl-ddi", tmp_path / "one")
    with pytest.raises(ValueError, match=r"nodes must lie in \[10, 4267\] for ogbl-ddi, but is 3"):
        make_ogb("ogbl-ddi", tmp_path / "three", nodes=3)
    with pytest.raises(ValueError, match=r"name must be one of .*ogbl-ddi, but is 'cora'"):
        make_ogb("cora", tmp_path / "three")


# Measuring


@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "dpgat"])
def test_contenders_compute_the_same_results(mechanism: str) -> None:
    names = ("pyg", "dgl", "dynagat", "dynagat, new graph")
    entry = measure(tiny(mechanism=mechanism, contenders=names, input_grad=True))
    for name in ("pyg", "dynagat", "dynagat, new graph"):
        assert len(entry.find(name, "step").values) >= ONCE.fewest
    for quantity in ("output against pyg", "gradients against pyg"):
        assert entry.median("dynagat", quantity) < 1e-5
    dgl = entry.find("dgl", "step")
    assert bool(dgl.values) != bool(dgl.reason)


def test_a_contender_with_wrong_results_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_wrong(case, inputs):
        right = start("pyg", case, inputs)
        return replace(right, forward=lambda edges: right.forward(edges) * (1 + 2 * TOLERANCE))

    monkeypatch.setitem(contenders.CONTENDERS, "dynagat", start_wrong)
    record = measure(tiny(contenders=("pyg", "dynagat"))).find("dynagat", "step")
    assert not record.values
    assert "differ" in record.reason


@pytest.mark.parametrize("group", ["tiny", "degrees", "build", "threads", "bfloat16", "capture"])
def test_the_other_groups_are_measured(group: str) -> None:
    entry = measure(tiny(group, against=Uniform(60, 400), contenders=("pyg", "dynagat")))
    assert all(bool(record.values) != bool(record.reason) for record in entry.records)
    assert len(entry.records) > 0


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_epochs_on_a_small_real_graph_are_measured(mechanism: str) -> None:
    names = ("pyg", "dynagat", "dynagat, F.dropout")
    graph, settings = FIRST_FIVE[0], {"mechanism": mechanism, "dropout": 0.6}
    entry = measure(tiny("first-five", graph=graph, contenders=names, **settings))
    for name in names:
        assert ONCE.fewest <= len(entry.find(name, "epoch").values) <= ONCE.most
        assert entry.median(name, "output against pyg") < 1e-5


def test_a_dataset_that_is_not_here_is_a_remark(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    for name in ("DYNAGAT_DATA", "DYNAGAT_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    (record,) = measure(tiny("first-five", graph=FIRST_FIVE[1])).records
    assert "cora is not here; `dynagat data get cora`" in record.reason


@pytest.mark.data
@pytest.mark.parametrize("name", [KARATE, "cora", MOLECULES])
def test_a_dataset_has_the_size_that_its_case_states(name: str) -> None:
    (data,) = (each for each in FIRST_FIVE if each.name == name)
    lesson = data.read()
    assert (lesson.x.shape[0], lesson.edge_index.shape[1]) == (data.num_nodes, data.num_edges)
    assert data == Dataset(name, int(lesson.edge_index.max()) + 1, data.num_edges)
    loss = lesson.loss(torch.zeros(data.num_nodes, lesson.out_dim))
    assert bool(loss.isfinite())


def test_orders_of_the_nodes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = Uniform(60, 400).edge_index()
    monkeypatch.setattr(Dataset, "both_directions", lambda self: edges)
    entry = measure(tiny("locality", graph=Dataset("some", 60, 400)))
    assert all(entry.median(name, "attention") > 0 for name in ("given", "random", "reordered"))
    for quantity in ("seconds of ordering", "seconds of moving"):
        assert entry.median("reordered", quantity) > 0


def test_orders_on_a_graph_that_is_not_here_are_a_remark(monkeypatch, tmp_path) -> None:
    for name in ("DYNAGAT_DATA", "DYNAGAT_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    (record,) = measure(tiny("locality", graph=FULL.locality[0])).records
    assert "ogbn-arxiv is not here; `dynagat data get ogbn-arxiv`" in record.reason


@pytest.mark.data
def test_both_directions_of_a_real_graph_are_followed_by_self_loops() -> None:
    data = FULL.locality[1]
    edges = data.both_directions()
    loops = edges[:, -data.num_nodes :]
    assert torch.equal(loops, torch.arange(data.num_nodes).expand(2, -1))
    code = edges[0] * data.num_nodes + edges[1]
    assert len(code.unique()) == len(code)
    assert torch.equal(code.sort().values, (edges[1] * data.num_nodes + edges[0]).sort().values)


def test_samplers_are_measured_in_seconds_per_edge() -> None:
    graph = Uniform(600, 4_000)
    entry = measure(tiny("sampling", graph=graph, batch_size=20, pass_seeds=50))
    for name in ("dynagat, layered", "dynagat, merged"):
        assert 0 < entry.median(name, "edge") < 1e-3
    assert entry.median("dynagat, layered", "pass") > 0
    walks = measure(tiny("walks", graph=graph, batch_size=20))
    assert 0 < walks.median("dynagat, walks", "edge") < 1e-3
    for record in (*entry.records, *walks.records):
        assert bool(record.values) != bool(record.reason)


@pytest.mark.parametrize("string_ids", [False, True])
def test_importing_is_measured_in_seconds_and_relative_to_the_arrays(
    string_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "in_fresh_process", lambda call, *arguments: call(*arguments))
    effort = replace(ONCE, fewest=1)
    graph = Uniform(2_000, 10_000)
    entry = measure(tiny("import", graph=graph, effort=effort, string_ids=string_ids))
    for name in ("pandas", "dynagat", "dynagat, to a folder"):
        assert 0 < entry.median(name, "seconds") < 30
    for name in ("dynagat", "dynagat, to a folder"):
        assert entry.median(name, "arrays") > 2_000 * (6 + 20) * 4  # the features alone
        peak, arrays = entry.median(name, "memory"), entry.median(name, "arrays")
        assert entry.median(name, "peak over arrays") == pytest.approx(peak / arrays, abs=1e-3)
    assert entry.find("pandas", "arrays") is None


@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="the kernel cannot reset the peak memory")
def test_importing_has_its_own_process(tmp_path: Path) -> None:
    importing.write_files(Uniform(20_000, 100_000), tmp_path, string_ids=True)
    seconds, peak, arrays = in_fresh_process(importing.read_files, "dynagat", tmp_path)
    assert seconds > 0
    assert arrays < peak < 20 * arrays


def test_if_one_reader_fails_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, folder: Path) -> tuple[float, int, int]:
        if name == "pandas":
            raise CannotRun("no pandas")
        return 1.0, 30, 10

    monkeypatch.setattr(importing, "in_fresh_process", lambda _, *arguments: fail(*arguments))
    entry = measure(tiny("import"))
    assert entry.find("pandas", "seconds").reason == "no pandas"
    assert entry.median("dynagat", "peak over arrays") == 3


@pytest.mark.parametrize(
    ("name", "graph"),
    [("ogbn-products", Products(1_000, 20_000)), ("ogbn-proteins", Products(300, 6_000))],
)
def test_training_is_measured_with_the_code_of_the_benchmark(
    name: str, graph: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "in_fresh_process", lambda call, *arguments: call(*arguments))
    entry = measure(tiny("training", graph=graph, benchmark=name, heads=8))
    steps = entry.find("dynagat", "step")
    assert ONCE.fewest <= len(steps.values) <= ONCE.most
    num_steps = entry.median("dynagat", "steps per epoch")
    assert num_steps == 1
    assert entry.median("dynagat", "epoch") == pytest.approx(num_steps * steps.median, rel=1e-4)
    assert entry.median("dynagat", "evaluation") > 0
    assert entry.median("dynagat", "process memory") > 1e7


def test_an_epoch_is_compared_with_the_same_network_of_pyg(monkeypatch) -> None:
    monkeypatch.setattr(training, "in_fresh_process", lambda call, *arguments: call(*arguments))
    names = ("dynagat", "pyg")
    case = tiny("epoch", graph=POWER_LAW, benchmark="ogbn-arxiv", heads=8, contenders=names)
    entry = measure(case)
    for name in names:
        steps = entry.find(name, "step")
        assert ONCE.fewest <= len(steps.values) <= ONCE.most
        assert entry.median(name, "steps per epoch") == 30
        assert entry.median(name, "epoch") == pytest.approx(30 * steps.median, rel=1e-4)
        assert entry.median(name, "memory") > 0
    network, *_ = training.build(case, training.draw_graph(case), source="pyg")
    assert type(network.layers[0].conv).__name__ == "PyGLayer"


def test_the_parts_of_a_first_call_are_measured_in_a_process_of_its_own() -> None:
    effort, names = replace(ONCE, fewest=1), ("dynagat",)
    entry = measure(tiny("first-call", graph=POWER_LAW, contenders=names, effort=effort))
    assert entry.median("dynagat", "importing torch") > 0.05
    assert entry.median("dynagat", "first step") > 0
    assert "| importing torch |" in tables.first_call([entry])


def test_training_needs_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "available_bytes", lambda: 1_000.0)
    entry = measure(tiny("training", benchmark="ogbn-products"))
    assert "needs about" in entry.find("dynagat", "step").reason


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_one_worker_and_two_sample_and_are_measured_by_the_same_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads
) -> None:
    def launch(case: Case, path: Path, size: int, threads: int) -> workers.Speeds:
        def train(group):
            return workers.train(Contact(print, group=group), case, path, 1)

        return in_group(size, train, tmp_path)[0]

    threads(1)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(workers, "in_fresh_process", lambda call, *arguments: call(*arguments))
    monkeypatch.setattr(workers, "launch", launch)
    graph, names = Products(1_000, 20_000), tuple(workers.SETUPS)[1:]
    case = tiny("ddp", graph=graph, benchmark="ogbn-products", heads=8, contenders=names)
    entry = measure(case)
    for name in names:
        assert len(entry.find(name, "edge").values) == case.effort.most
        assert entry.median(name, "evaluation") > 0
    assert "ogbn-products, two workers, one thread each" in tables.workers([entry])


def test_a_sweep_is_measured_where_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "in_fresh_process", lambda function, *given: function(*given))
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # set for Ray
    names = ("--workers 1", "--ray, 2 CPUs")
    case = tiny("sweep", benchmark="dictionary-lookup", contenders=names, num_runs=1)
    entry = measure(case)
    assert entry.median("--workers 1", "run") > 0
    assert entry.find("--ray, 2 CPUs", "run").reason.startswith("ModuleNotFoundError")
    assert "1.00×" in tables.sweep([entry])


@pytest.mark.parametrize("name", ["ogbn-products", "ogbn-proteins"])
def test_training_data_have_the_widths_and_the_split_of_the_real_dataset(name: str) -> None:
    case = tiny("training", graph=Products(500, 8_000), benchmark=name)
    data, again, entry = training.draw_graph(case), training.draw_graph(case), CATALOG[name]
    assert (data.num_nodes, data.num_edges) == (500, 8_000)
    assert len(data.task["classes"]) == entry.classes
    assert ("x" in data.nodes["node"].arrays) == bool(entry.features)
    fractions = [len(data.split[part]) / 500 for part in ("train", "valid", "test")]
    assert fractions == pytest.approx([count / sum(entry.split) for count in entry.split], abs=0.01)
    assert sum(map(len, data.split.values())) == 500
    for array, same in zip(flat(data).values(), flat(again).values(), strict=True):
        assert np.array_equal(array, same)


LINK_CASES = {
    "ogbl-collab": {"graph": Products(400, 4_000), "heads": 8, "channels": 8},
    "ogbl-citation2": {"graph": Products(2_000, 8_000), "heads": 8, "channels": 32},
}


@pytest.mark.parametrize("name", LINK_CASES)
@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_links_are_scored_alike_by_both_contenders(name: str, mechanism: str) -> None:
    case = tiny("links", benchmark=name, mechanism=mechanism, **LINK_CASES[name])
    problem = links.draw_problem(case)
    ours, pyg = (links.build(case, problem, each).eval() for each in ("dynagat", "pyg"))
    for mine, theirs in zip(ours.parameters(), pyg.parameters(), strict=True):
        theirs.data = mine.data.view_as(theirs)
    pairs = problem.links["train"][:50]
    with torch.no_grad():
        torch.testing.assert_close(*(each(problem.x, problem.graph, pairs) for each in (ours, pyg)))


@pytest.mark.parametrize("name", LINK_CASES)
def test_link_training_is_measured_with_the_code_of_the_benchmark(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "in_fresh_process", lambda call, *arguments: call(*arguments))
    entry = measure(tiny("links", benchmark=name, contenders=("dynagat",), **LINK_CASES[name]))
    steps = entry.find("dynagat", "step")
    assert ONCE.fewest <= len(steps.values) <= ONCE.most
    num_steps = entry.median("dynagat", "steps per epoch")
    assert num_steps == {"ogbl-collab": 1, "ogbl-citation2": 1000}[name]
    assert entry.median("dynagat", "epoch") == pytest.approx(num_steps * steps.median, rel=1e-4)
    assert entry.median("dynagat", "memory") > 0


def test_fields_added_later_are_left_out_of_a_description_at_their_default() -> None:
    assert "batch_size" not in tiny().describe()
    assert tiny("sampling", batch_size=9).describe()["batch_size"] == 9


@pytest.mark.native
def test_the_op_is_compared_with_the_gather_floor() -> None:
    entry = measure(tiny("floor", huge_pages=True))
    assert entry.ratio("dynagat", "floor", "attention") > 0


@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="the kernel cannot reset the peak memory")
def test_memory_is_measured_in_a_fresh_process() -> None:
    case = tiny("memory", graph=Uniform(20_000, 80_000), heads=8, channels=32)
    table = 20_000 * 8 * 32 * 4  # bytes of each of query, key, out and their gradients
    peak, kept = in_fresh_process(memory_of_steps, case, "dynagat")
    assert 3 * table < peak < 20 * table
    assert 0 <= kept <= peak + 2**20  # Linux counts pages per thread, with a small delay


def test_contenders_take_turns_even_if_their_counts_differ() -> None:
    assert alternation({"a": 2, "b": 2}) == ["a", "b", "a", "b"]
    assert alternation({"a": 1, "b": 3}) == ["b", "a", "b", "b"]


def test_slow_steps_are_repeated_less_often() -> None:
    effort = Effort(seconds=10, fewest=3, most=15)
    assert [repetitions(seconds, effort) for seconds in (30, 2, 0.01)] == [3, 5, 15]


def test_a_time_limit_stops_code_that_takes_longer() -> None:
    with pytest.raises(OutOfTime, match="longer than"), time_limit(0.05):
        time.sleep(5)
    with pytest.raises(OutOfTime, match="longer than"), time_limit(0.05), suppress(OutOfTime):
        time.sleep(5)
    with time_limit(5):
        pass


def test_training_on_a_graph_that_stays_on_disk_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DYNAGAT_CACHE", "DYNAGAT_MEMORY"):
        monkeypatch.setenv(name, "1")  # restored after the test, which changes it
    graph = LargeGraph(3_000, 40_000, 16)
    settings = {"benchmark": "ogbn-products", "graph": graph, "in_dim": 16}
    case = tiny("larger-than-memory", **settings)
    seconds, peak = larger_than_memory.write(graph, tmp_path / "graph")
    assert seconds > 0
    assert peak.anonymous > 0
    measured = larger_than_memory.train(case, tmp_path)
    assert len(measured.steps) >= case.effort.fewest
    assert measured.sampled > 0
    assert measured.peak.anonymous >= measured.before > 0
    assert list((tmp_path / "cache" / "rows").glob("*-one-no-loops"))  # sorted on disk


def test_a_contender_needs_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "available_bytes", lambda: 1_000.0)
    case = tiny()
    with pytest.raises(CannotRun, match="needs about") as error:
        start("pyg", case, draw_inputs(case))
    assert reason_of(error.value) == str(error.value)


# Cases


@pytest.mark.parametrize("sizes", [FULL, QUICK], ids=["full", "quick"])
def test_case_names_are_unique(sizes) -> None:
    cases = make_cases(sizes)
    assert len({case.name for case in cases}) == len(cases)


def test_every_goal_has_cases_and_a_title_of_its_own() -> None:
    assert {goal.group for goal in GOALS} <= {case.group for case in make_cases(FULL)}
    titles = [(goal.group, goal.title) for goal in GOALS]
    assert len(set(titles)) == len(titles)


def test_a_goal_may_be_for_cases_of_one_shape() -> None:
    (goal,) = (goal for goal in GOALS if goal.shape)
    ledger, record = fake_ledger(), Record("floor", "attention", (0.5,))
    slow = next(entry for entry in ledger.group("floor") if entry.shape != goal.shape)
    others = [each for each in slow.records if each.contender != "floor"]
    ledger = ledger.with_entry(replace(slow, records=(*others, record)))
    assert goal.measured(ledger) == pytest.approx(1.25)
    assert goal.is_met(ledger)


def test_a_quick_run_leaves_out_what_takes_long_unless_it_is_asked_for_it() -> None:
    cases = make_cases(QUICK)
    groups = {case.group for case in choose(cases, None, LONG)}
    assert not groups & {"larger-than-memory", "plan", "training", "epoch", "first-call"}
    assert "layers" in groups
    assert {case.group for case in choose(cases, ["plan"], LONG)} == {"plan"}


def test_only_takes_names_and_groups_and_an_error_lists_them() -> None:
    cases = make_cases(QUICK)
    assert {case.group for case in choose(cases, ["floor"])} == {"floor"}
    assert [case.name for case in choose(cases, ["gatv2-8x8"])] == ["gatv2-8x8"]
    with pytest.raises(ValueError, match=r"gatv2-8x8.*but is 'gatv3'"):
        choose(cases, ["gatv3"])


# Records


def fake_ledger() -> Ledger:
    """Invented records of every full case; DGL is missing."""
    entries = []
    for case in make_cases(FULL):
        seconds = {"pyg": 20.0, "compiled": 8.0, "dynagat": 1.0, "floor": 0.8, "even": 0.9}
        seconds |= {"uneven": 1.0, "graph": 0.1, "layer": 0.4, "1 thread": 1.8, "2 threads": 1.0}
        seconds |= {"float32": 1.0, "bfloat16": 0.6, "captured": 1.3, "plain": 1.0}
        seconds |= {"dynagat, layered": 1e-8, "dynagat, merged": 2e-8, "torch-sparse": 3e-8}
        seconds |= {"dynagat, walks": 1e-8, "dgl, walks": 2e-8}
        seconds |= {"reference": 20.0, "streamed": 3.0}
        others = {"memory": "memory", "streamed": "memory", "build": "build", "capture": "forward"}
        others |= {"sampling": "edge", "walks": "edge", "import": "seconds"}
        others |= {"first-five": "epoch"}
        seconds |= {"pandas": 7.0, "dynagat, to a folder": 12.0}
        quantity = others.get(case.group, "attention")
        quantity = (
            "step"
            if case.group
            in ("layers", "batches", "mechanisms", "training", "links", "sampled links")
            else quantity
        )
        records = [Record(n, quantity, (s, s * 1.5, s * 0.9)) for n, s in seconds.items()]
        if case.group == "import":
            names = ("dynagat", "dynagat, to a folder")
            records += [Record(name, "peak over arrays", (2.5,)) for name in names]
        if case.group.endswith("links"):
            records += [Record(n, "memory", (s * 1e9,)) for n, s in seconds.items()]
        if case.group == "training":
            extra = {"steps per epoch": 769.0, "epoch": 769.0, "evaluation": 90.0}
            extra["process memory"] = 12.5e9
            records += [Record("dynagat", name, (value,)) for name, value in extra.items()]
        records.append(Record("dgl", quantity, reason="not installed"))
        sizes = case.graph.num_nodes, case.graph.num_edges
        entries.append(Entry(case.describe(), *sizes, 1.0, tuple(records)))
    session = dict.fromkeys(("CPU", "threads", "torch", "PyG", "DGL", "commit"), "invented")
    return Ledger((session,), tuple(entries))


def test_records_are_read_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "some" / "records.json"
    ledger = fake_ledger()
    write_ledger(ledger, path)
    assert read_ledger(path) == ledger
    assert [file.name for file in path.parent.iterdir()] == ["records.json"]


def test_a_case_is_measured_again_only_if_it_changed_or_failed() -> None:
    ledger, case = fake_ledger(), make_cases(FULL)[0]
    assert ledger.has(case.describe())
    assert not ledger.has(replace(case, in_dim=64).describe())
    failed = replace(ledger.entries[0], records=(Record("all", "step", reason="died"),))
    assert not ledger.with_entry(failed).has(case.describe())


def test_sessions_without_entries_are_dropped() -> None:
    ledger = fake_ledger().with_session({"CPU": "another"})
    names = [entry.name for entry in ledger.entries]
    assert ledger.only(names) == fake_ledger()
    entry = replace(ledger.entries[1], session=1)
    kept = ledger.with_entry(entry).only([entry.name])
    assert (kept.sessions, kept.entries[0].session) == (({"CPU": "another"},), 0)


def test_the_geometric_mean_is_the_root_of_the_product() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([3.0]) == pytest.approx(3.0)


def test_a_goal_compares_medians_and_needs_both_contenders_in_every_case() -> None:
    ledger = fake_ledger()
    eager = next(goal for goal in GOALS if goal.group == "layers")
    assert eager.measured(ledger) == pytest.approx(20.0)
    assert eager.is_met(ledger)
    layer = ledger.group("layers")[0]
    without = replace(layer, records=layer.records[1:])
    assert eager.measured(ledger.with_entry(without)) is None
    assert eager.is_met(ledger.with_entry(without)) is None
    assert eager.measured(Ledger()) is None


def test_the_page_shows_goals_numbers_and_missing_contenders() -> None:
    page = render(fake_ledger(), "figure.svg")
    assert "| PyG eager / dynagat, geometric mean | ≥ 16× | 20.0× | yes |" in page
    assert "| PyG compiled / dynagat, geometric mean | ≥ 10× | 8.00× | **no** |" in page
    assert "| time per edge, best peer / dynagat, lowest | ≥ 1× | 1.50× | yes |" in page
    assert "| time, highest | ≤ 30 s | 12.0 s | yes |" in page
    assert "| peak memory / size of the arrays, highest | ≤ 3× | 2.50× | yes |" in page
    assert "| import-names, pandas | 1,000,000 | 5,000,000 | 7.0 (6.3–10.5) |" in page
    assert "20,000 (18,000–30,000)" in page
    sizes = "| ogbn-products | 2,449,029 | 123,718,280 |"
    assert f"{sizes} 1,000 (900–1,500) | 769 | 769 | 90.0 | 12,500 |" in page
    assert "DGL is missing in gatv2-8x32, gatv2-8x8" in page
    assert "invented" in page
    assert "Not measured yet" not in page
    unmeasured = render(fake_ledger().only(["gatv2-8x32"])).splitlines()[4]
    assert unmeasured.startswith("**Not measured yet: karate-gat, karate-gat-dropout")
    assert "gatv2-8x8, gatv2-1x64" in unmeasured


def test_the_readme_table_is_computed_from_the_same_records() -> None:
    table = render_readme(fake_ledger())
    assert "| 8×32, time of a step | 20,000 ms | 8,000 ms | – | 1,000 ms | 20.0× | 8.00× |" in table
    assert "169,343 nodes, 2,484,941 edges" in table
    assert table.count("commit invented") == 2  # of both tables
    first = "| cora-gat | 20,000 ms | 8,000 ms | – | 1,000 ms | 20.0× | 8.00× |"
    assert table.index(first) < table.index("| 8×32")


def test_the_report_and_its_figure_are_written_next_to_the_records(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "records.json"
    write_ledger(fake_ledger(), path)
    main(["--report", "--json", str(path)])
    assert "](records.svg)" in path.with_suffix(".md").read_text()
    first = path.with_suffix(".svg").read_bytes()
    main(["--report", "--json", str(path)])
    assert path.with_suffix(".svg").read_bytes() == first


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_the_network_for_molecules_equals_its_peer_and_its_parts_are_timed(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relational, "SQUARE", 64)
    case = tiny("relational", graph=Molecules(6), mechanism=mechanism)
    records = {(each.contender, each.quantity): each for each in measure(case).records}
    assert records["pyg", "difference"].median < 1e-5
    assert records["pyg", "step"].values
    assert records["dynagat", "epoch"].median > records["dynagat", "step"].median
    shares = [records["dynagat", f"share of {each}"].median for each in ("products", "attention")]
    assert min(shares) > 0
    assert sum(shares) < 1
    assert records["machine", "flops"].median > 0


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_the_network_for_programs_equals_its_peer_and_its_memory_is_measured(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "in_fresh_process", lambda function, *given: function(*given))
    case = tiny("programs", graph=programs.TINY, mechanism=mechanism, contenders=("dynagat", "pyg"))
    records = {(each.contender, each.quantity): each for each in measure(case).records}
    assert records["pyg", "difference"].median < 1e-5
    for name in case.contenders:
        assert records[name, "step"].median > 0
        assert records[name, "memory"].values


def test_the_readme_has_the_tables_of_the_committed_records() -> None:
    readme = (ROOT / "README.md").read_text()
    block = readme.split("<!-- results: python -m bench --readme -->\n")[1].split("<!-- /results")
    message = "the tables of README.md are out of date: run `python -m bench --readme`"
    assert block[0] == render_readme(read_ledger(FULL_PATH)), message


def test_the_committed_page_is_computed_from_the_committed_records() -> None:
    page = render(read_ledger(FULL_PATH), "performance.svg")
    message = "docs/performance.md is out of date: run `python -m bench --report`"
    assert page == FULL_PATH.with_suffix(".md").read_text(), message


# The demo


def test_the_demo_uses_a_smaller_graph_if_memory_is_short() -> None:
    assert fit_to_memory(PowerLaw(), 64e9) == PowerLaw()
    small = fit_to_memory(PowerLaw(), 1e9)
    assert 10_000 < small.num_nodes < 100_000
    assert small.edge_index().shape[1] == small.num_edges


def test_the_demo_prints_times_memory_and_differences() -> None:
    ledger = fake_ledger()
    layers, memory, build = (ledger.group(name)[0] for name in ("layers", "memory", "build"))
    extra = [Record("dynagat", f"{what} against pyg", (1e-6,)) for what in ("output", "gradients")]
    table = render_demo(replace(layers, records=(*layers.records, *extra)), memory, build)
    assert "training step, ms" in table
    assert "20.0×" in table
    assert "output 1.0e-06, gradients 1.0e-06" in table
    with pytest.raises(CannotRun, match="'output against pyg' of dynagat is missing"):
        render_demo(layers, memory, build)
