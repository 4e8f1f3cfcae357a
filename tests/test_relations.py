"""How much attention each relation gets, and its table in the microscope's text."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import nn as pyg

from dynagat import GATv2Conv, capture, how_attentive
from dynagat.analysis import subset
from dynagat.analysis.glance import glance
from dynagat.graph import Graph

N, R = 4, 4
# query, key, relation; node 3 has three edges, two of them parallel; no edge has relation 3
EDGES = torch.tensor([(0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 1, 2), (3, 0, 1), (3, 0, 2), (3, 1, 2)])
QUERY, KEY, RELATION = EDGES.T
GRAPH = Graph.from_edges(QUERY, KEY, N, relation=RELATION, num_relations=R).with_self_loops()
NAMES = ("self-loop", "single", "double", "triple")


def by_hand(layer, x):
    """{relation: attention} per head: the mean over queries of the weights of its edges."""
    _, (edges, weight) = layer(x, GRAPH, None, True)
    ends = list(zip(*edges.tolist(), strict=True))  # of the caller's edges, then of the loops
    relation = RELATION.tolist() + [0] * N
    assert ends == [(k, q) for q, k, _ in EDGES.tolist()] + [(n, n) for n in range(N)]
    sums = torch.zeros(R, layer.heads)
    for r, row in zip(relation, weight.detach(), strict=True):
        sums[r] += row / N
    return sums.T.tolist()


def test_attention_by_relation_is_that_of_its_edges_and_sums_to_one():
    layer, x = GATv2Conv(3, 4, heads=2, num_relations=R), torch.randn(N, 3)
    (measured,) = how_attentive(layer, (x, GRAPH), relations=NAMES).layers
    assert measured.relations == NAMES
    # uniform: of nodes 0 and 2 1/2 each, of node 1 1/3, of node 3 1/4
    uniform = [(1 / 2 + 1 / 3 + 1 / 2 + 1 / 4) / 4, (1 / 2 + 1 / 3 + 1 / 4) / 4,
               (1 / 3 + 1 / 2 + 2 / 4) / 4, 0]  # fmt: skip
    for head, expected in zip(measured.heads, by_hand(layer, x), strict=True):
        assert [mass.attention.value for mass in head.by_relation] == pytest.approx(expected)
        assert [mass.uniform for mass in head.by_relation] == pytest.approx(uniform)
        assert sum(mass.attention.value for mass in head.by_relation) == pytest.approx(1)
        assert head.by_relation[0] == head.self_loops


def test_a_sample_keeps_the_relation_of_its_edges(monkeypatch):
    layer, x = GATv2Conv(3, 4, num_relations=R), torch.randn(N, 3)
    monkeypatch.setattr(subset, "MAX_EDGES", 4)
    with capture(layer, sample=0) as attention:
        layer(x, GRAPH)
    (view,) = attention.seen
    assert len(view.query) < len(EDGES) + N
    true = {(q, k, r) for q, k, r in EDGES.tolist()} | {(n, n, 0) for n in range(N)}
    rows = (each.tolist() for each in (view.query, view.key, view.relation))
    assert set(zip(*rows, strict=True)) <= true


def test_relations_are_named_in_the_table_in_records_and_at_a_glance():
    layer, given = GATv2Conv(3, 4, heads=2, num_relations=R), (torch.randn(N, 3), GRAPH)
    result = how_attentive(layer, given, relations=NAMES)
    header, first, _ = str(result).split("uniform weights:\n")[1].splitlines()[:3]
    assert header.split() == ["layer", "head", *NAMES]
    cells = [
        f"{mass.attention.value:.2f} ({mass.uniform:.2f})" for mass in result.heads[0].by_relation
    ]
    assert first.split()[2:] == " ".join(cells).split()
    (stored,) = result.to_dict()["layers"]
    (brief,) = glance(layer, given, relations=NAMES)["layers"]
    assert stored["relations"] == brief["relations"] == list(NAMES)
    masses = (each["heads"][1]["by_relation"][2]["uniform"] for each in (stored, brief))
    assert list(masses) == pytest.approx([1 / 3, 1 / 3], abs=1e-5)
    assert "relation 3" in str(how_attentive(layer, given))
    with pytest.raises(ValueError, match=r"relations must have 4 names, .* but has 2"):
        how_attentive(layer, given, relations=NAMES[:2])


def test_a_layer_without_relations_has_none():
    result = how_attentive(GATv2Conv(3, 4), (torch.randn(N, 3), torch.stack([KEY, QUERY])))
    assert result.layers[0].relations == result.heads[0].by_relation == ()
    assert "relation" not in str(result)


def test_relations_of_pygs_layer_are_measured():
    layer, given = pyg.RGATConv(3, 4, R), (torch.randn(N, 3), torch.stack([KEY, QUERY]), RELATION)
    (head,) = how_attentive(layer, given).heads
    assert [mass.uniform for mass in head.by_relation] == pytest.approx(
        [0, (1 + 1 / 2 + 0 + 1 / 3) / 4, (0 + 1 / 2 + 1 + 2 / 3) / 4, 0]
    )
