"""GraphData and its store: a stored graph equals the original, altered files are errors."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagat.data import arrays as folders
from dynagat.data.arrays import FolderError
from dynagat.data.store import (
    EDGE,
    NODE,
    Edges,
    GraphData,
    Nodes,
    flat,
    open_graph,
    raw_folders,
    store_folder,
    stored_names,
)
from dynagat.data.texts import Texts


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ring(count=6, name="ring"):
    key = np.arange(count, dtype=np.int32)
    nodes = Nodes(count, {"x": np.eye(count, dtype=np.float32), "y": key.astype(np.int64) % 2})
    task = {"kind": "classification", "node_type": NODE, "classes": ["even", "odd"]}
    split = {"train": np.arange(2), "valid": np.array([2]), "test": np.arange(3, count)}
    edges = {EDGE: Edges(key, np.roll(key, 1), {"weight": np.ones(count)})}
    return GraphData(name, {NODE: nodes}, edges, split, {"task": task})


def assert_same(found, expected):
    first, second = flat(found), flat(expected)
    assert first.keys() == second.keys()
    for name, array in second.items():
        if isinstance(array, Texts):
            assert list(first[name]) == list(array)
        else:
            assert first[name].dtype == array.dtype
            np.testing.assert_array_equal(first[name], array)
    assert (found.name, found.about) == (expected.name, expected.about)
    assert {kind: n.count for kind, n in found.nodes.items()} == {
        kind: n.count for kind, n in expected.nodes.items()
    }
    assert set(found.edges) == set(expected.edges)


@st.composite
def graphs(draw):
    kinds = draw(st.lists(st.sampled_from(["paper", "author", "field of study"]), min_size=1,
                          max_size=3, unique=True))  # fmt: skip
    counts = {kind: draw(st.integers(0, 5)) for kind in kinds}
    random = np.random.default_rng(draw(st.integers(0, 99)))
    nodes = {}
    for kind, count in counts.items():
        texts = Texts.of([f"é{at}" for at in range(count)])
        nodes[kind] = Nodes(count, {"x": random.normal(size=(count, 2)), "id": texts})
    edges = {}
    for relation in draw(st.lists(st.sampled_from(["cites", "writes"]), unique=True)):
        ends = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
        size = draw(st.integers(0, 6)) if min(counts[end] for end in ends) else 0
        key, query = (random.integers(0, max(1, counts[end]), size) for end in ends)
        edges[ends[0], relation, ends[1]] = Edges(key, query, {"year": np.arange(size)})
    return GraphData("any", nodes, edges, {"train/edge": np.empty((0, 2), int)}, {"source": "here"})


@settings(deadline=None, max_examples=20)
@given(graphs())
def test_a_stored_graph_equals_the_original(graph):
    with tempfile.TemporaryDirectory() as folder:
        stored = graph.save(Path(folder, "g"))
        assert stored.folder == Path(folder, "g")
        assert_same(stored, graph)
        del stored


def test_a_graph_is_stored_and_opened_by_its_name(cache):
    ring().save()
    assert stored_names() == ["ring"]
    assert store_folder() == cache / "store"
    assert_same(open_graph("ring", verify=True), ring())
    with pytest.raises(FolderError, match="exists already"):
        ring().save()
    ring(8).save(replace=True)
    assert open_graph("ring").num_nodes == 8


def test_a_folder_without_a_graph_does_not_hide_the_stored_one_of_its_name(tmp_path, monkeypatch):
    ring().save()
    (tmp_path / "ring").mkdir()
    monkeypatch.chdir(tmp_path)
    assert open_graph("ring").num_nodes == 6


@pytest.mark.parametrize("name", ["", "../ring", "a/b", ".hidden", "a b"])
def test_an_invalid_name_is_refused(name):
    with pytest.raises(ValueError, match="a graph's name must consist of letters"):
        ring(name=name).save()


def test_the_error_for_an_unknown_graph_lists_the_stored_ones():
    with pytest.raises(FolderError, match=r"no stored graph 'nope'; .* has none"):
        open_graph("nope")
    ring().save()
    with pytest.raises(FolderError, match=r"no stored graph 'nope'; .* has ring"):
        open_graph("nope")


def test_a_graph_without_its_edge_array_is_an_error():
    path = ring().save().folder
    listing = json.loads((path / folders.LIST).read_text())
    del listing["arrays"][f"edges/{'__'.join(EDGE)}/key_index.npy"]
    listing["sha256"] = folders._list_sum(listing)
    (path / folders.LIST).write_text(json.dumps(listing))
    with pytest.raises(FolderError, match="is not a graph that dynagat wrote"):
        open_graph("ring")


def test_arrays_must_have_a_row_for_each_node_and_edge():
    with pytest.raises(ValueError, match="x of nodes node must have 3 rows, but has 2"):
        GraphData("g", {NODE: Nodes(3, {"x": np.ones((2, 1))})}, {})
    edges = Edges(np.arange(2), np.arange(3))
    with pytest.raises(ValueError, match="query_index of edges node-to-node must have 2 rows"):
        GraphData("g", {NODE: Nodes(3)}, {EDGE: edges})
    with pytest.raises(ValueError, match="need nodes of type 'author', which are missing"):
        GraphData("g", {NODE: Nodes(3)}, {(NODE, "by", "author"): Edges(*np.zeros((2, 0), int))})


def test_symmetric_has_each_edge_once_in_both_directions():
    pairs = {(0, 1), (1, 0), (2, 1), (3, 3)}
    key, query = np.array([*pairs, (2, 1)]).T
    data = GraphData("g", {NODE: Nodes(4)}, {EDGE: Edges(key, query)}).symmetric()
    edges = data.sole_edges
    found = list(zip(edges.key_index.tolist(), edges.query_index.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == pairs | {(b, a) for a, b in pairs}


def test_the_graph_of_stored_edges_equals_that_of_edges_in_memory():
    stored = ring().save().graph()
    plain = ring().graph()
    for name in ("rowptr", "key_index"):
        assert torch.equal(getattr(stored, name).long(), getattr(plain, name).long())


def test_one_relation_is_selected_by_name():
    data = ring()
    kinds = {"node": data.nodes[NODE], "author": Nodes(2)}
    writes = Edges(np.array([0, 1]), np.array([5, 0]))
    both = replace(data, nodes=kinds, edges={**data.edges, ("author", "writes", NODE): writes})
    assert both.num_edges == 8
    with pytest.raises(ValueError, match=r"has edges of several types: .*; pick with only"):
        both.graph()
    assert both.only("to").num_edges == 6
    with pytest.raises(ValueError, match="has no edges node-cites-node; it has node-to-node"):
        both.only("cites")


def test_the_environment_says_where_to_search_for_files(monkeypatch, tmp_path, cache):
    monkeypatch.delenv("DYNAGAT_DATA", raising=False)
    assert raw_folders("cora") == [cache / "raw" / "cora"]
    monkeypatch.setenv("DYNAGAT_DATA", str(tmp_path))
    assert raw_folders("cora") == [tmp_path / "cora", cache / "raw" / "cora"]
