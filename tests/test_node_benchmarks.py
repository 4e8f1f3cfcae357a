"""Node benchmarks: each runs in both fidelities, and trains on what its settings say."""

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
from dynagat.benchmarks.edge_noise.benchmark import NoisyData
from dynagat.benchmarks.node_data import NodeData
from dynagat.benchmarks.ogbn_mag import MagData
from dynagat.benchmarks.ogbn_proteins import ProteinsData, ProteinsSchedule
from dynagat.benchmarks.stacks import ResidualStack
from dynagat.data.catalog import load
from dynagat.experiment import (
    Record,
    Request,
    as_published,
    departures,
    grid,
    jobs_of,
    revive,
    run,
)
from dynagat.nn.network import MECHANISMS, Neighbourhood
from dynagat.prediction.nodes import NodePrediction, NodeTask, node_problem, without_loops
from tests.node_graphs import SHORT, make_files, short, tiny, without_features
from tests.test_experiment import result

CASES = [(name, mechanism) for name in SHORT for mechanism in BENCHMARKS[name].mechanisms]


@pytest.fixture(scope="module", autouse=True)
def graphs(tmp_path_factory):
    """A cache and a folder of files for all tests of this module."""
    folder = tmp_path_factory.mktemp("graphs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNAGAT_CACHE", str(folder / "cache"))
        patch.setenv("DYNAGAT_DATA", str(folder / "data"))
        patch.setattr("dynagat.data.ogb.check_counts", lambda *_: None)  # the files are small
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
    """As published, ogbn-proteins is evaluated on samples, and its short run fails."""
    sampled = "eval_neighbours=6,6" if published else "eval_neighbours="
    few = ("layers=2", "neighbours=4,4", sampled)
    benchmark = short(name, mechanism, *(few if name == "ogbn-proteins" else ()),
                      published=published)  # fmt: skip
    first = run(benchmark, mechanism, 3)
    score = "roc_auc" if name == "ogbn-proteins" else "accuracy"
    more = [] if name == "ogbn-proteins" else ["test_macro_f1"]
    assert list(first.metrics) == [f"{part}_{score}" for part in ("train", "valid", "test")] + more
    assert benchmark.metric.name in first.metrics
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


def test_structural_features_are_computed_from_the_graph_without_noise() -> None:
    clean, noisy = (NoisyData("mine", features="structure", noise=p).load(0) for p in (0.0, 0.5))
    assert noisy.edges.num_edges > clean.edges.num_edges
    assert torch.equal(clean.x, noisy.x)


def test_a_stored_graph_may_have_no_features() -> None:
    without_features(tiny("bare")).save(replace=True)
    data = NoisyData("bare", noise=0.2)
    assert data.missing() is None
    x = data.load(0).x
    assert torch.equal(x.sum(1), torch.ones(90))  # one-hot encoding of the degree


def test_edge_noise_starts_from_the_settings_of_its_dataset() -> None:
    [arxiv, mag, pubmed, cora, other] = (
        EDGE_NOISE.base("gat", name)
        for name in ("ogbn-arxiv", "ogbn-mag", "pubmed", "cora", "mine")
    )
    assert arxiv == EDGE_NOISE.settings == EDGE_NOISE.base("gat")
    assert (mag.data.relation, mag.network.layers, mag.task.neighbours) == ("cites", 2, (10, 10))
    assert (pubmed.data.dataset, other.data.dataset) == ("pubmed", "mine")
    assert (pubmed.data.split, pubmed.data.scaling) == ("random", "columns")
    assert not cora.network.norm
    assert other.network.residual == "all"


