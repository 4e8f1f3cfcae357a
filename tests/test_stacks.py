"""The paper's stacks: as large as its code's, the formulas that they state, one forward for all."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GINConv, SAGEConv

from dynagat import Graph
from dynagat.benchmarks import OGBN_ARXIV, OGBN_MAG, OGBN_PRODUCTS, OGBN_PROTEINS
from dynagat.benchmarks.nodes import StackS, run_in_parts
from dynagat.experiment import as_published
from dynagat.nn.dropout import Dropout
from dynagat.nn.foreign import OnGraph
from dynagat.nn.network import (
    ATTENTION,
    MECHANISMS,
    Network,
    degrees,
    make_conv,
    make_network,
    stack_b,
    stack_d,
    stack_p,
    stack_s,
)
from dynagat.sampling.neighbours import NeighborLoader

N = 40
every_attention = pytest.mark.parametrize("mechanism", ATTENTION)
both_heads = pytest.mark.parametrize("heads", [1, 8])


def random_edges(num_nodes=N, num_edges=160, seed=0):
    """In both directions, without loops, and a node that no edge joins."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes - 1, (2, num_edges), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return torch.cat([edge_index, edge_index.flip(0)], 1).unique(dim=1)


EDGE_INDEX = random_edges()
EDGES = Graph.from_edge_index(EDGE_INDEX, N)
GRAPH = EDGES.with_self_loops()


def count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


# Sizes

S_TABLE = {  # protocol: GAT, GATv2, DPGAT as coded; by the widths of the layers
    (128, 256, 256, 40): (110_672, 110_120, 327_760),
    (128, 256, 349): (123_834, 123_229, 368_058),
    (128, 64, 64, 64): (17_024, 16_832, 49_792),
    (128, 256, 256, 256): (166_400, 165_632, 494_080),
}
S_SETTINGS = {
    (128, 256, 256, 40): OGBN_ARXIV.settings.network,
    (128, 256, 349): OGBN_MAG.settings.network,
    (128, 64, 64, 64): StackS(dim=64),  # collab and citation2 are link prediction's
    (128, 256, 256, 256): StackS(),
}


def built(settings, widths, mechanism: str, heads: int) -> Network:
    """As published, with as many heads, on data of the first and last width."""
    data = SimpleNamespace(x=torch.empty(1, widths[0]), out_dim=widths[-1])
    settings = as_published(settings)
    made = type(settings)(**{**vars(settings), "heads": heads})
    return made.build(data, mechanism)


def unused(widths, mechanism: str) -> int:
    """The paper's DPGAT inherits GAT's vectors, 2 · width for each layer, and never reads them.

    Its parameter counts have them; we do not make them.
    """
    return sum(2 * width for width in widths[1:]) if mechanism == "dpgat" else 0


@both_heads
@every_attention
@pytest.mark.parametrize("widths", S_TABLE, ids=["arxiv", "mag", "collab", "citation2"])
def test_stack_s_has_as_many_weights_as_the_papers(widths, mechanism, heads) -> None:
    network = built(S_SETTINGS[widths], widths, mechanism, heads)
    assert [layer.conv.in_channels for layer in network.layers] == list(widths[:-1])
    expected = S_TABLE[widths][list(ATTENTION).index(mechanism)]
    assert count(network) + unused(widths, mechanism) == expected


@both_heads
@every_attention
def test_stack_p_has_as_many_weights_as_the_papers(mechanism, heads) -> None:
    widths = (100, 128, 128, 47)
    network = built(OGBN_PRODUCTS.settings.network, widths, mechanism, heads)
    expected = dict(zip(ATTENTION, (71_309, 71_006, 141_709), strict=True))
    assert count(network) + unused(widths, mechanism) == expected[mechanism]


@both_heads
@every_attention
def test_stack_b_has_as_many_weights_as_the_papers(mechanism, heads) -> None:
    """DPGAT of proteins is another class, of Q = K and without unused vectors."""
    network = built(OGBN_PROTEINS.settings.network, (8, 112), mechanism, heads)
    expected = dict(zip(ATTENTION, (33_968, 33_584, 57_776), strict=True))
    assert count(network) == expected[mechanism]


