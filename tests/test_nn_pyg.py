"""The layers equal PyG's in every option: outputs, gradients, weights, initial values, names."""

from __future__ import annotations

import copy
import inspect
from itertools import product

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv import MessagePassing

import dynagat
from dynagat.nn import loops

NAMES = ("GATConv", "GATv2Conv")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its own formats beta
N, E, IN, C, D = 8, 30, 5, 4, 3


@pytest.fixture(autouse=True)
def _warned_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_warned", True)


def pair(name: str, in_channels=IN, **options):
    """Our layer and PyG's, initialised with the same seed, in float64."""
    layers = []
    for library in (dynagat, pyg):
        torch.manual_seed(7)
        layers.append(getattr(library, name)(in_channels, C, **options).double())
    return layers


def edges(seed: int = 0, num_keys: int = N, num_queries: int = N, num_edges: int = E) -> Tensor:
    """Random edges with duplicates, including self-loops (0, 0) twice and (1, 1) once."""
    generator = torch.Generator().manual_seed(seed)
    key = torch.randint(num_keys, (num_edges,), generator=generator)
    query = torch.randint(num_queries, (num_edges,), generator=generator)
    edge_index = torch.stack([key, query])
    edge_index[:, :4] = torch.tensor([[0, 0, 1, 2], [0, 0, 1, 3]])
    return edge_index


def numbers(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def results(layer, x, edge_index, edge_attr=None, **options) -> dict[str, Tensor]:
    """The output, the weights, and the gradients of a fixed projection of both."""
    features = [t for t in (x if isinstance(x, tuple) else (x,)) if t is not None]
    inputs = {f"x[{i}]": t.clone().requires_grad_() for i, t in enumerate(features)}
    given = tuple(inputs.values())
    given = (*given, None) if isinstance(x, tuple) and x[1] is None else given
    if edge_attr is not None:
        edge_attr = inputs["edge_attr"] = edge_attr.clone().requires_grad_()
    out, (_, alpha) = layer(
        given if isinstance(x, tuple) else given[0],
        edge_index,
        edge_attr,
        return_attention_weights=True,
        **options,
    )
    loss = (out * numbers(*out.shape)).sum() + (alpha * numbers(*alpha.shape, seed=2)).sum()
    leaves = inputs | dict(layer.named_parameters())
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    named = dict(zip(leaves, gradients, strict=True))
    return {"out": out, "alpha": alpha} | {f"d {k}": g for k, g in named.items() if g is not None}


def assert_same(ours, theirs, *args, **options) -> None:
    actual, expected = results(ours, *args, **options), results(theirs, *args, **options)
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, msg=lambda text, n=name: f"{n}: {text}")


SWITCHES = list(product((1, 3), (True, False), (True, False), (True, False), (True, False)))


@pytest.mark.parametrize(("heads", "concat", "bias", "residual", "add_self_loops"), SWITCHES)
@pytest.mark.parametrize("name", NAMES)
def test_every_switch_does_what_it_does_in_pyg(
    name, heads, concat, bias, residual, add_self_loops
) -> None:
    options = {"heads": heads, "concat": concat, "bias": bias, "residual": residual}
    layers = pair(name, add_self_loops=add_self_loops, **options)
    assert_same(*layers, numbers(N, IN), edges())


@pytest.mark.parametrize("in_channels", [IN, (IN, IN)])
def test_shared_weights_are_shared_as_in_pyg(in_channels) -> None:
    layers = pair("GATv2Conv", in_channels, share_weights=True, heads=2)
    assert layers[0].lin_r is layers[0].lin_l
    assert_same(*layers, numbers(N, IN), edges())


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("name", NAMES)
def test_negative_slope_works_as_in_pyg(name, slope) -> None:
    assert_same(*pair(name, negative_slope=slope), numbers(N, IN), edges())


FILLS = ["add", "sum", "mean", "min", "max", "mul", 0.5, 2, torch.tensor([1.0, -2.0, 3.0])]


@pytest.mark.parametrize("fill_value", FILLS, ids=str)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("name", NAMES)
def test_edge_features_of_loops_are_filled_as_in_pyg(name, flow, fill_value) -> None:
    layers = pair(name, heads=2, edge_dim=D, fill_value=fill_value, flow=flow)
    assert_same(*layers, numbers(N, IN), edges(), numbers(E, D, seed=5))


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_one_dimensional_edge_features_are_one_feature(name, add_self_loops) -> None:
    layers = pair(name, edge_dim=1, add_self_loops=add_self_loops)
    assert_same(*layers, numbers(N, IN), edges(), numbers(E, seed=5))


