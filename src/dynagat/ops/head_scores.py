"""The two scores of GAT from the projected rows: ⟨a_query, value_i⟩ and ⟨a_key, value_i⟩ per head.

One native pass reads the values; backward, the gradient of the scores joins that of the values in
one pass. Compiled programs take plain torch, which the compiler fuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops.eager import SUMMED, Function, is_eager
from dynagat.ops.fused import empty


def with_scores(value: Tensor, a_query: Tensor, a_key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """query score [*, N, H], key score [*, N, H] and value; [*, N, H, C] and vectors [1, H, C]

    Use the returned value from then on, so that its gradient is added up in one pass.
    """
    dtypes = {value.dtype, a_query.dtype, a_key.dtype}
    if is_eager(value) and value.dtype in SUMMED and len(dtypes) == 1:
        return _WithScores.apply(value, a_query, a_key)
    return (value * a_query).sum(-1), (value * a_key).sum(-1), value


class _WithScores(Function):
    @staticmethod
    def forward(value, a_query, a_key):
        query, key = (torch.empty(value.shape[:-1], dtype=value.dtype) for _ in range(2))
        tensors = [tensor.contiguous() for tensor in (value, a_query, a_key)]
        kernels.score_heads(*_arguments(tensors), query.data_ptr(), key.data_ptr(), *_how(value))
        return query, key, value.view_as(value)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *grads):
        tensors, grads = ctx.saved_tensors, [grad.contiguous() for grad in grads]
        is_differentiable = torch.is_grad_enabled()  # the gradients will be differentiated again
        return (_plain_gradients if is_differentiable else _gradients)(tensors, *grads)


def _gradients(tensors: tuple[Tensor, ...], dquery: Tensor, dkey: Tensor, dvalue: Tensor):
    tensors = tuple(tensor.contiguous() for tensor in tensors)
    value, a_query, _ = tensors
    total, da = empty(value.shape, value.dtype), value.new_empty(2, *a_query.shape)
    kernels.score_gradient(
        *_arguments(tensors), dvalue.data_ptr(), dquery.data_ptr(), dkey.data_ptr(),
        total.data_ptr(), da.data_ptr(), *_how(value),
    )  # fmt: skip
    return total, da[0], da[1]


def _plain_gradients(tensors: tuple[Tensor, ...], dquery: Tensor, dkey: Tensor, dvalue: Tensor):
    value, *vectors = tensors
    total, by_vector = dvalue, []
    for vector, dscore in zip(vectors, (dquery, dkey), strict=True):
        total = total + dscore[..., None] * vector
        by_vector.append((value * dscore[..., None]).sum_to_size(vector.shape))
    return total, *by_vector


def _arguments(tensors: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Addresses of value, a_query and a_key; numbers of nodes, heads and channels."""
    *rows, heads, channels = tensors[0].shape
    return [tensor.data_ptr() for tensor in tensors], [torch.Size(rows).numel(), heads, channels]


def _how(value: Tensor) -> tuple[bool, int]:
    return value.dtype == torch.float64, torch.get_num_threads()
