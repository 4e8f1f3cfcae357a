"""torch.func: layers under vmap, jacrev and functional_call give what a loop gives."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, jvp, vmap

from dynagat import DPGATConv, GATConv, GATv2Conv

LAYERS = [GATv2Conv, GATConv, DPGATConv]


def layer_and_edges(kind):
    torch.manual_seed(0)
    return kind(4, 3, heads=2).double(), torch.randint(6, (2, 20))


@pytest.mark.parametrize("kind", LAYERS)
def test_vmap_over_features_equals_a_loop(kind):
    layer, edges = layer_and_edges(kind)
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    expected = torch.stack([layer(each, edges) for each in x])
    torch.testing.assert_close(vmap(lambda each: layer(each, edges))(x), expected)


@pytest.mark.parametrize("kind", LAYERS)
def test_vmap_over_parameters_equals_a_loop(kind):
    layer, edges = layer_and_edges(kind)
    x = torch.randn(6, 4, dtype=torch.float64)
    own = dict(layer.named_parameters())
    stacked = {name: torch.randn(3, *each.shape, dtype=each.dtype) for name, each in own.items()}
    out = vmap(lambda parameters: functional_call(layer, parameters, (x, edges)))(stacked)
    for n in range(3):
        single = {name: each[n] for name, each in stacked.items()}
        torch.testing.assert_close(out[n], functional_call(layer, single, (x, edges)))


@pytest.mark.parametrize("kind", LAYERS)
def test_jacrev_equals_the_jacobian_of_autograd(kind):
    layer, edges = layer_and_edges(kind)
    x = torch.randn(6, 4, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(lambda each: layer(each, edges), x)
    torch.testing.assert_close(jacrev(lambda each: layer(each, edges))(x), expected)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_graph_that_is_made_under_grad_can_be_used_after_it(kind):
    layer, edges = layer_and_edges(kind)
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    under_grad = grad(lambda each: layer(each, edges).sum())(x.detach())
    (expected,) = torch.autograd.grad(layer(x, edges).sum(), x)
    torch.testing.assert_close(under_grad, expected)


@pytest.mark.native
def test_jvp_says_that_it_is_not_supported():
    layer, edges = layer_and_edges(GATv2Conv)
    x = torch.randn(6, 4, dtype=torch.float64)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        jvp(lambda each: layer(each, edges), (x,), (x,))
