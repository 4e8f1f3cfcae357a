"""Features that are mostly zero: found once, then multiplied without their zeros.

A bag of words has one to ten per cent nonzeros. `find` says where they are, for a sparse tensor of
torch and for a dense one in which it counts them; the answer is remembered until the tensor is
deleted or changed. A change is seen by the version counter of the tensor, which all of torch's
in-place functions increase; writes through numpy or `.data` do not. A sparse tensor with too many
entries is multiplied as a dense copy, which is remembered in the same way.

Zeros are skipped, so that a weight which is NaN or infinite has an effect only on rows whose
feature is not zero. The native product has no second derivative.
"""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dynagat.native import kernels
from dynagat.ops.eager import SUMMED, Function, is_eager
from dynagat.ops.fused import empty

LAYOUTS = (torch.sparse_coo, torch.sparse_csr)
FEWEST = 1 << 16  # entries of a dense matrix; smaller ones are multiplied whole
DENSEST = 0.2  # share of nonzeros up to which skipping zeros is faster than a dense product
SAMPLES = 512  # entries that are looked at before all are counted


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the entries of a matrix [rows, columns] are: by row and, transposed, by column."""

    rowptr: Tensor  # [rows + 1] int32
    column: Tensor  # [count] int32
    column_ptr: Tensor  # [columns + 1] int32
    row: Tensor  # [count] int32
    position: Tensor  # [count] int32: the place of an entry of a column among the entries by row
    shape: tuple[int, int]

    @classmethod
    def of(cls, rowptr: Tensor, column: Tensor, shape: tuple[int, int]) -> Pattern:
        """Raises a ValueError if the indices are not those of a matrix of this shape."""
        transposed = kernels.transpose(
            rowptr.numpy(), column.numpy(), shape[1], torch.get_num_threads()
        )
        column_ptr, row, position = map(torch.from_numpy, transposed)
        return cls(rowptr, column, column_ptr, row, position, shape)

    def arrays(self) -> tuple[list[int], list[int]]:
        """The arguments of the native functions: addresses of the arrays, and sizes."""
        arrays = [self.rowptr.data_ptr(), self.column.data_ptr(), 0]
        return arrays, [*self.shape, len(self.column)]

    def transposed_arrays(self) -> tuple[list[int], list[int]]:
        arrays = [t.data_ptr() for t in (self.column_ptr, self.row, self.position)]
        return arrays, [*self.shape[::-1], len(self.column)]


@dataclass(frozen=True, eq=False)
class Sparse:
    """A matrix by its entries. Zeros among the values are skipped, too."""

    pattern: Pattern
    values: Tensor  # [count]


@dataclass(frozen=True, eq=False)
class Known:
    """What was found in a tensor of this version, memory and shape; None: too many entries."""

    state: tuple[Any, ...]
    found: Any


_known: MutableMapping[Tensor, Known] = WeakTensorKeyDictionary()
_lock = threading.Lock()


def find(x: Tensor) -> Sparse | None:
    """The entries of x if it is mostly zero, or sparse and its entries need gradients, and a native
    product can use them."""
    # First, because a comparison of sizes would restrict the sizes of a program that is compiled.
    if not is_eager(x) or x.dtype not in SUMMED or x.dim() != 2:
        return None
    if x.layout in LAYOUTS:
        return None if _is_dense(x) else _entries(x)
    if x.layout != torch.strided or x.requires_grad or x.numel() < FEWEST:
        return None
    if x.is_inference() or not x.is_contiguous():
        return None
    return _remembered(x, (x._version, x.data_ptr(), x.shape), _count)


def to_dense(x: Tensor) -> Tensor:
    """x, or the dense copy of a sparse x. A copy that has no gradient is remembered with x."""
    if x.layout == torch.strided:
        return x
    if x.layout not in LAYOUTS or not is_eager(x) or not _is_dense(x):
        return x.to_dense()
    if x.is_inference() or torch.is_inference_mode_enabled():
        return x.to_dense()
    values = x._values() if x.layout == torch.sparse_coo else x.values()
    state = (x._version, values._version, values.data_ptr(), x.shape)
    return _remembered(x, state, Tensor.to_dense)


def _is_dense(x: Tensor) -> bool:
    """Whether a sparse x, whose entries need no gradient, is multiplied faster as a dense one."""
    needs_grad = x.requires_grad and torch.is_grad_enabled()
    return not needs_grad and x._nnz() > DENSEST * x.numel()


def remember(x: Tensor, sparse: Sparse) -> None:
    """State the entries of a dense tensor that was just made from them."""
    if x.is_inference():  # it has no version
        return
    with _lock:
        _known[x] = Known((x._version, x.data_ptr(), x.shape), sparse)


def project(x: Sparse, weight: Tensor, bias: Tensor | None) -> Tensor:  # [N, in] -> [N, out]
    """x Wᵀ + b"""
    return _Project.apply(x.values, weight, bias, x.pattern)


def _remembered(x: Tensor, state: tuple[Any, ...], find_in) -> Any:
    if x.is_inference():  # a change can't be noticed
        return find_in(x)
    with _lock:
        known = _known.get(x)
    if known is None or known.state != state:
        with torch.inference_mode(False), torch.no_grad():  # later calls may need gradients
            known = Known(state, find_in(x))
        with _lock:
            _known[x] = known
    return known.found


def _count(x: Tensor) -> Sparse | None:
    """The nonzeros of a dense matrix, unless a sample or the count shows that there are many."""
    most = int(DENSEST * x.numel())
    flat = x.view(-1)
    sample = flat[:: max(1, x.numel() // SAMPLES)]
    if int(sample.count_nonzero()) > 2 * DENSEST * len(sample):
        return None
    is_double = x.dtype == torch.float64
    arrays = kernels.find_nonzeros(x.data_ptr(), *x.shape, most, is_double, torch.get_num_threads())
    if arrays is None:
        return None
    rowptr, column = map(torch.from_numpy, arrays)
    pattern = Pattern.of(rowptr, column, (x.shape[0], x.shape[1]))
    row = torch.repeat_interleave(torch.arange(len(rowptr) - 1), rowptr.diff())
    return Sparse(pattern, flat[row * x.shape[1] + column])


def _entries(x: Tensor) -> Sparse:
    """The entries of a sparse tensor. Its values are read in each call and have gradients."""
    if x.layout == torch.sparse_coo:
        x = x.coalesce()  # the same tensor if it has no duplicates
        rows, columns = x.indices()
        state = (_version(x), rows.data_ptr(), x.shape)
        offsets = None
    else:
        offsets, columns = x.crow_indices(), x.col_indices()
        rows = offsets
        versions = map(_version, (x, offsets, columns))
        state = (*versions, columns.data_ptr(), x.shape)
    shape = (x.shape[0], x.shape[1])

    def build(_: Tensor) -> Pattern:
        _check_range("rows", rows, len(columns) + 1 if offsets is not None else shape[0])
        _check_range("columns", columns, shape[1])
        pointers = offsets
        if pointers is None:
            pointers = torch.bincount(rows, minlength=shape[0]).cumsum(0)
            pointers = torch.nn.functional.pad(pointers, (1, 0))
        pointers, places = (t.to(torch.int32).contiguous() for t in (pointers, columns))
        return Pattern.of(pointers, places, shape)

    return Sparse(_remembered(x, state, build), x.values())


def _version(x: Tensor) -> int | None:
    return None if x.is_inference() else x._version


def _check_range(name: str, index: Tensor, size: int) -> None:
    low, high = map(int, index.aminmax()) if index.numel() else (0, -1)
    if low < 0 or high >= size:
        bad = low if low < 0 else high
        raise ValueError(f"the {name} of a sparse x must lie in [0, {size}), but hold {bad}")


class _Project(Function):
    @staticmethod
    def forward(values, weight, bias, pattern):
        return multiply(Sparse(pattern, values), weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.pattern = inputs
        ctx.save_for_backward(*tensors[:2])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        values, weight = ctx.saved_tensors
        dout, pattern = grads[0].contiguous(), ctx.pattern
        wants_values, wants_weight, wants_bias, _ = ctx.needs_input_grad
        dvalues = dweight = None
        if wants_values:
            table = weight.t().contiguous()
            dvalues = torch.empty_like(values)
            kernels.sparse_dots(
                *pattern.arrays(), dout.data_ptr(), table.data_ptr(), dout.shape[1],
                dvalues.data_ptr(), values.dtype == torch.float64, torch.get_num_threads(),
            )  # fmt: skip
        if wants_weight:
            dweight = weight_gradient(Sparse(pattern, values), dout)
        return dvalues, dweight, dout.sum(0) if wants_bias else None, None


def multiply(x: Sparse, weight: Tensor, bias: Tensor | None) -> Tensor:  # [N, in] -> [N, out]
    """x Wᵀ + b, without a gradient"""
    table = weight.t().contiguous()
    bias = None if bias is None else bias.contiguous()
    out = empty((x.pattern.shape[0], weight.shape[0]), x.values.dtype)
    _multiply(x.pattern.arrays(), x.values.contiguous(), table, bias, out)
    return out


def weight_gradient(x: Sparse, dout: Tensor) -> Tensor:  # [out, in]
    """doutᵀ x; dout [N, out] is contiguous"""
    transposed = empty((x.pattern.shape[1], dout.shape[1]), dout.dtype)
    _multiply(x.pattern.transposed_arrays(), x.values.contiguous(), dout, None, transposed)
    return transposed.t().contiguous()


def _multiply(
    matrix: tuple[list[int], list[int]],
    values: Tensor,
    table: Tensor,
    bias: Tensor | None,
    out: Tensor,
) -> None:
    kernels.sparse_product(
        *matrix, values.data_ptr(), table.data_ptr(), table.shape[1],
        0 if bias is None else bias.data_ptr(), out.data_ptr(), values.dtype == torch.float64,
        torch.get_num_threads(),
    )  # fmt: skip
