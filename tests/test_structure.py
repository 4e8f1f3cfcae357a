"""Features from the graph alone: they follow the formula, and similar nodes are close."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dynagat.data import structure
from dynagat.data.catalog import load
from dynagat.data.store import tensor
from dynagat.data.structure import BETA, LENGTHS, structural_features
from dynagat.graph import Graph


def symmetric_graph(num_nodes, pairs):
    both = [*pairs, *((j, i) for i, j in pairs)]
    ends = torch.tensor(both, dtype=torch.long).view(-1, 2)
    return Graph.from_edges(ends[:, 0], ends[:, 1], num_nodes)


def random_graph(num_nodes, num_pairs, seed=0):
    draw = np.random.default_rng(seed)
    pairs = {tuple(sorted(draw.choice(num_nodes, 2, replace=False))) for _ in range(num_pairs)}
    return symmetric_graph(num_nodes, sorted(pairs))


def two_halves(num_nodes=200, seed=0):
    """Two dense halves with few edges between them."""
    draw = np.random.default_rng(seed)
    half = np.arange(num_nodes) * 2 // num_nodes
    i, j = np.triu_indices(num_nodes, 1)
    joined = draw.random(len(i)) < np.where(half[i] == half[j], 0.1, 0.005)
    pairs = list(zip(i[joined].tolist(), j[joined].tolist(), strict=True))
    return symmetric_graph(num_nodes, pairs), torch.from_numpy(half)


def by_formula(graph, signs):
    """The formula of the docstring, dense and in float64."""
    N = graph.num_queries
    A = torch.zeros(N, N, dtype=torch.float64)
    A[graph.query_index.long(), graph.key_index.long()] = 1
    d = A.sum(1, keepdim=True)
    P = A / d.clamp_min(1)
    pi = d / d.sum()
    total = torch.zeros_like(signs, dtype=torch.float64)
    for k in LENGTHS:
        walk = torch.linalg.matrix_power(P, k) @ (d**BETA * signs.double())
        total += F.normalize((walk - (pi * walk).sum(0)) * (d > 0))
    return (total - total.mean(0)) / total.std(0, correction=0)


def test_features_follow_the_formula():
    graph = random_graph(60, 150)
    x = structural_features(graph, dim=16, seed=3)
    assert x.dtype == torch.float32
    expected = by_formula(graph, structure._signs(60, 16, 3))
    torch.testing.assert_close(x.double(), expected, rtol=1e-3, atol=1e-3)


def test_signs_are_the_bits_of_a_fixed_random_stream():
    numbers = np.random.PCG64(0).random_raw(2).tolist()
    assert numbers[0] == 11749869230777074271
    bits = "".join(f"{byte:08b}" for each in numbers for byte in each.to_bytes(8, "little"))
    expected = [1.0 if bit == "1" else -1.0 for bit in bits[:99]]
    assert structure._signs(33, 3, 0).flatten().tolist() == expected


def test_signs_are_balanced_and_columns_are_uncorrelated():
    signs = structure._signs(1000, 128, 0)
    assert signs.mean().abs() < 0.01
    assert (signs.T @ signs / 1000 - torch.eye(128)).abs().max() < 0.2


def test_columns_have_mean_zero_and_deviation_one():
    x = structural_features(random_graph(100, 300), dim=20)
    torch.testing.assert_close(x.mean(0), torch.zeros(20), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(20))


def test_nodes_without_keys_have_equal_features():
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    x = structural_features(symmetric_graph(7, pairs), dim=8)
    assert (x[4:] == x[4]).all()
    assert (x[:4] != x[4]).any(1).all()


def test_features_separate_the_halves_however_nodes_are_numbered():
    """Signs depend on the index of a node, so features change, but similarities hardly do."""
    graph, half = two_halves()
    order = torch.randperm(200)
    position = order.argsort()
    ends = position[graph.query_index.long()], position[graph.key_index.long()]
    moved = Graph.from_edges(*ends, 200)
    for x, label in ((structural_features(graph), half), (structural_features(moved), half[order])):
        similarity = F.normalize(x) @ F.normalize(x).T
        is_same = label[:, None] == label[None, :]
        assert similarity[is_same].mean() > 0.5
        assert similarity[~is_same].mean() < -0.5


def test_the_seed_determines_the_features():
    graph = random_graph(50, 100)
    assert torch.equal(structural_features(graph, 8, 1), structural_features(graph, 8, 1))
    assert not torch.equal(structural_features(graph, 8, 1), structural_features(graph, 8, 2))


def test_the_number_of_threads_changes_no_bit(threads):
    graph, results = random_graph(3000, 20_000), []
    for count in (1, 2, 3):
        threads(count)
        results.append(structural_features(graph, 43))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_a_graph_without_edges_has_features_of_zero(num_nodes):
    x = structural_features(symmetric_graph(num_nodes, []), dim=4)
    assert x.tolist() == [[0.0] * 4] * num_nodes


@pytest.mark.parametrize(("dim", "seed"), [(0, 0), (2.5, 0), (True, 0), (4, -1), (4, None)])
def test_a_wrong_dim_or_seed_is_refused(dim, seed):
    with pytest.raises(ValueError, match=r"must be a whole number of [01] or more, but is"):
        structural_features(random_graph(5, 6), dim, seed)


def test_a_sample_of_a_graph_is_refused():
    part = Graph.from_edges(torch.tensor([0]), torch.tensor([2]), 1, 3)
    with pytest.raises(ValueError, match="need a whole graph of one relation, but it is Graph"):
        structural_features(part)


@pytest.mark.data
def test_a_linear_model_predicts_the_subject_of_papers_from_them(tmp_path, monkeypatch):
    """On Cora; trained on all nodes that are not test nodes."""
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    data = load("cora")
    x, y = structural_features(data.graph()), tensor(data.y)
    test = tensor(data.split["test"])
    others = torch.ones(len(y), dtype=torch.bool)
    others[test] = False
    targets = F.one_hot(y[others]).float()
    solved = torch.linalg.lstsq(F.pad(x[others], (0, 1), value=1.0), targets).solution
    predicted = (F.pad(x[test], (0, 1), value=1.0) @ solved).argmax(1)
    assert (predicted == y[test]).float().mean() > 0.75
