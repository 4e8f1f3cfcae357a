"""Estimates with confidence intervals, by a bootstrap over queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

DRAWS = 200
LEVEL = 0.95
MAX_QUERIES = 20_000  # of more, this many are resampled, and the interval is rescaled


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % confidence interval; nan if nothing could be measured."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{two_digits(self.value)} [{self.low:.2f}, {self.high:.2f}]"


def two_digits(value: float) -> str:
    """Two decimals, but 1.00 only for exactly one."""
    return ">0.99" if 0.995 <= value < 1 else f"{value:.2f}"


NOTHING = Estimate(math.nan, math.nan, math.nan)


class Resampling:
    """Poisson bootstrap: in each of `DRAWS` resamples, each query is drawn Poisson(1) times.

    For many queries, this equals drawing the same number of queries with replacement.
    """

    def __init__(self, num_queries: int, seed: int = 0) -> None:
        self.num_queries, self.seed = num_queries, seed
        self._generator = torch.Generator().manual_seed(seed)
        size = min(num_queries, MAX_QUERIES)
        self.kept = torch.randperm(num_queries, generator=self._generator)[:size].sort().values
        self.scale = math.sqrt(size / max(1, num_queries))  # intervals shrink as 1 / √queries

    @cached_property
    def counts(self) -> Tensor:  # [DRAWS, kept]
        return torch.poisson(torch.ones(DRAWS, len(self.kept)), self._generator)

    def ratio(self, above: Tensor, below: Tensor) -> list[Estimate]:
        """Σ above / Σ below over queries, both [Q, H] -> one estimate per head."""
        value = above.sum(0, dtype=torch.double) / below.sum(0, dtype=torch.double)
        measured = below.ne(0).any(1).nonzero()[:, 0]  # queries that contribute
        kept = measured
        if len(measured) > MAX_QUERIES:
            generator = torch.Generator().manual_seed(self.seed)
            kept = measured[torch.randperm(len(measured), generator=generator)[:MAX_QUERIES]]
        counts, (above, below) = self.counts[:, : len(kept)], (above[kept], below[kept])
        drawn = (counts @ above.float()) / (counts @ below.float())
        if len(kept) < len(measured):
            scale = math.sqrt(len(kept) / len(measured))
            drawn = value + (drawn - drawn.nanmean(0)) * scale
        return estimates(value, drawn)

    def pairs(self, above: Tensor, below: Tensor, first: Tensor, second: Tensor) -> list[Estimate]:
        """Σ above / Σ below over pairs of queries, both [P, H]; a pair's count is the product."""
        value = above.sum(0, dtype=torch.double) / below.sum(0, dtype=torch.double)
        queries, (first, second) = torch.unique(torch.stack([first, second]), return_inverse=True)
        counts = torch.poisson(torch.ones(DRAWS, len(queries)), self._generator)
        both = counts[:, first] * counts[:, second]  # [DRAWS, P]
        return estimates(value, (both @ above.float()) / (both @ below.float()))


def estimates(values: Tensor, drawn: Tensor) -> list[Estimate]:
    """[H] and [draws, H] -> values with the percentiles of the draws."""
    levels = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.double)
    result = []
    for value, column in zip(values.tolist(), drawn.double().T, strict=True):
        column = column[column.isfinite()]
        if math.isnan(value) or not len(column):
            result.append(NOTHING)
            continue
        low, high = torch.quantile(column, levels).tolist()
        result.append(Estimate(value, min(low, value), max(high, value)))
    return result
