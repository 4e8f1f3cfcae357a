"""The paper's statistics of data sets, beside those computed from the data that are here."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from typer.testing import CliRunner

from dynagat.benchmarks.data_tables import PRINTED, computed
from dynagat.cli import app
from dynagat.data.distances import SimpleGraph, least_diameter, molecule_diameters
from dynagat.data.molecules import BOND, GRAPH
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes


def graph(pairs, count, split=None):
    key, query = np.array(pairs, np.int32).reshape(-1, 2).T
    return GraphData("g", {NODE: Nodes(count, {})}, {EDGE: Edges(key, query)}, split or {}, {})


def exact_diameter(pairs, count):
    """The largest finite distance, by scipy."""
    ends = np.array(pairs).reshape(-1, 2).T
    matrix = coo_array((np.ones(len(pairs)), (ends[0], ends[1])), shape=(count, count))
    distances = shortest_path(matrix.tocsr(), directed=False, unweighted=True)
    return int(distances[np.isfinite(distances)].max())


def test_loops_and_repeated_edges_in_both_directions_count_once():
    simple = SimpleGraph.of(graph([(0, 1), (1, 0), (0, 1), (1, 2), (2, 2)], 4))
    assert simple.degree == 2 * 2 / 4
    assert [level.tolist() for level in simple.levels(0)] == [[0], [1], [2]]


def test_links_of_all_parts_are_edges_of_link_prediction():
    links = {"valid/edge": np.array([[2, 3]]), "test/edge": np.array([[3, 4]])}
    assert least_diameter(SimpleGraph.of(graph([(0, 1), (1, 2)], 5, links))) == 4


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.integers(2, 9), st.data())
def test_the_bound_is_never_above_the_diameter_and_reaches_it_on_trees(count, data):
    node = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), min_size=1, max_size=12))
    assert least_diameter(SimpleGraph.of(graph(pairs, count))) <= exact_diameter(pairs, count)
    tree = [(data.draw(st.integers(0, node - 1)), node) for node in range(1, count)]
    assert least_diameter(SimpleGraph.of(graph(tree, count))) == exact_diameter(tree, count)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.data())
def test_diameters_of_small_graphs_are_exact(sizes, data):
    every, pairs, expected = [], [], []
    for size in sizes:
        node = st.integers(0, size - 1)
        own = data.draw(st.lists(st.tuples(node, node), max_size=8))
        expected.append(exact_diameter(own, size) if own else 0)
        pairs += [(a + sum(every), b + sum(every)) for a, b in own]
        every.append(size)
    key, query = np.array(pairs, np.int32).reshape(-1, 2).T
    arrays = {"num_nodes": np.array(sizes), "num_edges": np.zeros(len(sizes), np.int64)}
    nodes = {NODE: Nodes(sum(sizes), {}), GRAPH: Nodes(len(sizes), arrays)}
    molecules = GraphData("m", nodes, {BOND: Edges(key, query)}, {}, {})
    assert molecule_diameters(molecules).tolist() == expected


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    monkeypatch.delenv("DYNAGAT_DATA", raising=False)


def describe(*words, code=0):
    done = CliRunner().invoke(app, ["data", "describe", *words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_data_that_are_not_here_have_printed_numbers_only(nothing_here):
    text = describe("--paper").stdout
    assert "ogbn-mag" in text
    assert "1,939,743" in text
    assert " here " not in text.split("\n\n")[0].replace("not here", "")
    (printed, own) = map(
        json.loads, describe("ogbl-collab", "--paper", "--json").stdout.split("\n")[:2]
    )
    assert (printed["degree"], printed["diameter"], printed["source"]) == ("8.2", "22", "paper")
    assert (own["source"], own["nodes"]) == ("not here", "–")
    assert {name for name in PRINTED if f"\n{name} " in text} == set(PRINTED)


def test_unknown_names_and_no_name_are_refused(nothing_here):
    message = describe("cora", "--paper", code=2).stderr
    assert "the paper has no statistics of 'cora'; it has those of ogbn-arxiv" in message
    assert "name a graph to describe, or use --paper" in describe(code=2).stderr


@pytest.mark.data
def test_the_molecules_are_as_printed(tmp_path, monkeypatch):
    """The training part here has 22 molecules more than the paper's."""
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    own = {sizes.part: sizes for sizes in computed("qm9")}
    for printed in PRINTED["qm9"]:
        sizes = own[printed.part]
        assert (round(sizes.nodes, 2), round(sizes.edges, 2)) == (printed.nodes, printed.edges)
        assert round(sizes.diameter, 2) == printed.diameter
