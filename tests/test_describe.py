"""Descriptions of small graphs are as counted by hand, those of known graphs as published."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagat.data import statistics as describing
from dynagat.data.ogb import read_ogb
from dynagat.data.planetoid import read_planetoid
from dynagat.data.statistics import describe
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes


def graph(pairs, count, y=None, **about):
    key, query = np.array(pairs, np.int32).reshape(-1, 2).T
    nodes = Nodes(count, {} if y is None else {"y": np.array(y)})
    return GraphData("g", {NODE: nodes}, {EDGE: Edges(key, query)}, {}, about)


def classes(*names):
    return {"kind": "classification", "node_type": NODE, "classes": list(names)}


def test_a_small_graph_is_counted_right():
    pairs = [(0, 1), (1, 0), (0, 1), (1, 2), (3, 3)]
    result = describe(graph(pairs, 6, [0, 0, 1, 1, 1, -1], task=classes("a", "b")))
    (nodes,), (edges,) = result.nodes, result.edges
    assert (nodes.count, nodes.isolated) == (6, 3)  # 3 has only a self-loop, 4 and 5 have no edges
    assert (edges.count, edges.self_loops, edges.duplicates) == (5, 1, 1)
    assert edges.is_symmetric is False
    assert (edges.keys_per_query.max, edges.keys_per_query.mean) == (2, 5 / 6)
    assert (edges.queries_per_key.max, edges.queries_per_key.median) == (2, 0.5)
    assert result.components == 4
    assert result.largest_component == 0.5
    assert result.balance.counts == {"a": 2, "b": 3}
    assert result.balance.unknown == 1
    assert result.homophily.edge == 0.75
    p = 7 / 8  # fraction of edge ends at class a
    by_chance = p**2 + (1 - p) ** 2
    assert result.homophily.adjusted == pytest.approx((0.75 - by_chance) / (1 - by_chance))
    assert result.homophily.class_insensitive == pytest.approx(6 / 7 - 2 / 5)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.data())
def test_pairs_and_components_match_a_simple_implementation(count, data):
    node = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=20))
    result = describe(graph(pairs, count))
    (edges,) = result.edges
    assert edges.duplicates == len(pairs) - len(set(pairs))
    assert edges.is_symmetric == ({(b, a) for a, b in pairs} == set(pairs))
    groups = [{each} for each in range(count)]
    for a, b in pairs:
        joined = set().union(*(group for group in groups if {a, b} & group))
        groups = [group for group in groups if not {a, b} & group] + [joined]
    assert result.components == len(groups)
    assert result.largest_component == max(map(len, groups)) / count
    touched = {end for a, b in pairs if a != b for end in (a, b)}
    assert result.nodes[0].isolated == count - len(touched)


def test_the_block_size_does_not_change_the_description(monkeypatch):
    random = np.random.default_rng(0)
    data = graph(random.integers(0, 50, (400, 2)), 60, np.arange(60) % 3, task=classes(*"abc"))
    whole = describe(data)
    monkeypatch.setattr(describing, "BLOCK", 7)
    monkeypatch.setattr(describing, "MAX_PAIRS", 50)
    assert describe(data) == whole


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_classes_of_small_integer_types_are_counted_right(dtype):
    count = 200 if dtype != np.int8 else 120
    y = np.arange(2 * count) % count
    pairs = [(at, (at + count) % (2 * count)) for at in range(2 * count - 1)] + [(0, 1)]
    task = classes(*map(str, range(count)))
    one, other = (
        describe(graph(pairs, 2 * count, y.astype(kind), task=task)) for kind in (dtype, np.int64)
    )
    assert one.homophily == other.homophily
    assert 0.9 < one.homophily.edge < 1


def test_homophily_is_one_within_classes_and_adjusted_zero_by_chance():
    within = describe(graph([(0, 1), (2, 3)], 4, [0, 0, 1, 1], task=classes("a", "b")))
    assert (within.homophily.edge, within.homophily.adjusted) == (1, 1)
    everywhere = [(a, b) for a in range(8) for b in range(8)]
    y = np.arange(8) % 2
    chance = describe(graph([*everywhere], 8, y, task=classes("a", "b"))).homophily
    assert chance.edge == pytest.approx(3 / 7)  # self-loops do not count
    random = np.random.default_rng(0)
    many = random.integers(0, 1000, (100_000, 2))
    y = (np.arange(1000) < 900).astype(np.int64)
    unequal = describe(graph(many, 1000, y, task=classes("a", "b"))).homophily
    assert unequal.edge > 0.8
    assert abs(unequal.adjusted) < 0.02
    assert unequal.class_insensitive < 0.02


def test_multilabel_and_regression_targets_are_described():
    labels = np.array([[1, 0], [1, np.nan], [0, 0]], np.float32)
    task = {"kind": "multilabel", "node_type": NODE, "classes": ["a", "b"]}
    result = describe(graph([], 3, labels, task=task))
    assert result.balance.counts == {"a": 2, "b": 0}
    assert result.balance.unknown == 1
    assert result.homophily is None
    task = {"kind": "regression", "node_type": NODE}
    result = describe(graph([], 3, np.array([1, 3, np.nan], np.float32), task=task))
    assert (result.balance.values.mean, result.balance.unknown) == (2, 1)


def test_features_are_described():
    x = np.array([[0, 1], [0, np.nan]], np.float32)
    data = GraphData("g", {NODE: Nodes(2, {"x": x})}, {})
    features = describe(data).nodes[0].features
    assert (features.count, features.dtype, features.zeros, features.nan) == (2, "float32", 0.5, 1)


def test_each_type_is_described_separately():
    nodes = {"paper": Nodes(3), "author": Nodes(2)}
    edges = {
        ("author", "writes", "paper"): Edges(np.array([0, 1]), np.array([0, 0])),
        ("paper", "cites", "paper"): Edges(np.array([1]), np.array([1])),
    }
    result = describe(GraphData("g", nodes, edges))
    assert [each.kind for each in result.edges] == ["author-writes-paper", "paper-cites-paper"]
    assert [each.is_symmetric for each in result.edges] == [None, True]
    assert result.components == 3
    assert [each.isolated for each in result.nodes] == [2, 0]


def test_the_table_and_the_json_agree():
    data = graph([(0, 1), (1, 0)], 3, [0, 1, 1], task=classes("a", "b"), source="here")
    result = describe(data)
    facts = json.loads(json.dumps(result.to_dict()))
    assert facts["edges"][0]["count"] == 2
    assert facts["homophily"]["edge"] == 0
    table = str(result)
    for words in ("here", "isolated 1", "in both directions", "homophily"):
        assert words in table
    assert len({line.rindex(line.split("  ")[-1].strip()) for line in table.splitlines()}) == 1


def test_an_empty_graph_is_described():
    result = describe(GraphData("g", {NODE: Nodes(0)}, {EDGE: Edges(*np.zeros((2, 0), int))}))
    assert (result.components, result.largest_component) == (0, 0)
    assert "0 self-loops" in str(result)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "edge", "adjusted", "class_insensitive"),
    # Adjusted: Platonov et al. 2023, table 1; class-insensitive: Lim et al. 2021, table 1.
    [("cora", 0.81, 0.77, 0.766), ("citeseer", 0.74, 0.67, 0.627), ("pubmed", 0.80, 0.69, 0.664)],
)
def test_homophily_is_as_published(name, edge, adjusted, class_insensitive):
    result = describe(read_planetoid(Path(os.environ["DYNAGAT_DATA"]) / name)).homophily
    assert result.edge == pytest.approx(edge, abs=0.0051)
    assert result.adjusted == pytest.approx(adjusted, abs=0.0051)
    assert result.class_insensitive == pytest.approx(class_insensitive, abs=0.0051)


@pytest.mark.data
def test_arxiv_is_described_within_seconds(tmp_path):
    folder = Path(os.environ["DYNAGAT_DATA"]) / "ogbn-arxiv"
    data = read_ogb(folder, path=tmp_path / "arxiv").symmetric()
    start = time.process_time()
    result = describe(data)
    assert time.process_time() - start < 10
    assert result.edges[0].count == 2_315_598
    assert result.edges[0].is_symmetric
    assert result.components == 1
    assert result.homophily.edge == pytest.approx(0.655, abs=0.001)
