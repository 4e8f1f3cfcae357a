"""Sums of rows by an index, in a fixed order: torch's own are atomic on CUDA and ROCm devices."""

from __future__ import annotations

import torch
from torch import Tensor

EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0}  # what the rows of no index get


def sum_by(x: Tensor, index: Tensor, size: int) -> Tensor:
    """[n, D], [n] -> [size, D]: the sum of the rows of x with each index, in their order."""
    if x.is_cuda:
        return reduce_sorted(x, index, size, "sum")
    return x.new_zeros(size, x.shape[1]).index_add(0, index, x)


def reduce_sorted(x: Tensor, index: Tensor, size: int, how: str) -> Tensor:
    """[n, D], [n] -> [size, D]: the sum, mean or product of the rows of x with each index."""
    order = index.argsort(stable=True)
    offsets = torch.searchsorted(index[order], torch.arange(size + 1, device=index.device))
    return torch.segment_reduce(
        x[order], how, offsets=offsets, axis=0, initial=EMPTY[how], unsafe=True
    )
