"""Node benchmarks: each runs end to end in both fidelities, and trains on what it says."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dynagat.analysis.glance import glance
from dynagat.benchmarks import BENCHMARKS, EDGE_NOISE, OGBN_MAG, OGBN_PRODUCTS, OGBN_PROTEINS, find
from dynagat.benchmarks.edge_noise import NoisyData
from dynagat.benchmarks.nodes import (
    NodeData,
    NodePrediction,
    NodeTask,
    StackS,
    problem_of,
    without_loops,
)
from dynagat.benchmarks.ogbn_mag import MagData
from dynagat.benchmarks.ogbn_proteins import ProteinsData, ProteinsSchedule
from dynagat.data.catalog import load
from dynagat.experiment import Record, as_published, departures, grid, revive, run
from dynagat.nn.network import MECHANISMS
from tests.node_graphs import SHORT, make_files, short, tiny, without_features
from tests.test_experiment import result

CASES = [(name, mechanism) for name in SHORT for mechanism in BENCHMARKS[name].mechanisms]


@pytest.fixture(scope="module", autouse=True)
def graphs(tmp_path_factory):
    """A cache and a folder of files of their own, for all tests here."""
    folder = tmp_path_factory.mktemp("graphs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNAGAT_CACHE", str(folder / "cache"))
        patch.setenv("DYNAGAT_DATA", str(folder / "data"))
        make_files(folder / "data")
        tiny("pubmed").save()
        tiny("mine").save()
        yield folder


@pytest.fixture(autouse=True)
def one_thread(threads) -> None:
    threads(1)


# Runs


@pytest.mark.parametrize("published", [False, True], ids=["corrected", "as-published"])
@pytest.mark.parametrize(("name", "mechanism"), CASES)
def test_a_benchmark_runs_to_the_end_and_the_same_way_twice(name, mechanism, published) -> None:
    """Proteins as published looks at samples in evaluation, and its short run ends as failed."""
    few = ("layers=2", "neighbours=4,4", "looked_at=6,6" if published else "looked_at=")
    benchmark = short(name, mechanism, *(few if name == "ogbn-proteins" else ()),
                      published=published)  # fmt: skip
    first = run(benchmark, mechanism, 3)
    score = "roc_auc" if name == "ogbn-proteins" else "accuracy"
    more = [] if name == "ogbn-proteins" else ["test_macro_f1"]
    assert list(first.metrics) == [f"{part}_{score}" for part in ("train", "valid", "test")] + more
    assert benchmark.metric in first.metrics
    assert all(0 <= value <= 1 for value in first.metrics.values()), first.metrics
    assert all(math.isfinite(each["loss"]) for each in first.history)
    is_failed = name == "ogbn-proteins" and published
    assert first.ended == ("failed" if is_failed else "budget")
    assert not first.converged
    assert result(run(benchmark, mechanism, 3)) == result(first)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_arxiv_runs_without_its_word_features(mechanism, graphs, monkeypatch) -> None:
    whole = load("ogbn-arxiv")
    monkeypatch.setenv("DYNAGAT_CACHE", str(graphs / "bare"))
    monkeypatch.delenv("DYNAGAT_DATA")
    without_features(whole).save(replace=True)
    assert "features=structure" in NodeData("ogbn-arxiv").missing()
    benchmark = short("ogbn-arxiv", mechanism, "features=structure")
    assert benchmark.data.missing() is None
    assert benchmark.data.load(0).x.shape == (400, 128)
    assert run(benchmark, mechanism, 0).metrics["test_accuracy"] >= 0
    with pytest.raises(ValueError, match=r"without its features.*features=structure computes"):
        run(short("ogbn-arxiv", mechanism), mechanism, 0)


def test_structural_features_are_those_of_the_graph_without_noise() -> None:
    clean, noisy = (NoisyData("mine", features="structure", noise=p).load(0) for p in (0.0, 0.5))
    assert noisy.edges.num_edges > clean.edges.num_edges
    assert torch.equal(clean.x, noisy.x)


def test_a_graph_of_ones_own_may_have_no_features() -> None:
    without_features(tiny("bare")).save(replace=True)
    data = NoisyData("bare", noise=0.2)
    assert data.missing() is None
    x = data.load(0).x
    assert torch.equal(x.sum(1), torch.ones(90))  # a one in the column of the degree


def test_edge_noise_starts_from_the_settings_of_its_data_set() -> None:
    [arxiv, mag, pubmed, other] = (
        EDGE_NOISE.base("gat", name) for name in ("ogbn-arxiv", "ogbn-mag", "pubmed", "mine")
    )
    assert arxiv == EDGE_NOISE.settings == EDGE_NOISE.base("gat")
    assert (mag.data.relation, mag.network.layers, mag.task.neighbours) == ("cites", 2, (10, 10))
    assert (pubmed.data.dataset, other.data.dataset) == ("pubmed", "mine")
    assert not pubmed.network.norm
    assert other.network.residual == "all"


@pytest.mark.parametrize("dataset", ["pubmed", "mine", "ogbn-mag"])
def test_edge_noise_runs_on_any_node_data_and_comes_back_from_its_record(dataset) -> None:
    made = ("made=true",) if dataset == "ogbn-mag" else ()
    texts = (f"dataset={dataset}", "noise=0.25", "dim=8", "heads=2", "max_rounds=1", *made)
    start = EDGE_NOISE.base("gatv2", dataset)
    [settings] = grid(start, list(texts))
    benchmark = EDGE_NOISE.with_settings(settings)
    record = run(benchmark, "gatv2", 1)
    again = EDGE_NOISE.as_recorded(Record.from_json(record.to_json()))
    assert again.settings == settings
    assert again.key("gatv2", 1) == record.key
    network, specimen = revive(again, "gatv2", 1, record.weights)
    x, graph = specimen.given
    task = again.task.on(again.data.load(1), again.schedule)
    assert task.score(network, "test") == pytest.approx(record.metrics["test_accuracy"])
    assert len(specimen.marks["noise"]) == graph.num_edges
    assert len(x) == graph.num_queries


# What a step sees


class Spy(nn.Module):
    """Notes the graphs that it is given, and answers by a linear map of the queries' own rows."""

    def __init__(self, in_dim: int, out_dim: int, layers: int = 2) -> None:
        super().__init__()
        self.layers = [None] * layers
        self.linear = nn.Linear(in_dim, out_dim)
        self.graphs, self.degrees = [], []

    def forward(self, x, graphs, degree=None):
        self.graphs.append(graphs)
        self.degrees.append(degree)
        last = graphs[-1] if isinstance(graphs, (tuple, list)) else graphs
        return self.linear(x[: last.num_queries])


