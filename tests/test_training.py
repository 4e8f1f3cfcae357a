"""The training loop: when it ends, what it keeps, and what it counts."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from dynagat.metrics import ACCURACY, MEAN_ABSOLUTE_ERROR, Metric
from dynagat.training import Outcome, Round, Schedule, fit


class Scripted:
    """A task with given validation scores; the last one is repeated."""

    def __init__(
        self,
        *scores: float,
        metric: Metric = ACCURACY,
        num_batches: int = 2,
        factor: float = 1.0,
    ) -> None:
        self.scores, self.metric = scores, metric
        self.num_batches, self.factor = num_batches, factor
        self.valid_losses = [1.0]
        self.bad_step = math.inf  # the loss is nan from this step on
        self.num_epochs = self.num_steps = 0
        self.weights: list[Tensor] = []  # after each round
        self.gradients: list[Tensor] = []
        self.modes: list[bool] = []
        self.orders: list[list[int]] = []

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        self.num_epochs += 1
        order = torch.randperm(self.num_batches, generator=generator)
        self.orders.append(order.tolist())
        return iter(order.float() + 1)

    def loss(self, network: nn.Module, batch: Tensor) -> tuple[Tensor, float]:
        self.num_steps += 1
        self.modes.append(network.training)
        loss = self.factor * (network(batch.view(1, 1)) ** 2).sum()
        return (loss * math.nan if self.num_steps >= self.bad_step else loss), float(batch)

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        assert part == "valid"
        self.weights.append(network.weight.detach().clone())
        self.gradients.append(network.weight.grad.clone())
        score = self.scores[min(len(self.weights), len(self.scores)) - 1]
        return score, self.valid_losses[min(len(self.weights), len(self.valid_losses)) - 1]


def train(task: Scripted, watch=lambda _: None, **settings):
    with torch.random.fork_rng(devices=[]):
        network = nn.Linear(1, 1, bias=False)
    nn.init.ones_(network.weight)
    generator = torch.Generator().manual_seed(0)
    return network, fit(network, task, Schedule(**settings), generator, watch)


# When training ends


def test_training_ends_at_a_perfect_score() -> None:
    _, outcome = train(Scripted(0.2, 1.0, 0.3))
    assert outcome.ended == "perfect"
    assert [each.valid for each in outcome.history] == [0.2, 1.0]


def test_a_perfect_score_ends_training_however_little_it_gains() -> None:
    """The released code stops at exactly 1.0, even if that is a gain below min_gain."""
    _, outcome = train(Scripted(0.99995, 1.0, 0.3))
    assert outcome.ended == "perfect"
    assert outcome.best.valid == 1.0


def test_the_perfect_score_can_be_set() -> None:
    _, outcome = train(Scripted(0.2, 0.6, 0.9), stop_at=0.5)
    assert (outcome.ended, len(outcome.history)) == ("perfect", 2)


def test_training_ends_after_patience_rounds_without_a_better_score() -> None:
    _, outcome = train(Scripted(0.1, 0.5, 0.4), patience=3)
    assert (outcome.ended, len(outcome.history), outcome.best.round) == ("patience", 5, 2)


def test_gains_below_min_gain_do_not_count() -> None:
    _, outcome = train(Scripted(0.5, 0.505, 0.509, 0.52), min_gain=0.01, patience=3)
    assert outcome.best.round == 4
    _, outcome = train(Scripted(0.5, 0.505, 0.509), min_gain=0.01, patience=3)
    assert (outcome.best.round, len(outcome.history)) == (1, 4)


def test_training_ends_after_max_rounds() -> None:
    _, outcome = train(Scripted(0.1, 0.2, 0.3, 0.4), max_rounds=3)
    assert (outcome.ended, len(outcome.history)) == ("budget", 3)


def test_a_loss_of_nan_ends_training_and_keeps_the_best_round_before_it() -> None:
    task = Scripted(0.1, 0.2, 0.9)
    task.bad_step = 5  # the first of round 3
    _, outcome = train(task)
    assert (outcome.ended, len(outcome.history)) == ("diverged", 3)
    assert math.isnan(outcome.history[-1].loss)
    assert math.isnan(outcome.history[-1].valid)
    assert (outcome.best.round, outcome.best.valid) == (2, 0.2)
    assert torch.equal(outcome.best_state["weight"], task.weights[1])
    assert outcome.last_state["weight"].isnan().all()


def test_a_run_that_diverges_in_the_first_round_has_an_outcome() -> None:
    task = Scripted(0.5)
    task.bad_step = 1
    _, outcome = train(task)
    assert (outcome.ended, outcome.best.round, task.weights) == ("diverged", 1, [])


# What is kept


def test_the_weights_of_the_best_and_of_the_last_round_are_kept() -> None:
    task = Scripted(0.1, 0.8, 0.3, 0.4)
    network, outcome = train(task, max_rounds=4)
    assert outcome.best == outcome.history[1]
    assert torch.equal(outcome.best_state["weight"], task.weights[1])
    assert torch.equal(outcome.last_state["weight"], task.weights[3])
    assert not torch.equal(task.weights[1], task.weights[3])
    nn.init.zeros_(network.weight)
    assert torch.equal(outcome.last_state["weight"], task.weights[3])


def test_the_first_of_equally_good_rounds_is_the_best() -> None:
    _, outcome = train(Scripted(0.5), max_rounds=3)
    assert outcome.best.round == 1


def test_with_best_by_loss_the_round_of_the_lowest_validation_loss_is_the_best() -> None:
    task = Scripted(0.9, 0.5, 0.6)
    task.valid_losses = [3.0, 2.0, 2.5]
    assert train(task, max_rounds=3, best_by="loss")[1].best.round == 2
    assert train(task, max_rounds=3)[1].best.round == 1
    _, outcome = train(task, max_rounds=50, patience=4, best_by="loss")
    assert (outcome.ended, len(outcome.history)) == ("patience", 4 + outcome.best.round)


def test_with_best_by_loss_ties_can_not_be_broken() -> None:
    with pytest.raises(ValueError, match="tie_break is for best_by=score, but is 'loss'"):
        Schedule(best_by="loss", tie_break="loss")


def test_watch_is_called_after_every_round() -> None:
    task, calls = Scripted(0.1, 0.2, 0.3), []
    _, outcome = train(task, lambda here: calls.append((here, len(task.weights))), max_rounds=3)
    assert calls == [(each, each.round) for each in outcome.history]


# What is counted


@pytest.mark.parametrize(
    ("passes", "steps", "epochs"),
    [(1, 1, 1), (3, 1, 3), (1, 5, 2), (1, 6, 2), (1, 7, 3), (4, 7, 4)],
)
def test_a_round_has_at_least_its_epochs_and_its_steps(passes, steps, epochs) -> None:
    task = Scripted(0.1, 0.2, num_batches=3)
    _, outcome = train(task, round_passes=passes, round_steps=steps, max_rounds=2)
    assert task.num_epochs == 2 * epochs
    assert [each.step for each in outcome.history] == [3 * epochs, 6 * epochs]


def test_a_rounds_train_score_is_the_mean_over_its_steps() -> None:
    _, outcome = train(Scripted(0.1, num_batches=3), max_rounds=1)
    assert outcome.best.train == pytest.approx(2.0)  # of 1, 2 and 3


def test_a_rounds_loss_is_the_mean_over_its_steps() -> None:
    _, outcome = train(Scripted(0.1), max_rounds=1, lr=1e-12)
    assert outcome.best.loss == pytest.approx((1 + 4) / 2)


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_gradients_above_the_clip_are_scaled_down_to_it(clip) -> None:
    task = Scripted(0.1, factor=1e6)
    train(task, clip=clip, max_rounds=2)
    assert [each.norm().item() for each in task.gradients] == pytest.approx([clip, clip], rel=1e-4)


def test_gradients_below_the_clip_do_not_change() -> None:
    task = Scripted(0.1, num_batches=1)
    train(task, clip=1e6, max_rounds=1)
    assert task.gradients[0].item() == pytest.approx(2.0)  # of w² at w = 1


def test_the_learning_rate_drops_after_lr_patience_rounds_without_a_better_score() -> None:
    schedule = {"lr": 0.1, "lr_patience": 2, "lr_factor": 0.5, "max_rounds": 9}
    _, outcome = train(Scripted(0.1, 0.2), **schedule)
    rates = [each.lr for each in outcome.history]
    assert rates == pytest.approx([0.1] * 5 + [0.05] * 3 + [0.025])


def test_the_learning_rate_stays_while_the_score_improves() -> None:
    schedule = {"lr": 0.1, "lr_patience": 0, "max_rounds": 3}
    _, outcome = train(Scripted(0.1, 0.2, 0.3), **schedule)
    assert [each.lr for each in outcome.history] == pytest.approx([0.1] * 3)


def test_rounds_train_in_training_mode_even_if_an_evaluation_left_it() -> None:
    task = Scripted(0.1)
    rounds: list[Round] = []
    network = nn.Linear(1, 1, bias=False)

    def leave(here: Round) -> None:
        rounds.append(here)
        network.eval()

    fit(network, task, Schedule(max_rounds=3), torch.Generator(), leave)
    assert task.modes == [True] * 6
    assert len(rounds) == 3


def test_the_order_of_batches_comes_from_the_given_generator_and_no_other_is_used() -> None:
    orders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        task = Scripted(0.1, num_batches=5)
        train(task, max_rounds=3)
        assert torch.equal(torch.get_rng_state(), before)
        orders.append(task.orders)
    assert orders[0] == orders[1]
    assert len(set(map(tuple, orders[0]))) > 1


# Refusals


@pytest.mark.parametrize("name", ["lr", "batch_size", "round_passes", "round_steps", "max_rounds"])
def test_a_schedule_refuses_values_that_must_be_above_zero(name) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be above 0, but is 0$"):
        Schedule(**{name: 0})


@pytest.mark.parametrize("name", ["patience", "lr_patience", "min_gain"])
def test_a_schedule_refuses_negative_values(name) -> None:
    with pytest.raises(ValueError, match=f"^{name} must not be negative, but is -1$"):
        Schedule(**{name: -1})


@pytest.mark.parametrize("factor", [0.0, 1.0, 1.5])
def test_a_schedule_refuses_an_lr_factor_that_does_not_lower_the_rate(factor) -> None:
    with pytest.raises(ValueError, match=f"^lr_factor must lie between 0 and 1, but is {factor}$"):
        Schedule(lr_factor=factor)


@pytest.mark.parametrize(
    "name", ["clip", "weight_decay", "min_rounds", "silent_rounds", "limit_rounds", "failed_before"]
)
def test_a_schedule_refuses_negative_counts(name) -> None:
    with pytest.raises(ValueError, match=f"^{name} must not be negative, but is -1$"):
        Schedule(**{name: -1})


@pytest.mark.parametrize("silent", [3, 4])
def test_a_schedule_must_evaluate_at_least_once(silent) -> None:
    message = f"^silent_rounds must be below max_rounds=3, but is {silent}$"
    with pytest.raises(ValueError, match=message):
        Schedule(max_rounds=3, silent_rounds=silent)


# Runs that count as failed (D20)


class Costly(Scripted):
    """Its losses are given too, one for each round; the last one is repeated."""

    def __init__(self, losses: list[float], *scores: float) -> None:
        super().__init__(*scores, num_batches=1)
        self.losses = losses

    def loss(self, network: nn.Module, batch: Tensor) -> tuple[Tensor, float]:
        loss, score = super().loss(network, batch)
        value = self.losses[min(self.num_steps, len(self.losses)) - 1]
        return loss - loss.detach() + value, score


BETTER = tuple(0.05 * n for n in range(1, 19))  # scores that improve in every round


@pytest.mark.parametrize(
    ("losses", "scores", "settings", "ended", "rounds"),
    [
        # limit_rounds: no loss was within the limit by that round
        ([3.0], BETTER, {"loss_limit": 2.0, "limit_rounds": 4}, "failed", 4),
        ([3.0, 2.0, 3.0], BETTER, {"loss_limit": 2.0, "limit_rounds": 4}, "budget", 8),
        ([3.0] * 4 + [1.0], BETTER, {"loss_limit": 2.0, "limit_rounds": 5}, "budget", 8),
        # or by the time patience runs out
        ([3.0], (0.5,), {"loss_limit": 2.0, "limit_rounds": 6, "patience": 2}, "failed", 3),
        ([1.0, 3.0], (0.5,), {"loss_limit": 2.0, "limit_rounds": 6, "patience": 2}, "patience", 3),
        # without limit_rounds, the last round's loss decides
        ([3.0], BETTER, {"loss_limit": 2.0}, "failed", 8),
        ([1.0] * 7 + [3.0], BETTER, {"loss_limit": 2.0}, "failed", 8),
        ([3.0] * 7 + [2.0], BETTER, {"loss_limit": 2.0}, "budget", 8),
        ([3.0], (0.5,), {"loss_limit": 2.0, "patience": 2}, "failed", 3),
        # failed_before: patience ran out too early, whatever the loss
        ([1.0], (0.5,), {"failed_before": 5, "patience": 2}, "failed", 3),
        ([1.0], (0.5,), {"failed_before": 5, "patience": 4}, "patience", 5),
        ([1.0], BETTER, {"failed_before": 30}, "budget", 8),
        # never without a loss_limit, as in the corrected fidelity
        ([1e6], BETTER, {}, "budget", 8),
        ([1e6], BETTER, {"limit_rounds": 4}, "budget", 8),
        ([1e6], (0.5,), {"limit_rounds": 4, "patience": 2}, "patience", 3),
        # a perfect score is not a failure
        ([3.0], (0.5, 1.0), {"loss_limit": 2.0}, "perfect", 2),
    ],
)
def test_a_run_fails_if_its_loss_stays_above_the_limit(
    losses, scores, settings, ended, rounds
) -> None:
    _, outcome = train(Costly(losses, *scores), **{"max_rounds": 8, **settings})
    assert (outcome.ended, len(outcome.history)) == (ended, rounds)


# Silent rounds and min_rounds


def test_silent_rounds_are_not_evaluated() -> None:
    """As on ogbn-products: after 60, 70 .. 100 of 100 epochs."""
    task = Scripted(*BETTER, num_batches=1)
    _, outcome = train(task, round_passes=10, max_rounds=10, silent_rounds=5)
    evaluated = [each.step for each in outcome.history if not math.isnan(each.valid)]
    assert evaluated == [60, 70, 80, 90, 100]
    assert len(task.weights) == 5
    assert outcome.best.round == 10
    assert torch.equal(outcome.best_state["weight"], task.weights[-1])


def test_patience_and_the_learning_rate_wait_for_the_first_evaluation() -> None:
    settings = {"silent_rounds": 5, "patience": 3, "lr": 0.1, "lr_patience": 1, "max_rounds": 20}
    _, outcome = train(Scripted(0.5), **settings)
    assert (outcome.ended, len(outcome.history), outcome.best.round) == ("patience", 9, 6)
    assert [each.lr for each in outcome.history] == pytest.approx([0.1] * 8 + [0.05])


def test_a_run_that_fails_before_the_first_evaluation_has_an_outcome() -> None:
    settings = {"silent_rounds": 5, "loss_limit": 2.0, "limit_rounds": 3, "max_rounds": 8}
    _, outcome = train(Costly([3.0], 0.5), **settings)
    assert (outcome.ended, len(outcome.history)) == ("failed", 3)
    assert outcome.best_state.keys() == outcome.last_state.keys()


def test_patience_does_not_run_out_before_min_rounds() -> None:
    _, outcome = train(Scripted(0.5), patience=2, min_rounds=6)
    assert (outcome.ended, len(outcome.history)) == ("patience", 6)
    _, outcome = train(Scripted(0.5), patience=8, min_rounds=6)
    assert len(outcome.history) == 9


# Metrics for which lower is better


def errors(*values: float, **options) -> Scripted:
    return Scripted(*values, metric=MEAN_ABSOLUTE_ERROR, **options)


def test_an_error_of_zero_is_perfect_and_is_reached_from_above() -> None:
    _, outcome = train(errors(0.2, 0.0, 0.3), stop_at=0.0)
    assert (outcome.ended, outcome.best.valid) == ("perfect", 0.0)
    assert [each.valid for each in outcome.history] == [0.2, 0.0]


def test_training_ends_at_an_error_of_stop_at_or_less() -> None:
    for error in (0.5, 0.4):
        _, outcome = train(errors(0.9, error, 0.1), stop_at=0.5)
        assert (outcome.ended, outcome.best.valid, len(outcome.history)) == ("perfect", error, 2)
    _, outcome = train(errors(0.9, 0.5001, 0.1), stop_at=0.5)
    assert len(outcome.history) == 3


def test_a_perfect_error_counts_however_little_it_gains() -> None:
    _, outcome = train(errors(0.00005, 0.0), stop_at=0.0, min_gain=1e-4)
    assert (outcome.ended, outcome.best.valid) == ("perfect", 0.0)


def test_training_ends_after_patience_rounds_without_a_smaller_error() -> None:
    _, outcome = train(errors(9.0, 5.0, 6.0), patience=3, stop_at=0.0)
    assert (outcome.ended, len(outcome.history), outcome.best.round) == ("patience", 5, 2)


def test_the_weights_of_the_smallest_error_are_kept() -> None:
    task = errors(9.0, 2.0, 7.0, 6.0)
    _, outcome = train(task, max_rounds=4, stop_at=0.0)
    assert (outcome.best.round, outcome.best.valid) == (2, 2.0)
    assert torch.equal(outcome.best_state["weight"], task.weights[1])
    assert torch.equal(outcome.last_state["weight"], task.weights[3])


def test_errors_that_fall_by_less_than_min_gain_do_not_count() -> None:
    schedule = {"min_gain": 0.01, "patience": 3, "stop_at": 0.0}
    _, outcome = train(errors(0.5, 0.495, 0.491, 0.48), **schedule)
    assert outcome.best.round == 4
    _, outcome = train(errors(0.5, 0.495, 0.491), **schedule)
    assert (outcome.best.round, len(outcome.history)) == (1, 4)


def test_the_learning_rate_drops_if_the_error_does_not() -> None:
    schedule = {"lr": 0.1, "lr_patience": 2, "lr_factor": 0.5, "max_rounds": 9, "stop_at": 0.0}
    _, outcome = train(errors(9.0, 8.0), **schedule)
    rates = [each.lr for each in outcome.history]
    assert rates == pytest.approx([0.1] * 5 + [0.05] * 3 + [0.025])


def test_the_learning_rate_stays_while_the_error_falls() -> None:
    schedule = {"lr": 0.1, "lr_patience": 0, "max_rounds": 3, "stop_at": 0.0}
    _, outcome = train(errors(9.0, 8.0, 7.0), **schedule)
    assert [each.lr for each in outcome.history] == pytest.approx([0.1] * 3)


def test_any_error_is_better_than_that_of_a_silent_round() -> None:
    schedule = {"silent_rounds": 2, "max_rounds": 4, "stop_at": 0.0}
    _, outcome = train(errors(1e9, 2e9), **schedule)
    assert outcome.best.round == 3


def events(outcome: Outcome) -> tuple:
    return outcome.ended, outcome.best.round, [each.lr for each in outcome.history]


@pytest.mark.parametrize("seed", range(20))
def test_training_on_a_score_and_on_its_negative_as_an_error_is_the_same(seed) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores = (torch.randint(64, (12,), generator=draw) / 64).tolist()
    schedule = {"patience": 4, "lr_patience": 1, "min_gain": 1 / 32, "max_rounds": 12}
    _, higher = train(Scripted(*scores), stop_at=15 / 16, **schedule)
    _, lower = train(errors(*(-each for each in scores)), stop_at=-15 / 16, **schedule)
    assert events(higher) == events(lower)


# The optimiser


def test_without_a_clip_gradients_do_not_change() -> None:
    task = Scripted(0.1, num_batches=1, factor=1e6)
    train(task, clip=0.0, max_rounds=1)
    assert task.gradients[0].item() == pytest.approx(2e6)


def test_adam_and_adamw_are_the_same_without_decay_and_differ_with_it() -> None:
    """D24; and decay pulls weights to zero in both."""

    def weight(**settings) -> float:
        network, _ = train(Scripted(0.1), max_rounds=3, lr=0.01, **settings)
        return network.weight.item()

    assert weight(optimizer="adamw") == weight(optimizer="adam")
    assert weight(optimizer="adamw", weight_decay=0.5) != weight(optimizer="adam", weight_decay=0.5)
    assert weight(optimizer="adamw", weight_decay=0.5) < weight(optimizer="adamw")


def test_training_and_evaluation_time_of_every_round_are_measured() -> None:
    _, outcome = train(Scripted(0.1), max_rounds=3)
    assert len(outcome.seconds) == 3
    assert all(part >= 0 for each in outcome.seconds for part in each)


# Where the score stands still, the validation loss decides


def stalled(*losses: float) -> Scripted:
    """A score that stays at 0.8, as the accuracy of a network that still predicts one class."""
    task = Scripted(0.8)
    task.valid_losses = list(losses)
    return task


def test_a_falling_validation_loss_keeps_a_run_alive_whose_score_stands_still() -> None:
    losses = [1.0, 0.9, 0.8, 0.7, 0.6]
    settings = {"patience": 2, "max_rounds": 5}
    _, alive = train(stalled(*losses), tie_break="loss", **settings)
    assert alive.ended == "budget"
    assert alive.best.round == 5
    assert [each.valid_loss for each in alive.history] == losses
    _, stopped = train(stalled(*losses), **settings)
    assert (stopped.ended, stopped.best.round, len(stopped.history)) == ("patience", 1, 3)


def test_a_lower_loss_never_outweighs_a_worse_score() -> None:
    task = Scripted(0.8, 0.79999, 0.8, 0.7)
    task.valid_losses = [1.0, 0.5, 0.9, 0.1]
    _, outcome = train(task, tie_break="loss", max_rounds=4)
    assert outcome.best.round == 3


def test_a_lower_loss_also_keeps_the_learning_rate() -> None:
    settings = {"lr_patience": 1, "max_rounds": 6, "lr": 0.1}
    _, kept = train(stalled(6, 5, 4, 3, 2, 1), tie_break="loss", **settings)
    _, dropped = train(stalled(6, 5, 4, 3, 2, 1), **settings)
    assert kept.history[-1].lr == 0.1
    assert dropped.history[-1].lr < 0.1
