"""fit: rounds of optimiser steps, each followed by a look at the validation data.

The one loop of all benchmarks. What it trains on is a `Task`; how long, a `Schedule`; what came of
it, an `Outcome`. Nothing here draws from a global generator.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn


class Task(Protocol):
    """What to learn: training batches, their loss, and the score of a part of the data."""

    def batches(self, generator: torch.Generator) -> Iterator[Any]:
        """One pass over the training data, in an order of the generator's."""
        ...

    def loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, float]:
        """The batch's mean loss, and its score."""
        ...

    def score(self, network: nn.Module, part: str) -> float:
        """How good the network is on "train", "valid" or "test"; more is better."""
        ...


@dataclass(frozen=True)
class Schedule:
    """Adam; the learning rate falls, and training ends, when the validation score stands still.

    A round is `round_passes` passes over the training data, and as many more as it takes to make
    `round_steps` steps; each ends with an evaluation, but for the first `silent_rounds`.

    A run has failed if the mean loss of no round was within `loss_limit` when `limit_rounds` are
    over or patience is; if limit_rounds is 0, that of the last round decides. It ends there. So it
    has if patience is over before `failed_before` rounds are.
    """

    lr: float = 1e-3
    batch_size: int = 1024
    clip: float = 1.0  # the largest norm of the gradient; 0: any
    round_passes: int = 1
    round_steps: int = 1
    max_rounds: int = 100
    patience: int = 20  # rounds without a better score before the end
    lr_patience: int = 10  # rounds without a better score before the rate falls
    lr_factor: float = 0.5
    min_gain: float = 1e-4  # what counts as better
    stop_at: float = 1.0  # the score that can't be beaten
    # Those marked "later" came when there were records: see settings.as_dict.
    weight_decay: float = field(default=0.0, metadata={"later": True})
    min_rounds: int = field(default=0, metadata={"later": True})  # before patience may end it
    silent_rounds: int = field(default=0, metadata={"later": True})
    loss_limit: float | None = field(default=None, metadata={"later": True})
    limit_rounds: int = field(default=0, metadata={"later": True})
    failed_before: int = field(default=0, metadata={"later": True})
    optimizer: Literal["adam", "adamw"] = field(default="adam", metadata={"later": True})

    def __post_init__(self) -> None:
        for name in ("lr", "batch_size", "round_passes", "round_steps", "max_rounds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, but is {getattr(self, name)}")
        for name in ("clip", "patience", "lr_patience", "min_gain", "weight_decay", "min_rounds",
                     "silent_rounds", "limit_rounds", "failed_before"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 0 < self.lr_factor < 1:
            raise ValueError(f"lr_factor must lie between 0 and 1, but is {self.lr_factor}")
        if self.silent_rounds >= self.max_rounds:
            given = f"{self.silent_rounds}"
            raise ValueError(
                f"silent_rounds must be below {self.max_rounds} rounds, but is {given}"
            )

    def of(self, mechanism: str) -> Schedule:
        """That of one mechanism, where they differ."""
        return self


@dataclass(frozen=True)
class Round:
    """What is seen after a round: the running means of its steps, and the validation score."""

    round: int
    step: int
    loss: float
    train: float
    valid: float
    lr: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """The way, its best round, and the weights after that round and after the last."""

    history: tuple[Round, ...]
    best: Round
    best_state: Mapping[str, Tensor]
    last_state: Mapping[str, Tensor]
    ended: str  # "perfect", "patience", "budget", "failed" or "diverged"
    seconds: tuple[tuple[float, float], ...] = ()  # of each round, its training and evaluation


def fit(
    network: nn.Module,
    task: Task,
    schedule: Schedule,
    generator: torch.Generator,
    watch: Callable[[Round], None] = lambda _: None,
) -> Outcome:
    """Train until the score is perfect, stands still or is no number, or the rounds are used up."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[schedule.optimizer](
        list(network.parameters()), schedule.lr, weight_decay=schedule.weight_decay
    )
    falling = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        mode="max",
        factor=schedule.lr_factor,
        patience=schedule.lr_patience,
        threshold=schedule.min_gain,
        threshold_mode="abs",
    )
    history: list[Round] = []
    seconds: list[tuple[float, float]] = []
    best, best_state, step = None, {}, 0
    while True:
        lr, began = optimizer.param_groups[0]["lr"], time.perf_counter()
        steps, loss, train = _train_round(network, task, schedule, optimizer, generator)
        step, trained = step + steps, time.perf_counter()
        is_silent = len(history) < schedule.silent_rounds or not math.isfinite(loss)
        valid = math.nan if is_silent else task.score(network, "valid")
        seconds.append((trained - began, time.perf_counter() - trained))
        here = Round(len(history) + 1, step, loss, train, valid, lr)
        history.append(here)
        watch(here)
        is_perfect = valid >= schedule.stop_at  # however small the gain
        enough = -math.inf if best is None else best.valid + schedule.min_gain
        if best is None or is_perfect or math.isnan(enough) or valid > enough:
            best, best_state = here, _state(network)
        if not is_silent:
            falling.step(valid)
        ended = _end(history, best, schedule)
        if ended:
            last = _state(network)
            return Outcome(tuple(history), best, best_state, last, ended, tuple(seconds))


def _train_round(
    network: nn.Module,
    task: Task,
    schedule: Schedule,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> tuple[int, float, float]:
    """The number of steps, and the means of their losses and scores."""
    network.train()
    losses, scores, passes = [], [], 0
    while passes < schedule.round_passes or len(losses) < schedule.round_steps:
        for batch in task.batches(generator):
            loss, score = task.loss(network, batch)
            optimizer.zero_grad()
            loss.backward()
            if schedule.clip:
                nn.utils.clip_grad_norm_(network.parameters(), schedule.clip)
            optimizer.step()
            losses.append(loss.detach())
            scores.append(score)
        passes += 1
    return len(losses), float(torch.stack(losses).mean()), sum(scores) / len(scores)


def _end(history: list[Round], best: Round, schedule: Schedule) -> str:
    here = history[-1]
    if not math.isfinite(here.loss):
        return "diverged"
    if best.valid >= schedule.stop_at:
        return "perfect"
    waited = here.round - max(best.round, schedule.silent_rounds)
    if waited >= schedule.patience and here.round >= schedule.min_rounds:
        ended = "patience"
    else:
        ended = "budget" if here.round >= schedule.max_rounds else ""
    return "failed" if _is_failed(history, ended, schedule) else ended


def _is_failed(history: list[Round], ended: str, schedule: Schedule) -> bool:
    if ended == "patience" and len(history) < schedule.failed_before:
        return True
    if schedule.loss_limit is None:
        return False
    if not schedule.limit_rounds:
        return bool(ended) and history[-1].loss > schedule.loss_limit
    is_time = ended == "patience" or len(history) >= schedule.limit_rounds
    return is_time and min(each.loss for each in history) > schedule.loss_limit


def _state(network: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(network.state_dict())
