"""Sums in a fixed order, which CUDA devices take: the same bits as torch's on the CPU."""

import pytest
import torch

from dynagat.nn.loops import REDUCTIONS
from dynagat.nn.segments import EMPTY, reduce_sorted


@pytest.mark.parametrize("kind", sorted(EMPTY))
def test_sums_in_a_fixed_order_equal_those_of_torch(kind):
    x = torch.randn(300, 5, requires_grad=True)
    index = torch.randint(0, 9, (300,)) * 2  # odd ones are empty
    start = torch.full((19, 5), EMPTY[kind])
    expected = start.scatter_reduce(0, index[:, None].expand_as(x), x, kind, include_self=False)
    out = reduce_sorted(x, index, 19, kind)
    assert torch.equal(out, expected)
    gradients = (torch.autograd.grad(each.sum(), x)[0] for each in (out, expected))
    assert torch.equal(*gradients)


def test_the_reductions_whose_order_matters_are_among_them():
    assert set(REDUCTIONS.values()) - set(EMPTY) == {"amin", "amax"}
