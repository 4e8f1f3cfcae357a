"""drop: dropout with given random levels, in one pass over x and one over its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops.fused import empty
from dynagat.ops.project import SUMMED, is_eager


def drop(x: Tensor, level: Tensor, least: int, scale: float) -> Tensor:
    """x · (scale where level ≥ least, else 0);  level is int16, of the shape of x"""
    if is_eager(x) and x.dtype in SUMMED:
        return _Drop.apply(x, level, least, scale)  # pyright: ignore[reportReturnType]
    keep = (level >= least).to(x.dtype)
    return x * keep.mul_(scale)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(x, level, least, scale):
        x = x.contiguous()
        out = empty(x.shape, x.dtype)
        kernels.drop(
            x.data_ptr(), level.data_ptr(), least, scale, x.numel(), out.data_ptr(),
            x.dtype == torch.float64, torch.get_num_threads(),
        )  # fmt: skip
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, level, ctx.least, ctx.scale = inputs
        ctx.save_for_backward(level)

    @staticmethod
    def backward(ctx, *grads):
        (level,) = ctx.saved_tensors
        return drop(grads[0], level, ctx.least, ctx.scale), None, None, None