@every_attention
def test_with_query_and_key_shared_dpgat_has_one_matrix_less_a_layer(mechanism) -> None:
    """D3: corrected, Q = K; no other mechanism changes."""
    widths = (128, 256, 256, 40)
    data = SimpleNamespace(x=torch.empty(1, 128), out_dim=40)
    ours = count(OGBN_ARXIV.network.build(data, mechanism))
    theirs = count(built(OGBN_ARXIV.network, widths, mechanism, 8))
    fewer = sum(a * b for a, b in pairwise(widths)) if mechanism == "dpgat" else 0
    assert ours == theirs - fewer


# Formulas


def attend(conv, x):
    """A layer of ours in plain torch, on a table of who attends to whom."""
    joined = torch.zeros(N, N, dtype=torch.bool)  # query, key
    joined[GRAPH.query_index.long(), GRAPH.key_index.long()] = True

    def heads_of(linear):
        return F.linear(x, linear.weight).unflatten(-1, (conv.heads, -1))

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
    weight = score.masked_fill(~joined[..., None], -torch.inf).softmax(1)
    out = torch.einsum("qkh,khc->qhc", weight, value).flatten(1)
    return out if conv.bias is None else out + conv.bias


def assert_same(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def features(width: int):
    return torch.randn(N, width, dtype=torch.float64)


def shaken(network: Network) -> Network:
    """In double, and no scale, shift or running mean where it began: each must be used."""
    for _, values in network.double().state_dict().items():
        if values.is_floating_point() and values.dim() == 1:
            values.add_(torch.rand_like(values))
    return network.eval()


@pytest.mark.parametrize(("published", "gain"), [(True, 2.0), (False, 1.0)])
@every_attention
def test_stack_s_is_its_formula_with_a_residual_in_the_middle_only(
    mechanism, published, gain
) -> None:
    """D14: the paper's code adds the new features twice in training, once in evaluation."""
    settings = StackS(dim=8, heads=2, dropout=0.0)
    settings = as_published(settings) if published else settings
    data = SimpleNamespace(x=torch.empty(1, 5), out_dim=3)
    network, x = shaken(settings.build(data, mechanism)), features(5)

    def by_hand(times: float):
        first, middle, last = network.layers
        a = first.after[0](F.relu(attend(first.conv, x)))
        b = middle.after[0](a + times * F.relu(attend(middle.conv, a)))
        return attend(last.conv, b)

    assert [layer.conv.heads for layer in network.layers] == [2, 2, 1]  # D16
    assert_same(network(x, GRAPH), by_hand(1.0))
    assert_same(network.train()(x, GRAPH), by_hand(gain))


def test_of_two_layers_none_is_in_the_middle_and_no_residual_is_added() -> None:
    """D15: mag has none."""
    network = stack_s(make_conv("gat"), [8, 8, 8], heads=2)
    assert [layer.skip for layer in network.layers] == [None, None]


@every_attention
def test_stack_s_with_all_residuals_maps_them_where_widths_differ(mechanism) -> None:
    conv = make_conv(mechanism)
    network = shaken(stack_s(conv, [5, 8, 8, 3], heads=2, residual="all", norm=False))
    x = features(5)
    first, middle, last = network.layers
    a = F.linear(x, first.skip.weight) + F.relu(attend(first.conv, x))
    b = a + F.relu(attend(middle.conv, a))
    assert_same(network(x, GRAPH), F.linear(b, last.skip.weight) + attend(last.conv, b))


@every_attention
def test_stack_p_is_its_formula(mechanism) -> None:
    network, x = shaken(stack_p(make_conv(mechanism), [5, 8, 8, 3], heads=2)), features(5)
    expected = x
    for number, layer in enumerate(network.layers):
        skip = F.linear(expected, layer.skip.weight, layer.skip.bias)
        expected = attend(layer.conv, expected) + skip
        expected = F.elu(expected) if number < 2 else expected
    assert_same(network(x, GRAPH), expected)


@every_attention
def test_stack_b_adds_what_the_layer_before_gave_before_its_norm(mechanism) -> None:
    made = stack_b(make_conv(mechanism), 4, 8, 3, layers=3, heads=2)
    network, x = shaken(made), features(4)

    def norm(h, batch_norm):
        spread = (batch_norm.running_var + batch_norm.eps).sqrt()
        return (h - batch_norm.running_mean) / spread * batch_norm.weight + batch_norm.bias

    first, second, third = network.layers
    encoder, out = first.before[0], third.after[3]
    h = attend(first.conv, F.relu(F.linear(x, encoder.weight, encoder.bias)))
    h = h + attend(second.conv, F.relu(norm(h, second.before[0])))
    h = h + attend(third.conv, F.relu(norm(h, third.before[0])))
    expected = F.linear(F.relu(norm(h, third.after[0])), out.weight, out.bias)
    assert [layer.conv.heads for layer in network.layers] == [2, 2, 2]
    assert_same(network(x, GRAPH), expected)


@every_attention
def test_stack_b_begins_with_xavier_normal_weights_of_gain_root_2(mechanism) -> None:
    """Var = 2 · 2 / (fan in + fan out), as DGL's layers of the paper begin."""
    network = stack_b(make_conv(mechanism), 8, 64, 112, layers=12, heads=8)
    weights = [layer.conv.get_parameter("lin_l.weight" if mechanism != "gat" else "lin.weight")
               for layer in network.layers]  # fmt: skip
    drawn = torch.stack(weights).flatten()
    assert drawn.mean().item() == pytest.approx(0, abs=0.005)
    assert drawn.var().item() == pytest.approx(4 / 128, rel=0.03)
    fourth = (drawn**4).mean() / drawn.var() ** 2
    assert fourth.item() == pytest.approx(3, rel=0.05)  # normal; uniform has 1.8
    vectors = [a for layer in network.layers for a in layer.conv.attention_vectors()]
    if vectors:  # [1, H, C]: torch counts H · C numbers in, and C out
        drawn = torch.stack(vectors).flatten()
        assert drawn.var().item() == pytest.approx(4 / (64 + 8), rel=0.2)


@pytest.mark.parametrize("residual", [True, False])
@every_attention
def test_stack_d_is_its_formula(mechanism, residual) -> None:
    conv = make_conv(mechanism)
    network = shaken(stack_d(conv, [5, 8, 8, 3], heads=2, residual=residual, dropout=0.5))
    x = expected = features(5)
    for number, layer in enumerate(network.layers):
        new = attend(layer.conv, expected)
        if residual:
            same = expected.shape[1] == new.shape[1]
            new = new + (expected if same else F.linear(expected, layer.skip.weight))
        expected = F.elu(new) if number < 2 else new
    assert_same(network(x, GRAPH), expected)


# Dropout


@pytest.mark.parametrize("p", [0.1, 0.25, 0.6])
def test_dropout_keeps_a_share_and_scales_it_so_that_the_mean_stays(p) -> None:
    out = Dropout(p)(torch.ones(400, 1001))
    kept = out != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=0.004)
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
    rows, columns = kept.double().mean(0), kept.double().mean(1)
    assert max((rows - 1 + p).abs().max(), (columns - 1 + p).abs().max()) < 0.15


