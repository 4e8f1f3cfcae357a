"""The network of DictionaryLookup equals the plain model on explicit graphs."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from dynagat import DPGATConv, GATConv, GATv2Conv
from dynagat.benchmarks import DICTIONARY_LOOKUP
from dynagat.benchmarks.dictionary_lookup.benchmark import LookupNetwork
from dynagat.benchmarks.dictionary_lookup.dictionary import make_dictionary
from dynagat.benchmarks.dictionary_lookup.network import (
    DictionaryNetwork,
    LookupGCN,
    LookupGIN,
    Lookups,
)
from dynagat.experiment import as_published
from dynagat.experiment.settings import as_stored

K, DIM = 4, 8
LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
every_attention = pytest.mark.parametrize("mechanism", LAYERS)
every_heads = pytest.mark.parametrize("heads", [1, 4])


def some_graphs() -> Tensor:  # [5, K]; the first and the last are equal
    values = [torch.randperm(K) for _ in range(4)]
    return torch.stack([*values, values[0]])


def network_of(layer: nn.Module, **options) -> DictionaryNetwork:
    network = DictionaryNetwork(K, layer, dim=DIM, **options).double()
    for parameter in network.parameters():  # no zeros, so that a missing bias shows
        nn.init.normal_(parameter)
    return network


def attention_layer(mechanism: str, heads: int = 1, bias: bool = False, **options) -> nn.Module:
    layer = LAYERS[mechanism]
    return layer(DIM, DIM // heads, heads=heads, bias=bias, add_self_loops=False, **options)


def explicit_nodes(values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attribute and value of every node, edges (key, query), and which nodes are queries.

    As in the released code, nodes 0..k-1 of a graph are its queries, and its keys follow.
    """
    attributes, contents, edges = [], [], []
    for index, held in enumerate(values.tolist()):
        first = 2 * K * index
        attributes += [*range(K), *range(K)]
        contents += [K] * K + held
        edges += [(first + K + key, first + query) for query in range(K) for key in range(K)]
    is_query = (torch.arange(len(attributes)) % (2 * K)) < K
    return torch.tensor(attributes), torch.tensor(contents), torch.tensor(edges).T, is_query


def explicit_logits(network: DictionaryNetwork, layer: nn.Module, values: Tensor, loops=False):
    attribute, value, edge_index, is_query = explicit_nodes(values)
    if loops:
        own = is_query.nonzero().T.expand(2, -1)
        edge_index = torch.cat([edge_index, own], dim=1)
    x = torch.relu(network.attribute(attribute) + network.value(value))
    return network.out(layer(x, edge_index)[is_query]).view(-1, K, K)


def peer_of(layer: nn.Module, mechanism: str, heads: int, bias: bool, loops: bool) -> nn.Module:
    """PyG's layer with the same parameters."""
    width, options = DIM // heads, {"heads": heads, "bias": bias, "add_self_loops": loops}
    if mechanism == "gat":
        peer = pyg.GATConv(DIM, width, **options).double()
    elif mechanism == "gatv2":
        peer = pyg.GATv2Conv(DIM, width, share_weights=layer.share_weights, **options).double()
    else:
        peer = pyg.TransformerConv(DIM, width, heads=heads, bias=False, root_weight=False).double()
        peer.lin_key, peer.lin_query, peer.lin_value = layer.lin_l, layer.lin_r, layer.lin_v
        return peer
    ours = dict(layer.named_parameters(remove_duplicate=False))
    theirs = dict(peer.named_parameters(remove_duplicate=False))
    assert set(ours) == set(theirs)
    for path, parameter in ours.items():
        owner, _, name = path.rpartition(".")
        setattr(peer.get_submodule(owner), name, parameter)
    return peer


