"""x Wᵀ + b with torch's own matrix product, into memory that is kept from step to step.

If x is mostly zero, its zeros are skipped. With relations, each has its own W, and only the rows
that edges use are multiplied.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from dynagat.graph import select_rows
from dynagat.native import kernels
from dynagat.ops import sparse
from dynagat.ops.eager import SUMMED, Function, is_eager
from dynagat.ops.fused import LARGE, STORAGE, empty
from dynagat.used_rows import UsedRows

NARROW = 32  # columns


def project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [*, in] -> [*, out]
    """F.linear, but without the zeros of x if it has many, and large results on the CPU use memory
    from the pool."""
    entries = sparse.find(x) if x.dtype == weight.dtype else None
    if entries is not None:
        return sparse.project(entries, weight, bias)
    x = sparse.to_dense(x)
    return _Project.apply(x, weight, bias) if _is_pooled(x, weight) else F.linear(x, weight, bias)


def take_rows(x: Tensor, rows: UsedRows) -> Tensor:  # [*, N, in] -> [*, U, in]
    """The row of its node for each used row."""
    if not _is_plain(x):
        return select_rows(x, -2, rows.node)
    return _TakeRows.apply(x, rows)


def project_rows(x: Tensor, weight: Tensor, bias: Tensor | None, rows: UsedRows) -> Tensor:
    """[*, U, in] -> [*, U, out]: rows of relation r times weight[r]ᵀ, [R, out, in], + bias[r]"""
    if _is_plain(x) and x.dtype == weight.dtype and bias is None:
        return _ProjectRows.apply(x, weight, rows.offset)
    parts = x.split([end - start for start, end in pairwise(rows.offset)], -2)
    biases = [None] * len(parts) if bias is None else bias.view(len(parts), -1)
    linear = zip(parts, weight, biases, strict=True)
    return torch.cat([F.linear(part, w, b) for part, w, b in linear], -2)


def _is_plain(x: Tensor) -> bool:
    return is_eager(x) and x.dim() == 2 and x.dtype in SUMMED


def _is_pooled(x: Tensor, weight: Tensor) -> bool:
    if not is_eager(x):
        return False
    num_bytes = x.shape[:-1].numel() * weight.shape[0] * x.element_size()
    return x.dtype in STORAGE and x.dtype == weight.dtype and num_bytes >= LARGE


class _Project(Function):
    @staticmethod
    def forward(x, weight, bias):
        rows = x.reshape(-1, x.shape[-1])
        out = empty((*x.shape[:-1], weight.shape[0]), x.dtype)
        flat = out.view(-1, weight.shape[0])
        if bias is None:
            torch.mm(rows, weight.t(), out=flat)
        else:
            torch.addmm(bias, rows, weight.t(), out=flat)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        rows = x.reshape(-1, x.shape[-1])
        dout = grads[0].reshape(-1, weight.shape[0])
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx = _product(dout, weight).view(x.shape)
        if ctx.needs_input_grad[1]:
            dweight = weight_gradient(rows, dout)
        if ctx.needs_input_grad[2]:
            dbias = dout.sum(0)
        return dx, dweight, dbias


def weight_gradient(x: Tensor, dout: Tensor) -> Tensor:  # [N, in], [N, out] -> [out, in]
    """doutᵀ x, computed as (xᵀ dout)ᵀ if x is narrow and dout is not: the library takes 0.05 to
    0.9 of the time if the rows of its result are long."""
    if x.shape[1] >= min(NARROW, dout.shape[1]):
        return dout.t() @ x
    return (x.t() @ dout).t().contiguous()


def _product(x: Tensor, y: Tensor) -> Tensor:
    if torch.is_grad_enabled():  # the result will be differentiated again
        return x @ y
    return torch.mm(x, y, out=empty((x.shape[0], y.shape[1]), x.dtype))


class _TakeRows(Function):
    """Backward adds up the rows of each node, in the order of the relations."""

    @staticmethod
    def forward(x, rows):
        out = empty((len(rows), x.shape[1]), x.dtype)
        return torch.index_select(x, 0, rows.node, out=out)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rows, ctx.num_nodes = inputs[1], inputs[0].shape[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        dout, rows = grads[0].contiguous(), ctx.rows
        dx = empty((ctx.num_nodes, dout.shape[1]), dout.dtype)
        kernels.sum_rows(
            dout.data_ptr(), *dout.shape, rows.number.data_ptr(), ctx.num_nodes,
            len(rows.offset) - 1, dx.data_ptr(), dout.dtype == torch.float64,
            torch.get_num_threads(),
        )  # fmt: skip
        return dx, None


class _ProjectRows(Function):
    @staticmethod
    def forward(x, weight, offset):
        out = empty((x.shape[0], weight.shape[1]), x.dtype)
        for matrix, (start, end) in zip(weight, pairwise(offset), strict=True):
            torch.mm(x[start:end], matrix.t(), out=out[start:end])
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.offset = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        (dout,), (x, weight) = grads, ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        dx = empty(x.shape, x.dtype) if needs_x else None
        dweight = torch.empty_like(weight) if needs_weight else None
        for relation, (start, end) in enumerate(pairwise(ctx.offset)):
            here = dout[start:end]
            if dx is not None:
                torch.mm(here, weight[relation], out=dx[start:end])
            if dweight is not None:
                torch.mm(here.t(), x[start:end], out=dweight[relation])
        return dx, dweight, None