@pytest.mark.parametrize("name", NAMES)
def test_without_edges_the_same_parameters_have_gradients_as_in_pyg(name) -> None:
    ours, theirs = pair(name, edge_dim=D, add_self_loops=False)
    assert_same(ours, theirs, numbers(N, IN), edges()[:, :0], numbers(0, D))


@pytest.mark.parametrize("edge_dim", [None, D])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("name", NAMES)
def test_flow_works_as_in_pyg(name, flow, edge_dim) -> None:
    layers = pair(name, heads=2, flow=flow, edge_dim=edge_dim, add_self_loops=False)
    assert_same(*layers, numbers(N, IN), edges(), numbers(E, D) if edge_dim else None)


@pytest.mark.parametrize("in_channels", [IN, (IN, IN), (IN, 7)])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("num_queries", [5, 8, 11])
@pytest.mark.parametrize("name", NAMES)
def test_a_pair_of_node_sets_works_as_in_pyg(
    name, num_queries, add_self_loops, residual, in_channels
) -> None:
    layers = pair(name, in_channels, heads=2, add_self_loops=add_self_loops, residual=residual)
    width = 7 if in_channels == (IN, 7) else IN
    x = (numbers(N, IN), numbers(num_queries, width, seed=3))
    assert_same(*layers, x, edges(num_queries=num_queries))


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_with_edge_features_and_no_loops_works_as_in_pyg(name) -> None:
    edge_index = edges(num_queries=5)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x = (numbers(N, IN), numbers(5, IN, seed=3))
    edge_attr = numbers(edge_index.shape[1], D, seed=5)
    assert_same(*pair(name, heads=2, edge_dim=D), x, edge_index, edge_attr)


@pytest.mark.parametrize("name", NAMES)
def test_in_a_pair_the_last_real_loop_keeps_its_features(name) -> None:
    ours, theirs = pair(name, edge_dim=D)
    edge_index, edge_attr = edges(num_queries=5), numbers(E, D, seed=5)
    x = (numbers(N, IN), numbers(5, IN, seed=3))
    expected_index, expected_attr = remaining_loops(edge_index, edge_attr, 5)
    theirs.add_self_loops = False
    expected = theirs(x, expected_index, expected_attr)
    torch.testing.assert_close(ours(x, edge_index, edge_attr), expected)


def remaining_loops(edge_index: Tensor, edge_attr: Tensor, num_loops: int):
    """Self-loops after the other edges: features of the last real one, or the query's mean."""
    kept = edge_index[0] != edge_index[1]
    features = []
    for node in range(num_loops):
        own = edge_attr[(edge_index == node).all(0)]
        at = edge_attr[kept & (edge_index[1] == node)]
        features.append(own[-1] if len(own) else at.mean(0) if len(at) else torch.zeros(D))
    loop = torch.arange(num_loops).expand(2, -1)
    index = torch.cat([edge_index[:, kept], loop], dim=1)
    return index, torch.cat([edge_attr[kept], torch.stack(features)])


@pytest.mark.parametrize("size", [None, (N, N), (N, 5)])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("in_channels", [IN, (IN, 7)])
def test_gat_queries_without_features_work_as_in_pyg(in_channels, add_self_loops, size) -> None:
    layers = pair("GATConv", in_channels, heads=2, add_self_loops=add_self_loops, residual=True)
    num_queries = N if size is None else size[1]
    x = (numbers(N, IN), None)
    assert_same(*layers, x, edges(num_queries=num_queries), size=size)


def test_size_is_at_the_same_position_as_in_pyg() -> None:
    ours, theirs = pair("GATConv")
    x, edge_index = numbers(N, IN), edges()
    torch.testing.assert_close(
        ours(x, edge_index, None, (N, N)), theirs(x, edge_index, None, (N, N))
    )
    assert list(inspect.signature(ours.forward).parameters)[:5] == list(
        inspect.signature(theirs.forward).parameters
    )


@pytest.mark.parametrize("name", NAMES)
def test_constructor_takes_pygs_arguments_in_pygs_order(name) -> None:
    theirs = list(inspect.signature(getattr(pyg, name)).parameters)[:-1]  # without **kwargs
    ours = list(inspect.signature(getattr(dynagat, name)).parameters)
    assert ours[: len(theirs)] == theirs


