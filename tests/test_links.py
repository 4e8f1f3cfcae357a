"""Link prediction: networks, negatives, scores, and OGB's three data sets in their own layout."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bench.synthetic_ogb import make_ogb
from torch import nn

from dynagat import Graph
from dynagat.benchmarks import OGBL_CITATION2, OGBL_COLLAB, OGBL_DDI
from dynagat.data.ogb import read_ogb
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes
from dynagat.experiment import as_published, run, settings
from dynagat.link_metrics import MRR
from dynagat.metrics import ROC_AUC
from dynagat.nn.network import make_conv
from dynagat.prediction.links import (
    SCORED_PAIRS,
    LinkProblem,
    LinkTask,
    link_problem,
    score_pairs,
)
from dynagat.training import Schedule, _clip
from tests.test_stacks import num_parameters, num_unused

N = 30
BENCHMARKS = {each.name: each for each in (OGBL_COLLAB, OGBL_CITATION2, OGBL_DDI)}


def random_pairs(count, seed):
    return torch.randint(N, (count, 2), generator=torch.Generator().manual_seed(seed))


def small_problem(**options):
    known = random_pairs(80, 0)
    both = torch.cat([known, known.flip(1)])
    both = both[both[:, 0] != both[:, 1]]
    return LinkProblem(
        x=torch.randn(N, 5, generator=torch.Generator().manual_seed(1)),
        edges=Graph.from_edges(both[:, 0], both[:, 1], N),
        links={"train": known, "valid": random_pairs(12, 2), "test": random_pairs(9, 3)},
        non_links={"valid": random_pairs(14, 4), "test": random_pairs(15, 5)},
        **options,
    )


# Networks

TOTALS = {  # of the released code's GAT, GATv2 and DPGAT, with the predictor; then OGB's baselines
    "ogbl-collab": (25_409, 25_217, 58_177, 296_449, 460_289),
    "ogbl-citation2": (298_241, 297_473, 625_921, 296_449, 460_289),
}


@pytest.mark.parametrize("name", TOTALS)
@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "dpgat", "gcn", "sage"])
def test_networks_have_the_parameter_counts_of_the_paper_and_of_ogb(name, mechanism):
    benchmark = BENCHMARKS[name]
    stack = as_published(benchmark.base(mechanism).network)
    network = stack.build(SimpleNamespace(x=torch.empty(1, 128)), mechanism)
    unused = num_unused((128, *[stack.dim] * 3), mechanism)  # of DPGAT
    index = ["gat", "gatv2", "dpgat", "gcn", "sage"].index(mechanism)
    assert num_parameters(network) + unused == TOTALS[name][index]


@pytest.mark.parametrize(("mechanism", "count"), [("gcn", 1_289_985), ("sage", 1_421_057)])
def test_the_baselines_of_ddi_have_the_parameter_counts_of_the_leaderboard(mechanism, count):
    stack = OGBL_DDI.base(mechanism).network
    network = stack.build(SimpleNamespace(x=torch.arange(4_267)), mechanism)
    assert num_parameters(network) == count


def test_collab_adds_the_middle_layer_twice_also_in_evaluation_as_published():
    """D14: elsewhere the released code does so in training only, in citation2 never."""
    problem = SimpleNamespace(x=torch.empty(1, 128))
    networks = {
        name: as_published(BENCHMARKS[name].network).build(problem, "gat") for name in TOTALS
    }
    gains = {name: [(each.gain, each.eval_gain) for each in network.layers]
             for name, network in networks.items()}  # fmt: skip
    assert gains["ogbl-collab"] == [(1, 1), (2, 2), (1, 1)]
    assert gains["ogbl-citation2"] == [(1, 1)] * 3


@pytest.mark.parametrize("self_loops", [False, True])
def test_graphsage_is_that_of_pyg_whether_or_not_the_graph_has_self_loops(self_loops):
    edge_index = torch.cat([random_pairs(90, 0).T, torch.tensor([[3], [3]])], dim=1)
    graph = Graph.from_edge_index(edge_index, N)
    graph = graph.with_self_loops() if self_loops else graph
    theirs, ours = (make_conv("sage", source=source)(5, 7, 1) for source in ("pyg", "dynagat"))
    ours.load_state_dict(theirs.conv.state_dict())
    x = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    for each in (theirs, ours):
        each.double()
    torch.testing.assert_close(ours(x, graph), theirs(x, graph))


# Negatives


def test_unlinked_negatives_are_never_training_links_nor_self_pairs():
    prediction = LinkTask(negatives="unlinked", ratio=3).prepare(small_problem(), Schedule())
    links = prediction.problem.links["train"]
    pairs = prediction.negatives(links, torch.Generator().manual_seed(0))
    assert pairs.shape == (240, 2)
    known = {frozenset(pair) for pair in links.tolist()}
    drawn = [frozenset(pair) for pair in pairs.tolist()]
    assert all(len(pair) == 2 and pair not in known for pair in drawn)
    assert len(set(drawn)) > 60


def test_unlinked_negatives_of_a_complete_graph_are_an_error():
    complete = torch.combinations(torch.arange(N))
    problem = replace(small_problem(), links={"train": complete})
    prediction = LinkTask(negatives="unlinked").prepare(problem, Schedule())
    with pytest.raises(ValueError, match="30 nodes have 435 links"):
        prediction.negatives(complete, torch.Generator())


def test_negatives_per_source_keep_the_first_node_and_differ_from_it():
    prediction = LinkTask(negatives="per_source", ratio=2).prepare(small_problem(), Schedule())
    links = prediction.problem.links["train"]
    pairs = prediction.negatives(links, torch.Generator().manual_seed(0))
    assert pairs[:, 0].equal(links[:, 0].repeat_interleave(2))
    assert bool((pairs[:, 0] != pairs[:, 1]).all())
    assert 0 <= int(pairs.min()) <= int(pairs.max()) < N


# Training and scores


def test_an_epoch_has_every_link_once_beside_its_negatives():
    prediction = LinkTask(ratio=2).prepare(small_problem(), Schedule(batch_size=32))
    batches = list(prediction.batches(torch.Generator().manual_seed(0)))
    assert [(each.num_links, len(each.pairs)) for each in batches] == [(32, 96), (32, 96), (16, 48)]
    seen = torch.cat([each.pairs[: each.num_links] for each in batches])
    assert sorted(seen.tolist()) == sorted(prediction.problem.links["train"].tolist())


@pytest.mark.parametrize("mechanism", ["gatv2", "gcn", "sage"])
def test_all_sampled_neighbours_give_the_loss_of_the_whole_graph(mechanism):
    stack = replace(OGBL_COLLAB.network, dim=8, heads=2, layers=2)
    problem = small_problem()
    network = stack.build(problem, mechanism).eval()
    losses = []
    for neighbours in ((), (-1, -1)):
        task = LinkTask(neighbours=neighbours)
        prediction = task.prepare(problem, Schedule(batch_size=32))
        batch = next(iter(prediction.batches(torch.Generator().manual_seed(0))))
        losses.append(prediction.loss(network, batch)[0])
        encoded = network.encode(problem.x, problem.graph)
        torch.testing.assert_close(prediction.encode(network), encoded)
    torch.testing.assert_close(*losses)


def test_the_loss_is_the_mean_over_links_plus_the_mean_over_negatives():
    prediction = LinkTask(ratio=2).prepare(small_problem(), Schedule(batch_size=32))
    network = replace(OGBL_COLLAB.network, dim=8, heads=2).build(prediction.problem, "gat")
    batch = next(iter(prediction.batches(torch.Generator().manual_seed(0))))
    probability = network(prediction.problem.x, prediction.problem.graph, batch.pairs).sigmoid()
    links, negatives = probability[:32], probability[32:]
    expected = -links.log().mean() - (1 - negatives).log().mean()
    torch.testing.assert_close(prediction.loss(network, batch)[0], expected)


def test_per_source_negatives_are_ranked_beside_their_own_link():
    problem = small_problem(per_source=True, metric=MRR)
    others = (problem.links["valid"][:, 1:] + torch.tensor([1, 3, 8, 11, 19, 25])) % N
    problem = replace(problem, non_links={"valid": others})
    prediction = LinkTask().prepare(problem, Schedule())
    network = replace(OGBL_COLLAB.network, dim=8, heads=2).build(problem, "gat").eval()
    x = network.encode(problem.x, problem.graph)
    ranks = []
    for link, negatives in zip(problem.links["valid"], problem.non_links["valid"], strict=True):
        pairs = torch.stack([link[:1].expand(6), negatives], dim=1)
        above = network.readout(x, pairs) > network.readout(x, link[None])
        ranks.append(1 + above.sum())
    expected = float((1 / torch.stack(ranks)).mean())
    assert prediction.score(network, "valid") == pytest.approx(expected)
    assert 0 < prediction.score(network, "train") <= 1  # borrows the negatives of valid


def test_pairs_are_scored_in_blocks():
    network = replace(OGBL_COLLAB.network, dim=8, heads=2).build(small_problem(), "gat")
    sizes = []
    network.readout.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    scores = score_pairs(network, torch.randn(N, 8), random_pairs(SCORED_PAIRS + 5, 0))
    assert sizes == [SCORED_PAIRS, 5]
    assert scores.shape == (SCORED_PAIRS + 5,)


def test_clip_parts_limits_embedding_layers_and_readout_each_by_itself():
    problem = replace(small_problem(), x=torch.arange(N))
    network = replace(OGBL_DDI.network, dim=8, heads=2, dropout=0.0).build(problem, "gat")
    for each in network.parameters():
        each.grad = torch.full_like(each, 3.0)
    _clip(network, Schedule(clip=0.5, clip_parts=True))
    for part in (network.embedding, network.layers, network.readout):
        squares = sum(float(each.grad.square().sum()) for each in part.parameters())
        assert math.sqrt(squares) == pytest.approx(0.5, rel=1e-4)


# Data


def small_data(**split):
    edges = Edges(np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1]))
    parts = {"train/edge": [[0, 1], [1, 2]], "valid/edge": [[2, 3]], "valid/edge_neg": [[0, 3]],
             "test/edge": [[1, 3]], "test/edge_neg": [[0, 2]]}  # fmt: skip
    parts = {name: np.array(pairs).reshape(-1, 2) for name, pairs in (parts | split).items()}
    about = {"task": {"kind": "links", "node_type": NODE}}
    return GraphData("small", {NODE: Nodes(4)}, {EDGE: edges}, parts, about)


def test_nodes_without_features_get_a_learned_table():
    problem = link_problem(small_data(), ROC_AUC)
    network = replace(OGBL_DDI.network, dim=8, heads=2).build(problem, "gatv2")
    assert isinstance(network.embedding, nn.Embedding)
    assert network(problem.x, problem.graph, problem.links["test"]).shape == (1,)


@pytest.mark.parametrize(("part", "message"), [
    ("train/edge", "graph small has no links for train in its split"),
    ("test/edge_neg", "graph small has no negative pairs for test in its split"),
])  # fmt: skip
def test_an_empty_part_is_named(part, message):
    with pytest.raises(ValueError, match=message):
        link_problem(small_data(**{part: []}), ROC_AUC)


def test_a_graph_without_links_to_predict_is_refused():
    with pytest.raises(ValueError, match="graph small must have links to predict, but has None"):
        link_problem(replace(small_data(), about={}), ROC_AUC)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """OGB's link data sets, small, read from files in OGB's layout."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in BENCHMARKS:
        read_ogb(make_ogb(name, tmp_path / name, nodes=60), name)


