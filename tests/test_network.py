"""Network: the whole graph, samples of it and layer-wise inference give the same numbers."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv as PygGCNConv

from dynagat import Graph
from dynagat.benchmarks.own_graph import NodeNetwork
from dynagat.nn.dropout import Dropout
from dynagat.nn.gcn import GCNConv, sum_keys
from dynagat.nn.network import (
    ATTENTION,
    BASELINES,
    MECHANISMS,
    Layer,
    Neighbourhood,
    Network,
    degrees,
    make_conv,
)
from dynagat.prediction.nodes import infer_nodes

N = 60
every_attention = pytest.mark.parametrize("mechanism", ATTENTION)
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def random_edges(num_nodes=N, num_edges=400, seed=0):
    """[2, E]: in both directions, without self-loops, shuffled."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    both = torch.cat([edge_index, edge_index.flip(0)], 1).unique(dim=1)
    return both[:, torch.randperm(both.shape[1], generator=generator)]


def random_graph(num_nodes=N, num_edges=400, seed=0):
    edge_index = random_edges(num_nodes, num_edges, seed)
    return edge_index, Graph.from_edge_index(edge_index, num_nodes, self_loops=True)


def part(graph, queries):
    """Nodes and a graph with all keys of some queries, which are the first of the keys.

    Also the edge numbers that its edges have in the whole graph.
    """
    query = graph.query_index.long()
    is_kept = torch.isin(query, queries)
    key, edge = graph.key_index.long()[is_kept], graph.edge_id.long()[is_kept]
    relation = graph.relation[is_kept] if graph.num_relations > 1 else None
    others = key.unique()
    nodes = torch.cat([queries, others[~torch.isin(others, queries)]])
    position = torch.empty(graph.num_queries, dtype=torch.long)
    position[nodes] = torch.arange(len(nodes))
    some = Graph.from_edges(
        position[query[is_kept]],
        position[key],
        len(queries),
        len(nodes),
        relation=relation,
        num_relations=graph.num_relations,
    )
    return nodes, some, edge


def two_parts(graph, seeds, edge_attr=None):
    """The nodes and the two neighbourhoods that two layers need for the seeds."""
    inner_nodes, inner, inner_edge = part(graph, seeds)
    nodes, outer, outer_edge = part(graph, inner_nodes)
    assert torch.equal(nodes[: len(inner_nodes)], inner_nodes)
    degree = degrees(graph)[nodes]
    near = [
        Neighbourhood(each, degree[: each.num_keys], None if edge_attr is None else edge_attr[edge])
        for each, edge in ((outer, outer_edge), (inner, inner_edge))
    ]
    return nodes, near


def node_network(mechanism):
    problem = SimpleNamespace(x=torch.empty(1, 6), out_dim=3)
    return NodeNetwork(dim=8, heads=2, layers=2).build(problem, mechanism)


def two_layers(mechanism, **options):
    """6 -> 8 -> 4 features, in double precision."""
    conv = make_conv(mechanism, bias=True, **options)
    hidden = Layer(conv(6, 8, 2), skip=nn.Linear(6, 8), after=nn.ReLU())
    return Network([hidden, Layer(conv(8, 4, 1))]).double().eval()


def features(width, num_rows=N):
    return torch.randn(num_rows, width, dtype=torch.float64)


# GCN


def test_gcn_equals_pyg_in_values_and_gradients():
    edge_index, graph = random_graph()
    x = torch.randn(60, 5, dtype=torch.float64, requires_grad=True)
    theirs, ours = PygGCNConv(5, 3).double(), GCNConv(5, 3).double()
    ours.load_state_dict(theirs.state_dict())
    expected, out = theirs(x, edge_index), ours(x, graph)
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(expected)
    their_gradients = torch.autograd.grad((expected * weight).sum(), [x, *theirs.parameters()])
    our_gradients = torch.autograd.grad((out * weight).sum(), [x, *ours.parameters()])
    by_shape = {tuple(each.shape): each for each in our_gradients}
    for each in their_gradients:
        torch.testing.assert_close(by_shape[tuple(each.shape)], each)


def test_sum_keys_has_the_right_gradient():
    _, graph = random_graph(12, 30)
    value = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: sum_keys(v, graph), value)


def test_gcn_on_a_sample_needs_the_degrees():
    _, graph = random_graph()
    nodes, some, _ = part(graph, torch.arange(5))
    with pytest.raises(ValueError, match="degree is missing"):
        GCNConv(4, 2)(torch.randn(len(nodes), 4), some)


def test_gcn_on_sampled_keys_is_unbiased():
    """A sum over n of d keys is scaled by d / n."""
    _, graph = random_graph(30, 200)
    conv, x = GCNConv(4, 2).double(), torch.randn(30, 4, dtype=torch.float64)
    whole = conv(x, graph)[:1]
    keys = graph.key_index[: graph.rowptr[1]].long()
    outputs = []
    for left_out in keys:  # every sample that lacks one key
        kept = keys[keys != left_out]
        some = Graph.from_edges(torch.zeros(len(kept), dtype=torch.long), kept, 1, 30)
        outputs.append(conv(x, some, degrees(graph)))
    torch.testing.assert_close(torch.stack(outputs).mean(0), whole)


