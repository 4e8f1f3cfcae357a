"""How many distinct contents do the nodes have? Queries with equal contents rank keys alike."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 10_000  # converted at a time, to keep memory small


def codes_of(x: object) -> Tensor | None:  # [*, N, in] -> [B, N]
    """An integer for each row of a layer's input, the same for equal rows; None without rows.

    Sums of products of the bits with random integers, modulo 2⁶⁴: the order of summation does not
    matter, and different rows get the same code with a probability of about 2⁻⁶⁴.
    """
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.dim() < 2:
        return None
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**63), 2**63 - 1, (x.shape[-1],), generator=generator) | 1
    parts = x.detach().flatten(0, -2).split(ROWS)
    codes = [((part.cpu().double() + 0.0).view(torch.int64) * factors).sum(1) for part in parts]
    return torch.cat(codes).view(-1, x.shape[-2])


def distinct(codes: list[Tensor | None]) -> int | None:
    """The number of distinct codes in all calls of a layer; None if a call has none."""
    known = [each for each in codes if each is not None]
    return len(torch.cat(known).unique()) if known and len(known) == len(codes) else None