FURTHER = {
    "ogbl-citation2": {"steps": 2, "batch_size": 8},
    "ogbl-ddi": {"negatives": "uniform"},  # so few nodes are all linked
}
SMALL = {"max_rounds": 1, "silent_rounds": 0, "round_passes": 1, "dim": 8, "heads": 2}


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "dpgat", "gcn", "sage"])
def test_ogbs_link_data_run_in_both_fidelities(name, mechanism):
    benchmark = BENCHMARKS[name]
    small = SMALL | FURTHER.get(name, {})
    start = benchmark.base(mechanism)
    start = settings.with_values(start, {settings.resolve(start, n): v for n, v in small.items()})
    for choice in (start, as_published(start)):
        record = run(benchmark.with_settings(choice), mechanism, 0)
        assert 0 <= record.metrics[benchmark.metric.name] <= 1
        assert all(math.isfinite(value) for value in record.metrics.values())


@pytest.mark.usefixtures("stored")
def test_collab_scores_test_links_on_the_validation_links_too():
    """D28: the released code merges repeated pairs there, but not in the training graph."""
    without = OGBL_COLLAB.data.load(0)
    assert without.test_graph is without.graph
    with_valid = replace(OGBL_COLLAB.data, valid_edges=True)
    problem, published = with_valid.load(0), as_published(with_valid).load(0)
    not_loops = (problem.links["valid"][:, 0] != problem.links["valid"][:, 1]).sum()
    assert problem.test_edges.num_edges == problem.edges.num_edges + 2 * int(not_loops)
    codes = published.test_edges.query_index.long() * 60 + published.test_edges.key_index
    assert len(codes.unique()) == len(codes) < problem.test_edges.num_edges
    assert published.edges.num_edges == problem.edges.num_edges
