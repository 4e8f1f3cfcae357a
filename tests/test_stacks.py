"""The stacks: parameter counts of the paper, their formulas, and one forward for every use."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GINConv, SAGEConv

from dynagat import Graph
from dynagat.benchmarks import OGBN_ARXIV, OGBN_MAG, OGBN_PRODUCTS, OGBN_PROTEINS
from dynagat.benchmarks.ogbn_proteins import PreNormStack
from dynagat.benchmarks.own_graph import NodeNetwork
from dynagat.benchmarks.pubmed import DropoutStack
from dynagat.benchmarks.stacks import LinearSkipStack, ResidualStack
from dynagat.experiment import as_published
from dynagat.nn.dropout import Dropout
from dynagat.nn.network import ATTENTION, MECHANISMS, Neighbourhood, Network, degrees, make_conv
from dynagat.nn.pyg_layers import PyGLayer
from dynagat.prediction.nodes import infer_nodes
from dynagat.sampling.neighbours import NeighborLoader

N = 40
every_attention = pytest.mark.parametrize("mechanism", ATTENTION)
both_heads = pytest.mark.parametrize("heads", [1, 8])


def random_edges(num_nodes=N, num_edges=160, seed=0):
    """Edges in both directions, without self-loops; the last node has no edges."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes - 1, (2, num_edges), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return torch.cat([edge_index, edge_index.flip(0)], 1).unique(dim=1)


EDGE_INDEX = random_edges()
EDGES = Graph.from_edge_index(EDGE_INDEX, N)
GRAPH = EDGES.with_self_loops()


def num_parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def problem(in_dim: int, out_dim: int) -> SimpleNamespace:
    """What a stack reads of a problem: both widths."""
    return SimpleNamespace(x=torch.empty(1, in_dim), out_dim=out_dim)


# Parameter counts

COUNTS = {  # of the released code's GAT, GATv2 and DPGAT, by the widths of the layers
    (128, 256, 256, 40): (110_672, 110_120, 327_760),
    (128, 256, 349): (123_834, 123_229, 368_058),
    (128, 64, 64, 64): (17_024, 16_832, 49_792),
    (128, 256, 256, 256): (166_400, 165_632, 494_080),
}
RESIDUAL_STACKS = {
    (128, 256, 256, 40): OGBN_ARXIV.network,
    (128, 256, 349): OGBN_MAG.network,
    (128, 64, 64, 64): ResidualStack(dim=64),  # the encoders of link prediction
    (128, 256, 256, 256): ResidualStack(),
}


def published_network(settings, widths, mechanism: str, heads: int) -> Network:
    """As published, with that many heads, between the first and the last width."""
    settings = replace(as_published(settings), heads=heads)
    return settings.build(problem(widths[0], widths[-1]), mechanism)


def num_unused(widths, mechanism: str) -> int:
    """The released DPGAT inherits GAT's vectors, 2 · width in each layer, but never reads them.

    The released counts include them; our DPGAT does not have them.
    """
    return sum(2 * width for width in widths[1:]) if mechanism == "dpgat" else 0


@both_heads
@every_attention
@pytest.mark.parametrize("widths", COUNTS, ids=["arxiv", "mag", "collab", "citation2"])
def test_residual_stacks_have_the_parameter_counts_of_the_paper(widths, mechanism, heads) -> None:
    network = published_network(RESIDUAL_STACKS[widths], widths, mechanism, heads)
    assert [layer.conv.in_channels for layer in network.layers] == list(widths[:-1])
    expected = COUNTS[widths][list(ATTENTION).index(mechanism)]
    assert num_parameters(network) + num_unused(widths, mechanism) == expected


@both_heads
@every_attention
def test_the_stack_of_products_has_the_parameter_counts_of_the_paper(mechanism, heads) -> None:
    widths = (100, 128, 128, 47)
    network = published_network(OGBN_PRODUCTS.network, widths, mechanism, heads)
    expected = dict(zip(ATTENTION, (71_309, 71_006, 141_709), strict=True))
    assert num_parameters(network) + num_unused(widths, mechanism) == expected[mechanism]


@both_heads
@every_attention
def test_the_stack_of_proteins_has_the_parameter_counts_of_the_paper(mechanism, heads) -> None:
    """Its DPGAT is another class, with Q = K and without unused vectors."""
    network = published_network(OGBN_PROTEINS.network, (8, 112), mechanism, heads)
    expected = dict(zip(ATTENTION, (33_968, 33_584, 57_776), strict=True))
    assert num_parameters(network) == expected[mechanism]