def loops_of(graph) -> torch.Tensor:
    """How many each query has."""
    query, key = graph.query_index.long(), graph.key_index.long()
    return torch.bincount(query[query == key], minlength=graph.num_queries)


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("settings", [NodeTask(neighbours=(2, 3)), NodeTask(roots=30, steps=3)],
                         ids=["neighbours", "walks"])  # fmt: skip
def test_a_sample_has_one_loop_for_every_query_or_none_at_all(settings, self_loops) -> None:
    """The stored graph has a loop of its own: it is neither lost nor double."""
    data = replace(tiny("loopy"), folder=None).symmetric()
    problem = problem_of(data, self_loops)
    if not self_loops:  # as proteins, which has none and gets none
        problem = problem_of(without_loops(data), False)
    task, spy = NodePrediction(problem, settings, batch_size=7), Spy(6, 3)
    for batch in task.batches(torch.Generator().manual_seed(0)):
        task.loss(spy, batch)
    assert len(spy.graphs) >= 3
    for graphs in spy.graphs:
        for graph in graphs if isinstance(graphs, tuple) else (graphs,):
            assert set(loops_of(graph).tolist()) == {int(self_loops)}


def test_proteins_samples_get_no_loops() -> None:
    benchmark = short("ogbn-proteins", "gat", "layers=2", "neighbours=4,4")
    problem = benchmark.data.load(0)
    task, spy = benchmark.task.on(problem, benchmark.schedule), Spy(8, 112)
    [*batches] = task.batches(torch.Generator().manual_seed(0))
    task.loss(spy, batches[0])
    assert sum(int(loops_of(graph).sum()) for graph in spy.graphs[0]) == 0
    assert not problem.self_loops
    assert torch.equal(problem.graph.key_index, problem.edges.key_index)


