"""The one training loop: when it ends, what it keeps, and what it counts."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from dynagat.training import Round, Schedule, fit


class Scripted:
    """A task whose validation scores are given beforehand; the last of them lasts."""

    def __init__(self, *scores: float, num_batches: int = 2, factor: float = 1.0) -> None:
        self.scores = scores
        self.num_batches, self.factor = num_batches, factor
        self.bad_step = math.inf  # the loss is no number from this step on
        self.num_passes = self.num_steps = 0
        self.weights: list[Tensor] = []  # after each round
        self.gradients: list[Tensor] = []
        self.modes: list[bool] = []
        self.orders: list[list[int]] = []

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        self.num_passes += 1
        order = torch.randperm(self.num_batches, generator=generator)
        self.orders.append(order.tolist())
        return iter(order.float() + 1)

    def loss(self, network: nn.Module, batch: Tensor) -> tuple[Tensor, float]:
        self.num_steps += 1
        self.modes.append(network.training)
        loss = self.factor * (network(batch.view(1, 1)) ** 2).sum()
        return (loss * math.nan if self.num_steps >= self.bad_step else loss), float(batch)

    def score(self, network: nn.Module, part: str) -> float:
        assert part == "valid"
        self.weights.append(network.weight.detach().clone())
        self.gradients.append(network.weight.grad.clone())
        return self.scores[min(len(self.weights), len(self.scores)) - 1]


def train(task: Scripted, watch=lambda _: None, **settings):
    with torch.random.fork_rng(devices=[]):
        network = nn.Linear(1, 1, bias=False)
    nn.init.ones_(network.weight)
    generator = torch.Generator().manual_seed(0)
    return network, fit(network, task, Schedule(**settings), generator, watch)


# The ends


def test_training_ends_at_a_perfect_score() -> None:
    _, outcome = train(Scripted(0.2, 1.0, 0.3))
    assert outcome.ended == "perfect"
    assert [each.valid for each in outcome.history] == [0.2, 1.0]


def test_a_perfect_score_ends_training_however_little_it_gains() -> None:
    """The released code stops at exactly 1.0, be it less than min_gain above the best."""
    _, outcome = train(Scripted(0.99995, 1.0, 0.3))
    assert outcome.ended == "perfect"
    assert outcome.best.valid == 1.0


def test_what_is_perfect_can_be_set() -> None:
    _, outcome = train(Scripted(0.2, 0.6, 0.9), stop_at=0.5)
    assert (outcome.ended, len(outcome.history)) == ("perfect", 2)


def test_training_ends_after_patience_rounds_without_a_better_score() -> None:
    _, outcome = train(Scripted(0.1, 0.5, 0.4), patience=3)
    assert (outcome.ended, len(outcome.history), outcome.best.round) == ("patience", 5, 2)


def test_a_gain_below_the_smallest_one_that_counts_is_none() -> None:
    _, outcome = train(Scripted(0.5, 0.505, 0.509, 0.52), min_gain=0.01, patience=3)
    assert outcome.best.round == 4
    _, outcome = train(Scripted(0.5, 0.505, 0.509), min_gain=0.01, patience=3)
    assert (outcome.best.round, len(outcome.history)) == (1, 4)


def test_training_ends_when_the_rounds_are_used_up() -> None:
    _, outcome = train(Scripted(0.1, 0.2, 0.3, 0.4), max_rounds=3)
    assert (outcome.ended, len(outcome.history)) == ("budget", 3)


def test_a_loss_that_is_no_number_ends_training_and_spoils_nothing_before_it() -> None:
    task = Scripted(0.1, 0.2, 0.9)
    task.bad_step = 5  # the first of round 3
    _, outcome = train(task)
    assert (outcome.ended, len(outcome.history)) == ("diverged", 3)
    assert math.isnan(outcome.history[-1].loss)
    assert math.isnan(outcome.history[-1].valid)
    assert (outcome.best.round, outcome.best.valid) == (2, 0.2)
    assert torch.equal(outcome.best_state["weight"], task.weights[1])
    assert outcome.last_state["weight"].isnan().all()


def test_a_run_that_diverges_at_once_has_an_outcome_too() -> None:
    task = Scripted(0.5)
    task.bad_step = 1
    _, outcome = train(task)
    assert (outcome.ended, outcome.best.round, task.weights) == ("diverged", 1, [])


# What is kept


def test_the_best_rounds_weights_and_the_lasts_are_kept() -> None:
    task = Scripted(0.1, 0.8, 0.3, 0.4)
    network, outcome = train(task, max_rounds=4)
    assert outcome.best == outcome.history[1]
    assert torch.equal(outcome.best_state["weight"], task.weights[1])
    assert torch.equal(outcome.last_state["weight"], task.weights[3])
    assert not torch.equal(task.weights[1], task.weights[3])
    nn.init.zeros_(network.weight)
    assert torch.equal(outcome.last_state["weight"], task.weights[3])


def test_of_equal_rounds_the_first_is_the_best() -> None:
    _, outcome = train(Scripted(0.5), max_rounds=3)
    assert outcome.best.round == 1


def test_every_round_is_told_as_it_ends() -> None:
    task, heard = Scripted(0.1, 0.2, 0.3), []
    _, outcome = train(task, lambda seen: heard.append((seen, len(task.weights))), max_rounds=3)
    assert heard == [(each, each.round) for each in outcome.history]


# What is counted


@pytest.mark.parametrize(
    ("passes", "steps", "made"), [(1, 1, 1), (3, 1, 3), (1, 5, 2), (1, 6, 2), (1, 7, 3), (4, 7, 4)]
)
def test_a_round_has_its_passes_and_as_many_more_as_its_steps_take(passes, steps, made) -> None:
    task = Scripted(0.1, 0.2, num_batches=3)
    _, outcome = train(task, round_passes=passes, round_steps=steps, max_rounds=2)
    assert task.num_passes == 2 * made
    assert [each.step for each in outcome.history] == [3 * made, 6 * made]


def test_a_rounds_train_score_is_the_mean_over_its_steps() -> None:
    _, outcome = train(Scripted(0.1, num_batches=3), max_rounds=1)
    assert outcome.best.train == pytest.approx(2.0)  # of 1, 2 and 3


def test_a_rounds_loss_is_the_mean_over_its_steps() -> None:
    _, outcome = train(Scripted(0.1), max_rounds=1, lr=1e-12)
    assert outcome.best.loss == pytest.approx((1 + 4) / 2)


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_no_step_is_made_with_a_gradient_above_the_clip(clip) -> None:
    task = Scripted(0.1, factor=1e6)
    train(task, clip=clip, max_rounds=2)
    assert [each.norm().item() for each in task.gradients] == pytest.approx([clip, clip], rel=1e-4)


def test_a_gradient_below_the_clip_is_left_as_it_is() -> None:
    task = Scripted(0.1, num_batches=1)
    train(task, clip=1e6, max_rounds=1)
    assert task.gradients[0].item() == pytest.approx(2.0)  # of w² at w = 1


def test_the_rate_falls_after_more_than_lr_patience_rounds_without_a_better_score() -> None:
    schedule = {"lr": 0.1, "lr_patience": 2, "lr_factor": 0.5, "max_rounds": 9}
    _, outcome = train(Scripted(0.1, 0.2), **schedule)
    rates = [each.lr for each in outcome.history]
    assert rates == pytest.approx([0.1] * 5 + [0.05] * 3 + [0.025])


def test_the_rate_stays_while_the_score_gets_better() -> None:
    schedule = {"lr": 0.1, "lr_patience": 0, "max_rounds": 3}
    _, outcome = train(Scripted(0.1, 0.2, 0.3), **schedule)
    assert [each.lr for each in outcome.history] == pytest.approx([0.1] * 3)


def test_rounds_train_in_training_mode_even_if_a_score_left_it() -> None:
    task = Scripted(0.1)
    heard: list[Round] = []
    network = nn.Linear(1, 1, bias=False)

    def leave(seen: Round) -> None:
        heard.append(seen)
        network.eval()

    fit(network, task, Schedule(max_rounds=3), torch.Generator(), leave)
    assert task.modes == [True] * 6
    assert len(heard) == 3


def test_the_order_of_batches_is_the_given_generators_and_no_other_is_drawn_from() -> None:
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


# The door


@pytest.mark.parametrize("name", ["lr", "batch_size", "round_passes", "round_steps", "max_rounds"])
def test_a_schedule_refuses_what_must_be_above_zero(name) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be above 0, but is 0$"):
        Schedule(**{name: 0})


@pytest.mark.parametrize("name", ["patience", "lr_patience", "min_gain"])
def test_a_schedule_refuses_what_must_not_be_negative(name) -> None:
    with pytest.raises(ValueError, match=f"^{name} must not be negative, but is -1$"):
        Schedule(**{name: -1})


@pytest.mark.parametrize("factor", [0.0, 1.0, 1.5])
def test_a_schedule_refuses_a_rate_that_does_not_fall(factor) -> None:
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
    sentence = f"^silent_rounds must be below 3 rounds, but is {silent}$"
    with pytest.raises(ValueError, match=sentence):
        Schedule(max_rounds=3, silent_rounds=silent)


# Runs that count as failed (D20)


class Costly(Scripted):
    """Its losses are given too, one a round; the last of them lasts."""

    def __init__(self, losses: list[float], *scores: float) -> None:
        super().__init__(*scores, num_batches=1)
        self.losses = losses

    def loss(self, network: nn.Module, batch: Tensor) -> tuple[Tensor, float]:
        loss, score = super().loss(network, batch)
        here = self.losses[min(self.num_steps, len(self.losses)) - 1]
        return loss - loss.detach() + here, score


BETTER = tuple(0.05 * n for n in range(1, 19))  # a score that never stands still


@pytest.mark.parametrize(
    ("losses", "scores", "settings", "ended", "rounds"),
    [
        # limit_rounds: no round was within the limit when they are over
        ([3.0], BETTER, {"loss_limit": 2.0, "limit_rounds": 4}, "failed", 4),
        ([3.0, 2.0, 3.0], BETTER, {"loss_limit": 2.0, "limit_rounds": 4}, "budget", 8),
        ([3.0] * 4 + [1.0], BETTER, {"loss_limit": 2.0, "limit_rounds": 5}, "budget", 8),
        # or when patience is
        ([3.0], (0.5,), {"loss_limit": 2.0, "limit_rounds": 6, "patience": 2}, "failed", 3),
        ([1.0, 3.0], (0.5,), {"loss_limit": 2.0, "limit_rounds": 6, "patience": 2}, "patience", 3),
        # without limit_rounds, the last round decides, at the end
        ([3.0], BETTER, {"loss_limit": 2.0}, "failed", 8),
        ([1.0] * 7 + [3.0], BETTER, {"loss_limit": 2.0}, "failed", 8),
        ([3.0] * 7 + [2.0], BETTER, {"loss_limit": 2.0}, "budget", 8),
        ([3.0], (0.5,), {"loss_limit": 2.0, "patience": 2}, "failed", 3),
        # failed_before: patience ended it too early, whatever the loss
        ([1.0], (0.5,), {"failed_before": 5, "patience": 2}, "failed", 3),
        ([1.0], (0.5,), {"failed_before": 5, "patience": 4}, "patience", 5),
        ([1.0], BETTER, {"failed_before": 30}, "budget", 8),
        # and never without the rule, as corrected
        ([1e6], BETTER, {}, "budget", 8),
        ([1e6], BETTER, {"limit_rounds": 4}, "budget", 8),
        ([1e6], (0.5,), {"limit_rounds": 4, "patience": 2}, "patience", 3),
        # a perfect score is no failure
        ([3.0], (0.5, 1.0), {"loss_limit": 2.0}, "perfect", 2),
    ],
)
def test_a_run_has_failed_if_its_loss_stays_above_the_limit(
    losses, scores, settings, ended, rounds
) -> None:
    _, outcome = train(Costly(losses, *scores), **{"max_rounds": 8, **settings})
    assert (outcome.ended, len(outcome.history)) == (ended, rounds)


# Silent rounds, and patience that begins late


def test_silent_rounds_are_not_evaluated() -> None:
    """As on products: of 100 passes, those after 60, 70 .. 100 are."""
    task = Scripted(*BETTER, num_batches=1)
    _, outcome = train(task, round_passes=10, max_rounds=10, silent_rounds=5)
    evaluated = [each.step for each in outcome.history if not math.isnan(each.valid)]
    assert evaluated == [60, 70, 80, 90, 100]
    assert len(task.weights) == 5
    assert outcome.best.round == 10
    assert torch.equal(outcome.best_state["weight"], task.weights[-1])


def test_patience_and_the_rate_wait_for_the_first_evaluation() -> None:
    settings = {"silent_rounds": 5, "patience": 3, "lr": 0.1, "lr_patience": 1, "max_rounds": 20}
    _, outcome = train(Scripted(0.5), **settings)
    assert (outcome.ended, len(outcome.history), outcome.best.round) == ("patience", 9, 6)
    assert [each.lr for each in outcome.history] == pytest.approx([0.1] * 8 + [0.05])


def test_a_run_that_fails_in_silence_has_an_outcome_too() -> None:
    settings = {"silent_rounds": 5, "loss_limit": 2.0, "limit_rounds": 3, "max_rounds": 8}
    _, outcome = train(Costly([3.0], 0.5), **settings)
    assert (outcome.ended, len(outcome.history)) == ("failed", 3)
    assert outcome.best_state.keys() == outcome.last_state.keys()


def test_patience_ends_nothing_before_the_least_rounds() -> None:
    _, outcome = train(Scripted(0.5), patience=2, min_rounds=6)
    assert (outcome.ended, len(outcome.history)) == ("patience", 6)
    _, outcome = train(Scripted(0.5), patience=8, min_rounds=6)
    assert len(outcome.history) == 9


# The optimiser


def test_without_a_clip_a_gradient_is_left_as_it_is() -> None:
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


def test_the_time_of_every_round_is_told_apart() -> None:
    _, outcome = train(Scripted(0.1), max_rounds=3)
    assert len(outcome.seconds) == 3
    assert all(part >= 0 for each in outcome.seconds for part in each)
