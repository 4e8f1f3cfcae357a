"""Metrics of link prediction: Hits@k and the mean reciprocal rank, as OGB defines them.

Scores are read in blocks, so that large sets of pairs need little extra memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.metrics import Metric

BLOCK = 2**20  # scores


def hits(score: Tensor, target: Tensor, *, k: int) -> float:
    """Fraction of links whose score is above the k-th highest score of the negatives

    Args:
        score: [P], of each pair of nodes.
        target: [P], 1 for a link and 0 for a negative.
        k: at least 1. With fewer than k negatives, all links are hits.
    """
    if k < 1:
        raise ValueError(f"k must be 1 or more, but is {k}")
    _check_shapes(score, target, dims=1)
    num_links = sum(int(is_link.sum()) for _, is_link in _blocks(score, target))
    if num_links == 0:
        raise ValueError("target must hold at least one link (1), but holds none")
    if _has_nan(score):
        return math.nan
    if len(target) - num_links < k:
        return 1.0
    bound = _highest_negatives(score, target, k)[-1]
    above = sum(int((part[is_link] > bound).sum()) for part, is_link in _blocks(score, target))
    return above / num_links


def mean_reciprocal_rank(score: Tensor, target: Tensor) -> float:
    """mean over rows of 1 / rank of the link, with the ranks of `link_ranks`"""
    ranks = link_ranks(score, target)
    return float((1 / ranks).mean())


def link_ranks(score: Tensor, target: Tensor) -> Tensor:
    """rank = 1 + (negatives above the link + negatives at least as high) / 2, for each row: [n]

    Args:
        score: [n, 1 + K], of a link and its K negatives, in any order.
        target: [n, 1 + K], 1 for the link of each row and 0 for its negatives; it may be expanded.

    A row with a nan among its scores has the rank nan.
    """
    _check_shapes(score, target, dims=2)
    if len(score) == 0:
        raise ValueError("score must have at least one row, but has none")
    if score.shape[1] < 2:
        raise ValueError("score must have a negative in each row, but has one column or none")
    return torch.cat([_ranks(part, is_link) for part, is_link in _blocks(score, target)])


def _ranks(score: Tensor, is_link: Tensor) -> Tensor:
    count = is_link.sum(1)
    if bool((count != 1).any()):
        wrong = int(count[count != 1][0])
        raise ValueError(f"target must have one link (1) in each row, but a row has {wrong}")
    own = score[is_link][:, None]
    above = (score > own).sum(1)
    at_least = (score >= own).sum(1) - 1  # without the link itself
    ranks = 0.5 * (above + at_least).double() + 1
    return ranks.masked_fill(score.isnan().any(1), math.nan)


def _blocks(score: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores and which of them are links, about BLOCK of them at a time."""
    rows = max(1, BLOCK // math.prod(score.shape[1:]))
    for part, labels in zip(score.split(rows), target.split(rows), strict=True):
        yield part, labels == 1


def _highest_negatives(score: Tensor, target: Tensor, k: int) -> Tensor:
    """The k highest, in descending order."""
    highest = score[:0]
    for part, is_link in _blocks(score, target):
        known = torch.cat([highest, part[~is_link]])
        highest = known.topk(min(k, len(known))).values
    return highest


def _has_nan(score: Tensor) -> bool:
    return any(bool(part.isnan().any()) for part in score.split(BLOCK))


def _check_shapes(score: Tensor, target: Tensor, dims: int) -> None:
    if score.ndim != dims or score.shape != target.shape:
        expected = "[P]" if dims == 1 else "[n, 1 + K]"
        shapes = f"{list(score.shape)} and {list(target.shape)}"
        raise ValueError(f"score and target must both be {expected}, but are {shapes}")


@dataclass(frozen=True)
class _HitsAt:
    """`hits` for one k. Equal ones compare equal, unlike functools.partial."""

    k: int

    def __call__(self, score: Tensor, target: Tensor) -> float:
        return hits(score, target, k=self.k)


def hits_metric(k: int) -> Metric:
    """Hits@k as a metric named "hits_k"."""
    return Metric(f"hits_{k}", f"Hits@{k}", _HitsAt(k), unit="%")


HITS_10, HITS_20, HITS_50, HITS_100 = (hits_metric(k) for k in (10, 20, 50, 100))
MRR = Metric("mrr", "MRR", mean_reciprocal_rank, unit="%")