@pytest.mark.parametrize("dataset", ["pubmed", "mine", "ogbn-mag"])
def test_edge_noise_runs_on_any_node_data_and_is_restored_from_its_record(dataset) -> None:
    texts = [f"dataset={dataset}", "noise=0.25", "dim=8", "heads=2", "max_rounds=1"]
    [settings] = grid(EDGE_NOISE.base("gatv2", dataset), texts)
    benchmark = EDGE_NOISE.with_settings(settings)
    record = run(benchmark, "gatv2", 1)
    again = EDGE_NOISE.as_recorded(Record.from_json(record.to_json()))
    assert again.settings == settings
    assert again.key("gatv2", 1) == record.key
    network, given = revive(again, "gatv2", 1, record.weights)
    x, graph = given.inputs
    prediction = again.task.prepare(again.data.load(1), again.schedule)
    assert prediction.score(network, "test") == pytest.approx(record.metrics["test_accuracy"])
    assert len(given.marks["noise"]) == graph.num_edges
    assert len(x) == graph.num_queries


# Training steps and evaluation


class Spy(nn.Module):
    """Keeps the neighbourhoods it is called with; a linear map of the queries' features."""

    def __init__(self, in_dim: int, out_dim: int, layers: int = 2) -> None:
        super().__init__()
        self.layers = [None] * layers
        self.linear = nn.Linear(in_dim, out_dim)
        self.calls: list[list[Neighbourhood]] = []

    def forward(self, x, edges):
        each = list(map(Neighbourhood.of, edges if isinstance(edges, list) else [edges]))
        self.calls.append(each)
        return self.linear(x[: each[-1].graph.num_queries])


def loops_of(graph) -> torch.Tensor:
    """[num_queries]: number of self-loops."""
    query, key = graph.query_index.long(), graph.key_index.long()
    return torch.bincount(query[query == key], minlength=graph.num_queries)


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("settings", [NodeTask(neighbours=(2, 3)), NodeTask(roots=30, steps=3)],
                         ids=["neighbours", "walks"])  # fmt: skip
def test_a_sample_has_one_self_loop_for_every_query_or_none_at_all(settings, self_loops) -> None:
    """The stored graph has a self-loop already, which is neither lost nor doubled."""
    data = replace(tiny("loopy"), folder=None).symmetric()
    problem = node_problem(data, self_loops)
    if not self_loops:  # as for ogbn-proteins, which has none and gets none
        problem = node_problem(without_loops(data), False)
    task, spy = NodePrediction(problem, settings, batch_size=7), Spy(6, 3)
    for batch in task.batches(torch.Generator().manual_seed(0)):
        task.loss(spy, batch)
    assert len(spy.calls) >= 3
    assert {len(call) for call in spy.calls} == {len(settings.neighbours) or 1}
    for call in spy.calls:
        for near in call:
            assert set(loops_of(near.graph).tolist()) == {int(self_loops)}
            assert len(near.degree) == near.graph.num_keys


def test_samples_of_proteins_get_no_self_loops() -> None:
    benchmark = short("ogbn-proteins", "gat", "layers=2", "neighbours=4,4")
    problem = benchmark.data.load(0)
    task, spy = benchmark.task.prepare(problem, benchmark.schedule), Spy(8, 112)
    [*batches] = task.batches(torch.Generator().manual_seed(0))
    task.loss(spy, batches[0])
    assert sum(int(loops_of(near.graph).sum()) for near in spy.calls[0]) == 0
    assert not problem.self_loops
    assert torch.equal(problem.graph.key_index, problem.edges.key_index)


