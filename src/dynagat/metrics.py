"""Metrics: how good predictions are. A `Metric` says which way is better and how it is printed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A number that judges predictions.

    Args:
        name: as in records, "roc_auc"; on a part of the data, "test_roc_auc".
        title: as readers see it, "ROC-AUC".
        function: (prediction, target) -> value.
        higher_is_better: False for errors and losses.
        unit: "%" for fractions between 0 and 1, which are printed in per cent; else "".
    """

    name: str
    title: str
    function: Callable[[Tensor, Tensor], float]
    higher_is_better: bool = True
    unit: str = ""

    def on(self, part: str) -> Metric:
        """The metric on a part of the data: ACCURACY.on("test") is named "test_accuracy"."""
        return replace(self, name=f"{part}_{self.name}", title=f"{part} {self.title}")

    @property
    def is_fraction(self) -> bool:
        return self.unit == "%"

    @property
    def worst(self) -> float:
        return -math.inf if self.higher_is_better else math.inf

    def gain(self, value: float, other: float) -> float:
        """How much better `value` is than `other`; negative if it is worse."""
        return value - other if self.higher_is_better else other - value

    def reaches(self, value: float, goal: float) -> bool:
        """Whether `value` is as good as `goal`; a nan never is."""
        return value >= goal if self.higher_is_better else value <= goal

    def is_gain(self, value: float, other: float, at_least: float = 0.0) -> bool:
        """Whether `value` is better than `other` by more than `at_least`."""
        if self.higher_is_better:
            return value > other + at_least
        return value < other - at_least


def accuracy(logits: Tensor, target: Tensor) -> float:
    """Fraction of rows whose largest logit belongs to their class."""
    return float((logits.argmax(-1) == target).double().mean())


def macro_f1(logits: Tensor, target: Tensor) -> float:
    """Mean over classes of 2 hits / (predicted + true), for classes that occur in either."""
    predicted, classes = logits.argmax(-1), logits.shape[-1]
    hits = torch.bincount(target[predicted == target], minlength=classes).double()
    both = torch.bincount(target, minlength=classes) + torch.bincount(predicted, minlength=classes)
    return float((2 * hits / both)[both > 0].mean())


def roc_auc(score: Tensor, target: Tensor) -> float:
    """Mean over labels of P(score of a positive > score of a negative), ties counting one half

    Unknown targets (nan) are ignored, and so are labels without positives or without negatives;
    nan if no label is left.
    """
    score, target = score.reshape(len(score), -1), target.reshape(len(target), -1)
    values = [_auc(score[:, label], target[:, label]) for label in range(score.shape[1])]
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _auc(score: Tensor, target: Tensor) -> float:
    known = ~target.isnan()
    score, is_positive = score[known].double(), target[known] > 0.5
    positives, negatives = int(is_positive.sum()), int((~is_positive).sum())
    if not positives or not negatives:
        return math.nan
    _, position, count = score.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    rank = (last - (count - 1) / 2)[position]  # from 1; ties share their mean rank
    below = rank[is_positive].sum() - positives * (positives + 1) / 2
    return float(below / (positives * negatives))


def r_squared(prediction: Tensor, target: Tensor) -> float:
    """1 - Σ (prediction - target)² / Σ (target - mean)²;  nan if all targets are equal"""
    variation = (target.double() - target.double().mean()).square().sum()
    error = _errors(prediction, target).square().sum()
    return float(1 - error / variation) if variation > 0 else math.nan


def mean_absolute_error(prediction: Tensor, target: Tensor) -> float:
    """mean |prediction - target|"""
    return float(_errors(prediction, target).abs().mean())


def root_mean_squared_error(prediction: Tensor, target: Tensor) -> float:
    """√ mean (prediction - target)²"""
    return float(_errors(prediction, target).square().mean().sqrt())


def _errors(prediction: Tensor, target: Tensor) -> Tensor:
    """[n, 1] or [n] and [n] -> [n]"""
    return prediction.double().reshape(target.shape) - target.double()


ACCURACY = Metric("accuracy", "accuracy", accuracy, unit="%")
MACRO_F1 = Metric("macro_f1", "macro F1", macro_f1, unit="%")
ROC_AUC = Metric("roc_auc", "ROC-AUC", roc_auc, unit="%")
R_SQUARED = Metric("r_squared", "R²", r_squared)
MEAN_ABSOLUTE_ERROR = Metric(
    "mean_absolute_error", "mean absolute error", mean_absolute_error, higher_is_better=False
)
ROOT_MEAN_SQUARED_ERROR = Metric(
    "root_mean_squared_error",
    "root mean squared error",
    root_mean_squared_error,
    higher_is_better=False,
)