# Sparse adjacencies


def adjacency(layout: torch.layout, values: Tensor | None = None, *, square: bool = True) -> Tensor:
    """PyG's adj_t: rows are queries. Its entries are unique and include two self-loops."""
    key, query = torch.unique(edges(num_queries=N if square else 5).flip(0), dim=1).flip(0)
    num_entries = len(key)
    entries = torch.rand(num_entries).double() if values is None else values[:num_entries]
    shape = (N if square else 5, N, *entries.shape[1:])
    indices = torch.stack([query, key])
    adj_t = torch.sparse_coo_tensor(indices, entries, shape, is_coalesced=True)
    if layout == torch.sparse_csr:
        rowptr = torch.cat([torch.zeros(1), torch.bincount(query, minlength=shape[0]).cumsum(0)])
        return torch.sparse_csr_tensor(rowptr.long(), key, entries, shape)
    return adj_t


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("edge_dim", [None, D])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_sparse_adjacency_works_as_in_pyg(name, layout, edge_dim, add_self_loops) -> None:
    layers = pair(name, heads=2, edge_dim=edge_dim, add_self_loops=add_self_loops)
    adj_t = adjacency(layout, numbers(E, D) if edge_dim else None)
    ours, theirs = layers
    x = numbers(N, IN)
    out, (adj, alpha) = ours(x, adj_t, return_attention_weights=True)
    torch.testing.assert_close(out, theirs(x, adj_t))
    torch.testing.assert_close(adj.values(), alpha)
    assert adj.layout == layout
    if edge_dim is None:  # with features in the matrix, PyG 2.8 can't return its weights
        _, (expected_adj, expected_alpha) = theirs(x, adj_t, return_attention_weights=True)
        torch.testing.assert_close(alpha, expected_alpha)
        torch.testing.assert_close(adj.to_dense(), expected_adj.to_dense())


@pytest.mark.parametrize("name", NAMES)
def test_a_sparse_adjacency_of_a_pair_works_as_in_pyg(name) -> None:
    adj_t = adjacency(torch.sparse_coo, square=False)
    x = (numbers(N, IN), numbers(5, IN, seed=3))
    for add_self_loops in (True, False):
        assert_same(*pair(name, add_self_loops=add_self_loops), x, adj_t)


