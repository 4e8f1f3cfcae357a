"""Tables of only the rows that edges use: the same results as with all rows."""

import pytest
import torch

from dynagat import DPGATConv, GATConv, GATv2Conv, Graph, ops
from dynagat.nn.relational import RGCNConv, RGINConv
from dynagat.ops import fused, reference
from dynagat.ops.head_scores import with_scores
from dynagat.ops.project import take_rows
from dynagat.used_rows import UsedRows

NODES, RELATIONS, HEADS, CHANNELS = 40, 5, 2, 3
LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
every_mechanism = pytest.mark.parametrize("mechanism", LAYERS)


def made_graph(queries=NODES, keys=NODES):
    """Most nodes have edges of some relations only; one has more edges than a task holds."""
    generator = torch.Generator().manual_seed(0)
    many = 9000
    query = torch.cat([torch.randint(queries, (60,), generator=generator), torch.full((many,), 3)])
    key = torch.randint(keys, (60 + many,), generator=generator)
    relation = torch.cat([torch.randint(RELATIONS, (60,), generator=generator), key[60:] % 2])
    return Graph.from_edges(query, key, queries, keys, relation=relation, num_relations=RELATIONS)


def on_all_rows(mechanism, layer, x_key, x_query, graph):
    op, tables = getattr(ops, mechanism), layer.project(x_key, x_query)
    if mechanism == "gatv2":
        query, key, value = tables
        return op(query, key, layer.att, graph, value=value)[0].flatten(-2)
    return op(*tables, graph)[0].flatten(-2)


@every_mechanism
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_layer_gives_the_same_with_used_rows_as_with_all(mechanism, is_shared):
    torch.manual_seed(0)
    options = {} if mechanism == "gat" else {"share_weights": is_shared}
    layer = LAYERS[mechanism](
        4, CHANNELS, HEADS, bias=False, num_relations=RELATIONS, **options
    ).double()
    for graph in (made_graph(), made_graph(queries=25)):
        x = torch.randn(NODES, 4, dtype=torch.float64, requires_grad=True)
        pair = x if graph.num_queries == NODES else (x, x[: graph.num_queries])
        out = layer(pair, graph)
        expected = on_all_rows(mechanism, layer, x, x[: graph.num_queries], graph)
        assert torch.allclose(out, expected, atol=1e-12)
        weight, leaves = torch.randn_like(out), [x, *layer.parameters()]
        found, wanted = (torch.autograd.grad((each * weight).sum(), leaves, allow_unused=True)
                         for each in (out, expected))  # fmt: skip
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one, other, atol=1e-11)


@pytest.mark.parametrize(("width", "is_read"), [(4, True), (3, False)])
def test_gat_takes_its_scores_from_the_values_of_used_rows_where_that_is_cheaper(
    width, is_read, monkeypatch
):
    """Where x is more than half as wide as the values; the queries' x is that of the keys."""
    calls = []

    def record(*given):
        calls.append(given)
        return with_scores(*given)

    monkeypatch.setattr("dynagat.nn.gat.with_scores", record)
    layer = GATConv(width, CHANNELS, HEADS, num_relations=RELATIONS)
    x = torch.randn(NODES, width)
    layer(x, made_graph())
    assert len(calls) == is_read
    layer((x, x[:25]), made_graph(queries=25))
    assert len(calls) == is_read


def test_queries_with_a_matrix_of_their_own_keep_it_if_they_are_the_keys():
    layer = GATConv((4, 4), CHANNELS, HEADS, bias=False, num_relations=RELATIONS).double()
    graph, x = made_graph(), torch.randn(NODES, 4, dtype=torch.float64)
    expected = on_all_rows("gat", layer, x, x, graph)
    assert torch.allclose(layer((x, x), graph), expected, atol=1e-12)


def test_used_rows_are_sorted_by_relation_then_node():
    is_used = torch.tensor([[True, False], [True, True], [False, False], [False, True]])
    rows = UsedRows.where(is_used)
    assert rows.node.tolist() == [0, 1, 1, 3]
    assert rows.offset == (0, 2, 4)
    assert rows.number.view(4, 2).tolist() == [[0, -1], [1, 2], [-1, -1], [-1, 3]]
    assert len(rows) == 4


def test_queries_and_keys_have_the_same_rows_if_they_are_as_many():
    graph = made_graph().compact
    assert graph.used_query_rows is graph.used_key_rows
    assert len(graph.used_key_rows) < NODES * RELATIONS
    pair = made_graph(queries=25).compact
    assert len(pair.used_query_rows) < len(pair.used_key_rows)


@every_mechanism
def test_fused_and_reference_agree_on_a_compact_graph(mechanism):
    graph = made_graph().compact
    torch.manual_seed(1)
    shape = (len(graph.used_key_rows), HEADS, CHANNELS)
    scores = shape[:2] if mechanism == "gat" else shape
    a = [torch.randn(RELATIONS, HEADS, CHANNELS)] if mechanism == "gatv2" else []
    value = [] if mechanism == "gatv2" else [torch.randn(shape)]
    inputs = [each.double() for each in (torch.randn(scores), torch.randn(scores), *a, *value)]
    one, other = (getattr(each, mechanism)(*inputs, graph)[0] for each in (fused, reference))
    assert torch.allclose(one, other, atol=1e-12)


@every_mechanism
@pytest.mark.parametrize("bad", [10**6, -1])
def test_rows_outside_the_tables_are_an_error(mechanism, bad):
    graph = made_graph().compact
    layer = LAYERS[mechanism](4, CHANNELS, HEADS, num_relations=RELATIONS)
    x = torch.randn(NODES, 4, requires_grad=True)
    graph.used_key_rows.number[3 * RELATIONS] = bad  # node 3 is a hub
    with pytest.raises(ValueError, match="rows holds an index that is out of range"):
        layer(x, graph)


def test_sums_of_rows_outside_the_table_are_an_error():
    x = torch.randn(2, 3, requires_grad=True)
    rows = UsedRows.where(torch.tensor([[True, True], [False, True]]))
    out = torch.ops.aten.index_select(x, 0, rows.node)
    assert torch.equal(take_rows(x, rows), out)
    taken = take_rows(x, rows)
    rows.number[0] = 9
    with pytest.raises(ValueError, match="a row is outside the table"):
        taken.sum().backward()


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_layers_without_attention_compute_their_formula(kind):
    torch.manual_seed(0)
    graph, x = made_graph(), torch.randn(NODES, 4)
    is_gcn, act = kind == "gcn", torch.nn.ELU()
    layer = RGCNConv(4, 6, RELATIONS) if is_gcn else RGINConv(4, 6, RELATIONS, act)
    query, key, relation = (
        each.tolist() for each in (graph.query_index, graph.key_index, graph.relation)
    )
    total = torch.zeros(NODES, 6)
    for i, j, r in zip(query, key, relation, strict=True):
        if is_gcn:
            count = int(graph.rowptr.diff()[i * RELATIONS + r])
            total[i] += layer.weight[r] @ x[j] / (count + 1e-7)
        else:
            total[i] += act(layer.second[r] @ act(layer.first[r] @ x[j]))
    expected = total if is_gcn else layer.norm(act(total))
    assert torch.allclose(layer(x, graph), expected, atol=1e-3 if kind == "gin" else 1e-5)
