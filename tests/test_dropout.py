"""Dropout in one native pass: the same bits as the formula."""

import pytest
import torch

from dynagat.nn.dropout import LEVELS, Dropout
from dynagat.ops.drop import drop


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_is_a_product_with_the_mask_and_so_is_its_gradient(dtype):
    x = torch.randn(301, 7, dtype=dtype)
    x[0, :3] = torch.tensor([torch.nan, torch.inf, -0.0], dtype=dtype)
    x.requires_grad_()
    level = torch.randint(-LEVELS // 2, LEVELS // 2, x.shape, dtype=torch.int16)
    mask = (level >= -20_000).to(dtype) * (1 / 0.7)
    out, dout = drop(x, level, -20_000, 1 / 0.7), torch.randn(301, 7, dtype=dtype)
    assert torch.equal(out.nan_to_num(7.0), (x * mask).nan_to_num(7.0))
    assert torch.equal(out.signbit(), (x * mask).signbit())
    (dx,) = torch.autograd.grad(out, x, dout)
    assert torch.equal(dx, dout * mask)


def test_a_view_that_is_not_contiguous_is_dropped_like_its_copy():
    x, level = torch.randn(7, 5).t(), torch.zeros(5, 7, dtype=torch.int16)
    level[2] = -5
    assert torch.equal(drop(x, level, 0, 2.0), drop(x.clone(), level, 0, 2.0))
    assert drop(x, level, 0, 2.0)[2].count_nonzero() == 0


def test_the_second_derivative_is_that_of_a_product():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    level = torch.randint(-9, 9, (4, 3), dtype=torch.int16)
    assert torch.autograd.gradgradcheck(lambda y: drop(y, level, 0, 1.5).square(), x)


def test_the_share_of_dropped_entries_is_p():
    torch.manual_seed(0)
    out = Dropout(0.3)(torch.ones(100_000))
    assert float((out == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