def test_dropout_drops_neighbours_independently() -> None:
    """One random number does four entries: they must not go together."""
    kept = (Dropout(0.5)(torch.ones(100_000, 4)) != 0).double()
    together = torch.corrcoef(kept.T) - torch.eye(4)
    assert together.abs().max().item() < 0.02


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


def test_dropout_follows_torchs_seed_and_moves_on() -> None:
    drop, x = Dropout(0.5), torch.ones(50, 3)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 1), (2, 3, 5)])
def test_dropout_takes_any_shape(shape) -> None:
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_dropout_refuses_what_is_no_share(p) -> None:
    with pytest.raises(ValueError, match=rf"^p must lie in \[0, 1\), but is {p}$"):
        Dropout(p)


# One forward

STACKS = {
    "s": lambda conv: stack_s(conv, [6, 8, 8, 3], heads=2, dropout=0.5, gain=2.0),
    "s, all": lambda conv: stack_s(conv, [6, 8, 8, 3], heads=2, residual="all"),
    "p": lambda conv: stack_p(conv, [6, 8, 8, 3], heads=2, dropout=0.5),
    "b": lambda conv: stack_b(conv, 6, 8, 3, layers=3, heads=2, dropout=0.5, first_dropout=0.1),
    "d": lambda conv: stack_d(conv, [6, 8, 8, 3], heads=2, dropout=0.5, residual=True),
}
every_stack = pytest.mark.parametrize("stack", STACKS)


