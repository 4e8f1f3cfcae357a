"""Metrics agree with their definitions, and with counting by hand."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynagat import metrics


def test_accuracy_is_the_share_of_rows_right():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [0.0, 5.0]])
    assert metrics.accuracy(logits, torch.tensor([0, 1, 1, 1])) == 0.75


def test_macro_f1_weighs_classes_alike_and_leaves_out_those_that_never_occur():
    logits = torch.eye(4)[torch.tensor([0, 0, 0, 1])]
    target = torch.tensor([0, 0, 1, 1])  # classes 2 and 3 occur nowhere
    assert metrics.macro_f1(logits, target) == pytest.approx((4 / 5 + 2 / 3) / 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_roc_auc_is_the_share_of_pairs_in_order(rows):
    score, label = torch.tensor([float(s) for s, _ in rows]), [b for _, b in rows]
    ones = [s for s, b in rows if b]
    zeros = [s for s, b in rows if not b]
    found = metrics.roc_auc(score, torch.tensor(label).float())
    if not ones or not zeros:
        assert math.isnan(found)
        return
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(ones, zeros)]
    assert found == pytest.approx(sum(wins) / len(wins))


def test_roc_auc_leaves_out_unknown_targets_and_labels_with_one_value():
    score = torch.tensor([[0.1, 5.0], [0.9, 6.0], [0.5, 7.0]])
    target = torch.tensor([[0.0, 1.0], [1.0, 1.0], [math.nan, 1.0]])
    assert metrics.roc_auc(score, target) == 1.0


def test_r_squared_is_one_for_the_truth_and_zero_for_the_mean():
    target = torch.tensor([1.0, 2.0, 6.0])
    assert metrics.r_squared(target, target) == 1
    assert metrics.r_squared(torch.full((3,), 3.0), target) == pytest.approx(0)
    assert math.isnan(metrics.r_squared(target, torch.ones(3)))


def test_errors_are_in_the_unit_of_the_target():
    guess, target = torch.tensor([1.0, 5.0]), torch.tensor([4.0, 1.0])
    assert metrics.mean_absolute_error(guess, target) == 3.5
    assert metrics.root_mean_squared_error(guess, target) == pytest.approx(math.sqrt(12.5))