def sparse_problem(num_train: int = 4):
    """Few training nodes in a graph of a large diameter: their receptive field is small."""
    data = tiny("sparse", nodes=300, edges=200)
    data = replace(data, split={**data.split, "train": np.arange(num_train)}).symmetric()
    problem = node_problem(data)
    return replace(problem, x=problem.x.double())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_loss_on_the_receptive_field_is_that_on_the_whole_graph(mechanism) -> None:
    problem = sparse_problem()
    stack = ResidualStack(dim=8, heads=2, dropout=0.0, layers=2)
    network = stack.build(problem, mechanism).double()
    network.eval()  # in training, GIN's BatchNorm would average over other nodes
    task = NodePrediction(problem)
    field = task._receptive_field("train", 2)
    assert field is not None
    assert field.num_nodes < 0.5 * len(problem.x)
    loss, score = task.loss(network, None)
    nodes = problem.split["train"]
    out = network(problem.x, problem.graph)[nodes]
    expected = F.cross_entropy(out, problem.y[nodes])
    torch.testing.assert_close(loss, expected)
    assert score == (out.argmax(1) == problem.y[nodes]).double().mean().item()
    weights = list(network.parameters())
    gradients = [torch.autograd.grad(each, weights) for each in (loss, expected)]
    for gradient, on_whole in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, on_whole)


def test_a_receptive_field_of_most_nodes_is_not_extracted() -> None:
    problem = sparse_problem(num_train=280)
    assert NodePrediction(problem)._receptive_field("train", 2) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "settings",
    [
        NodeTask(),
        NodeTask(neighbours=(2, 2)),
        NodeTask(eval_neighbours=(-1, -1)),
        NodeTask(roots=20, eval_neighbours=(-1, -1)),
    ],
    ids=["receptive field", "layer-wise", "sampled", "trained on walks, sampled"],
)
def test_evaluation_is_that_of_the_whole_graph(mechanism, settings) -> None:
    """Whichever way it is computed; for samples, if they are of all neighbours."""
    problem = sparse_problem()
    network = ResidualStack(dim=8, heads=2, layers=2).build(problem, mechanism).double().eval()
    whole = network(problem.x, problem.graph)
    out = NodePrediction(problem, settings, 16).outputs(network, ["train", "test"])
    assert set(out) == {"train", "test"}
    for part, (output, target) in out.items():
        torch.testing.assert_close(output, whole[problem.split[part]])
        assert torch.equal(target, problem.y[problem.split[part]])


def test_the_loss_of_a_walk_counts_its_training_nodes_only() -> None:
    problem = node_problem(tiny("walked").symmetric())
    task, spy = NodePrediction(problem, NodeTask(roots=20, steps=4)), Spy(6, 3)
    train = set(problem.split["train"].tolist())
    for batch in task.batches(torch.Generator().manual_seed(1)):
        nodes = torch.tensor([n for n in batch.node_id.tolist() if n in train])
        assert 0 < len(nodes) < batch.num_nodes
        loss, _ = task.loss(spy, batch)
        expected = F.cross_entropy(spy.linear(problem.x[nodes]), problem.y[nodes])
        torch.testing.assert_close(loss, expected)
        [near] = spy.calls[-1]
        degree = problem.degree_of(batch.node_id)  # in the whole graph, not in the sample
        assert torch.equal(near.degree, degree)


def test_a_walk_without_training_nodes_is_refused() -> None:
    data = tiny("lonely").symmetric()
    data = replace(data, split={**data.split, "train": np.array([0])})
    settings = NodeTask(roots=1, walk_length=1, steps=1)
    task, spy = NodePrediction(node_problem(data), settings), Spy(6, 3)
    (batch,) = task.batches(torch.Generator().manual_seed(0))
    assert 0 not in batch.node_id
    with pytest.raises(ValueError, match=r"^roots=1 is too small: a step's \d nodes hold none"):
        task.loss(spy, batch)


def test_batches_are_shuffled_unless_as_published() -> None:
    """D32"""
    problem = node_problem(tiny("shuffled").symmetric())
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