def sparse_problem(num_train: int = 4):
    """Few training nodes in a graph of a large diameter: they depend on a small part of it."""
    data = tiny("sparse", nodes=300, edges=200)
    data = replace(data, split={**data.split, "train": np.arange(num_train)}).symmetric()
    problem = problem_of(data)
    return replace(problem, x=problem.x.double())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_loss_on_what_training_nodes_depend_on_is_that_on_the_whole_graph(mechanism) -> None:
    problem = sparse_problem()
    network = StackS(dim=8, heads=2, dropout=0.0, layers=2).build(problem, mechanism).double()
    network.eval()  # GIN's norm would take its mean over other nodes
    task = NodePrediction(problem)
    field = task._field("train", 2)
    assert field is not None
    assert field.num_nodes < 0.5 * len(problem.x)
    loss, score = task.loss(network, None)
    nodes = problem.split["train"]
    out = network(problem.x, problem.graph)[nodes]
    expected = F.cross_entropy(out, problem.y[nodes])
    torch.testing.assert_close(loss, expected)
    assert score == (out.argmax(1) == problem.y[nodes]).double().mean().item()
    weights = list(network.parameters())
    found, wanted = (torch.autograd.grad(each, weights) for each in (loss, expected))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_most_of_the_graph_is_taken_whole() -> None:
    problem = sparse_problem(num_train=280)
    assert NodePrediction(problem)._field("train", 2) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("settings", [NodeTask(), NodeTask(neighbours=(2, 2)),
                                      NodeTask(looked_at=(-1, -1))],
                         ids=["field", "in parts", "sampled"])  # fmt: skip
def test_evaluation_is_that_of_the_whole_graph(mechanism, settings) -> None:
    """However it is reached; of samples, where they are of all neighbours."""
    problem = sparse_problem()
    network = StackS(dim=8, heads=2, layers=2).build(problem, mechanism).double().eval()
    whole = network(problem.x, problem.graph)
    out = NodePrediction(problem, settings, 16).outputs(network, ["train", "test"])
    for part, found in out.items():
        torch.testing.assert_close(found, whole[problem.split[part]])


def test_the_loss_of_a_walk_counts_its_training_nodes_only() -> None:
    problem = problem_of(tiny("walked").symmetric())
    task, spy = NodePrediction(problem, NodeTask(roots=20, steps=4)), Spy(6, 3)
    train = set(problem.split["train"].tolist())
    for batch in task.batches(torch.Generator().manual_seed(1)):
        nodes = torch.tensor([n for n in batch.node_id.tolist() if n in train])
        assert 0 < len(nodes) < batch.num_nodes
        loss, _ = task.loss(spy, batch)
        expected = F.cross_entropy(spy.linear(problem.x[nodes]), problem.y[nodes])
        torch.testing.assert_close(loss, expected)
        seen = problem.degree[batch.node_id]  # in the whole graph, not in the sample
        assert torch.equal(spy.degrees[-1], seen)


def test_a_walk_that_meets_no_training_node_is_told() -> None:
    data = tiny("lonely").symmetric()
    data = replace(data, split={**data.split, "train": np.array([0])})
    settings = NodeTask(roots=1, walk_length=1, steps=1)
    task, spy = NodePrediction(problem_of(data), settings), Spy(6, 3)
    (batch,) = task.batches(torch.Generator().manual_seed(0))
    assert 0 not in batch.node_id
    with pytest.raises(ValueError, match=r"^roots=1 are too few: a step's \d nodes hold none for"):
        task.loss(spy, batch)


def test_batches_are_shuffled_unless_as_published() -> None:
    """D32"""
    problem = problem_of(tiny("shuffled").symmetric())
    for settings in (OGBN_MAG.settings, as_published(OGBN_MAG.settings)):
        task = NodePrediction(problem, settings.task, batch_size=7)
        seeds = [batch.node_id[: batch.num_seeds]
                 for batch in task.batches(torch.Generator().manual_seed(0))]  # fmt: skip
        assert torch.equal(torch.cat(seeds).sort().values, problem.split["train"])
        in_order = torch.equal(torch.cat(seeds), problem.split["train"])
        assert in_order == (not settings.task.shuffle)


# Noise


def pairs(graph) -> Counter:
    return Counter(zip(graph.query_index.tolist(), graph.key_index.tolist(), strict=True))