# Samples


@every_mechanism
def test_a_network_on_samples_of_all_keys_equals_the_network_on_the_whole_graph(mechanism):
    _, graph = random_graph()
    network, x = node_network(mechanism).double().eval(), features(6)
    seeds = torch.tensor([3, 50, 7])
    nodes, near = two_parts(graph, seeds)
    torch.testing.assert_close(network(x[nodes], near), network(x, graph)[seeds])


@every_mechanism
def test_a_graph_can_be_passed_as_a_neighbourhood_or_once_for_each_layer(mechanism):
    _, graph = random_graph()
    network, x = node_network(mechanism).eval(), torch.randn(N, 6)
    expected = network(x, graph)
    for edges in (Neighbourhood(graph), [graph, graph], [Neighbourhood(graph), graph]):
        torch.testing.assert_close(network(x, edges), expected, rtol=0, atol=0)


@every_mechanism
def test_dropout_is_for_training_only(mechanism):
    _, graph = random_graph()
    network, x = node_network(mechanism), torch.randn(N, 6)
    assert not torch.equal(network(x, graph), network(x, graph))
    network.eval()
    torch.testing.assert_close(network(x, graph), network(x, graph), rtol=0, atol=0)


def test_the_degree_of_a_node_counts_its_edges_of_all_relations():
    query, key = torch.tensor([0, 0, 0, 2]), torch.tensor([1, 2, 2, 0])
    relation = torch.tensor([0, 1, 0, 1])
    graph = Graph.from_edges(query, key, 3, relation=relation, num_relations=2)
    assert degrees(graph).tolist() == [3, 0, 1]


# Edge features


@every_attention
def test_edge_features_are_in_the_order_of_the_callers_edges(mechanism):
    edge_index = random_edges()
    graph = Graph.from_edge_index(edge_index, N)
    assert not torch.equal(graph.edge_id.long(), torch.arange(graph.num_edges))
    edge_attr, x = features(3, graph.num_edges), features(6)
    layer = Layer(make_conv(mechanism, edge_dim=3)(6, 8, 2)).double()
    out = layer(x, Neighbourhood(graph, edge_attr=edge_attr))
    torch.testing.assert_close(out, layer.conv(x, edge_index, edge_attr=edge_attr))
    other = layer(x, Neighbourhood(graph, edge_attr=edge_attr.flip(0)))
    assert not torch.allclose(out, other)


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_pyg_layers_get_the_same_edge_features(mechanism):
    graph = Graph.from_edge_index(random_edges(), N)
    near = Neighbourhood(graph, edge_attr=features(3, graph.num_edges))
    x, networks = features(6), {}
    for source in ("dynagat", "pyg"):
        networks[source] = two_layers(mechanism, edge_dim=3, source=source)
    state = networks["dynagat"].state_dict()
    state = {name.replace("conv.", "conv.conv."): each for name, each in state.items()}
    networks["pyg"].load_state_dict(state)
    torch.testing.assert_close(networks["pyg"](x, near), networks["dynagat"](x, near))


@every_attention
def test_a_network_with_edge_features_gives_the_same_on_samples_of_all_keys(mechanism):
    graph = Graph.from_edge_index(random_edges(), N)
    edge_attr, x = features(3, graph.num_edges), features(6)
    network, seeds = two_layers(mechanism, edge_dim=3), torch.tensor([3, 50, 7])
    nodes, near = two_parts(graph, seeds, edge_attr)
    whole = network(x, Neighbourhood(graph, edge_attr=edge_attr))
    torch.testing.assert_close(network(x[nodes], near), whole[seeds])


@every_attention
def test_gradients_reach_edge_features(mechanism):
    graph = Graph.from_edge_index(random_edges(12, 30), 12)
    edge_attr, x = features(2, graph.num_edges).requires_grad_(), features(6, 12)
    network = two_layers(mechanism, edge_dim=2)
    assert torch.autograd.gradcheck(
        lambda attr: network(x, Neighbourhood(graph, edge_attr=attr)), edge_attr
    )


# Relations


def relational(num_relations=3):
    edge_index = random_edges()
    relation = torch.randint(num_relations, edge_index[0].shape)
    options = {"relation": relation, "num_relations": num_relations}
    return edge_index, relation, Graph.from_edge_index(edge_index, N, **options)


@every_attention
def test_relations_with_equal_weights_are_one_relation(mechanism):
    edge_index, _, graph = relational()
    one, three = two_layers(mechanism), two_layers(mechanism, num_relations=3)
    with torch.no_grad():
        for name, weight in three.named_parameters():
            source = one.get_parameter(name)
            times = weight.shape[0] // source.shape[0]
            weight.copy_(source.repeat(times, *[1] * (source.dim() - 1)))
    x = features(6)
    expected = one(x, Graph.from_edge_index(edge_index, N))
    torch.testing.assert_close(three(x, graph), expected)


