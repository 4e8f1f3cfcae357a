"""Dropout: like torch's, but several times faster on a CPU."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dynagat.ops.drop import drop

LEVELS = 1 << 16  # that a probability is rounded to


@final
class Dropout(nn.Module):
    """out = x · keep / (1 - p), where keep is 0 with probability p, to 16 bits; x in evaluation

    Uses torch's generator, one 64-bit random number for four entries.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must lie in [0, 1), but is {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        dropped = round(self.p * LEVELS)
        if not self.training or not dropped:
            return x
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        levels = words.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
        return drop(x, levels, dropped - LEVELS // 2, 1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"