def test_exactly_the_added_edges_are_marked_as_noise() -> None:
    clean, noisy = (NoisyData("mine", noise=p).load(4) for p in (0.0, 0.4))
    given = NodePrediction(noisy).microscope_input()
    _, graph = given.inputs
    marks = given.marks["noise"]
    query, key = graph.query_index.long(), graph.key_index.long()
    marked = marks[graph.edge_id.long()]
    added = Counter(zip(query[marked].tolist(), key[marked].tolist(), strict=True))
    assert added == pairs(graph) - pairs(clean.graph)
    assert len(added) == 2 * int(clean.edges.num_edges // 2 * 0.4) > 0
    assert set(added.values()) == {1}
    assert not (marked & (query == key)).any()


@pytest.mark.parametrize("self_loops", [True, False])
def test_a_glance_compares_attention_on_noise_with_uniform_weights(self_loops) -> None:
    """Uniform weights: the fraction of noise among the edges of a query, averaged over queries."""
    data = NoisyData("mine", noise=0.5, self_loops=self_loops)
    problem = data.load(2)
    clean = pairs(replace(data, noise=0.0).load(2).graph)
    by_query: dict[int, list[bool]] = {}
    for query, key in pairs(problem.graph):
        by_query.setdefault(query, []).append((query, key) not in clean)
    expected = np.mean([np.mean(each) for each in by_query.values()])
    network = ResidualStack(dim=8, heads=2, layers=2).build(problem, "gatv2")
    given = NodePrediction(problem).microscope_input()
    seen = glance(network, given.inputs, **given.marks)
    assert [len(layer["heads"]) for layer in seen["layers"]] == [2, 1]
    for layer in seen["layers"]:
        assert layer["edges"] == problem.graph.num_edges
        for head in layer["heads"]:
            assert head["noise"]["uniform"] == pytest.approx(expected, abs=1e-5)
            assert 0 < head["noise"]["attention"]["value"] < 1
            assert (head["self_loops"] is not None) == self_loops


def test_a_glance_at_a_network_without_attention_is_refused() -> None:
    problem = NoisyData("mine").load(0)
    seen = glance(ResidualStack(dim=8, heads=2).build(problem, "gcn"), (problem.x, problem.graph))
    assert "no attention layer" in seen["refused"]


def test_noise_is_drawn_for_each_seed_unless_as_published() -> None:
    """D19: the paper's runs share one noise graph."""
    for published in (False, True):
        data = NoisyData("mine", noise=0.3, noise_seed=123 if published else None)
        same = pairs(data.load(0).edges) == pairs(data.load(1).edges)
        assert same == published


def test_without_noise_edge_noise_has_the_graph_of_its_dataset() -> None:
    assert pairs(NoisyData("mine").load(0).graph) == pairs(NodeData("mine").load(0).graph)


# Data


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_features_of_proteins_come_from_their_incoming_edges(reduction) -> None:
    """D25"""
    data = load("ogbn-proteins")
    edges = data.sole_edges
    total, count = np.zeros((data.num_nodes, 8)), np.zeros(data.num_nodes)
    for query, attr in zip(edges.query_index, np.asarray(edges.arrays["attr"]), strict=True):
        total[query] += attr
        count[query] += 1
    expected = total if reduction == "sum" else total / np.maximum(count, 1)[:, None]
    problem = ProteinsData(edge_features=reduction).load(0)
    np.testing.assert_allclose(problem.x.numpy(), expected, rtol=1e-5)
    assert problem.kind == "multilabel"
    assert problem.edges.num_edges == edges.count


def test_mag_has_only_citations_in_both_directions() -> None:
    """D26"""
    whole = load("ogbn-mag")
    cites = whole.edges["paper", "cites", "paper"]
    both = set(zip(cites.query_index.tolist(), cites.key_index.tolist(), strict=True))
    both |= {(key, query) for query, key in both}
    problem = MagData("ogbn-mag").load(0)
    assert set(pairs(problem.edges)) == {(query, key) for query, key in both if query != key}
    assert problem.edges.num_edges == len(pairs(problem.edges))
    assert len(problem.x) == whole.num_nodes == 3490
    assert problem.out_dim == 349


# Departures from the released code (docs/reproduction.md)

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
    ("D15", "ogbn-mag", "network.layers", 2, 2),  # so there is no middle layer
    ("D16", "ogbn-arxiv", "network.last_heads", 1, 1),
    ("D16", "ogbn-mag", "network.last_heads", 1, 1),
    ("D16", "ogbn-products", "network.last_heads", 1, 1),
    ("D17", "edge-noise", "network.heads", 8, 8),  # and published_heads, see below
    ("D19", "edge-noise", "data.noise_seed", None, 123),
    ("D20", "ogbn-products", "schedule.loss_limit", None, 2.0),
    ("D20", "ogbn-products", "schedule.limit_rounds", 5, 5),  # of 10 epochs each
    ("D20", "ogbn-proteins", "schedule.loss_limit", None, 0.3),
    ("D20", "edge-noise", "schedule.loss_limit", None, 1.2),
    ("D20", "edge-noise", "schedule.limit_rounds", 25, 25),
    ("D20", "edge-noise", "schedule.failed_before", 0, 30),
    ("D20", "ogbn-arxiv", "schedule.loss_limit", None, None),  # its table includes all runs
    ("D20", "ogbn-mag", "schedule.loss_limit", None, None),
    ("D21", "ogbn-proteins", "schedule.dpgat_apart", False, True),
    ("D22", "ogbn-proteins", "task.eval_neighbours", (), (60,) * 6),
    ("D24", "ogbn-proteins", "schedule.optimizer", "adam", "adamw"),
    ("D25", "ogbn-proteins", "data.edge_features", "sum", "sum"),
    ("D26", "ogbn-mag", "data.relation", "cites", "cites"),
    ("D32", "ogbn-mag", "task.shuffle", True, False),
    ("D34", "ogbn-arxiv", "schedule.patience", 50, 50),  # all of its rounds
    ("D34", "ogbn-mag", "schedule.patience", 100, 100),
    ("D34", "ogbn-products", "schedule.silent_rounds", 5, 5),
    ("D34", "edge-noise", "schedule.patience", 50, 10),
]