@every_attention
def test_every_relation_has_weights_of_its_own(mechanism):
    """Renumbering the relations renumbers their weights; and the relations matter."""
    edge_index, relation, graph = relational()
    network, renumbered = (two_layers(mechanism, num_relations=3) for _ in range(2))
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        for name, weight in renumbered.named_parameters():
            source = network.get_parameter(name)
            if "conv" in name and not name.endswith("conv.bias"):
                source = source.unflatten(0, (3, -1))[order].flatten(0, 1)
            weight.copy_(source)
    options = {"relation": order.argsort()[relation], "num_relations": 3}
    other, x = Graph.from_edge_index(edge_index, N, **options), features(6)
    torch.testing.assert_close(renumbered(x, other), network(x, graph))
    assert not torch.allclose(network(x, other), network(x, graph))


@pytest.mark.parametrize("edge_dim", [None, 3])
@every_attention
def test_a_network_with_relations_gives_the_same_on_samples_of_all_keys(mechanism, edge_dim):
    _, _, graph = relational()
    edge_attr = features(edge_dim, graph.num_edges) if edge_dim else None
    network = two_layers(mechanism, num_relations=3, edge_dim=edge_dim)
    x, seeds = features(6), torch.tensor([3, 50, 7])
    nodes, near = two_parts(graph, seeds, edge_attr)
    whole = network(x, Neighbourhood(graph, edge_attr=edge_attr))
    torch.testing.assert_close(network(x[nodes], near), whole[seeds])


# Embedding and readout


class MeanOfGraphs(nn.Module):
    """W mean of x over the nodes of each graph + b."""

    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x, graph_index, num_graphs):
        total = x.new_zeros(num_graphs, x.shape[1]).index_add(0, graph_index, x)
        count = torch.bincount(graph_index, minlength=num_graphs)
        return self.linear(total / count[:, None])


@every_mechanism
def test_a_network_embeds_its_input_and_reads_out_with_further_inputs(mechanism):
    _, graph = random_graph()
    conv = make_conv(mechanism)
    embedding, readout = nn.Embedding(10, 6), MeanOfGraphs(4, 2)
    network = Network([Layer(conv(6, 4, 2))], embedding=embedding, readout=readout).eval()
    kind, graph_index = torch.randint(10, (N,)), torch.arange(N) % 5
    encoded = network.layers[0](embedding(kind), graph)
    torch.testing.assert_close(network.encode(kind, graph), encoded)
    out = network(kind, graph, graph_index, 5)
    torch.testing.assert_close(out, readout(encoded, graph_index, 5))
    assert out.shape == (5, 2)
    out.sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
    assert embedding.weight.grad.abs().sum() > 0


@every_mechanism
def test_layer_wise_inference_embeds_and_reads_out(mechanism):
    edges = Graph.from_edge_index(random_edges(), N)
    conv = make_conv(mechanism)
    layers = Layer(conv(6, 8, 2), after=Dropout(0.5)), Layer(conv(8, 4, 1))
    network = Network(layers, embedding=nn.Embedding(10, 6), readout=nn.Linear(4, 2)).eval()
    kind = torch.randint(10, (N,))
    expected = network(kind, edges.with_self_loops())
    torch.testing.assert_close(infer_nodes(network, kind, edges, 7, self_loops=True), expected)


# Refusals


def test_a_network_needs_one_graph_for_each_layer():
    _, graph = random_graph()
    message = r"^edges must hold a graph for each of 2 layers, but hold 1$"
    with pytest.raises(ValueError, match=message):
        node_network("gat")(torch.randn(N, 6), [graph])


def test_an_unknown_mechanism_is_refused():
    message = r"^mechanism must be one of gcn, gin, sage, gat, gatv2, dpgat, but is 'mlp'$"
    with pytest.raises(ValueError, match=message):
        make_conv("mlp")


def test_sage_takes_no_relations():
    message = "^there is no layer with relations for 'sage' of dynagat$"
    with pytest.raises(ValueError, match=message):
        make_conv("sage", num_relations=2)


@pytest.mark.parametrize("mechanism", BASELINES)
def test_mechanisms_without_attention_take_no_edge_features(mechanism):
    with pytest.raises(
        ValueError, match=f"^there is no layer with edge features for '{mechanism}'$"
    ):
        make_conv(mechanism, edge_dim=3)


@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "gin", "sage"])
def test_pyg_layers_take_no_relations(mechanism):
    message = f"^there is no layer with relations for '{mechanism}' of pyg$"
    with pytest.raises(ValueError, match=message):
        make_conv(mechanism, num_relations=2, source="pyg")


@every_attention
def test_a_layer_without_edge_dim_refuses_edge_features_and_the_reverse(mechanism):
    _, graph = random_graph()
    x, edge_attr = features(6), features(3, graph.num_edges)
    with pytest.raises(ValueError, match="edge_attr was given, but the layer"):
        two_layers(mechanism)(x, Neighbourhood(graph, edge_attr=edge_attr))
    with pytest.raises(ValueError, match="edge_attr is missing, but the layer has edge_dim=3"):
        two_layers(mechanism, edge_dim=3)(x, graph)
