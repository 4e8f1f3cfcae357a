"""Graph.reordered: neighbours come close, and results are the same in the caller's order."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from dynagat import DPGATConv, GATConv, GATv2Conv, Graph
from dynagat.locality import Reordered

N, E = 40, 150
LAYERS = [GATConv, GATv2Conv, DPGATConv]


def random_edges(num_nodes=N, num_edges=E):
    """With duplicates, self-loops, and isolated nodes at the end."""
    return torch.randint(0, num_nodes - 5, (2, num_edges))


def results(layer, x, edges, ordered: Reordered[Graph] | None = None, **options):
    """Output, attention weights with their edges, and gradients, in the caller's order."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    inputs = x if ordered is None else ordered.permute(x)
    out, weights = layer(inputs, edges, return_attention_weights=True, **options)
    if ordered is not None:
        out, weights = ordered.restore(out), ordered.restore_weights(*weights)
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    return out, *weights, x.grad, *gradients


@pytest.mark.parametrize("features", [None, 3])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("Layer", LAYERS)
def test_results_are_the_same_in_the_callers_order(Layer, loops, features):
    layer = Layer(6, 4, heads=2, add_self_loops=loops, edge_dim=features).double()
    x, edges = torch.randn(N, 6).double(), random_edges()
    options = {} if features is None else {"edge_attr": torch.randn(E, features).double()}
    graph = Graph.from_edge_index(edges, N)
    ordered = graph.reordered()
    expected = results(layer, x, graph, **options)
    assert_close(results(layer, x, ordered.graph, ordered, **options), expected)
    assert_close(results(layer, x, edges, **options), expected)


@pytest.mark.parametrize("Layer", LAYERS)
def test_plain_calls_and_batches_give_the_same(Layer):
    layer, graph = Layer(6, 4, heads=2), Graph.from_edge_index(random_edges(), N)
    ordered = graph.reordered()
    for shape, axis in (((N, 6), 0), ((2, N, 6), -2)):
        x = torch.randn(shape)
        out = layer(ordered.permute(x, axis), ordered.graph)
        assert_close(ordered.restore(out, axis), layer(x, graph))


@pytest.mark.filterwarnings("ignore:Sparse")  # torch's: CSR is in beta state
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features_stay_sparse(layout):
    layer, graph = GATv2Conv(6, 4), Graph.from_edge_index(random_edges(), N)
    x, ordered = torch.randn(N, 6).relu(), graph.reordered()
    permuted = ordered.permute(x.to_sparse(layout=layout))
    assert permuted.layout == layout
    assert_close(permuted.to_dense(), ordered.permute(x))
    assert_close(ordered.restore(layer(permuted, ordered.graph)), layer(x, graph))


@pytest.mark.parametrize("Layer", LAYERS)
def test_relations_stay_with_their_edges(Layer):
    layer = Layer(6, 4, heads=2, num_relations=3).double()
    edges, relation = random_edges(), torch.randint(0, 3, (E,))
    graph = Graph.from_edge_index(edges, N, relation=relation, num_relations=3)
    ordered, x = graph.reordered(), torch.randn(N, 6).double()
    assert_close(results(layer, x, ordered.graph, ordered), results(layer, x, graph))


def test_self_loops_of_the_graph_itself_keep_their_edge_ids():
    graph = Graph.from_edge_index(random_edges(), N, self_loops=True)
    ordered, layer = graph.reordered(), GATv2Conv(6, 4, add_self_loops=False)
    assert ordered.graph.num_edges == graph.num_edges == E + N
    x = torch.randn(N, 6)
    assert_close(results(layer, x, ordered.graph, ordered), results(layer, x, graph))


def test_every_edge_is_there_with_its_id_and_rows_keep_the_callers_order():
    edges = random_edges()
    ordered = Graph.from_edge_index(edges, N).reordered()
    graph, at = ordered.graph, ordered.graph.edge_id.long()
    assert torch.equal(ordered.order[graph.key_index.long()], edges[0, at])
    assert torch.equal(ordered.order[graph.query_index.long()], edges[1, at])
    assert torch.equal(ordered.order[ordered.place], torch.arange(N))
    same_row = graph.row_index[1:] == graph.row_index[:-1]
    assert (at[1:] > at[:-1])[same_row].all()


