"""drop for eager programs on the CPU: one pass over x and one over its gradient, without a mask.

Of a matrix that is known to be mostly zero, only the entries are dropped, and the result is known
to be mostly zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops import reference, sparse
from dynagat.ops.eager import SUMMED, Function, is_eager
from dynagat.ops.fused import empty
from dynagat.ops.sparse import Sparse


def drop(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """x · keep / (1 - p), where keep is 0 with probability p; see `reference.drop`"""
    if not is_eager(x):
        return reference.drop(sparse.to_dense(x), seed, p)
    if x.dtype not in SUMMED:
        return drop(x.float(), seed, p).to(x.dtype)
    rule = (p, int(seed))
    entries = None if x.requires_grad else sparse.find(x)
    if entries is not None:
        return _drop_entries(entries, rule)
    return _Drop.apply(sparse.to_dense(x), rule)


def _drop_entries(x: Sparse, rule: tuple[float, int]) -> Tensor:
    values = torch.empty_like(x.values)
    out = empty(x.pattern.shape, values.dtype)
    kernels.sparse_drop(
        *x.pattern.arrays(), x.values.data_ptr(), *rule, values.data_ptr(), out.data_ptr(),
        values.dtype == torch.float64, torch.get_num_threads(),
    )  # fmt: skip
    sparse.remember(out, Sparse(x.pattern, values))
    return out


class _Drop(Function):
    @staticmethod
    def forward(x, rule):
        x = x.contiguous()
        out = empty(x.shape, x.dtype)
        kernels.drop(
            x.data_ptr(), x.numel(), *rule, out.data_ptr(), x.dtype == torch.float64,
            torch.get_num_threads(),
        )  # fmt: skip
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rule = inputs[1]

    @staticmethod
    def backward(ctx, *grads):
        return _Drop.apply(grads[0], ctx.rule), None