@every_attention
def test_sharing_query_and_key_saves_dpgat_one_matrix_in_each_layer(mechanism) -> None:
    """D3: Q = K in the corrected fidelity; the other mechanisms do not change."""
    widths = (128, 256, 256, 40)
    corrected = num_parameters(OGBN_ARXIV.network.build(problem(128, 40), mechanism))
    published = num_parameters(published_network(OGBN_ARXIV.network, widths, mechanism, 8))
    saved = sum(a * b for a, b in pairwise(widths)) if mechanism == "dpgat" else 0
    assert corrected == published - saved


# Formulas


def attend(conv, x):
    """One of our layers in plain torch, on a dense adjacency matrix."""
    is_edge = torch.zeros(N, N, dtype=torch.bool)  # query, key
    is_edge[GRAPH.query_index.long(), GRAPH.key_index.long()] = True

    def heads_of(linear):
        return F.linear(x, linear.weight, linear.bias).unflatten(-1, (conv.heads, -1))

    if hasattr(conv, "att_src"):
        value = heads_of(conv.lin)
        by_query, by_key = ((value * a).sum(-1) for a in (conv.att_dst, conv.att_src))
        score = F.leaky_relu(by_query[:, None] + by_key[None], 0.2)
    elif hasattr(conv, "att"):
        value = heads_of(conv.lin_l)
        pair = heads_of(conv.lin_r)[:, None] + value[None]
        score = (F.leaky_relu(pair, 0.2) * conv.att[0]).sum(-1)
    else:
        query, key, value = map(heads_of, (conv.lin_r, conv.lin_l, conv.lin_v))
        score = torch.einsum("qhc,khc->qkh", query, key) / math.sqrt(key.shape[-1])
    weight = score.masked_fill(~is_edge[..., None], -torch.inf).softmax(1)
    out = torch.einsum("qkh,khc->qhc", weight, value).flatten(1)
    return out if conv.bias is None else out + conv.bias


def assert_same(value, expected) -> None:
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)


def features(width: int):
    return torch.randn(N, width, dtype=torch.float64)


def shaken(network: Network) -> Network:
    """In double precision, with no scale, shift or running mean at 0 or 1: each one must matter."""
    for values in network.double().state_dict().values():
        if values.is_floating_point() and values.dim() == 1:
            values.add_(torch.rand_like(values))
    return network.eval()


@pytest.mark.parametrize(("published", "gain"), [(True, 2.0), (False, 1.0)])
@every_attention
def test_the_residual_stack_is_its_formula_with_a_residual_in_the_middle_only(
    mechanism, published, gain
) -> None:
    """D14: the released code adds the new features twice in training, once in evaluation."""
    settings = ResidualStack(dim=8, heads=2, dropout=0.0)
    settings = as_published(settings) if published else settings
    network, x = shaken(settings.build(problem(5, 3), mechanism)), features(5)

    def by_hand(times: float):
        first, middle, last = network.layers
        a = first.after[0](F.relu(attend(first.conv, x)))
        b = middle.after[0](a + times * F.relu(attend(middle.conv, a)))
        return attend(last.conv, b)

    assert [layer.conv.heads for layer in network.layers] == [2, 2, 1]  # D16
    assert_same(network(x, GRAPH), by_hand(1.0))
    assert_same(network.train()(x, GRAPH), by_hand(gain))


def test_a_residual_stack_of_two_layers_has_no_middle_and_adds_no_residual() -> None:
    """D15: ogbn-mag."""
    network = ResidualStack(dim=8, heads=2, layers=2).build(problem(8, 8), "gat")
    assert [layer.skip for layer in network.layers] == [None, None]


@every_attention
def test_all_residuals_go_through_a_linear_map_where_widths_differ(mechanism) -> None:
    settings = ResidualStack(dim=8, heads=2, dropout=0.0, residual="all", norm=False)
    network, x = shaken(settings.build(problem(5, 3), mechanism)), features(5)
    first, middle, last = network.layers
    a = F.linear(x, first.skip.weight) + F.relu(attend(first.conv, x))
    b = a + F.relu(attend(middle.conv, a))
    assert_same(network(x, GRAPH), F.linear(b, last.skip.weight) + attend(last.conv, b))