def assert_same_logits_and_gradients(network, logits: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(logits, expected)
    parameters = dict(network.named_parameters())
    weight = torch.randn_like(logits)
    our_gradients, their_gradients = (
        torch.autograd.grad((each * weight).sum(), list(parameters.values()), allow_unused=True)
        for each in (logits, expected)
    )
    for name, ours, theirs in zip(parameters, our_gradients, their_gradients, strict=True):
        assert ours is not None, name
        assert ours.abs().sum() > 0, name
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")


# Equal to explicit graphs


@pytest.mark.parametrize("shared", [True, False])
@every_heads
@every_attention
def test_distinct_rows_give_pygs_logits_and_gradients(mechanism, heads, shared) -> None:
    options = {} if mechanism == "gat" else {"share_weights": shared}
    network, values = network_of(attention_layer(mechanism, heads, **options)), some_graphs()
    peer = peer_of(network.layer, mechanism, heads, bias=False, loops=False)
    expected = explicit_logits(network, peer, values)
    assert_same_logits_and_gradients(network, network(values), expected)


@every_heads
def test_gat_as_published_is_pygs_with_its_own_loops_and_bias(heads) -> None:
    layer = attention_layer("gat", heads, bias=True)
    network, values = network_of(layer, loops=True), some_graphs()
    peer = peer_of(layer, "gat", heads, bias=True, loops=True)
    assert_same_logits_and_gradients(
        network, network(values), explicit_logits(network, peer, values)
    )


@every_heads
@every_attention
def test_loops_are_edges_from_each_query_to_itself(mechanism, heads) -> None:
    network = network_of(attention_layer(mechanism, heads), loops=True)
    values = some_graphs()
    peer = peer_of(network.layer, mechanism, heads, bias=False, loops=False)
    expected = explicit_logits(network, peer, values, loops=True)
    assert_same_logits_and_gradients(network, network(values), expected)
    network.loops = False
    assert not torch.allclose(network(values), expected)


def test_gcn_is_pygs_on_the_explicit_graph() -> None:
    network, values = network_of(LookupGCN(DIM)), some_graphs()
    peer = pyg.GCNConv(DIM, DIM).double()
    peer.lin.weight, peer.bias = network.layer.linear.weight, network.layer.linear.bias
    expected = explicit_logits(network, peer, values)
    assert_same_logits_and_gradients(network, network(values), expected)


@pytest.mark.parametrize("training", [True, False])
def test_gin_is_pygs_on_the_explicit_graph(training) -> None:
    """Also in training, where batch normalisation uses queries and keys."""
    network, values = network_of(LookupGIN(DIM)).train(), some_graphs()
    network(values)  # so that running means and variances are not 0 and 1
    network.train(training)
    peer = pyg.GINConv(torch.nn.Sequential(network.layer.first, network.layer.rest), eps=0.0)
    expected = explicit_logits(network, peer, values)
    assert_same_logits_and_gradients(network, network(values), expected)


@pytest.mark.parametrize("mechanism", ["gatv2", "gat", "dpgat"])
def test_only_distinct_nodes_are_projected(mechanism) -> None:
    network, shapes = network_of(attention_layer(mechanism)), []
    network.layer.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
    network(torch.stack([torch.randperm(K) for _ in range(50)]))
    assert shapes == [(K * (K + 1), DIM)]


# Parameters


@pytest.mark.parametrize("k", [4, 10, 100])
def test_the_released_settings_have_the_parameter_counts_of_the_released_code(k) -> None:
    settings = as_published(DICTIONARY_LOOKUP.settings).network
    data = make_dictionary(k, seed=11, num_graphs=50)
    counts = {
        name: sum(p.numel() for p in settings.build(data, name).parameters())
        for name in ("gatv2", "gat")
    }
    assert counts == {"gatv2": 384 * k + 16_768, "gat": 384 * k + 17_024}


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_a_start_of_one_sign_is_the_glorot_draw_in_absolute_value(mechanism) -> None:
    network = DICTIONARY_LOOKUP.settings.network
    data, vectors = make_dictionary(4, seed=0), []
    for start in ("positive", "negative", "glorot"):
        torch.manual_seed(5)
        layer = replace(network, start=start).build(data, mechanism).layer
        vectors.append(layer.attention_vectors())
    for positive, negative, glorot in zip(*vectors, strict=True):
        assert (glorot < 0).any()
        assert torch.equal(positive, glorot.abs())
        assert torch.equal(negative, -glorot.abs())


# Attention


@pytest.mark.parametrize("loops", [False, True])
@every_heads
@every_attention
def test_the_attention_of_every_query_sums_to_one(mechanism, heads, loops) -> None:
    network = network_of(attention_layer(mechanism, heads), loops=loops)
    weight = network.attention(some_graphs())
    assert weight.shape == (5, heads, K, K + loops)
    torch.testing.assert_close(weight.sum(-1), torch.ones(5, heads, K, dtype=torch.float64))


@pytest.mark.parametrize("loops", [False, True])
def test_attention_is_in_the_order_of_queries_and_keys_with_the_query_itself_last(loops) -> None:
    """For one graph, by the formula: softmax_j of aᵀ LeakyReLU(W x_i + W x_j)."""
    network = network_of(attention_layer("gatv2", share_weights=True), loops=loops)
    values = torch.tensor([[2, 0, 3, 1]])
    projected = network.layer.lin_l(network.nodes())
    query = projected[[i * (K + 1) + K for i in range(K)]]
    key = projected[[j * (K + 1) + value for j, value in enumerate(values[0].tolist())]]
    pair = query[:, None] + key[None]  # [queries, keys, DIM]
    if loops:
        pair = torch.cat([pair, 2 * query[:, None]], dim=1)
    pair = torch.nn.functional.leaky_relu(pair, 0.2)
    expected = (pair @ network.layer.att.flatten()).softmax(1)
    torch.testing.assert_close(network.attention(values)[0, 0], expected.detach())


@every_heads
def test_gat_ranks_the_keys_of_a_graph_in_the_same_order_for_every_query(heads) -> None:
    weight = network_of(attention_layer("gat", heads)).attention(some_graphs())
    order = weight[:, :, :1].argsort(-1).expand_as(weight)  # the first query's
    assert (weight.gather(-1, order).diff(dim=-1) >= -1e-12).all()


def test_gatv2_ranks_the_keys_of_a_graph_in_another_order_for_some_query() -> None:
    weight = network_of(attention_layer("gatv2", share_weights=True)).attention(some_graphs())
    order = weight[:, :, :1].argsort(-1).expand_as(weight)
    assert (weight.gather(-1, order).diff(dim=-1) < -1e-6).any()


# Dropout


def test_always_drop_keeps_dropout_on_in_evaluation() -> None:
    network = network_of(attention_layer("gatv2"), dropout=0.5, always_drop=True).eval()
    values = some_graphs()
    assert not torch.equal(network(values), network(values))


def test_dropout_is_off_in_evaluation() -> None:
    network = network_of(attention_layer("gatv2"), dropout=0.5, feature_dropout=0.5)
    values = some_graphs()
    assert not torch.equal(network(values), network(values))
    network.eval()
    evaluated = network(values)
    network.dropout = network.feature_dropout = 0.0
    assert torch.equal(network.train()(values), evaluated)


def test_feature_dropout_is_drawn_once_for_all_graphs_that_share_a_node() -> None:
    network = network_of(attention_layer("gatv2"), feature_dropout=0.5).train()
    first, *_, again = network(some_graphs())
    torch.testing.assert_close(again, first, rtol=0, atol=0)


# After the layer


@every_attention
def test_activation_and_then_norm_follow_the_layer(mechanism) -> None:
    problem = make_dictionary(K, seed=0)
    settings = LookupNetwork(dim=DIM, activation="tanh", norm="layer")
    network = settings.build(problem, mechanism)
    values = some_graphs()
    hidden = network.layer(network.nodes(), Lookups(values).graph).view(*values.shape, DIM)
    expected = network.out(nn.functional.layer_norm(hidden.tanh(), (DIM,)))
    torch.testing.assert_close(network(values), expected)
    batch = replace(settings, norm="batch").build(problem, mechanism)
    assert isinstance(batch.after[1], nn.BatchNorm1d)
    assert torch.isfinite(batch(values)).all()


def test_without_them_records_weights_and_random_numbers_are_those_of_before() -> None:
    plain = LookupNetwork(dim=DIM)
    assert not {"activation", "norm"} & as_stored(plain).keys()
    assert as_stored(replace(plain, norm="batch"))["norm"] == "batch"
    problem = make_dictionary(K, seed=0)
    states = []
    for settings in (plain, replace(plain, activation="relu")):
        torch.manual_seed(0)
        states.append(settings.build(problem, "gat").state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not any(name.startswith("after") for name in states[0])
