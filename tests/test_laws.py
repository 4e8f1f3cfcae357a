"""Properties that hold for any input: the theorems of the paper and symmetries of attention."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynagat import DPGATConv, GATConv, GATv2Conv, Graph

LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
IN, H, C = 3, 2, 4

every_mechanism = pytest.mark.parametrize("mechanism", LAYERS)
seeds = st.integers(0, 2**31)
few = settings(max_examples=15, deadline=None, derandomize=True)


def complete(num_nodes: int) -> Tensor:
    """The complete graph as (key, query) pairs, ordered by query."""
    query, key = torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes)).T
    return torch.stack([key, query])


def attention(layer, x: Tensor) -> Tensor:
    """[queries, keys, H] on the complete graph."""
    _, (_, weight) = layer(x, complete(len(x)), return_attention_weights=True)
    return weight.view(len(x), len(x), -1)


def make_layer(mechanism: str, seed: int, **options):
    torch.manual_seed(seed)
    layer = LAYERS[mechanism](IN, C, heads=H, add_self_loops=False, **options).double()
    torch.nn.init.normal_(layer.bias)
    return layer


def random_graph(seed: int, num_nodes: int = 7, num_edges: int = 20) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    x = torch.randn(num_nodes, IN, dtype=torch.float64)
    return x, torch.randint(num_nodes, (2, num_edges))


# The theorems


@few
@given(seed=seeds, num_nodes=st.integers(2, 8))
def test_gat_ranks_keys_in_the_same_order_for_every_query_in_each_head(seed, num_nodes) -> None:
    """Theorem 1: every query ranks the keys by a_srcᵀ W x_j."""
    layer, (x, _) = make_layer("gat", seed), random_graph(seed, num_nodes)
    weight = attention(layer, x)
    by_key = (layer.lin(x).view(-1, H, C) * layer.att_src).sum(-1)  # [keys, H]
    for head in range(H):
        ranked = weight[:, by_key[:, head].argsort(), head]
        assert (ranked.diff(dim=1) >= -1e-12).all()


def fit(layer, x: Tensor, mapping: Tensor, steps: int = 400) -> bool:
    """Train a one-head layer until each query i attends most to mapping[i]; return success."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.03)
    for _ in range(steps):
        weight = attention(layer, x)[..., 0]
        if (weight.argmax(1) == mapping).all():
            return True
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(weight.log(), mapping).backward()
        optimizer.step()
    return False


@pytest.mark.parametrize("seed", range(3))
def test_unshared_gatv2_fits_any_mapping_of_queries_to_keys(seed) -> None:
    """Theorem 2, checked by training on a cycle and on random mappings."""
    x, _ = random_graph(seed, num_nodes=5)
    torch.manual_seed(seed)
    layer = GATv2Conv(IN, 64, add_self_loops=False).double()
    mapping = torch.arange(5).roll(1) if seed == 0 else torch.randint(5, (5,))
    assert fit(layer, x, mapping)


def test_gat_fits_no_mapping_that_sends_two_queries_to_two_keys() -> None:
    x, _ = random_graph(0, num_nodes=3)
    torch.manual_seed(0)
    assert not fit(GATConv(IN, 64, add_self_loops=False).double(), x, torch.tensor([1, 2, 0]), 100)


@few
@given(seed=seeds)
def test_shared_gatv2_without_bias_cannot_realise_a_cycle(seed) -> None:
    """Its scores are symmetric, and e12 > e13 = e31 > e32 = e23 > e21 = e12 is a contradiction."""
    layer = make_layer("gatv2", seed, share_weights=True)
    with torch.no_grad():
        layer.lin_l.bias.zero_()
    x, _ = random_graph(seed, num_nodes=3)
    best = attention(layer, x).argmax(1)  # [queries, H]
    cycles = (torch.tensor([1, 2, 0]), torch.tensor([2, 0, 1]))
    assert not any((best[:, head] == cycle).all() for head in range(H) for cycle in cycles)


