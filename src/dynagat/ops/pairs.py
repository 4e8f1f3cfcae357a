"""pair_linear for eager programs on the CPU: no array [P, C] is kept, and none is made forward.

Forward multiplies a block of pairs into a buffer that fits the cache, projects it, and goes on.
Backward makes the products again. Compiled programs take the reference, which the compiler fuses.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops.eager import SUMMED, Function, is_eager
from dynagat.ops.fused import empty

BLOCK_BYTES = 1 << 20  # of products at a time: about the second-level cache of a core
FEWEST = 1 << 14  # pairs whose gradients dz are made at a time, or as many as there are nodes


def is_native(x: Tensor, pairs: Tensor, weight: Tensor) -> bool:
    """Whether `pair_linear` of this module can compute it."""
    if not is_eager(x) or x.dtype not in SUMMED or x.dtype != weight.dtype:
        return False
    shapes = (x.dim(), weight.dim(), pairs.dim(), *pairs.shape[1:])
    is_valid = shapes == (2, 2, 2, 2) and x.shape[1] == weight.shape[1]  # else: torch's errors
    return is_valid and pairs.dtype in (torch.int32, torch.int64) and pairs.is_cpu


def pair_linear(x: Tensor, pairs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out_p = W (x_i ∘ x_j) + b for each pair p = (i, j);  [N, C], [P, 2], [D, C], [D] -> [P, D]"""
    pairs = pairs.detach().contiguous()
    return _PairLinear.apply(x, pairs, weight, bias)


class _PairLinear(Function):
    @staticmethod
    def forward(x, pairs, weight, bias):
        x, out = x.contiguous(), empty((len(pairs), len(weight)), x.dtype)
        for some, product in _products(x, pairs):
            if bias is None:
                torch.mm(product, weight.t(), out=out[some])
            else:
                torch.addmm(bias, product, weight.t(), out=out[some])
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx, *grads):
        x, pairs, weight = ctx.saved_tensors
        dout = grads[0]
        wants_x, _, wants_weight, wants_bias = ctx.needs_input_grad
        is_differentiable = torch.is_grad_enabled()  # the gradients will be differentiated again
        gradients = _plain_gradients if is_differentiable else _gradients
        dx, dweight = gradients(x, pairs, weight, dout, wants_x, wants_weight)
        return dx, None, dweight, dout.sum(0) if wants_bias else None


def _gradients(
    x: Tensor, pairs: Tensor, weight: Tensor, dout: Tensor, wants_x: bool, wants_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    x = x.contiguous()
    dweight = None
    if wants_weight:
        dweight = torch.zeros_like(weight)
        for some, product in _products(x, pairs):
            dweight.addmm_(dout[some].t(), product)
    return _gradient_of_x(x, pairs, weight, dout) if wants_x else None, dweight


def _gradient_of_x(x: Tensor, pairs: Tensor, weight: Tensor, dout: Tensor) -> Tensor:
    """dx_i = Σ dz_p ∘ x_j over the pairs p = (i, j) and (j, i), where dz = dout W"""
    dx = empty(x.shape, x.dtype)
    if len(pairs) == 0:
        return dx.zero_()
    # Each call sorts the ends by node, which takes time for each node. So dz is at most as large
    # as dx, or as an array that is still in the cache.
    size = min(max(FEWEST, len(x)), len(pairs))
    dz = empty((size, x.shape[1]), x.dtype)
    for some in _blocks(len(pairs), size):
        count = some.stop - some.start
        torch.mm(dout[some], weight, out=dz[:count])
        kernels.pair_gradient(
            x.data_ptr(), *x.shape, pairs, some.start, count, dz.data_ptr(), some.start > 0,
            dx.data_ptr(), x.dtype == torch.float64, torch.get_num_threads(),
        )  # fmt: skip
    return dx


def _plain_gradients(
    x: Tensor, pairs: Tensor, weight: Tensor, dout: Tensor, wants_x: bool, wants_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """In differentiable steps."""
    i, j = pairs.long().t()
    dz = dout @ weight
    dx = torch.zeros_like(x).index_add(0, i, dz * x[j]).index_add(0, j, dz * x[i])
    return dx if wants_x else None, dout.t() @ (x[i] * x[j]) if wants_weight else None


def _products(x: Tensor, pairs: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """x_i ∘ x_j of one block of pairs after the other, in a buffer that is used again."""
    size = max(1, BLOCK_BYTES // (x.shape[1] * x.element_size()))
    buffer = x.new_empty(min(size, len(pairs)), x.shape[1])
    for some in _blocks(len(pairs), size):
        product = buffer[: some.stop - some.start]
        kernels.pair_product(
            x.data_ptr(), *x.shape, pairs, some.start, len(product), product.data_ptr(),
            x.dtype == torch.float64, torch.get_num_threads(),
        )  # fmt: skip
        yield some, product


def _blocks(count: int, size: int) -> Iterator[slice]:
    """The slices of [0, count), `size` long and the last one shorter."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))