@every_attention
def test_the_linear_skip_stack_is_its_formula(mechanism) -> None:
    settings = LinearSkipStack(dim=8, heads=2)
    network, x = shaken(settings.build(problem(5, 3), mechanism)), features(5)
    expected = x
    for index, layer in enumerate(network.layers):
        skip = F.linear(expected, layer.skip.weight, layer.skip.bias)
        expected = attend(layer.conv, expected) + skip
        expected = F.elu(expected) if index < 2 else expected
    assert [layer.conv.heads for layer in network.layers] == [2, 2, 1]
    assert_same(network(x, GRAPH), expected)


@every_attention
def test_the_pre_norm_stack_adds_the_output_of_the_layer_before_without_its_norm(mechanism) -> None:
    settings = PreNormStack(dim=8, heads=2, layers=3)
    network, x = shaken(settings.build(problem(4, 3), mechanism)), features(4)

    def norm(h, batch_norm):
        std = (batch_norm.running_var + batch_norm.eps).sqrt()
        return (h - batch_norm.running_mean) / std * batch_norm.weight + batch_norm.bias

    first, second, third = network.layers
    encoder, out = first.before[0], third.after[3]
    h = attend(first.conv, F.relu(F.linear(x, encoder.weight, encoder.bias)))
    h = h + attend(second.conv, F.relu(norm(h, second.before[0])))
    h = h + attend(third.conv, F.relu(norm(h, third.before[0])))
    expected = F.linear(F.relu(norm(h, third.after[0])), out.weight, out.bias)
    assert [layer.conv.heads for layer in network.layers] == [2, 2, 2]
    assert_same(network(x, GRAPH), expected)


@every_attention
def test_the_pre_norm_stack_starts_with_xavier_normal_weights_of_gain_root_2(mechanism) -> None:
    """Var = 2 · 2 / (fan in + fan out): the initialisation of DGL's layers in the paper."""
    network = PreNormStack(dim=64, heads=8, layers=12).build(problem(8, 112), mechanism)
    name = "lin_l.weight" if mechanism != "gat" else "lin.weight"
    weights = torch.stack([layer.conv.get_parameter(name) for layer in network.layers]).flatten()
    assert weights.mean().item() == pytest.approx(0, abs=0.005)
    assert weights.var().item() == pytest.approx(4 / 128, rel=0.03)
    kurtosis = (weights**4).mean() / weights.var() ** 2
    assert kurtosis.item() == pytest.approx(3, rel=0.05)  # of a normal; a uniform has 1.8
    vectors = [a for layer in network.layers for a in layer.conv.attention_vectors()]
    if vectors:  # [1, H, C]: torch's fan in is H · C, its fan out C
        assert torch.stack(vectors).var().item() == pytest.approx(4 / (64 + 8), rel=0.2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("share_weights", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@every_attention
def test_the_dropout_stack_is_its_formula(mechanism, residual, share_weights, bias) -> None:
    options = {"residual": residual, "share_weights": share_weights, "bias": bias}
    settings = DropoutStack(hidden=4, heads=2, layers=2, dropout=0.5, **options)
    network = shaken(settings.build(problem(5, 3), mechanism))
    assert len(network.layers) == settings.depth == 3
    x = expected = features(5)
    for index, layer in enumerate(network.layers):
        new = attend(layer.conv, expected)
        if residual:
            is_same = expected.shape[1] == new.shape[1]
            new = new + (expected if is_same else F.linear(expected, layer.skip.weight))
        expected = F.elu(new) if index < 2 else new
    assert_same(network(x, GRAPH), expected)


PLAIN = {"activation": "relu", "projection": False, "residual": False, "feed_forward": 0}


@pytest.mark.parametrize("own_path", [True, False])
@pytest.mark.parametrize("norm", [True, False])
@every_attention
def test_the_network_of_own_graphs_is_its_formula(mechanism, norm, own_path) -> None:
    settings = NodeNetwork(dim=8, heads=2, layers=3, norm=norm, own_path=own_path, **PLAIN)
    network = shaken(settings.build(problem(5, 3), mechanism))
    x = expected = features(5)
    for index, layer in enumerate(network.layers):
        new = attend(layer.conv, expected)
        new = new + F.linear(expected, layer.own.weight) if own_path else new
        if index < 2:
            new = F.relu(layer.after[0](new) if norm else new)
        expected = new
    assert [layer.conv.heads for layer in network.layers] == [2, 2, 1]
    assert_same(network(x, GRAPH), expected)


@pytest.mark.parametrize("feed_forward", [0, 2])
@pytest.mark.parametrize("activation", ["relu", "elu", "gelu"])
@pytest.mark.parametrize("residual", [True, False])
def test_the_projected_network_of_own_graphs_is_its_formula(
    residual, activation, feed_forward
) -> None:
    f = getattr(F, activation)
    settings = NodeNetwork(
        dim=8, heads=2, layers=2, projection=True, residual=residual, activation=activation,
        feed_forward=feed_forward,
    )  # fmt: skip
    network = shaken(settings.build(problem(5, 3), "gatv2"))
    x = features(5)
    expected = f(network.embedding[1](x))
    for layer in network.layers:
        z = layer.before[0](expected) if residual else expected
        new = attend(layer.conv, z) + F.linear(z, layer.own.weight)
        if feed_forward:
            first, second = (each for each in layer.inner if isinstance(each, nn.Linear))
            assert first.out_features == 16
            new = second(f(first(new)))
        elif residual:
            new = f(new)
        expected = expected + new if residual else f(layer.after[0](new))
    expected = network.readout[-1](network.readout[0](expected) if residual else expected)
    assert_same(network(x, GRAPH), expected)


def test_a_residual_network_needs_a_constant_width() -> None:
    with pytest.raises(ValueError, match="residual=true needs projection=true"):
        NodeNetwork(projection=False, residual=True)
    with pytest.raises(ValueError, match="feed_forward must not be negative, but is -1"):
        NodeNetwork(feed_forward=-1)


# Dropout


@pytest.mark.parametrize("p", [0.1, 0.25, 0.6])
def test_dropout_keeps_a_fraction_and_scales_it_to_preserve_the_mean(p) -> None:
    out = Dropout(p)(torch.ones(400, 1001))
    kept = out != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=0.004)
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
    rows, columns = kept.double().mean(0), kept.double().mean(1)
    assert max((rows - 1 + p).abs().max(), (columns - 1 + p).abs().max()) < 0.15


def test_dropout_drops_adjacent_entries_independently() -> None:
    """One random number decides four entries, which must still be independent."""
    kept = (Dropout(0.5)(torch.ones(100_000, 4)) != 0).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(4)
    assert correlation.abs().max().item() < 0.02


def test_dropout_is_the_identity_in_evaluation_and_at_0() -> None:
    x = torch.randn(7, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_gradient_of_dropout_is_its_mask() -> None:
    x = torch.randn(13, 5, requires_grad=True)
    out = Dropout(0.4)(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient * x, out)
    assert gradient.unique().tolist() == [0.0, pytest.approx(1 / 0.6)]


def test_dropout_follows_torchs_seed_and_differs_from_call_to_call() -> None:
    drop, x = Dropout(0.5), torch.ones(50, 3)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 1), (2, 3, 5)])