def test_hidden_communities_come_together():
    """40 cliques of 25 nodes, shuffled, joined in a ring."""
    member = torch.arange(1000).view(40, 25)
    pairs = [torch.cartesian_prod(each, each) for each in member]
    ring = torch.stack([member[:, 0], member[:, 1].roll(1)], 1)
    edges = torch.randperm(1000)[torch.cat([*pairs, ring]).t()]
    ordered = Graph.from_edge_index(edges, 1000).reordered()
    key, query = ordered.place[edges]
    assert (key - query).abs().float().median() < 60
    assert (edges[0] - edges[1]).abs().float().median() > 200


def test_components_follow_each_other_whole_and_in_their_order():
    """Chains with shuffled numbers, some of one node; only the component of the hub comes first."""
    size = [1, 5, 2, 30, 1, 9]
    chain = torch.randperm(48).split(size)
    hub = torch.tensor([[48, 48, 48], [49, 50, 51]])
    edges = torch.cat([hub, *(torch.stack([c[:-1], c[1:]]) for c in chain)], 1)
    order = Graph.from_edge_index(edges, 52).reordered().order
    chains = sorted(chain, key=lambda each: int(each.min()))
    expected = [torch.arange(48, 52), *chains]
    parts = order.split([len(each) for each in expected])
    assert [sorted(part.tolist()) for part in parts] == [sorted(e.tolist()) for e in expected]


def test_the_search_starts_at_the_hub_and_visits_larger_degrees_first():
    """0 - 1 - 2 - 3 and 1 - 4 - 5, 4 - 6, whatever the direction of an edge is."""
    edges = torch.tensor([[0, 2, 2, 4, 5, 4, 1], [1, 1, 3, 1, 4, 6, 7]])
    assert Graph.from_edge_index(edges, 8).reordered().order.tolist() == [1, 4, 2, 0, 7, 5, 6, 3]


def test_the_order_is_remembered_for_each_graph():
    graph = Graph.from_edge_index(random_edges(), N)
    assert graph.reordered() is graph.reordered()
    other = dataclasses.replace(graph).reordered()
    assert other is not graph.reordered()
    assert torch.equal(other.order, graph.reordered().order)


@pytest.mark.parametrize("num_nodes", [0, 1, 7])
def test_graphs_without_edges_keep_their_order(num_nodes):
    ordered = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes).reordered()
    assert ordered.order.tolist() == ordered.place.tolist() == list(range(num_nodes))
    assert (ordered.graph.num_queries, ordered.graph.num_keys) == (num_nodes, num_nodes)
    edges, weights = ordered.restore_weights(torch.empty(2, 0).long(), torch.empty(0, 2))
    assert edges.shape == (2, 0)
    assert weights.shape == (0, 2)


def test_bad_arguments_are_refused_with_a_reason():
    edges = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="same nodes, but it has 4 queries and 3 keys"):
        Graph.from_edge_index(edges, (3, 4)).reordered()
    with pytest.raises(ValueError, match="before with_query_rows"):
        Graph.from_edge_index(edges, 3).with_query_rows(torch.tensor([0, 0, 1]), 2).reordered()
    ordered = Graph.from_edge_index(edges, 3).reordered()
    with pytest.raises(ValueError, match=r"each of the 3 nodes on axis 0, .* shape \[4, 2\]"):
        ordered.permute(torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"on axis 2, but have shape \[3\]"):
        ordered.restore(torch.randn(3), 2)


def test_an_order_from_inference_mode_serves_training_too():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    with torch.inference_mode():
        graph.reordered()
    x = torch.randn(3, 2, requires_grad=True)
    graph.reordered().permute(x).sum().backward()
    assert x.grad is not None
