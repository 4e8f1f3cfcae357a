"""x Wᵀ + b with torch's own matrix product, into memory that is kept from step to step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops.fused import LARGE, STORAGE, empty


def project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [*, in] -> [*, out]
    """F.linear, but large results on the CPU use memory from the pool."""
    return _Project.apply(x, weight, bias) if _is_pooled(x, weight) else F.linear(x, weight, bias)


def _is_pooled(x: Tensor, weight: Tensor) -> bool:
    if kernels is None or torch.compiler.is_compiling() or x.device.type != "cpu":
        return False
    if type(x) not in (Tensor, torch.nn.Parameter) or torch.is_autocast_enabled("cpu"):
        return False
    num_bytes = x.shape[:-1].numel() * weight.shape[0] * x.element_size()
    return x.dtype in STORAGE and x.dtype == weight.dtype and num_bytes >= LARGE


class _Project(torch.autograd.Function):
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
    def backward(ctx, *grads):
        x, weight = ctx.saved_tensors
        rows = x.reshape(-1, x.shape[-1])
        dout = grads[0].reshape(-1, weight.shape[0])
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx = _product(dout, weight).view(x.shape)
        if ctx.needs_input_grad[1]:
            dweight = dout.t() @ rows
        if ctx.needs_input_grad[2]:
            dbias = dout.sum(0)
        return dx, dweight, dbias


def _product(x: Tensor, y: Tensor) -> Tensor:
    if torch.is_grad_enabled():  # the result will be differentiated again
        return x @ y
    return torch.mm(x, y, out=empty((x.shape[0], y.shape[1]), x.dtype))
