"""Metrics: how good predictions are. [N] or [N, T] in, one number out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def accuracy(logits: Tensor, target: Tensor) -> float:
    """The share of rows whose largest logit is that of their class."""
    return float((logits.argmax(-1) == target).double().mean())


def macro_f1(logits: Tensor, target: Tensor) -> float:
    """The mean over classes of 2 hits / (predicted + true), of classes that occur in either."""
    guess, classes = logits.argmax(-1), logits.shape[-1]
    hits = torch.bincount(target[guess == target], minlength=classes).double()
    both = torch.bincount(target, minlength=classes) + torch.bincount(guess, minlength=classes)
    return float((2 * hits / both)[both > 0].mean())


def roc_auc(score: Tensor, target: Tensor) -> float:
    """The mean over labels of P(score of a 1 > score of a 0), ties counting half

    Unknown targets (nan) are left out, and so is a label that has only one of 0 and 1; nan if all.
    """
    score, target = score.reshape(len(score), -1), target.reshape(len(target), -1)
    found = [_auc(score[:, t], target[:, t]) for t in range(score.shape[1])]
    known = [value for value in found if value == value]
    return float(np.mean(known)) if known else float("nan")


def _auc(score: Tensor, target: Tensor) -> float:
    known = ~target.isnan()
    score, is_one = score[known].double(), target[known] > 0.5
    ones, zeros = int(is_one.sum()), int((~is_one).sum())
    if not ones or not zeros:
        return float("nan")
    _, place, count = score.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    rank = (last - (count - 1) / 2)[place]  # from 1; of ties, their mean
    return float((rank[is_one].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def r_squared(guess: Tensor, target: Tensor) -> float:
    """1 - Σ (guess - target)² / Σ (target - mean)²;  nan where the targets are all equal"""
    spread = (target.double() - target.double().mean()).square().sum()
    error = (guess.double() - target.double()).square().sum()
    return float(1 - error / spread) if spread > 0 else float("nan")


def mean_absolute_error(guess: Tensor, target: Tensor) -> float:
    """mean |guess - target|"""
    return float((guess.double() - target.double()).abs().mean())


def root_mean_squared_error(guess: Tensor, target: Tensor) -> float:
    """√ mean (guess - target)²"""
    return float((guess.double() - target.double()).square().mean().sqrt())
