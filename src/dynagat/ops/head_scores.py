"""The two scores of GAT from the projected rows: ⟨a_query, value_i⟩ and ⟨a_key, value_i⟩ per head.

One native pass reads the values; backward, the gradient of the scores joins that of the values in
one pass. Compiled programs take plain torch, which the compiler fuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops.eager import SUMMED, Function, is_eager
from dynagat.ops.fused import empty

Offset = tuple[int, ...] | None  # of UsedRows: where the rows of each relation begin


def with_scores(
    value: Tensor, a_query: Tensor, a_key: Tensor, offset: Offset = None
) -> tuple[Tensor, Tensor, Tensor]:
    """query score [*, N, H], key score [*, N, H] and value; [*, N, H, C] and vectors [1, H, C]

    With an offset, value has used rows [U, H, C], and each relation has its own vectors [R, H, C].
    Use the returned value from then on, so that its gradient is added up in one pass.
    """
    if is_native(value, a_query, a_key):
        return _WithScores.apply(value, a_query, a_key, offset)
    a_query, a_key = (_by_row(a, offset) for a in (a_query, a_key))
    return (value * a_query).sum(-1), (value * a_key).sum(-1), value


def with_score(value: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """One of the scores, [*, N, H], and value, which is to be used from then on."""
    _, score, value = with_scores(value, a, a)
    return score, value


def is_native(value: Tensor, a_query: Tensor, a_key: Tensor) -> bool:
    """Whether native code reads the values once for both scores."""
    dtypes = {value.dtype, a_query.dtype, a_key.dtype}
    return is_eager(value) and value.dtype in SUMMED and len(dtypes) == 1


class _WithScores(Function):
    @staticmethod
    def forward(value, a_query, a_key, offset):
        query, key = (torch.empty(value.shape[:-1], dtype=value.dtype) for _ in range(2))
        tensors = [tensor.contiguous() for tensor in (value, a_query, a_key)]
        for relation, first, last in _parts(value, offset):
            outputs = [_rows(scores, first, last, 1).data_ptr() for scores in (query, key)]
            kernels.score_heads(*_arguments(tensors, relation, first, last), *outputs, *_how(value))
        return query, key, value.view_as(value)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.offset = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, *grads):
        tensors, grads = ctx.saved_tensors, [grad.contiguous() for grad in grads]
        is_differentiable = torch.is_grad_enabled()  # the gradients will be differentiated again
        gradients = _plain_gradients if is_differentiable else _gradients
        return *gradients(tensors, ctx.offset, *grads), None


def _gradients(
    tensors: Sequence[Tensor], offset: Offset, dquery: Tensor, dkey: Tensor, dvalue: Tensor
):
    tensors = [tensor.contiguous() for tensor in tensors]
    value, a_query, _ = tensors
    total, da = (
        empty(value.shape, value.dtype),
        value.new_zeros(len(a_query), 2, *a_query.shape[1:]),
    )
    for relation, first, last in _parts(value, offset):
        arrays = (dvalue, 2), (dquery, 1), (dkey, 1), (total, 2)
        outputs = [_rows(each, first, last, dims).data_ptr() for each, dims in arrays]
        kernels.score_gradient(
            *_arguments(tensors, relation, first, last), *outputs, da[relation].data_ptr(),
            *_how(value),
        )  # fmt: skip
    return total, da[:, 0], da[:, 1]


def _plain_gradients(
    tensors: Sequence[Tensor], offset: Offset, dquery: Tensor, dkey: Tensor, dvalue: Tensor
):
    value, *vectors = tensors
    total, by_vector = dvalue, []
    for vector, dscore in zip(vectors, (dquery, dkey), strict=True):
        total = total + dscore[..., None] * _by_row(vector, offset)
        terms = (value * dscore[..., None]).flatten(0, -3)
        parts = pairwise(offset or (0, len(terms)))
        by_vector.append(torch.stack([terms[first:last].sum(0) for first, last in parts]))
    return total, *by_vector


def _by_row(vector: Tensor, offset: Offset) -> Tensor:
    """The vector of the relation of each row: [R, H, C] -> [U, H, C]; without relations, itself."""
    if offset is None:
        return vector
    counts = torch.tensor(offset, device=vector.device).diff()
    return vector.repeat_interleave(counts, 0, output_size=offset[-1])


def _parts(value: Tensor, offset: Offset) -> Iterator[tuple[int, int, int]]:
    """The relations that have rows, with their first row and the one after the last."""
    offset = offset or (0, value.shape[:-2].numel())
    for relation, (first, last) in enumerate(pairwise(offset)):
        if last > first:
            yield relation, first, last


def _rows(array: Tensor, first: int, last: int, dims: int) -> Tensor:
    """Rows of [*, N, dims more]"""
    return array.view(-1, *array.shape[array.dim() - dims :])[first:last]


def _arguments(
    tensors: Sequence[Tensor], relation: int, first: int, last: int
) -> tuple[list[int], list[int]]:
    """Addresses of rows of value and of the vectors of their relation; numbers of rows, heads and
    channels."""
    value, *vectors = tensors
    addresses = [vector[relation].data_ptr() for vector in vectors]
    return [_rows(value, first, last, 2).data_ptr(), *addresses], [
        last - first,
        *value.shape[-2:],
    ]


def _how(value: Tensor) -> tuple[bool, int]:
    return value.dtype == torch.float64, torch.get_num_threads()
