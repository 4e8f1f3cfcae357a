"""Every kind of prediction: a toy benchmark in one file goes through all commands."""

import json
import math
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from dynagat.benchmarks import BENCHMARKS
from dynagat.cli import app
from dynagat.data.collection import GraphCollection
from dynagat.data.molecules import Molecule
from dynagat.experiment import Store, run
from dynagat.prediction import packed
from dynagat.training import Schedule
from tests.toys import candidates, graphs, links, nodes

TOYS = {toy.BENCHMARK.name: toy.BENCHMARK for toy in (nodes, graphs, links, candidates)}
every_kind = pytest.mark.parametrize("name", TOYS)


@pytest.fixture(autouse=True)
def known_toys(monkeypatch):
    """The only thing that a new benchmark needs besides its own file: a place in the list."""
    for name, benchmark in TOYS.items():
        monkeypatch.setitem(BENCHMARKS, name, benchmark)


def dynagat(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@every_kind
def test_a_kind_of_prediction_runs_resumes_reports_inspects_and_tunes(name, tmp_path):
    store = tmp_path / "records.sqlite"
    one = json.loads(
        dynagat("run", name, "--mechanism", "gatv2", "--seeds", 0, "--store", store, "--json")
    )
    text = dynagat("run", name, "--store", store)
    metric = TOYS[name].metric
    assert metric.title.lower() in text.lower()
    with Store(store) as kept:
        records = kept.records()
    assert len(records) == 4  # the first one is not run again
    assert records[0].metrics == one["metrics"]
    assert all(math.isfinite(value) for each in records for value in each.metrics.values())
    layers = [layer for each in records for layer in each.exhibits["microscope"]["layers"]]
    assert sum("ranking" in head for layer in layers for head in layer["heads"]) >= 8

    page = dynagat("report", name, "--store", store, "--out", tmp_path / "report")
    assert "GATv2 (2 heads)" in page
    assert "| GATv2 | 2 |" in (tmp_path / "report" / f"{name}.md").read_text()

    table = dynagat("inspect", records[0].key, "--store", store, "--out", tmp_path / "page.html")
    assert "agreement" in table.splitlines()[0]

    options = ("--mechanism", "gat", "--seeds", 0, "--storage", tmp_path / "tune.sqlite", "--json")
    chosen = json.loads(dynagat("tune", name, *options))
    value = chosen["valid"]
    assert chosen["trials"] == 2
    assert chosen["command"].startswith(f"dynagat run {name} --mechanism gat")
    lines = dynagat("tune", name, *options)
    assert json.loads(lines)["valid"] == value


def test_an_error_is_tuned_and_reported_as_lower_is_better(tmp_path):
    name, storage = "toy-graphs", tmp_path / "tune.sqlite"
    out = tmp_path / "trials.jsonl"
    options = ("--mechanism", "gatv2", "--seeds", 0, "--no-prune", "--storage", storage)
    chosen = json.loads(dynagat("tune", name, *options, "--out", out, "--json"))
    values = [json.loads(line)["value"] for line in out.read_text().splitlines()]
    assert len(set(values)) == 2
    assert chosen["valid"] == min(values)
    store = tmp_path / "records.sqlite"
    text = dynagat("run", name, "--store", store)
    assert "Above the published number" in text
    with Store(store) as kept:
        errors = {each.mechanism: [] for each in kept.records()}
        for each in kept.records():
            errors[each.mechanism].append(each.metrics["test_mean_absolute_error"])
            best = min(here["valid"] for here in each.history)
            assert each.metrics["valid_mean_absolute_error"] == pytest.approx(best, abs=1e-3)
    beaten = sum(errors["gatv2"]) < sum(errors["gat"])
    assert ("is lower on average" in text or "is better" in text) == beaten


def test_an_error_needs_a_score_to_stop_at():
    with pytest.raises(ValueError, match="stop_at of toy-graphs must be set, such as 0"):
        run(replace(graphs.BENCHMARK, schedule=Schedule()), "gat", 0)


@every_kind
def test_the_same_seed_gives_the_same_record(name):
    first, second = (run(TOYS[name], "gatv2", 1) for _ in range(2))
    assert first.metrics == second.metrics
    assert first.history == second.history
    assert first.exhibits == second.exhibits


def two_rings():
    """Rings of three and of two nodes."""
    offset = torch.tensor([0, 3, 5])
    query, key = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1, 2, 0, 4, 3])
    return GraphCollection(offset, offset, query, key)