def test_dropout_takes_any_shape(shape) -> None:
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_dropout_refuses_what_is_not_a_probability(p) -> None:
    with pytest.raises(ValueError, match=rf"^p must lie in \[0, 1\], but is {p}$"):
        Dropout(p)


# One forward

STACKS = {
    "residual": ResidualStack(dim=8, heads=2, dropout=0.5, gain=2.0),
    "all residuals": ResidualStack(dim=8, heads=2, residual="all"),
    "linear skip": LinearSkipStack(dim=8, heads=2, dropout=0.5),
    "pre-norm": PreNormStack(dim=8, layers=3, heads=2, dropout=0.5, first_dropout=0.1),
    "dropout": DropoutStack(hidden=4, layers=2, heads=2, dropout=0.5, residual=True),
    "own graph": NodeNetwork(dim=8, layers=3, heads=2),
}
every_stack = pytest.mark.parametrize("stack", STACKS)
with_source = [name for name, stack in STACKS.items() if hasattr(stack, "source")]


@every_stack
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("self_loops", [True, False])
def test_samples_of_all_neighbours_and_layer_wise_inference_equal_the_whole_graph(
    mechanism, stack, self_loops
) -> None:
    network, x = shaken(STACKS[stack].build(problem(6, 3), mechanism)), features(6)
    graph = GRAPH if self_loops else EDGES
    whole = network(x, graph)
    seeds = torch.tensor([3, 17, 4, N - 1])  # the last has no neighbours
    (batch,) = NeighborLoader(EDGES, [-1, -1, -1], batch_size=4, input_nodes=seeds, layered=True)
    batch = batch.with_self_loops() if self_loops else batch
    nodes = batch.node_id
    degree = degrees(graph)[nodes]
    samples = [Neighbourhood(each, degree[: each.num_keys]) for each in batch.graphs]
    assert_same(network(x[nodes], samples), whole[seeds])
    for batch_size in (7, N):
        assert_same(infer_nodes(network, x, EDGES, batch_size, self_loops=self_loops), whole)