def test_marks_are_of_exactly_the_edges_that_were_added() -> None:
    clean, noisy = (NoisyData("mine", noise=p).load(4) for p in (0.0, 0.4))
    given = NodeTask().specimen(NodePrediction(noisy))
    _, graph = given.given
    marks = given.marks["noise"]
    query, key = graph.query_index.long(), graph.key_index.long()
    marked = marks[graph.edge_id.long()]
    found = Counter(zip(query[marked].tolist(), key[marked].tolist(), strict=True))
    assert found == pairs(graph) - pairs(clean.graph)
    assert len(found) == 2 * int(clean.edges.num_edges // 2 * 0.4) > 0
    assert set(found.values()) == {1}
    assert not (marked & (query == key)).any()


@pytest.mark.parametrize("self_loops", [True, False])
def test_a_glance_sees_the_share_of_noise_that_there_is(self_loops) -> None:
    """Uniform: of each query the share of its edges that are noise; the mean over queries."""
    data = NoisyData("mine", noise=0.5, self_loops=self_loops)
    problem = data.load(2)
    clean = pairs(replace(data, noise=0.0).load(2).graph)
    by_query: dict[int, list[bool]] = {}
    for query, key in pairs(problem.graph):
        by_query.setdefault(query, []).append((query, key) not in clean)
    expected = np.mean([np.mean(each) for each in by_query.values()])
    network = StackS(dim=8, heads=2, layers=2).build(problem, "gatv2")
    given = NodeTask().specimen(NodePrediction(problem))
    seen = glance(network, given.given, **given.marks)
    assert [len(layer["heads"]) for layer in seen["layers"]] == [2, 1]
    for layer in seen["layers"]:
        assert layer["edges"] == problem.graph.num_edges
        for head in layer["heads"]:
            assert head["noise"]["uniform"] == pytest.approx(expected, abs=1e-5)
            assert 0 < head["noise"]["attention"]["value"] < 1
            assert (head["self_loops"] is not None) == self_loops


def test_a_glance_at_what_does_not_attend_says_so() -> None:
    problem = NoisyData("mine").load(0)
    seen = glance(StackS(dim=8, heads=2).build(problem, "gcn"), (problem.x, problem.graph))
    assert "no attention layer" in seen["refused"]


def test_noise_is_drawn_for_each_seed_unless_as_published() -> None:
    """D19: the paper's runs share one noise graph."""
    for published in (False, True):
        data = NoisyData("mine", noise=0.3, noise_seed=123 if published else None)
        same = pairs(data.load(0).edges) == pairs(data.load(1).edges)
        assert same == published


def test_without_noise_edge_noise_has_the_graph_of_its_data_set() -> None:
    assert pairs(NoisyData("mine").load(0).graph) == pairs(NodeData("mine").load(0).graph)


# Data


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_features_of_proteins_are_those_of_their_incoming_edges(how) -> None:
    """D25"""
    data = load("ogbn-proteins")
    edges = data.sole_edges
    total, count = np.zeros((data.num_nodes, 8)), np.zeros(data.num_nodes)
    for query, attr in zip(edges.query_index, np.asarray(edges.arrays["attr"]), strict=True):
        total[query] += attr
        count[query] += 1
    expected = total if how == "sum" else total / np.maximum(count, 1)[:, None]
    problem = ProteinsData(made=True, edge_features=how).load(0)
    np.testing.assert_allclose(problem.x.numpy(), expected, rtol=1e-5)
    assert problem.kind == "multilabel"
    assert problem.edges.num_edges == edges.count


def test_mag_is_the_citations_alone_in_both_directions() -> None:
    """D26"""
    whole = load("ogbn-mag")
    cites = whole.edges["paper", "cites", "paper"]
    both = set(zip(cites.query_index.tolist(), cites.key_index.tolist(), strict=True))
    both |= {(key, query) for query, key in both}
    problem = MagData("ogbn-mag", made=True).load(0)
    assert set(pairs(problem.edges)) == {(query, key) for query, key in both if query != key}
    assert problem.edges.num_edges == len(pairs(problem.edges))
    assert len(problem.x) == whole.num_nodes == 3490
    assert problem.out_dim == 349


# The register

REGISTER = [  # number, benchmark, path, corrected, published
    ("D3", "ogbn-arxiv", "network.share_query", True, False),
    ("D3", "ogbn-mag", "network.share_query", True, False),
    ("D3", "ogbn-products", "network.share_query", True, False),
    ("D3", "ogbn-proteins", "network.share_weights", True, True),
    ("D3", "edge-noise", "network.share_query", True, False),
    ("D13", "ogbn-proteins", "network.bias", False, False),
    ("D14", "ogbn-arxiv", "network.gain", 1.0, 2.0),
    ("D14", "edge-noise", "network.gain", 1.0, 2.0),
    ("D15", "ogbn-arxiv", "network.residual", "middle", "middle"),
    ("D15", "ogbn-mag", "network.layers", 2, 2),  # none is in the middle
    ("D16", "ogbn-arxiv", "network.last_heads", 1, 1),
    ("D16", "ogbn-mag", "network.last_heads", 1, 1),
    ("D16", "ogbn-products", "network.last_heads", 1, 1),
    ("D17", "edge-noise", "network.heads", 8, 8),  # and published_heads, below
    ("D19", "edge-noise", "data.noise_seed", None, 123),
    ("D20", "ogbn-products", "schedule.loss_limit", None, 2.0),
    ("D20", "ogbn-products", "schedule.limit_rounds", 5, 5),  # of 10 passes
    ("D20", "ogbn-proteins", "schedule.loss_limit", None, 0.3),
    ("D20", "edge-noise", "schedule.loss_limit", None, 1.2),
    ("D20", "edge-noise", "schedule.limit_rounds", 25, 25),
    ("D20", "edge-noise", "schedule.failed_before", 0, 30),
    ("D20", "ogbn-arxiv", "schedule.loss_limit", None, None),  # its table has all runs
    ("D20", "ogbn-mag", "schedule.loss_limit", None, None),
    ("D21", "ogbn-proteins", "schedule.dpgat_apart", False, True),
    ("D22", "ogbn-proteins", "task.looked_at", (), (60,) * 6),
    ("D24", "ogbn-proteins", "schedule.optimizer", "adam", "adamw"),
    ("D25", "ogbn-proteins", "data.edge_features", "sum", "sum"),
    ("D26", "ogbn-mag", "data.relation", "cites", "cites"),
    ("D32", "ogbn-mag", "task.shuffle", True, False),
    ("D34", "ogbn-arxiv", "schedule.patience", 50, 50),  # all its rounds
    ("D34", "ogbn-mag", "schedule.patience", 100, 100),
    ("D34", "ogbn-products", "schedule.silent_rounds", 5, 5),
    ("D34", "edge-noise", "schedule.patience", 50, 10),
]


@pytest.mark.parametrize(("number", "name", "path", "corrected", "published"), REGISTER)
def test_a_switch_of_the_register_is_a_field(number, name, path, corrected, published) -> None:
    benchmark = find(name)
    part, _, field = path.partition(".")
    ours, theirs = benchmark.settings, as_published(benchmark.settings)
    assert getattr(getattr(ours, part), field) == corrected
    assert getattr(getattr(theirs, part), field) == published
    marks = {mark.path: mark.number for mark in departures(ours)}
    if corrected != published:
        assert marks[path] == number
    else:
        assert path not in marks


def test_every_departure_of_the_node_benchmarks_is_in_the_register() -> None:
    known = {(number, path) for number, _, path, *_ in REGISTER}
    for name in SHORT:
        for mark in departures(find(name).settings):
            assert (mark.number, mark.path) in known, mark
    mag = {mark.path: mark for mark in departures(EDGE_NOISE.base("gat", "ogbn-mag"))}
    assert (mag["schedule.loss_limit"].published, mag["schedule.patience"].published) == (4.0, 10)


def test_what_the_register_says_of_tables_is_with_the_published_numbers() -> None:
    """D17, D23, D30 and D33: heads, deviations, runs and seeds."""
    theirs = EDGE_NOISE.heads(None, published=True)
    assert theirs == {"gat": (8,), "gatv2": (1,), "dpgat": (1,), "gcn": (8,)}
    assert {len(heads) for heads in EDGE_NOISE.mechanisms.values()} == {1}
    by_n = {each.divided_by for each in OGBN_PROTEINS.published if each.where == "Table 1"}
    assert by_n == {"n"}
    for name in ("ogbn-arxiv", "ogbn-mag", "ogbn-products"):
        assert {each.divided_by for each in find(name).published} == {"n - 1"}
    assert {each.n for each in OGBN_PRODUCTS.published} == {10}
    assert all(len(find(name).seeds) == 10 for name in SHORT if name != "pubmed")


def test_proteins_as_published_has_another_schedule_for_dpgat() -> None:
    """D21"""
    corrected, published = OGBN_PROTEINS.schedule, as_published(OGBN_PROTEINS.settings).schedule
    for mechanism in ("gat", "gatv2", "dpgat", "gcn"):
        assert corrected.of(mechanism) is corrected
    assert published.of("gat") is published
    apart = published.of("dpgat")
    assert isinstance(apart, ProteinsSchedule)
    assert (apart.lr, apart.patience, apart.loss_limit) == (0.001, 100, 0.32)
    rest = replace(apart, lr=published.lr, patience=10, loss_limit=0.3)
    assert rest == published
    assert replace(published, loss_limit=None).of("dpgat").loss_limit is None