@pytest.mark.parametrize(("number", "name", "path", "corrected", "published"), REGISTER)
def test_every_entry_of_the_register_is_a_setting(number, name, path, corrected, published) -> None:
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


def test_published_numbers_carry_what_the_register_says_about_tables() -> None:
    """D17, D23, D30 and D33: heads, deviations, runs and seeds."""
    jobs = jobs_of(EDGE_NOISE, Request(("noise=0",), seeds=(0,), as_published=True))
    heads = {job.mechanism: job.benchmark.network.heads for job in jobs}
    assert heads == {"gat": 8, "gatv2": 1, "dpgat": 1, "gcn": 8}
    assert {len(heads) for heads in EDGE_NOISE.mechanisms.values()} == {1}
    by_n = {each.divided_by for each in OGBN_PROTEINS.published if each.where == "Table 1"}
    assert by_n == {"n"}
    for name in ("ogbn-arxiv", "ogbn-mag", "ogbn-products"):
        assert {each.divided_by for each in find(name).published} == {"n - 1"}
    assert {each.n for each in OGBN_PRODUCTS.published} == {10}
    assert all(len(find(name).seeds) == 10 for name in SHORT if name != "pubmed")


def test_as_published_proteins_has_another_schedule_for_dpgat() -> None:
    """D21"""
    corrected, published = OGBN_PROTEINS.schedule, as_published(OGBN_PROTEINS.settings).schedule
    for mechanism in ("gat", "gatv2", "dpgat", "gcn"):
        assert corrected.for_mechanism(mechanism) is corrected
    assert published.for_mechanism("gat") is published
    apart = published.for_mechanism("dpgat")
    assert isinstance(apart, ProteinsSchedule)
    assert (apart.lr, apart.patience, apart.loss_limit) == (0.001, 100, 0.32)
    rest = replace(apart, lr=published.lr, patience=10, loss_limit=0.3)
    assert rest == published
    assert replace(published, loss_limit=None).for_mechanism("dpgat").loss_limit is None
