"""The network is one: whole graph, parts of it, and layer by layer give the same numbers."""

import pytest
import torch
from torch_geometric.nn import GCNConv as PygGCNConv

from dynagat import Graph
from dynagat.nn.gcn import GCNConv, sum_keys
from dynagat.nn.network import MECHANISMS, degrees, make_network


def random_graph(num_nodes=60, num_edges=400, seed=0, self_loops=True):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    both = torch.cat([edge_index, edge_index.flip(0)], 1).unique(dim=1)
    return both, Graph.from_edge_index(both, num_nodes, self_loops=self_loops)


def part(graph, queries):
    """All keys of some queries: the queries are the first of the keys."""
    query = graph.query_index.long()
    kept = torch.isin(query, queries)
    key = graph.key_index.long()[kept]
    others = key.unique()
    nodes = torch.cat([queries, others[~torch.isin(others, queries)]])
    place = torch.empty(graph.num_queries, dtype=torch.long)
    place[nodes] = torch.arange(len(nodes))
    return nodes, Graph.from_edges(place[query[kept]], place[key], len(queries), len(nodes))


def test_gcn_equals_pyg_in_values_and_gradients():
    edge_index, graph = random_graph()
    x = torch.randn(60, 5, dtype=torch.float64, requires_grad=True)
    theirs, ours = PygGCNConv(5, 3).double(), GCNConv(5, 3).double()
    ours.load_state_dict(theirs.state_dict())
    expected, found = theirs(x, edge_index), ours(x, graph)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weight).sum(), [x, *theirs.parameters()])
    given = torch.autograd.grad((found * weight).sum(), [x, *ours.parameters()])
    by_shape = {tuple(each.shape): each for each in given}
    for each in wanted:
        torch.testing.assert_close(by_shape[tuple(each.shape)], each)


def test_sum_keys_has_the_right_gradient():
    _, graph = random_graph(12, 30)
    value = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: sum_keys(v, graph), value)


def test_gcn_of_a_part_needs_the_degrees():
    _, graph = random_graph()
    nodes, some = part(graph, torch.arange(5))
    with pytest.raises(ValueError, match="degree is missing"):
        GCNConv(4, 2)(torch.randn(len(nodes), 4), some)


def test_gcn_of_sampled_keys_is_right_on_average():
    """Each sum over a part of the keys is taken as many times as keys are missing."""
    _, graph = random_graph(30, 200)
    conv, x = GCNConv(4, 2).double(), torch.randn(30, 4, dtype=torch.float64)
    whole = conv(x, graph)[:1]
    keys = graph.key_index[: graph.rowptr[1]].long()
    found = []
    for left_out in keys:  # every part that lacks one key
        kept = keys[keys != left_out]
        some = Graph.from_edges(torch.zeros(len(kept), dtype=torch.long), kept, 1, 30)
        found.append(conv(x, some, degrees(graph)))
    torch.testing.assert_close(torch.stack(found).mean(0), whole)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_network_on_parts_equals_the_network_on_the_whole_graph(mechanism):
    _, graph = random_graph()
    network = make_network(mechanism, 6, 3, dim=8, heads=2).double().eval()
    x = torch.randn(60, 6, dtype=torch.float64)
    asked = torch.tensor([3, 50, 7])
    near, inner = part(graph, asked)
    nodes, outer = part(graph, near)
    assert torch.equal(nodes[: len(near)], near)
    found = network(x[nodes], [outer, inner], degrees(graph)[nodes])
    torch.testing.assert_close(found, network(x, graph)[asked])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_dropout_is_for_training_only(mechanism):
    _, graph = random_graph()
    network, x = make_network(mechanism, 6, 3, dim=8, heads=2), torch.randn(60, 6)
    assert not torch.equal(network(x, graph), network(x, graph))
    network.eval()
    torch.testing.assert_close(network(x, graph), network(x, graph), rtol=0, atol=0)


def test_a_network_refuses_what_does_not_fit():
    _, graph = random_graph()
    with pytest.raises(ValueError, match="one for each of 2 layers, but are 1"):
        make_network("gat", 6, 3, dim=8, heads=2)(torch.randn(60, 6), [graph])
    with pytest.raises(
        ValueError, match="must be one of gcn, gin, sage, gat, gatv2, dpgat, but is 'mlp'"
    ):
        make_network("mlp", 6, 3)
