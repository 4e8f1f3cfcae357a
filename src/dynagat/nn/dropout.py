"""Dropout: like torch's, but at the speed of memory on a CPU."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dynagat.ops.drop import drop


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """out = x · keep / (1 - p), where keep is 0 with probability p; x if not `training`

    Which entries are dropped is a hash of their place and of a seed that is drawn from torch's
    generator, so `torch.manual_seed` makes it repeatable, for any number of threads. No mask is
    stored. The result of a sparse x is dense. If x is mostly zero, the zeros cost next to nothing.
    """
    _check(p)
    if not training or p == 0:
        return x
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, but is a {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"x must have a floating-point dtype, but has {x.dtype}")
    return drop(x, torch.randint(2**63 - 1, (), device=x.device), p)


@final
class Dropout(nn.Module):
    """`dropout` as a module, in place of torch.nn.Dropout"""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        _check(p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"p must lie in [0, 1], but is {p}")
