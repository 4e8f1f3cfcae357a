"""The benchmarks measure what they say, agree before they time, and report nothing but records."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench import importing, training
from bench.__main__ import choose, main
from bench.cases import FULL, QUICK, Case, Effort, make_cases
from bench.contenders import draw_inputs, start
from bench.demo import fit_to_memory, render_demo
from bench.goals import GOALS
from bench.graphs import Dictionaries, Hub, Molecules, PowerLaw, Products, Recipe, Uniform
from bench.isolation import CannotRun, OutOfTime, in_fresh_process, reason_of, time_limit
from bench.measure import TOLERANCE, alternation, measure, repetitions
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

from dynagat.data.catalog import CATALOG
from dynagat.data.store import flat

POWER_LAW = PowerLaw(3_000, 43_000)
RECIPES = (
    POWER_LAW,
    Uniform(500, 8_000),
    Hub(500, 8_000, 3_000),
    Molecules(21),
    Dictionaries(6, 5),
    Products(500, 8_000),
)
ONCE = Effort(seconds=0.01, fewest=2, most=3)


def tiny(group: str = "layers", **settings) -> Case:
    given = {"heads": 2, "channels": 8, "in_dim": 16, "effort": ONCE}
    return Case("tiny", group, **({"graph": Uniform(60, 400)} | given | settings))


# Graphs


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_a_recipe_always_draws_the_edges_it_promises(recipe: Recipe) -> None:
    edges = recipe.edge_index()
    assert edges.shape == (2, recipe.num_edges)
    assert 0 <= int(edges.min()) <= int(edges.max()) < recipe.num_nodes
    assert torch.equal(edges, recipe.edge_index())


def test_a_power_law_graph_is_undirected_with_one_loop_per_node_and_a_long_tail() -> None:
    key, query = POWER_LAW.edge_index()
    codes, back = key * POWER_LAW.num_nodes + query, query * POWER_LAW.num_nodes + key
    assert len(codes.unique()) == POWER_LAW.num_edges
    assert torch.equal(codes.sort().values, back.sort().values)
    assert torch.equal(key[key == query], torch.arange(POWER_LAW.num_nodes))
    even = Uniform(POWER_LAW.num_nodes, POWER_LAW.num_edges).edge_index()
    assert query.bincount().max() > 4 * even[1].bincount().max()


@pytest.mark.parametrize(("end", "row"), [("key", 0), ("query", 1)])
def test_a_hub_has_its_edges_at_one_end_only(end: str, row: int) -> None:
    degrees = [ends.bincount()[0] for ends in Hub(500, 8_000, 3_000, end).edge_index()]
    assert degrees[row] >= 3_000
    assert degrees[1 - row] < 100


def test_molecules_are_apart_connected_and_have_37_directed_bonds() -> None:
    recipe = Molecules(20)
    edges = recipe.edge_index()
    assert torch.equal(edges[0] // 18, edges[1] // 18)
    assert (recipe.num_edges - recipe.num_nodes) / recipe.num_graphs == 37
    reached = torch.eye(recipe.num_nodes)[:: recipe.num_atoms]  # from the first atom of each
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
def test_contenders_agree_before_they_are_timed(mechanism: str) -> None:
    names = ("pyg", "dgl", "dynagat", "dynagat, new graph")
    entry = measure(tiny(mechanism=mechanism, contenders=names, input_grad=True))
    for name in ("pyg", "dynagat", "dynagat, new graph"):
        assert len(entry.find(name, "step").values) >= ONCE.fewest
    for quantity in ("output against pyg", "gradients against pyg"):
        assert entry.median("dynagat", quantity) < 1e-5
    dgl = entry.find("dgl", "step")
    assert bool(dgl.values) != bool(dgl.reason)


def test_a_contender_with_other_results_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_with_others(case, inputs):
        right = start("pyg", case, inputs)
        return replace(right, forward=lambda edges: right.forward(edges) * (1 + 2 * TOLERANCE))

    monkeypatch.setitem(start.__globals__["CONTENDERS"], "dynagat", start_with_others)
    record = measure(tiny(contenders=("pyg", "dynagat"))).find("dynagat", "step")
    assert not record.values
    assert "differ" in record.reason


@pytest.mark.parametrize("group", ["degrees", "build", "threads", "bfloat16", "capture"])
def test_every_other_group_is_measured_too(group: str) -> None:
    entry = measure(tiny(group, against=Uniform(60, 400)))
    assert all(bool(record.values) != bool(record.reason) for record in entry.records)
    assert len(entry.records) > 0


def test_samplers_are_measured_by_the_edge() -> None:
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
def test_importing_is_measured_in_seconds_and_by_the_arrays_it_makes(
    string_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "in_fresh_process", lambda read, *given: read(*given))
    effort = replace(ONCE, fewest=1)
    graph = Uniform(2_000, 10_000)
    entry = measure(tiny("import", graph=graph, effort=effort, string_ids=string_ids))
    for name in ("pandas", "dynagat", "dynagat, to a folder"):
        assert 0 < entry.median(name, "seconds") < 30
    for name in ("dynagat", "dynagat, to a folder"):
        assert entry.median(name, "arrays") > 2_000 * (6 + 20) * 4  # of features alone
        peak, arrays = entry.median(name, "memory"), entry.median(name, "arrays")
        assert entry.median(name, "peak over arrays") == pytest.approx(peak / arrays, abs=1e-3)
    assert entry.find("pandas", "arrays") is None


@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="the kernel can't begin a new peak")
def test_the_memory_of_importing_is_that_of_a_process_of_its_own(tmp_path: Path) -> None:
    importing.write_files(Uniform(20_000, 100_000), tmp_path, string_ids=True)
    seconds, peak, arrays = in_fresh_process(importing.read_files, "dynagat", tmp_path)
    assert seconds > 0
    assert arrays < peak < 20 * arrays


def test_what_stops_one_reader_is_told_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str, folder: Path) -> tuple[float, int, int]:
        if name == "pandas":
            raise CannotRun("no pandas")
        return 1.0, 30, 10

    monkeypatch.setattr(importing, "in_fresh_process", lambda _, *given: fail(*given))
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
    monkeypatch.setattr(training, "in_fresh_process", lambda call, *given: call(*given))
    entry = measure(tiny("training", graph=graph, benchmark=name, heads=8))
    steps = entry.find("dynagat", "step")
    assert ONCE.fewest <= len(steps.values) <= ONCE.most
    num_steps = entry.median("dynagat", "steps per epoch")
    assert num_steps == 1
    assert entry.median("dynagat", "epoch") == pytest.approx(num_steps * steps.median, rel=1e-4)
    assert entry.median("dynagat", "evaluation") > 0
    assert entry.median("dynagat", "process memory") > 1e7


def test_training_needs_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "available_bytes", lambda: 1_000.0)
    entry = measure(tiny("training", benchmark="ogbn-products"))
    assert "needs about" in entry.find("dynagat", "step").reason


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


def test_a_case_without_batches_is_described_as_before_there_were_any() -> None:
    assert "batch_size" not in tiny().describe()
    assert tiny("sampling", batch_size=9).describe()["batch_size"] == 9


@pytest.mark.native
def test_the_floor_is_measured_beside_the_op() -> None:
    entry = measure(tiny("floor", huge_pages=True))
    assert entry.ratio("dynagat", "floor", "attention") > 0


@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="the kernel can't begin a new peak")
def test_memory_is_that_of_a_process_of_its_own() -> None:
    case = tiny("memory", graph=Uniform(20_000, 80_000), heads=8, channels=32)
    table = 20_000 * 8 * 32 * 4  # bytes of query, key, out and their gradients, each
    peak, kept = in_fresh_process(memory_of_steps, case, "dynagat")
    assert 3 * table < peak < 20 * table
    assert 0 <= kept <= peak + 2**20  # Linux adds up pages thread by thread, a little late


def test_contenders_take_turns_however_often_each_runs() -> None:
    assert alternation({"a": 2, "b": 2}) == ["a", "b", "a", "b"]
    assert alternation({"a": 1, "b": 3}) == ["b", "a", "b", "b"]


def test_slow_steps_are_repeated_less_often() -> None:
    effort = Effort(seconds=10, fewest=3, most=15)
    assert [repetitions(seconds, effort) for seconds in (30, 2, 0.01)] == [3, 5, 15]


def test_a_time_limit_ends_what_takes_longer() -> None:
    with pytest.raises(OutOfTime, match="longer than"), time_limit(0.05):
        time.sleep(5)
    with pytest.raises(OutOfTime, match="longer than"), time_limit(0.05), suppress(OutOfTime):
        time.sleep(5)
    with time_limit(5):
        pass


def test_too_little_memory_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(start.__globals__, "available_bytes", lambda: 1_000.0)
    case = tiny()
    with pytest.raises(CannotRun, match="needs about") as error:
        start("pyg", case, draw_inputs(case))
    assert reason_of(error.value) == str(error.value)


# Cases


@pytest.mark.parametrize("sizes", [FULL, QUICK], ids=["full", "quick"])
def test_cases_have_names_of_their_own_and_serve_every_goal(sizes) -> None:
    cases = make_cases(sizes)
    assert len({case.name for case in cases}) == len(cases)
    assert {goal.group for goal in GOALS} <= {case.group for case in cases}


def test_only_takes_names_and_groups_and_lists_them_if_unknown() -> None:
    cases = make_cases(QUICK)
    assert {case.group for case in choose(cases, ["floor"])} == {"floor"}
    assert [case.name for case in choose(cases, ["gatv2-8x8"])] == ["gatv2-8x8"]
    with pytest.raises(ValueError, match=r"gatv2-8x8.*not 'gatv3'"):
        choose(cases, ["gatv3"])


# Records, made up


def made_up() -> Ledger:
    """Every full case: contenders in the order of their seconds, DGL missing."""
    entries = []
    for case in make_cases(FULL):
        seconds = {"pyg": 20.0, "compiled": 8.0, "dynagat": 1.0, "floor": 0.8, "even": 0.9}
        seconds |= {"uneven": 1.0, "graph": 0.1, "layer": 0.4, "1 thread": 1.8, "2 threads": 1.0}
        seconds |= {"float32": 1.0, "bfloat16": 0.6, "captured": 1.3, "plain": 1.0}
        seconds |= {"dynagat, layered": 1e-8, "dynagat, merged": 2e-8, "torch-sparse": 3e-8}
        seconds |= {"dynagat, walks": 1e-8, "dgl, walks": 2e-8}
        others = {"memory": "memory", "build": "build", "capture": "forward"}
        others |= {"sampling": "edge", "walks": "edge", "import": "seconds"}
        seconds |= {"pandas": 7.0, "dynagat, to a folder": 12.0}
        quantity = others.get(case.group, "attention")
        quantity = (
            "step" if case.group in ("layers", "batches", "mechanisms", "training") else quantity
        )
        records = [Record(n, quantity, (s, s * 1.5, s * 0.9)) for n, s in seconds.items()]
        if case.group == "import":
            names = ("dynagat", "dynagat, to a folder")
            records += [Record(name, "peak over arrays", (2.5,)) for name in names]
        if case.group == "training":
            extra = {"steps per epoch": 769.0, "epoch": 769.0, "evaluation": 90.0}
            extra["process memory"] = 12.5e9
            records += [Record("dynagat", name, (value,)) for name, value in extra.items()]
        records.append(Record("dgl", quantity, reason="not importable: none"))
        sizes = case.graph.num_nodes, case.graph.num_edges
        entries.append(Entry(case.describe(), *sizes, 1.0, tuple(records)))
    session = dict.fromkeys(("CPU", "threads", "torch", "PyG", "DGL", "commit"), "made up")
    return Ledger((session,), tuple(entries))


def test_records_come_back_from_the_file_as_they_went(tmp_path: Path) -> None:
    path = tmp_path / "some" / "records.json"
    ledger = made_up()
    write_ledger(ledger, path)
    assert read_ledger(path) == ledger
    assert [file.name for file in path.parent.iterdir()] == ["records.json"]


def test_what_is_in_the_file_is_not_measured_again_unless_the_case_changed() -> None:
    ledger, case = made_up(), make_cases(FULL)[0]
    assert ledger.has(case.describe())
    assert not ledger.has(replace(case, in_dim=64).describe())
    lost = replace(ledger.entries[0], records=(Record("all", "step", reason="died"),))
    assert not ledger.with_entry(lost).has(case.describe())


def test_sessions_without_entries_are_dropped() -> None:
    ledger = made_up().with_session({"CPU": "another"})
    names = [entry.name for entry in ledger.entries]
    assert ledger.only(names) == made_up()
    entry = replace(ledger.entries[1], session=1)
    kept = ledger.with_entry(entry).only([entry.name])
    assert (kept.sessions, kept.entries[0].session) == (({"CPU": "another"},), 0)


def test_the_geometric_mean_is_the_root_of_the_product() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([3.0]) == pytest.approx(3.0)


def test_goals_are_judged_by_medians_and_only_if_every_case_has_both_contenders() -> None:
    ledger = made_up()
    eager = GOALS[0]
    assert eager.measured(ledger) == pytest.approx(20.0)
    assert eager.is_met(ledger)
    without = replace(ledger.entries[0], records=ledger.entries[0].records[1:])
    assert eager.measured(ledger.with_entry(without)) is None
    assert eager.is_met(ledger.with_entry(without)) is None
    assert eager.measured(Ledger()) is None


def test_the_page_shows_goals_numbers_and_who_is_missing() -> None:
    page = render(made_up(), "picture.svg")
    assert "| PyG eager over dynagat, geometric mean | ≥ 16× | 20.0× | yes |" in page
    assert "| PyG compiled over dynagat, geometric mean | ≥ 10× | 8.00× | **no** |" in page
    assert "| the best peer's time per edge over ours, lowest | ≥ 1× | 1.50× | yes |" in page
    assert "| time, longest | ≤ 30 s | 12.0 s | yes |" in page
    assert "| peak memory over the arrays made, highest | ≤ 3× | 2.50× | yes |" in page
    assert "| import-names, pandas | 1,000,000 | 5,000,000 | 7.0 (6.3–10.5) |" in page
    assert "20,000 (18,000–30,000)" in page
    sizes = "| ogbn-products | 2,449,029 | 123,718,280 |"
    assert f"{sizes} 1,000 (900–1,500) | 769 | 769 | 90.0 | 12,500 |" in page
    assert "DGL is missing in gatv2-8x32, gatv2-8x8" in page
    assert "made up" in page
    assert "Not measured yet" not in page
    assert "Not measured yet: gatv2-8x8" in render(made_up().only(["gatv2-8x32"]))


def test_the_readme_table_comes_from_the_same_records() -> None:
    table = render_readme(made_up())
    assert "| 8×32, time of a step | 20,000 ms | 8,000 ms | – | 1,000 ms | 20.0× | 8.00× |" in table
    assert "169,343 nodes, 2,484,941 edges" in table


def test_the_report_and_its_picture_are_written_beside_the_records(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "records.json"
    write_ledger(made_up(), path)
    main(["--report", "--json", str(path)])
    assert "](records.svg)" in path.with_suffix(".md").read_text()
    first = path.with_suffix(".svg").read_bytes()
    main(["--report", "--json", str(path)])
    assert path.with_suffix(".svg").read_bytes() == first


# The demo


def test_the_demo_takes_a_smaller_graph_where_memory_is_short() -> None:
    assert fit_to_memory(PowerLaw(), 64e9) == PowerLaw()
    small = fit_to_memory(PowerLaw(), 1e9)
    assert 10_000 < small.num_nodes < 100_000
    assert small.edge_index().shape[1] == small.num_edges


def test_the_demo_prints_times_memory_and_differences() -> None:
    ledger = made_up()
    layers, memory, build = (ledger.group(name)[0] for name in ("layers", "memory", "build"))
    extra = [Record("dynagat", f"{what} against pyg", (1e-6,)) for what in ("output", "gradients")]
    table = render_demo(replace(layers, records=(*layers.records, *extra)), memory, build)
    assert "training step, ms" in table
    assert "20.0×" in table
    assert "output 1.0e-06, gradients 1.0e-06" in table
    with pytest.raises(CannotRun, match="output against pyg of dynagat"):
        render_demo(layers, memory, build)