@pytest.mark.parametrize("name", NAMES)
def test_a_csc_adjacency_equals_its_coo(name) -> None:
    ours, _ = pair(name, heads=2)
    adj_t = adjacency(torch.sparse_coo)
    x = numbers(N, IN)
    out, (adj, alpha) = ours(x, adj_t.to_sparse_csc(), return_attention_weights=True)
    expected, (expected_adj, _) = ours(x, adj_t, return_attention_weights=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(adj.to_dense(), expected_adj.to_dense())
    torch.testing.assert_close(adj.values(), alpha)


def test_flow_cannot_be_reversed_on_a_sparse_adjacency() -> None:
    layer = dynagat.GATConv(IN, C, flow="target_to_source").double()
    with pytest.raises(ValueError, match="transpose the sparse adjacency"):
        layer(numbers(N, IN), adjacency(torch.sparse_coo))


@pytest.mark.parametrize("name", NAMES)
def test_pygs_edge_index_class_works_as_a_tensor(name) -> None:
    ours, _ = pair(name)
    x, edge_index = numbers(N, IN), edges()
    wrapped = EdgeIndex(edge_index, sparse_size=(N, N))
    torch.testing.assert_close(ours(x, wrapped), ours(x, edge_index))


class SparseTensor:
    """A minimal torch_sparse.SparseTensor: only the methods that the layers call."""

    def __init__(self, row, col, value, sparse_sizes) -> None:
        self.parts, self.sizes = (row, col, value), sparse_sizes

    def coo(self):
        return self.parts

    def sparse_sizes(self):
        return self.sizes

    def set_value(self, value):
        raise NotImplementedError


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_torch_sparse_is_read_and_returned(name, add_self_loops) -> None:
    ours, theirs = pair(name, heads=2, add_self_loops=add_self_loops)
    adj_t = adjacency(torch.sparse_coo)
    given = SparseTensor(*adj_t.indices(), None, (N, N))
    x = numbers(N, IN)
    out, returned = ours(x, given, return_attention_weights=True)
    expected, (adj, alpha) = theirs(x, adj_t, return_attention_weights=True)
    torch.testing.assert_close(out, expected)
    row, col, value = returned.coo()
    torch.testing.assert_close(torch.stack([row, col]), adj.indices())
    torch.testing.assert_close(value, alpha)


# Weights


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", NAMES)
def test_returned_edges_equal_pygs(name, dtype, add_self_loops) -> None:
    layers = pair(name, add_self_loops=add_self_loops)
    edge_index = edges().to(dtype)
    returned, expected = (
        layer(numbers(N, IN), edge_index, return_attention_weights=True)[1][0] for layer in layers
    )
    assert returned.dtype == dtype
    assert torch.equal(returned.long(), expected.long())


@pytest.mark.parametrize("requested", [None, False, 0, True, 1])
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_returned_if_pyg_returns_them(name, requested) -> None:
    kinds = [
        type(layer(numbers(N, IN), edges(), return_attention_weights=requested))
        for layer in pair(name)
    ]
    assert kinds[0] is kinds[1]


# Parameters

OPTIONS = [
    {},
    {"heads": 3, "concat": False, "residual": True},
    {"heads": 2, "edge_dim": D, "bias": False},
    {"edge_dim": D, "residual": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("in_channels", [IN, (IN, 7)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_initial_values(name, in_channels, options) -> None:
    ours, theirs = pair(name, in_channels, **options)
    assert_equal_states(ours, theirs)
    assert repr(ours) == repr(theirs)
    for layer in (ours, theirs):
        torch.manual_seed(11)
        layer.reset_parameters()
    assert_equal_states(ours, theirs)


def test_shared_weights_have_the_same_initial_values() -> None:
    assert_equal_states(*pair("GATv2Conv", share_weights=True, heads=2))


def assert_equal_states(ours, theirs) -> None:
    mine, yours = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(yours)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    for key, value in yours.items():
        assert torch.equal(mine[key], value), key


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("in_channels", [-1, (-1, -1)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_lazy_widths_give_the_same_initial_values(name, in_channels, options) -> None:
    ours, theirs = pair(name, in_channels, **options)
    assert repr(ours) == repr(theirs)
    edge_attr = numbers(E, D) if "edge_dim" in options else None
    for layer in (ours, theirs):
        torch.manual_seed(3)
        layer(numbers(N, IN), edges(), edge_attr)
    assert_equal_states(ours, theirs)
    assert_same(ours, theirs, numbers(N, IN), edges(), edge_attr)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", NAMES)
def test_the_edge_width_may_be_lazy(name) -> None:
    ours, theirs = pair(name, -1, edge_dim=-1)
    for layer in (ours, theirs):
        torch.manual_seed(3)
        layer(numbers(N, IN), edges(), numbers(E, D))
    assert_equal_states(ours, theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("in_channels", [IN, (IN, 7), -1], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_go_both_ways(name, in_channels, options) -> None:
    ours, theirs = pair(name, in_channels, **options)
    for giver, taker in ((ours, theirs), (theirs, ours)):
        torch.manual_seed(13)
        giver.reset_parameters()
        taker.load_state_dict(giver.state_dict())
        if in_channels != -1:
            assert_equal_states(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_initialises_a_lazy_layer_or_makes_a_layer_lazy(name) -> None:
    ours, theirs = pair(name)
    lazy_ours, lazy_theirs = pair(name, -1)
    lazy_ours.load_state_dict(theirs.state_dict())
    assert_same(lazy_ours, theirs, numbers(N, IN), edges())
    ours.load_state_dict(lazy_theirs.state_dict())
    ours(numbers(N, IN + 1), edges())  # takes its width from x again


def test_a_copied_lazy_layer_is_lazy() -> None:
    layer = dynagat.GATv2Conv(-1, C)
    copied = copy.deepcopy(layer)
    assert copied(torch.randn(N, IN), edges()).shape == (N, C)
    assert layer.lin_l.is_lazy


@pytest.mark.parametrize("name", NAMES)
def test_a_pyg_model_computes_the_same_with_our_layers(name) -> None:
    """PyG's own model with two layers."""
    torch.manual_seed(0)
    theirs = pyg.models.GAT(IN, 6, 2, out_channels=3, heads=2, v2=name == "GATv2Conv").double()
    assert all(isinstance(conv, MessagePassing) for conv in theirs.convs)
    x, edge_index = numbers(N, IN), edges()
    expected = theirs(x, edge_index)
    dynagat.accelerate(theirs)
    torch.testing.assert_close(theirs(x, edge_index), expected)