@every_stack
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("self_loops", [True, False])
def test_blocks_parts_and_the_whole_graph_give_the_same(mechanism, stack, self_loops) -> None:
    network, x = shaken(STACKS[stack](make_conv(mechanism))), features(6)
    graph = GRAPH if self_loops else EDGES
    whole = network(x, graph)
    asked = torch.tensor([3, 17, 4, N - 1])  # the last has no neighbours
    (batch,) = NeighborLoader(EDGES, [-1, -1, -1], batch_size=4, input_nodes=asked, layered=True)
    batch = batch.with_self_loops() if self_loops else batch
    seen = batch.node_id
    assert_same(network(x[seen], batch.graphs, degrees(graph)[seen]), whole[asked])
    for batch_size in (7, N):
        assert_same(run_in_parts(network, x, EDGES, batch_size, self_loops=self_loops), whole)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_network_in_parts_gives_the_same(mechanism) -> None:
    network, x = shaken(make_network(mechanism, 6, 3, dim=8, heads=2)), features(6)
    assert_same(run_in_parts(network, x, EDGES, 9, self_loops=True), network(x, GRAPH))


@every_stack
@pytest.mark.parametrize("share_weights", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_pygs_layers_with_the_same_weights_give_the_same(
    mechanism, bias, share_weights, stack
) -> None:
    options = {"bias": bias, "share_weights": share_weights}
    ours, theirs = (
        STACKS[stack](make_conv(mechanism, source=source, **options))
        for source in ("dynagat", "pyg")
    )
    ours = shaken(ours)
    theirs = theirs.double().eval()
    state = {name.replace("conv.", "conv.conv."): each for name, each in ours.state_dict().items()}
    theirs.load_state_dict(state)
    assert all(isinstance(layer.conv, OnGraph) for layer in theirs.layers)
    x = features(6)
    assert_same(theirs(x, GRAPH), ours(x, GRAPH))
    assert_same(run_in_parts(theirs, x, EDGES, 9, self_loops=True), ours(x, GRAPH))


@pytest.mark.parametrize("graph", [GRAPH, EDGES], ids=["with loops", "without"])
@pytest.mark.parametrize(("mechanism", "kind"), [("sage", SAGEConv), ("gin", GINConv)])
def test_graphsage_and_gin_are_pygs_on_the_edges_that_are_no_loops(mechanism, kind, graph) -> None:
    """They have a term of their own for x_i, so the graph's loops would count it twice."""
    layer = make_conv(mechanism)(6, 4, 1).double()
    assert type(layer.conv) is kind
    x = features(6)
    assert_same(layer.eval()(x, graph), layer.conv(x, EDGE_INDEX))


@every_attention
def test_a_width_that_heads_do_not_divide_is_told(mechanism) -> None:
    with pytest.raises(ValueError, match=r"^heads must divide the width 9 of a layer, but are 2$"):
        make_conv(mechanism)(6, 9, 2)


@pytest.mark.parametrize("mechanism", ["dpgat", "gcn"])
def test_what_pyg_has_no_layer_for_is_told(mechanism) -> None:
    """And not made of ours instead."""
    sentence = f"^source=pyg has layers for gat, gatv2, gin, sage, not for '{mechanism}'$"
    with pytest.raises(ValueError, match=sentence):
        make_conv(mechanism, source="pyg")


@pytest.mark.parametrize("mechanism", ["dpgat", "gatv2", "gat"])
def test_the_gain_is_of_the_residual_and_no_other_layer(mechanism) -> None:
    network = stack_s(make_conv(mechanism), [6, 8, 8, 8, 3], heads=2, gain=2.0)
    assert [layer.gain for layer in network.layers] == [1.0, 2.0, 2.0, 1.0]