def test_dpgat_realises_any_permutation_of_independent_nodes() -> None:
    """Theorem 3: X = U S Vᵀ, Q = V S⁻¹, K = V S⁻¹ Uᵀ Pᵀ U give (X Q)(X K)ᵀ = P."""
    x = torch.randn(IN, IN, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    permutation = torch.tensor([1, 2, 0])
    u, s, vh = torch.linalg.svd(x)
    to_query = vh.T / s
    to_key = to_query @ u.T @ torch.eye(IN).double()[permutation].T @ u
    layer = DPGATConv(IN, IN, add_self_loops=False).double()
    with torch.no_grad():
        layer.lin_r.weight.copy_(to_query.T)
        layer.lin_l.weight.copy_(to_key.T)
    weight = attention(layer, x)[..., 0]
    assert torch.equal(weight.argmax(1), permutation)
    expected = torch.eye(IN).double()[permutation] / math.sqrt(IN)
    torch.testing.assert_close(weight, expected.softmax(1))


@few
@given(seed=seeds, fraction=st.floats(0.05, 0.95))
def test_dpgat_never_selects_the_middle_of_three_collinear_keys(seed, fraction) -> None:
    layer, (x, _) = make_layer("dpgat", seed), random_graph(seed)
    first, last = x[0], x[1]
    keys = torch.stack([first, (1 - fraction) * first + fraction * last, last])
    edge_index = torch.stack(
        [torch.arange(3).repeat(len(x)), torch.arange(len(x)).repeat_interleave(3)]
    )
    _, (_, weight) = layer((keys, x), edge_index, return_attention_weights=True)
    _, middle, _ = weight.view(len(x), 3, H).unbind(1)
    ends = weight.view(len(x), 3, H)[:, ::2].amax(1)
    assert (middle <= ends + 1e-12).all()


def test_gatv2_can_select_the_middle_of_three_collinear_keys() -> None:
    """a = (-1, -1) over z and -z with slope 0 is -|z|: highest where z = x_j - 1 = 0."""
    layer = GATv2Conv(1, 2, negative_slope=0.0, add_self_loops=False).double()
    with torch.no_grad():
        layer.lin_l.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        layer.lin_l.bias.copy_(torch.tensor([-1.0, 1.0]))
        layer.lin_r.weight.zero_(), layer.lin_r.bias.zero_()
        layer.att.fill_(-1.0)
    x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    assert (attention(layer, x)[..., 0].argmax(1) == 1).all()


# The symmetries


@few
@given(seed=seeds)
@every_mechanism
def test_permuting_the_nodes_permutes_the_outputs(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed, residual=True), random_graph(seed)
    order = torch.randperm(len(x))
    new_index = order.argsort()
    torch.testing.assert_close(layer(x[order], new_index[edge_index]), layer(x, edge_index)[order])


@few
@given(seed=seeds)
@every_mechanism
def test_the_order_of_the_edges_does_not_matter(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed, edge_dim=2), random_graph(seed)
    edge_attr = torch.randn(edge_index.shape[1], 2, dtype=torch.float64)
    order = torch.randperm(edge_index.shape[1])
    shuffled = layer(x, edge_index[:, order], edge_attr[order])
    torch.testing.assert_close(shuffled, layer(x, edge_index, edge_attr))


@few
@given(seed=seeds)
@every_mechanism
def test_duplicating_all_edges_leaves_the_output_unchanged(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    torch.testing.assert_close(layer(x, edge_index.repeat(1, 3)), layer(x, edge_index))


@few
@given(seed=seeds)
@every_mechanism
def test_weights_are_positive_and_sum_to_one_over_the_keys_of_a_query(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    _, (_, weight) = layer(x, edge_index, return_attention_weights=True)
    assert (weight > 0).all()
    total = torch.zeros(len(x), H, dtype=x.dtype).index_add(0, edge_index[1], weight)
    has_keys = torch.bincount(edge_index[1], minlength=len(x)) > 0
    torch.testing.assert_close(total, has_keys[:, None].expand(-1, H).to(total))


@few
@given(seed=seeds)
@every_mechanism
def test_an_isolated_query_gets_the_bias_only(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    kept = edge_index[:, edge_index[1] != 0]
    torch.testing.assert_close(layer(x, kept)[0], layer.bias.detach())


@few
@given(seed=seeds)
@every_mechanism
def test_a_query_depends_only_on_itself_and_its_keys(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    keys = edge_index[0][edge_index[1] == 2]
    unrelated = torch.ones(len(x), dtype=torch.bool)
    unrelated[keys], unrelated[2] = False, False
    changed = torch.where(unrelated[:, None], torch.randn_like(x), x)
    torch.testing.assert_close(layer(changed, edge_index)[2], layer(x, edge_index)[2])


@few
@given(seed=seeds)
@every_mechanism
def test_graphs_in_a_batch_do_not_influence_each_other(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    other, other_index = random_graph(seed + 1, num_nodes=4, num_edges=9)
    joined = layer(torch.cat([x, other]), torch.cat([edge_index, other_index + len(x)], 1))
    torch.testing.assert_close(joined, torch.cat([layer(x, edge_index), layer(other, other_index)]))


@few
@given(seed=seeds)
@every_mechanism
def test_a_graph_gives_the_same_result_as_its_edge_index(mechanism, seed) -> None:
    layer, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    graph = Graph.from_edge_index(edge_index, len(x))
    assert torch.equal(layer(x, graph), layer(x, edge_index))


@few
@given(seed=seeds)
@every_mechanism
def test_relations_with_equal_weights_change_nothing(mechanism, seed) -> None:
    plain, (x, edge_index) = make_layer(mechanism, seed), random_graph(seed)
    shared = {} if mechanism == "gat" else {"share_weights": True}
    plain = make_layer(mechanism, seed, **shared)
    relational = make_layer(mechanism, seed, num_relations=3, **shared)
    state = {
        name: value if name == "bias" else value.repeat(3, *[1] * (value.dim() - 1))
        for name, value in plain.state_dict().items()
    }
    relational.load_state_dict(state)
    relation = torch.randint(3, edge_index.shape[1:])
    torch.testing.assert_close(relational(x, edge_index, relation=relation), plain(x, edge_index))


@every_mechanism
@few
@given(seed=seeds)
def test_queries_can_share_rows_of_a_table(mechanism, seed) -> None:
    """with_query_rows gives the outputs and gradients of a table with one row per query."""
    layer, (x, _) = make_layer(mechanism, seed, residual=True), random_graph(seed)
    row = torch.randint(len(x), (30,))
    graph = Graph.from_edges(torch.randint(30, (60,)), torch.randint(len(x), (60,)), 30, len(x))
    x.requires_grad_()
    shared = layer(x, graph.with_query_rows(row, len(x)))
    (shared_gradient,) = torch.autograd.grad(shared.square().sum(), x)
    if mechanism == "gat":  # its weights have other names if x is a pair
        pair = GATConv((IN, IN), C, heads=H, add_self_loops=False, residual=True).double()
        state = layer.state_dict()
        state["lin_src.weight"] = state["lin_dst.weight"] = state.pop("lin.weight")
        pair.load_state_dict(state)
    else:
        pair = layer
    separate = pair((x, x[row]), graph)
    (gradient,) = torch.autograd.grad(separate.square().sum(), x)
    torch.testing.assert_close(shared, separate)
    torch.testing.assert_close(shared_gradient, gradient)


def test_rows_of_queries_are_checked() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([0, 0]), 2, 1)
    with pytest.raises(ValueError, match=r"query_row must lie in \[0, 3\), but holds 3"):
        graph.with_query_rows(torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match=r"query_row must have shape \[2\] .* but has shape \[1\]"):
        graph.with_query_rows(torch.tensor([0]), 3)
    shared = graph.with_query_rows(torch.tensor([0, 2]), 3)
    assert shared.to("cpu").num_query_rows == 3
    with pytest.raises(ValueError, match="with_self_loops must be called before with_query_rows"):
        shared.with_self_loops()
    x = torch.randn(1, IN), torch.randn(2, IN)
    with pytest.raises(ValueError, match=r"edge_index implies 3 queries, but x has 2"):
        GATv2Conv(IN, C, add_self_loops=False)(x, shared)