@pytest.mark.parametrize("stack", with_source)
@pytest.mark.parametrize("share_weights", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_pyg_layers_with_the_same_weights_give_the_same_outputs(
    mechanism, bias, share_weights, stack
) -> None:
    settings = replace(STACKS[stack], bias=bias, share_weights=share_weights)
    ours, theirs = (
        replace(settings, source=source).build(problem(6, 3), mechanism)
        for source in ("dynagat", "pyg")
    )
    ours = shaken(ours)
    theirs = theirs.double().eval()
    state = {name.replace("conv.", "conv.conv."): each for name, each in ours.state_dict().items()}
    theirs.load_state_dict(state)
    assert all(isinstance(layer.conv, PyGLayer) for layer in theirs.layers)
    x = features(6)
    assert_same(theirs(x, GRAPH), ours(x, GRAPH))
    assert_same(infer_nodes(theirs, x, EDGES, 9, self_loops=True), ours(x, GRAPH))


@pytest.mark.parametrize("graph", [GRAPH, EDGES], ids=["with loops", "without loops"])
@pytest.mark.parametrize(("mechanism", "kind"), [("sage", SAGEConv), ("gin", GINConv)])
def test_graphsage_and_gin_are_pygs_on_the_edges_without_self_loops(mechanism, kind, graph) -> None:
    """They have a term for x_i, so the graph's self-loops would count it twice."""
    layer = make_conv(mechanism, source="pyg")(6, 4, 1).double()
    assert type(layer.conv) is kind
    x = features(6)
    assert_same(layer.eval()(x, graph), layer.conv(x, EDGE_INDEX))


@every_attention
def test_heads_must_divide_the_width(mechanism) -> None:
    with pytest.raises(ValueError, match=r"^heads must divide the width 9 of a layer, but are 2$"):
        make_conv(mechanism)(6, 9, 2)


@pytest.mark.parametrize("mechanism", ["dpgat", "gcn"])
def test_a_layer_that_pyg_lacks_is_refused(mechanism) -> None:
    """And ours is not used instead."""
    message = f"^source=pyg has layers for gat, gatv2, gin, sage, not for '{mechanism}'$"
    with pytest.raises(ValueError, match=message):
        make_conv(mechanism, source="pyg")


@every_attention
def test_the_gain_applies_to_middle_layers_only(mechanism) -> None:
    network = ResidualStack(dim=8, heads=2, layers=4, gain=2.0).build(problem(6, 3), mechanism)
    assert [layer.gain for layer in network.layers] == [1.0, 2.0, 2.0, 1.0]


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_a_stack_refuses_values_that_no_network_can_have(stack) -> None:
    with pytest.raises(ValueError, match=r"^heads must divide dim=\d+, but is 0$"):
        replace(stack, heads=0)
    least = 0 if isinstance(stack, DropoutStack) else 1
    with pytest.raises(ValueError, match=f"^layers must be at least {least}, but is {least - 1}$"):
        replace(stack, layers=least - 1)
    with pytest.raises(ValueError, match=r"^dropout must lie in \[0, 1\), but is 1\.0$"):
        replace(stack, dropout=1.0)


@every_attention
def test_the_dropout_stack_averages_the_heads_of_its_last_layer(mechanism) -> None:
    settings = DropoutStack(hidden=4, heads=2, last_heads=8, average=True, residual=False)
    network = shaken(settings.build(problem(5, 3), mechanism))
    first, last = network.layers
    assert (last.conv.heads, last.conv.out_channels, last.conv.concat) == (8, 3, False)
    x = features(5)
    mean = network(x, GRAPH) - last.conv.bias
    last.conv.concat, last.conv.bias = True, None
    heads = last(first(x, GRAPH), GRAPH)
    assert_same(mean, heads.unflatten(1, (8, 3)).mean(1))


def test_heads_that_are_not_averaged_must_divide_the_output() -> None:
    with pytest.raises(ValueError, match="heads must divide the width 3 of a layer, but are 8"):
        DropoutStack(hidden=4, heads=2, last_heads=8).build(problem(5, 3), "gatv2")
    with pytest.raises(ValueError, match="last_heads must be at least 1, but is 0"):
        DropoutStack(last_heads=0)
