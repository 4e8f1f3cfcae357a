"""Metrics: how good predictions are. A `Metric` says which way is better and how it is printed.

The values are scikit-learn's, which is imported when one is first computed.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
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


def balanced_accuracy(logits: Tensor, target: Tensor) -> float:
    """Mean over the classes in the target of the fraction of their rows that are right."""
    classes, predicted = target.unique().numpy(), logits.argmax(-1).numpy()
    recall = _sklearn().recall_score
    return float(recall(target.numpy(), predicted, labels=classes, average="macro"))


def macro_f1(logits: Tensor, target: Tensor) -> float:
    """Mean over classes of 2 hits / (predicted + true), for classes that occur in either."""
    return float(_sklearn().f1_score(target.numpy(), logits.argmax(-1).numpy(), average="macro"))


def roc_auc(score: Tensor, target: Tensor) -> float:
    """Mean over labels of P(score of a positive > score of a negative), ties counting one half

    Of classes, each against the rest. Unknown targets (nan) are ignored, and so are labels without
    positives or without negatives; nan if no label is left.
    """
    return _mean_over_labels(_sklearn().roc_auc_score, score, target)


def average_precision(score: Tensor, target: Tensor) -> float:
    """Mean over labels of Σ_k precision_k (recall_k - recall_{k-1}); otherwise as `roc_auc`"""
    return _mean_over_labels(_sklearn().average_precision_score, score, target)


def log_loss(logits: Tensor, target: Tensor) -> float:
    """Mean of -log(probability of the true class), or of each known label"""
    if not target.is_floating_point():
        return float(F.cross_entropy(logits.double(), target))
    known = ~target.isnan()
    loss = F.binary_cross_entropy_with_logits
    return float(loss(logits.reshape(target.shape)[known].double(), target[known].double()))


def r_squared(prediction: Tensor, target: Tensor) -> float:
    """1 - Σ (prediction - target)² / Σ (target - mean)²;  nan if all targets are equal"""
    if len(target) < 2 or bool((target == target[0]).all()):
        return math.nan
    return _of_values("r2_score", prediction, target)


def mean_absolute_error(prediction: Tensor, target: Tensor) -> float:
    """mean |prediction - target|"""
    return _of_values("mean_absolute_error", prediction, target)


def root_mean_squared_error(prediction: Tensor, target: Tensor) -> float:
    """√ mean (prediction - target)²"""
    return _of_values("root_mean_squared_error", prediction, target)


def _sklearn() -> Any:
    return importlib.import_module("sklearn.metrics")


def _mean_over_labels(function: Any, score: Tensor, target: Tensor) -> float:
    """The mean of function(known targets, their scores) over the columns with both values."""
    if not target.is_floating_point():  # classes
        target = F.one_hot(target, score.shape[-1]).double()
        score = score.double().softmax(-1)
    score, target = score.reshape(len(score), -1), target.reshape(len(target), -1)
    if not bool(score.isfinite().all()):  # which scikit-learn refuses
        return math.nan
    values = []
    for label in range(target.shape[1]):
        known = ~target[:, label].isnan()
        is_positive = target[known, label] > 0.5
        if 0 < int(is_positive.sum()) < len(is_positive):
            values.append(function(is_positive.numpy(), score[known, label].double().numpy()))
    return float(sum(values) / len(values)) if values else math.nan


def _of_values(name: str, prediction: Tensor, target: Tensor) -> float:
    """Of scikit-learn's function. Predictions are [n, 1] or [n], targets [n]."""
    prediction = prediction.double().reshape(target.shape)
    if not bool(prediction.isfinite().all()):
        return math.nan
    return float(getattr(_sklearn(), name)(target.double().numpy(), prediction.numpy()))


ACCURACY = Metric("accuracy", "accuracy", accuracy, unit="%")
BALANCED_ACCURACY = Metric("balanced_accuracy", "balanced accuracy", balanced_accuracy, unit="%")
MACRO_F1 = Metric("macro_f1", "macro F1", macro_f1, unit="%")
ROC_AUC = Metric("roc_auc", "ROC-AUC", roc_auc, unit="%")
AVERAGE_PRECISION = Metric("average_precision", "average precision", average_precision, unit="%")
LOG_LOSS = Metric("log_loss", "log loss", log_loss, higher_is_better=False)
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
METRICS = {  # by kind of target; the first is the default for nodes
    "classification": (
        ACCURACY, BALANCED_ACCURACY, MACRO_F1, ROC_AUC, AVERAGE_PRECISION, LOG_LOSS
    ),
    "multilabel": (ROC_AUC, AVERAGE_PRECISION, LOG_LOSS),
    "regression": (R_SQUARED, MEAN_ABSOLUTE_ERROR, ROOT_MEAN_SQUARED_ERROR),
}  # fmt: skip
SHORT_NAMES = {"auc": ROC_AUC, "f1": MACRO_F1, "r2": R_SQUARED,
               "mae": MEAN_ABSOLUTE_ERROR, "rmse": ROOT_MEAN_SQUARED_ERROR}  # fmt: skip


def find_metric(name: str, known: Iterable[Metric]) -> Metric:
    """The metric of a name such as "roc_auc", "ROC-AUC" or "mae"."""
    known = list(known)
    words = re.sub(r"[ @-]", "_", name.strip().lower())
    for metric in known:
        if metric.name == words or SHORT_NAMES.get(words) == metric:
            return metric
    short = {metric: name for name, metric in SHORT_NAMES.items() if name not in ("auc", "f1")}
    names = ", ".join(short.get(metric, metric.name) for metric in known)
    raise ValueError(f"metric must be one of {names}, but is {name!r}")
