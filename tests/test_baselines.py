"""Baselines predict from parts of the data alone, on the split and the metric of the networks."""

import math

import numpy as np
import pytest
import torch

from dynagat.comparison.baselines import baselines
from dynagat.data.minesweeper import minesweeper
from dynagat.data.store import EDGE, Edges, GraphData, Nodes
from dynagat.prediction.nodes import NodeTask, node_problem
from dynagat.training import Schedule

COUNT = 240


def graph(kind, *, features=True, homophily=True):
    """Two halves. The features tell the half, and so do the edges, each if asked to."""
    rng = np.random.default_rng(0)
    half = np.arange(COUNT) % 2
    key, query = rng.integers(0, COUNT, (2, 8 * COUNT))
    kept = (half[key] == half[query]) & (key != query) if homophily else key != query
    x = rng.normal(size=(COUNT, 3)).astype(np.float32)
    if features:
        x[:, 0] += 4 * half
    known = rng.permutation(COUNT)
    y = {
        "classification": half.astype(np.int64),
        "multilabel": np.stack([half, 1 - half], 1).astype(np.float32),
        "regression": (100 + 10 * half + rng.normal(size=COUNT) / 10).astype(np.float32),
    }[kind]
    if kind == "multilabel":
        y[known[:20], 1] = math.nan
    task = {"kind": kind, "classes": ["a", "b"]}
    split = {"train": known[:120], "valid": known[120:180], "test": known[180:]}
    return GraphData(
        "halves",
        {"node": Nodes(COUNT, {"x": x, "y": y})},
        {EDGE: Edges(key[kept], query[kept])},
        split,
        {"task": task},
    )


def scores(data, seeds=(0,), **task):
    prediction = NodeTask(**task).prepare(node_problem(data), Schedule())
    return {each.mechanism: each for each in baselines(prediction, seeds)}


def on_test(result):
    return result.sample("test").mean


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_each_baseline_uses_what_it_says(kind):
    linear = "ridge regression" if kind == "regression" else "logistic regression"
    chance = 0.6 if kind == "classification" else 0.65 if kind == "multilabel" else 0.1
    by_features = scores(graph(kind, homophily=False))
    assert on_test(by_features[linear]) > 0.7
    assert on_test(by_features["MLP"]) > 0.7
    assert on_test(by_features["label propagation"]) < chance
    by_edges = scores(graph(kind, features=False))
    assert on_test(by_edges[linear]) < chance
    assert on_test(by_edges["label propagation"]) > 0.8
    uses = [each.uses for each in by_edges.values()]
    assert uses == ["nothing", "features", "features", "edges"]


def test_the_constant_baseline_has_the_score_of_a_constant():
    data = minesweeper(20)
    accuracy = on_test(scores(data)["majority class"])
    test = np.asarray(data.y)[data.split["test"]]
    assert accuracy == pytest.approx(1 - test.mean())
    assert on_test(scores(data, metric="roc_auc")["majority class"]) == 0.5
    assert on_test(scores(graph("regression"))["mean"]) == pytest.approx(0, abs=0.05)


def test_only_the_mlp_depends_on_the_seed():
    results = scores(graph("classification", features=False), seeds=(0, 1), metric="log_loss")
    for name, result in results.items():
        values = list(result.values("test").values())
        assert len(values) == 2
        assert (values[0] != values[1]) == (name == "MLP")


def test_nodes_that_no_label_reaches_get_the_constant_prediction():
    data = graph("regression")
    edges = data.sole_edges
    train = np.zeros(COUNT, bool)
    train[data.split["train"]] = True
    kept = train[edges.key_index] & train[edges.query_index]
    cut = {EDGE: Edges(edges.key_index[kept], edges.query_index[kept])}
    alone = scores(GraphData("alone", data.nodes, cut, data.split, data.about))
    assert on_test(alone["label propagation"]) == on_test(alone["mean"])


def test_without_features_there_are_no_models_of_them():
    data = graph("classification")
    bare = {"node": Nodes(COUNT, {"y": data.y})}
    results = scores(GraphData("bare", bare, data.edges, data.split, data.about))
    assert list(results) == ["majority class", "label propagation"]


def test_labels_of_minesweeper_depend_on_the_neighbours():
    """The features alone say nothing; the count of mines is that of the neighbours."""
    data = minesweeper(30, seed=1)
    edges, mine = data.sole_edges, np.asarray(data.y)
    assert mine.mean() == 0.2
    near = np.bincount(edges.query_index, weights=mine[edges.key_index], minlength=900)
    shown = data.x[:, -1] == 0
    assert shown.mean() == 0.5
    assert np.array_equal(data.x[shown].argmax(1), near[shown])
    assert np.bincount(edges.query_index).tolist().count(8) == 28 * 28
    assert sorted(np.concatenate(list(data.split.values()))) == list(range(900))
    assert torch.equal(*(torch.from_numpy(minesweeper(30, seed=1).x) for _ in range(2)))
    with pytest.raises(ValueError, match="size must be at least 3, but is 2"):
        minesweeper(2)
