"""pair_linear: the native decoder of pairs equals its definition, whatever the pairs are."""

import pytest
import torch

from dynagat import ops
from dynagat.native import kernels
from dynagat.nn.readout import PairReadout
from dynagat.ops import pairs as native
from dynagat.ops import reference

NODES, CHANNELS, OUT = 50, 7, 5
native_only = pytest.mark.native


def made(num_pairs=300, nodes=NODES, channels=CHANNELS, out=OUT, dtype=torch.float64):
    """x, pairs, weight and bias; some pairs are of one node, and some nodes are in many pairs."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return numbers.to(dtype).requires_grad_()

    pairs = torch.randint(nodes, (num_pairs, 2), generator=generator)
    pairs[::5, 1] = pairs[::5, 0]
    pairs[1::3, 0] = min(3, nodes - 1)
    return draw(nodes, channels), pairs, draw(out, channels), draw(out)


def results(function, x, pairs, weight, bias):
    """out and the gradients of x, weight and bias."""
    out = function(x, pairs, weight, bias)
    gradient = torch.linspace(-1, 3, out.numel(), dtype=torch.float64).view(out.shape).to(out.dtype)
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]


@native_only
@pytest.mark.parametrize("num_pairs", [0, 1, 2, 300, 20_000])
@pytest.mark.parametrize("channels", [1, 7, 8, 64])
def test_the_native_op_equals_its_definition(num_pairs, channels):
    inputs = made(num_pairs, channels=channels)
    for one, other in zip(
        results(native.pair_linear, *inputs), results(reference.pair_linear, *inputs), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-9)


@native_only
def test_float32_errs_by_no_more_than_rounding():
    x, pairs, weight, bias = made(5_000, nodes=300, channels=64, out=64, dtype=torch.float32)
    doubles = (x.double(), pairs, weight.double(), bias.double())
    exact = results(reference.pair_linear, *doubles)
    found = results(native.pair_linear, x, pairs, weight, bias)
    for one, right in zip(found, exact, strict=True):
        # Sums of up to 5,000 terms: each rounds by at most 6e-8 of a sum that grows.
        assert (one - right).abs().max() <= 2e-6 * right.abs().max()


@native_only
def test_gradients_are_those_of_finite_differences_also_second_ones():
    x, pairs, weight, bias = made(9, nodes=4, channels=3, out=2)

    def call(*leaves):
        return native.pair_linear(leaves[0], pairs, *leaves[1:])

    assert torch.autograd.gradcheck(call, (x, weight, bias))
    assert torch.autograd.gradgradcheck(call, (x, weight, bias))


@native_only
def test_bits_do_not_depend_on_threads(threads):
    """One node is in more pairs than a task holds; dz is made in several parts."""
    x, pairs, weight, bias = made(40_000, nodes=900, channels=12, dtype=torch.float32)
    threads(1)
    once = results(native.pair_linear, x, pairs, weight, bias)
    for num_threads in (2, 3, 2, 1):
        threads(num_threads)
        again = results(native.pair_linear, x, pairs, weight, bias)
        for one, other in zip(once[:2], again[:2], strict=True):  # out and dx
            assert torch.equal(one, other)
        for one, other in zip(once[2:], again[2:], strict=True):  # torch's own products and sums
            assert float((one - other).abs().max() / one.abs().max()) < 1e-3


@native_only
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_gradient_is_the_same_in_parts(parts, monkeypatch):
    x, pairs, weight, bias = made(700)
    whole = results(native.pair_linear, x, pairs, weight, bias)
    monkeypatch.setattr(native, "FEWEST", 700 // parts)
    monkeypatch.setattr(native, "BLOCK_BYTES", 700 // parts * CHANNELS * 8)
    for one, other in zip(whole, results(native.pair_linear, x, pairs, weight, bias), strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@native_only
def test_a_pair_of_one_node_counts_twice():
    x = torch.tensor([[3.0], [5.0]], requires_grad=True)
    out = native.pair_linear(x, torch.tensor([[1, 1]]), torch.ones(1, 1))
    assert out.tolist() == [[25.0]]
    out.sum().backward()
    assert x.grad.tolist() == [[0.0], [10.0]]


@native_only
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_pairs_and_x_can_have_any_layout(dtype):
    x, pairs, weight, bias = made()
    expected = results(reference.pair_linear, x, pairs, weight, bias)
    other_pairs = pairs.to(dtype).t().contiguous().t()
    columns = x.detach().t().contiguous().t().requires_grad_()
    assert not columns.is_contiguous()
    found = results(native.pair_linear, columns, other_pairs, weight, bias)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@native_only
def test_an_expanded_gradient_and_a_missing_bias_are_allowed():
    x, pairs, weight, _ = made()
    native.pair_linear(x, pairs, weight).sum().backward()
    (expected,) = torch.autograd.grad(reference.pair_linear(x, pairs, weight).sum(), x)
    assert torch.allclose(x.grad, expected, atol=1e-10)


@native_only
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_only_wanted_gradients_are_computed(wanted):
    x, pairs, *parameters = made()
    leaves = [x.detach(), *(each.detach() for each in parameters)]
    leaves[wanted].requires_grad_()
    native.pair_linear(leaves[0], pairs, *leaves[1:]).sum().backward()
    assert [leaf.grad is not None for leaf in leaves] == [n == wanted for n in range(3)]


@pytest.mark.parametrize("bad", [NODES, -1, 2**40])
@pytest.mark.parametrize("place", [0, 299])
@pytest.mark.parametrize("backend", [pytest.param(native, marks=native_only), reference])
def test_an_index_out_of_range_is_an_error(backend, bad, place):
    x, pairs, weight, bias = made()
    pairs[place, 1] = bad
    with pytest.raises(ValueError, match=rf"^pairs must lie in \[0, 50\), but holds {bad}$"):
        backend.pair_linear(x, pairs, weight, bias)


@native_only
def test_an_index_that_changes_after_forward_is_an_error():
    x, pairs, weight, bias = made()
    out = native.pair_linear(x, pairs, weight, bias)
    pairs.numpy()[7, 0] = NODES  # torch does not see it
    with pytest.raises(ValueError, match=r"pairs must lie in \[0, 50\), but holds 50"):
        out.sum().backward()
    dz, dx = torch.zeros(len(pairs), CHANNELS), torch.zeros(NODES, CHANNELS)
    with pytest.raises(ValueError, match=r"pairs must lie in \[0, 50\), but holds 50"):
        kernels.pair_gradient(
            x.data_ptr(), *x.shape, pairs, 0, 300, dz.data_ptr(), False, dx.data_ptr(), True, 1
        )


@native_only
@pytest.mark.parametrize(("first", "count"), [(0, 301), (-1, 3), (300, 1), (3, -1)])
def test_the_native_product_takes_only_pairs_that_exist(first, count):
    x, pairs, _, _ = made()
    with pytest.raises(ValueError, match="first and count must select pairs"):
        kernels.pair_product(x.data_ptr(), *x.shape, pairs, first, count, 0, True, 1)


@pytest.mark.parametrize(
    ("pairs", "kind", "text"),
    [
        (torch.zeros(3), TypeError, r"pairs must hold int32 or int64, but holds torch.float32"),
        (torch.zeros(3, 3).long(), ValueError, r"pairs must have shape \[P, 2\], but has \[3, 3\]"),
    ],
)
def test_pairs_of_another_form_are_an_error(pairs, kind, text):
    x, _, weight, bias = made()
    with pytest.raises(kind, match=text):
        ops.pair_linear(x, pairs, weight, bias)


@native_only
def test_ops_use_the_native_version_where_it_can_compute():
    x, pairs, weight, _ = made()
    assert native.is_native(x, pairs, weight)
    assert not native.is_native(x.half(), pairs, weight.half())
    assert not native.is_native(x.to("meta"), pairs, weight)
    assert not native.is_native(x, pairs.float(), weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_take_the_reference(dtype):
    inputs = made(dtype=dtype)
    for one, other in zip(
        results(ops.pair_linear, *inputs), results(reference.pair_linear, *inputs), strict=True
    ):
        assert torch.equal(one, other)


def test_a_compiled_program_computes_the_same():
    x, pairs, weight, bias = made()
    compiled = torch.compile(ops.pair_linear, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x, pairs, weight, bias), ops.pair_linear(x, pairs, weight, bias))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_readout_is_its_network_of_the_products(layers):
    x, pairs, _, _ = made(dtype=torch.float32)
    readout = PairReadout(CHANNELS, layers)
    expected = readout.mlp(x[pairs[:, 0]] * x[pairs[:, 1]])[:, 0]
    assert torch.allclose(readout(x, pairs), expected, atol=1e-5)


def test_the_readout_drops_hidden_channels_in_training_only():
    x, pairs, _, _ = made(dtype=torch.float32)
    plain, dropping = PairReadout(CHANNELS, 3), PairReadout(CHANNELS, 3, dropout=0.5)
    for one, other in zip(dropping.parameters(), plain.parameters(), strict=True):
        one.data.copy_(other.data)
    assert not torch.allclose(dropping(x, pairs), plain(x, pairs))
    assert torch.equal(dropping.eval()(x, pairs), plain(x, pairs))
    assert [type(part).__name__ for part in dropping.mlp] == [
        "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear",
    ]  # fmt: skip
