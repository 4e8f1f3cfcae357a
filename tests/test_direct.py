"""A layer called on plain tensors is one node of autograd, with the results of the general way."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from dynagat import DPGATConv, GATConv, GATv2Conv, Graph
from dynagat.nn import core, gat
from dynagat.ops import devices, project
from dynagat.ops import layer as layer_ops

aten = torch.ops.aten
pytestmark = pytest.mark.native

LAYERS = {
    "gat": (GATConv, {}),
    "gatv2": (GATv2Conv, {}),
    "gatv2-shared": (GATv2Conv, {"share_weights": True}),
    "dpgat": (DPGATConv, {}),
    "dpgat-shared": (DPGATConv, {"share_weights": True}),
    "no bias": (GATv2Conv, {"bias": False}),
    "narrow": (GATv2Conv, {"heads": 1}),
    "dropout": (GATv2Conv, {"dropout": 0.5}),
    "no loops": (GATConv, {"add_self_loops": False}),
}
SIZES = {"small": (30, 10), "large": (600, 60)}  # nodes, columns of x


@pytest.fixture(params=LAYERS)
def layer(request):
    torch.manual_seed(0)
    kind, options = LAYERS[request.param]
    return lambda width: kind(width, 7, **{"heads": 3, **options}).double()


def draw(size, *, density=1.0):
    num_nodes, width = SIZES[size]
    x = torch.randn(num_nodes, width, dtype=torch.float64)
    x = x * (torch.rand_like(x) < density)
    return x, torch.randint(num_nodes, (2, 4 * num_nodes))


def results(layer, x, edges):
    """The output, and the gradients of x and all parameters."""
    torch.manual_seed(1)
    out = layer(x, edges)
    gradient = torch.linspace(-1, 1, out.numel(), dtype=x.dtype).view_as(out)
    leaves = [*layer.parameters(), *([x] if x.requires_grad else [])]
    return [out, *torch.autograd.grad(out, leaves, gradient)]


def is_direct(out):
    return type(out.grad_fn).__name__ == "_LayerBackward"


def in_general(monkeypatch, layer, x, edges):
    with monkeypatch.context() as patch:
        patch.setattr(core, "call_directly", lambda *_: None)
        return results(layer, x, edges)


@pytest.mark.parametrize("size", SIZES)
def test_a_direct_call_equals_the_general_way(layer, size, monkeypatch):
    x, edges = draw(size)
    layer, x = layer(x.shape[1]), x.requires_grad_()
    found, expected = results(layer, x, edges), in_general(monkeypatch, layer, x, edges)
    assert is_direct(found[0])
    assert not is_direct(expected[0])
    for result, other in zip(found, expected, strict=True):
        torch.testing.assert_close(result, other)
    if not layer.dropout:
        with torch.no_grad():
            assert layer(x, edges).equal(found[0])


def test_zeros_are_skipped_in_a_direct_call_too(layer, monkeypatch):
    monkeypatch.setattr("dynagat.ops.sparse.FEWEST", 1)
    x, edges = draw("large", density=0.05)
    layer = layer(x.shape[1])
    found, expected = results(layer, x, edges), in_general(monkeypatch, layer, x, edges)
    assert is_direct(found[0])
    for result, other in zip(found, expected, strict=True):
        torch.testing.assert_close(result, other)


@pytest.mark.parametrize("size", SIZES)
def test_a_direct_call_has_the_same_bits_for_any_number_of_threads(layer, size):
    x, edges = draw(size)
    layer, before = layer(x.shape[1]), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = results(layer, x, edges)
        torch.set_num_threads(3)
        three = results(layer, x, edges)
    finally:
        torch.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(one, three, strict=True))


def test_gradients_of_gradients_are_refused_with_the_ops_own_sentence(layer, monkeypatch):
    x, edges = draw("small")
    layer, x = layer(x.shape[1]), x.requires_grad_()
    expected = results(layer, x, edges)[1:]
    torch.manual_seed(1)
    out = layer(x, edges)
    gradient = torch.linspace(-1, 1, out.numel(), dtype=x.dtype).view_as(out)
    leaves = [*layer.parameters(), x]
    found = torch.autograd.grad(out, leaves, gradient, create_graph=True)
    for result, other in zip(found, expected, strict=True):
        torch.testing.assert_close(result, other)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        found[-1].sum().backward()


def test_only_the_wanted_gradients_are_computed():
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 4, heads=2).double()
    layer.lin_l.weight.requires_grad_(False)
    layer.bias.requires_grad_(False)
    layer(x, edges).sum().backward()
    assert layer.lin_l.weight.grad is None
    assert layer.bias.grad is None
    assert layer.lin_r.weight.grad.abs().sum() > 0


def test_a_bias_may_change_before_the_backward_pass_unless_it_is_needed_there():
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 4, heads=2).double()
    for needs_graph in (False, True):
        out = layer(x, edges).sum()
        with torch.no_grad():
            layer.bias += 1
        if not needs_graph:
            out.backward()
            continue
        with pytest.raises(RuntimeError, match="modified in place"):
            torch.autograd.grad(out, layer.att, create_graph=True)


def test_hooks_of_a_projection_are_called():
    x, edges = draw("small")
    layer, calls = GATConv(x.shape[1], 4).double(), []
    layer(x, edges)
    layer.lin.register_forward_hook(lambda *_: calls.append(1))
    assert not is_direct(layer(x, edges))
    assert calls == [1]


def test_what_is_unusual_takes_the_general_way():
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 4, heads=2).double()
    assert is_direct(layer(x, edges))
    graph = Graph.from_edge_index(edges, len(x))
    assert is_direct(layer(x, graph))
    assert not is_direct(layer(x[None], edges))
    assert not is_direct(layer((x, x), edges))
    assert not is_direct(layer(x, edges, return_attention_weights=True)[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_direct(layer.float()(x.float(), edges))


def test_tangents_of_forward_mode_are_never_dropped(layer):
    x, edges = draw("small")
    layer = layer(x.shape[1])
    refused = pytest.raises(NotImplementedError, match="no forward-mode derivative")
    with forward_ad.dual_level(), torch.no_grad(), refused:
        layer(forward_ad.make_dual(x, x), edges)


def test_the_checks_of_bad_input_are_those_of_the_general_way():
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 4).double()
    layer(x, edges)
    with pytest.raises(ValueError, match="x must have 10 features"):
        layer(x[:, :9], edges)
    with pytest.raises(TypeError, match=r"x must have dtype torch\.float64"):
        layer(x.float(), edges)
    with pytest.raises(ValueError, match=r"must lie in \[0, 30\)"):
        layer(x, edges + 29)
    edges[0, 0] = 99
    with pytest.raises(ValueError, match=r"must lie in \[0, 30\), but holds 99"):
        layer(x, edges)


@pytest.mark.parametrize("name", ["att", "bias", "lin_l.weight", "lin_l.bias"])
def test_a_parameter_of_another_shape_is_never_read_directly(name):
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 4, heads=2).double()
    parameter = layer.get_parameter(name)
    parameter.data = parameter.data.flatten()[:3].clone()
    with pytest.raises((ValueError, RuntimeError)):
        layer(x, edges)


@pytest.mark.parametrize("name", ["rowptr", "key_index", "key_position"])
def test_changed_arrays_of_a_graph_are_found(name):
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 4, add_self_loops=False).double()
    for change in (lambda array: array.fill_(1000), lambda array: array.resize_(3)):
        graph = Graph.from_edge_index(edges, len(x))
        out = layer(x, graph).sum()
        change(getattr(graph, name))
        with pytest.raises(ValueError, match=f"{name}|vectors of equal length"):
            out.backward()


def test_the_gradient_of_a_weight_does_not_depend_on_the_order_of_its_product():
    for width in (3, 20, 40):
        x, dout = torch.randn(50, width), torch.randn(50, 24)
        gradient = project.weight_gradient(x, dout)
        assert gradient.is_contiguous()
        torch.testing.assert_close(gradient, dout.t() @ x)


def test_small_products_equal_those_of_torch(monkeypatch):
    x, edges = draw("small")
    layer = GATv2Conv(x.shape[1], 5, heads=2).double()
    small = results(layer, x, edges)
    monkeypatch.setattr(layer_ops, "SMALL", 0)
    for result, other in zip(small, results(layer, x, edges), strict=True):
        torch.testing.assert_close(result, other)
    torch.testing.assert_close(layer.lin_l(x), F.linear(x, layer.lin_l.weight, layer.lin_l.bias))


WIDE = GATConv(6, 32, heads=8).double()  # W x is much wider than x


def test_scores_of_gat_are_computed_without_reading_x_again(monkeypatch):
    counts = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            counts[-1] += func in (aten.mm.default, aten.addmm.default, aten.mm.out)
            return func(*args, **(kwargs or {}))

    x = torch.randn(1100, 6, dtype=torch.float64, requires_grad=True)
    edges = torch.randint(1100, (2, 3000))
    for _ in range(2):  # with native scores, then with plain ones
        with Counting():
            counts.append(0)
            out = WIDE(x, edges)
            counts.append(0)
            out.sum().backward()
        monkeypatch.setattr(gat, "is_native", lambda *_: False)
    assert counts == [1, 2, 2, 4]
    assert is_direct(WIDE(x, edges))


def test_the_scores_of_a_wide_layer_equal_those_of_the_definition(monkeypatch, threads):
    x = torch.randn(1100, 6, dtype=torch.float64, requires_grad=True)
    edges = torch.randint(1100, (2, 3000))
    threads(1)
    one = results(WIDE, x, edges)
    threads(3)
    three = results(WIDE, x, edges)
    assert all(a.equal(b) for a, b in zip(one, three, strict=True))
    monkeypatch.setattr(devices, "forced", "reference")
    for native in (True, False):
        monkeypatch.setattr(gat, "is_native", lambda *_, native=native: native)
        for result, other in zip(one, results(WIDE, x, edges), strict=True):
            torch.testing.assert_close(result, other)


@pytest.mark.parametrize("width", [5, 40])
def test_the_key_scores_of_a_pair_are_the_same_from_x_and_from_the_projected_rows(
    width, monkeypatch
):
    x, edges = torch.randn(30, width, dtype=torch.float64, requires_grad=True), draw("small")[1]
    layer = GATConv((width, width), 7, heads=3, add_self_loops=False).double()
    graph = Graph.from_edges(edges[0] % 20, edges[1], 20, num_keys=30)

    def both():
        out = layer((x, x[:20]), graph)
        return [out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]

    found = both()
    monkeypatch.setattr(gat, "is_native", lambda *_: False)
    for result, other in zip(found, both(), strict=True):
        torch.testing.assert_close(result, other)
