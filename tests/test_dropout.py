"""Dropout in one native pass: the same bits as the definition, for any number of threads."""

import pytest
import torch

import dynagat
from dynagat.ops import reference, sparse
from dynagat.ops.drop import drop

SEED = torch.tensor(0x1234_5678_9ABC_DEF)
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def same_bits(one, other):
    is_same = torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
    return is_same and torch.equal(one.signbit(), other.signbit())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (1,), (15,), (16,), (301, 7), (70_001,)])
def test_dropout_equals_its_definition_and_so_does_its_gradient(dtype, shape):
    x = torch.randn(shape, dtype=dtype)
    x.view(-1)[:3] = torch.tensor([torch.nan, torch.inf, -0.0], dtype=dtype)[: x.numel()]
    x.requires_grad_()
    out, dout = drop(x, SEED, 0.6), torch.randn(shape, dtype=dtype)
    assert same_bits(out, reference.drop(x, SEED, 0.6))
    (dx,) = torch.autograd.grad(out, x, dout)
    assert same_bits(dx, reference.drop(dout, SEED, 0.6))


def test_a_view_that_is_not_contiguous_is_dropped_like_its_copy():
    x = torch.randn(70, 50).t()
    assert torch.equal(drop(x, SEED, 0.6), drop(x.clone(), SEED, 0.6))


def test_the_second_derivative_is_that_of_a_product():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda y: drop(y, SEED, 0.6).square(), x)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.6, 1.0])
def test_the_share_of_dropped_entries_is_p_and_the_mean_stays(p):
    torch.manual_seed(0)
    out = dynagat.dropout(torch.ones(400_000), p)
    assert float((out == 0).float().mean()) == pytest.approx(p, abs=0.005)
    assert float(out.mean()) == pytest.approx(float(p < 1), abs=0.01)


def test_neighbouring_entries_are_dropped_independently():
    keep = reference.is_kept(SEED, torch.arange(1 << 18), 0.5).double() - 0.5
    for shift in (1, 2, 7, 8, 9, 16, 64):
        assert abs(float((keep[:-shift] * keep[shift:]).mean())) < 0.25 * 5 / 2**9


def test_the_seed_of_torch_decides():
    x, p = torch.randn(1_000), 0.5
    torch.manual_seed(3)
    first, second = dynagat.dropout(x, p), dynagat.dropout(x, p)
    torch.manual_seed(3)
    assert torch.equal(dynagat.dropout(x, p), first)
    assert not torch.equal(first, second)


def test_the_bits_do_not_depend_on_the_number_of_threads():
    x = torch.randn(100_000)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(drop(x, SEED, 0.6))
    torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.native
def test_what_is_mostly_zero_is_dropped_alike_and_stays_known():
    x = torch.randn(500, 300) * (torch.rand(500, 300) < 0.05)
    out = drop(x, SEED, 0.6)
    assert torch.equal(out, reference.drop(x, SEED, 0.6))
    known = sparse._known[out].found
    dense = torch.zeros(500, 300)
    row = torch.repeat_interleave(torch.arange(500), known.pattern.rowptr.diff())
    dense[row, known.pattern.column.long()] = known.values
    assert torch.equal(dense, out)


def test_the_module_does_nothing_in_evaluation():
    x, module = torch.randn(50), dynagat.Dropout(0.9)
    assert module.eval()(x) is x
    assert not torch.equal(module.train()(x), x)
    assert repr(module) == "Dropout(p=0.9)"
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\], but is 1.5"):
        dynagat.Dropout(1.5)


def test_a_compiled_program_drops_the_same_entries():
    module, x = dynagat.Dropout(0.5), torch.randn(40, 30)
    compiled = torch.compile(module, backend="aot_eager")
    torch.manual_seed(1)
    expected = module(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x), expected)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
@pytest.mark.filterwarnings("ignore:Sparse CS")
def test_the_result_of_a_sparse_tensor_is_dense(layout):
    x = torch.randn(30, 20) * (torch.rand(30, 20) < 0.1)
    for call in (drop, torch.compile(drop, backend="aot_eager")):
        assert torch.equal(call(x.to_sparse(layout=layout), SEED, 0.5), drop(x, SEED, 0.5))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_vmap_drops_entries_of_a_batch(randomness):
    call = torch.vmap(lambda x: dynagat.dropout(x, 0.5), randomness=randomness)
    out = call(torch.ones(2, 1_000))
    assert set(out.unique().tolist()) == {0, 2}
    assert torch.equal(out[0], out[1]) == (randomness == "same")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_what_holds_no_real_numbers_is_an_error(dtype):
    with pytest.raises(TypeError, match=f"x must have a floating-point dtype, but has {dtype}"):
        dynagat.dropout(torch.ones(4, dtype=dtype))
    with pytest.raises(TypeError, match="x must be a tensor, but is a list"):
        dynagat.dropout([1.0])