def test_a_pack_renumbers_the_nodes_of_each_graph():
    pack = two_rings().pack(torch.tensor([1, 0, 1]))
    assert pack.nodes.tolist() == [3, 4, 0, 1, 2, 3, 4]
    assert pack.edges.tolist() == [3, 4, 0, 1, 2, 3, 4]
    assert pack.node_graph.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert pack.starts.tolist() == [0, 2, 5, 7]
    assert pack.graph.query_index.tolist() == list(range(7))
    assert pack.graph.key_index.tolist() == [1, 0, 3, 4, 2, 6, 5]


def test_batches_hold_all_graphs_in_order_within_the_limit():
    sizes = torch.tensor([3, 2, 2, 9, 1, 1])
    offset = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    none = torch.zeros(0, dtype=torch.long)
    collection = GraphCollection(offset, torch.zeros(7, dtype=torch.long), none, none)
    order = torch.tensor([5, 0, 1, 2, 3, 4])
    batches = [batch.tolist() for batch in collection.batches(order, 4)]
    assert batches == [[5, 0], [1, 2], [3], [4]]  # the graph of nine nodes is alone


def test_an_edge_between_two_graphs_is_refused():
    offset = torch.tensor([0, 3, 5])
    query, key = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1, 2, 3, 4, 3])
    with pytest.raises(ValueError, match="key_index of edge 2 must be a node of graph 0, but is 3"):
        GraphCollection(offset, offset, query, key)


def test_a_packed_batch_gives_what_single_graphs_give():
    benchmark = graphs.BENCHMARK
    problem = benchmark.data.load(0)
    network = benchmark.network.build(problem, "gatv2").eval()
    prediction = benchmark.task.prepare(problem, Schedule())
    some = torch.tensor([4, 0, 7])
    together = prediction.run(network, problem.collection.pack(some, self_loops=True))
    alone = [
        prediction.run(network, problem.collection.pack(each[None], self_loops=True))
        for each in some
    ]
    torch.testing.assert_close(together, torch.cat(alone))


def test_missing_candidates_are_never_chosen():
    benchmark = candidates.BENCHMARK
    problem = benchmark.data.load(0)
    network = benchmark.network.build(problem, "gat").eval()
    prediction = benchmark.task.prepare(problem, Schedule())
    some = torch.tensor([0, 1])
    out = prediction.run(network, problem.collection.pack(some, self_loops=True))
    assert out.isinf().tolist() == [[False, False, True], [False, False, False]]
    x, graph, slot, candidate = prediction.inputs(problem.collection.pack(some, self_loops=True))
    torch.testing.assert_close(out[out.isfinite()], network(x, graph, slot, candidate))


def test_links_are_scored_the_same_in_parts(monkeypatch):
    from dynagat.prediction import links as kind

    benchmark = links.BENCHMARK
    problem = benchmark.data.load(0)
    network = benchmark.network.build(problem, "gatv2")
    prediction = benchmark.task.prepare(problem, Schedule())
    whole = prediction.score(network, "test")
    monkeypatch.setattr(kind, "SCORED_PAIRS", 7)
    assert prediction.score(network, "test") == whole


@every_kind
def test_a_toy_benchmark_is_one_short_file(name):
    module = {"toy-nodes": nodes, "toy-graphs": graphs, "toy-links": links}.get(name, candidates)
    with open(module.__file__) as file:
        assert len(file.readlines()) <= 80


def test_the_microscope_runs_on_test_graphs_at_equal_distances(monkeypatch):
    monkeypatch.setattr(packed, "MICROSCOPE_GRAPHS", 4)
    toy = graphs.BENCHMARK
    made = [Molecule(str(graph), tuple("HCNO"), ()) for graph in range(60)]  # 40 to 59 are test
    problem = replace(toy.data.load(0), molecule=made.__getitem__)
    given = toy.task.prepare(problem, toy.schedule).microscope_input()
    assert given.molecules == {0: made[40], 4: made[45], 8: made[50], 12: made[55]}
    assert given.names[3:6] == ["O3 of 40", "H0 of 45", "C1 of 45"]
    assert given.marks == {}
