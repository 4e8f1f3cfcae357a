"""Metrics agree with their definitions, and know which direction is better."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynagat import metrics
from dynagat.metrics import (
    ACCURACY,
    MACRO_F1,
    MEAN_ABSOLUTE_ERROR,
    R_SQUARED,
    ROC_AUC,
    ROOT_MEAN_SQUARED_ERROR,
)

HIGHER_IS_BETTER = (ACCURACY, MACRO_F1, ROC_AUC, R_SQUARED)
LOWER_IS_BETTER = (MEAN_ABSOLUTE_ERROR, ROOT_MEAN_SQUARED_ERROR)
EVERY = (*HIGHER_IS_BETTER, *LOWER_IS_BETTER)


def test_accuracy_is_the_fraction_of_correct_rows():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [0.0, 5.0]])
    assert metrics.accuracy(logits, torch.tensor([0, 1, 1, 1])) == 0.75


def test_macro_f1_weights_classes_equally_and_ignores_those_that_do_not_occur():
    logits = torch.eye(4)[torch.tensor([0, 0, 0, 1])]
    target = torch.tensor([0, 0, 1, 1])  # classes 2 and 3 do not occur
    assert metrics.macro_f1(logits, target) == pytest.approx((4 / 5 + 2 / 3) / 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_roc_auc_is_the_fraction_of_pairs_in_order(rows):
    score, label = torch.tensor([float(s) for s, _ in rows]), [b for _, b in rows]
    ones = [s for s, b in rows if b]
    zeros = [s for s, b in rows if not b]
    value = metrics.roc_auc(score, torch.tensor(label).float())
    if not ones or not zeros:
        assert math.isnan(value)
        return
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(ones, zeros)]
    assert value == pytest.approx(sum(wins) / len(wins))


def test_roc_auc_ignores_unknown_targets_and_labels_with_one_value():
    score = torch.tensor([[0.1, 5.0], [0.9, 6.0], [0.5, 7.0]])
    target = torch.tensor([[0.0, 1.0], [1.0, 1.0], [math.nan, 1.0]])
    assert metrics.roc_auc(score, target) == 1.0


def test_r_squared_is_one_for_the_targets_and_zero_for_their_mean():
    target = torch.tensor([1.0, 2.0, 6.0])
    assert metrics.r_squared(target, target) == 1
    assert metrics.r_squared(torch.full((3,), 3.0), target) == pytest.approx(0)
    assert math.isnan(metrics.r_squared(target, torch.ones(3)))


def test_errors_are_in_the_unit_of_the_target():
    guess, target = torch.tensor([1.0, 5.0]), torch.tensor([4.0, 1.0])
    assert metrics.mean_absolute_error(guess, target) == 3.5
    assert metrics.root_mean_squared_error(guess, target) == pytest.approx(math.sqrt(12.5))


# Which direction is better

finite = st.floats(-1e6, 1e6)


def test_the_direction_of_every_metric():
    assert [each.higher_is_better for each in EVERY] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
@given(value=finite, other=finite)
def test_a_gain_is_positive_if_and_only_if_the_value_is_better(metric, value, other):
    is_better = value > other if metric.higher_is_better else value < other
    assert (metric.gain(value, other) > 0) == is_better
    assert metric.gain(value, other) == -metric.gain(other, value)
    assert abs(metric.gain(value, other)) == abs(value - other)
    assert metric.is_gain(value, other) == is_better


@pytest.mark.parametrize(("metric", "sign"), [(ACCURACY, 1), (MEAN_ABSOLUTE_ERROR, -1)])
def test_a_gain_must_be_more_than_the_smallest_that_counts(metric, sign):
    assert metric.gain(0.75, 0.5) == sign * 0.25
    assert metric.is_gain(0.5 + sign * 0.25, 0.5, at_least=0.125)
    assert not metric.is_gain(0.5 + sign * 0.125, 0.5, at_least=0.125)
    assert not metric.is_gain(0.5, 0.5)
    assert not metric.is_gain(0.5 - sign * 0.25, 0.5, at_least=0.125)


@pytest.mark.parametrize(("metric", "sign"), [(ROC_AUC, 1), (ROOT_MEAN_SQUARED_ERROR, -1)])
def test_a_goal_is_reached_by_values_that_are_as_good(metric, sign):
    assert metric.reaches(0.5, 0.5)
    assert metric.reaches(0.5 + sign * 0.1, 0.5)
    assert not metric.reaches(0.5 - sign * 0.1, 0.5)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_nan_is_no_gain_and_reaches_no_goal(metric):
    assert not metric.is_gain(math.nan, 0.5)
    assert not metric.is_gain(0.5, math.nan)
    assert not metric.reaches(math.nan, 0.5)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
@given(value=finite)
def test_every_value_is_better_than_the_worst(metric, value):
    assert metric.is_gain(value, metric.worst)
    assert metric.gain(value, metric.worst) == math.inf


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_a_metric_on_a_part_of_the_data_is_named_after_it(metric):
    on_test = metric.on("test")
    assert (on_test.name, on_test.title) == (f"test_{metric.name}", f"test {metric.title}")
    assert on_test.function is metric.function
    assert on_test.higher_is_better == metric.higher_is_better
    assert (on_test.unit, on_test.is_fraction) == (metric.unit, metric.is_fraction)
    assert on_test == metric.on("test") != metric


def test_names_in_records_stay():
    names = [each.on("test").name for each in EVERY]
    assert names == [
        "test_accuracy",
        "test_macro_f1",
        "test_roc_auc",
        "test_r_squared",
        "test_mean_absolute_error",
        "test_root_mean_squared_error",
    ]


def test_fractions_are_those_in_per_cent():
    assert [each.name for each in EVERY if each.is_fraction] == ["accuracy", "macro_f1", "roc_auc"]


# Scores for classes of different sizes


def test_balanced_accuracy_counts_each_class_alike():
    logits = torch.eye(3)[torch.tensor([0, 0, 0, 0, 2])]
    target = torch.tensor([0, 0, 0, 1, 1])  # the third class is predicted, but does not occur
    assert metrics.balanced_accuracy(logits, target) == pytest.approx((1 + 0) / 2)


def test_the_metrics_of_ranks_take_classes_one_against_the_rest():
    logits = torch.tensor([[4.0, 0.0], [2.0, 1.0], [0.0, 1.0], [0.0, 3.0]])
    target = torch.tensor([0, 1, 0, 1])
    assert metrics.roc_auc(logits, target) == 0.75
    first, second = (1 + 2 / 3) / 2, (1 + 2 / 3) / 2  # positives at ranks 1 and 3
    assert metrics.average_precision(logits, target) == pytest.approx((first + second) / 2)
    three = torch.tensor([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]])
    assert metrics.roc_auc(three, torch.tensor([0, 1, 2])) == 1
    assert math.isnan(metrics.roc_auc(three * math.nan, torch.tensor([0, 1, 2])))


def test_log_loss_is_the_cross_entropy_of_classes_and_of_known_labels():
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.2, 0.8]]))
    expected = -(math.log(0.5) + math.log(0.8)) / 2
    assert metrics.log_loss(logits, torch.tensor([0, 1])) == pytest.approx(expected)
    labels = torch.tensor([[1.0, math.nan], [0.0, math.nan]])
    assert metrics.log_loss(torch.zeros(2, 2), labels) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("name", "metric"),
    [("roc_auc", ROC_AUC), ("ROC-AUC", ROC_AUC), ("Macro F1", MACRO_F1), ("f1", MACRO_F1)],
)
def test_metrics_are_found_by_their_usual_names(name, metric):
    assert metrics.find_metric(name, HIGHER_IS_BETTER) is metric


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="metric must be one of accuracy, macro_f1, but is 'mae'"):
        metrics.find_metric("mae", [ACCURACY, MACRO_F1])
    with pytest.raises(ValueError, match="metric must be one of r2, mae, rmse, but is 'accuracy'"):
        metrics.find_metric("accuracy", metrics.METRICS["regression"])
