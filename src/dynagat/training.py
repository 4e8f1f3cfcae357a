"""fit: the one training loop. Each round of optimiser steps ends with a validation score.

A `Task` says what is trained on, a `Schedule` how long; the result is an `Outcome`. Random numbers
come from the generator that is passed in, never from a global one. A `Checkpoint` keeps the state
after each epoch, so that a training that was killed continues to the same result. The processes of
a `Group` call `fit` together, each with its part of the task.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from dynagat.group import ALONE, Group
from dynagat.metrics import Metric
from dynagat.nn.variables import clip_each
from dynagat.placement import device_of, random_state, set_random_state
from dynagat.rmsprop import TFRMSprop


class Task(Protocol):
    """What to learn: training batches, their loss, and a score on each part of the data."""

    @property
    def metric(self) -> Metric:
        """The metric of the scores."""
        ...

    def batches(self, generator: torch.Generator) -> Iterator[Any]:
        """One epoch of training batches, shuffled by the generator.

        With `lr_graphs`, the length of a batch is its number of graphs.
        """
        ...

    def loss(self, network: nn.Module, batch: Any) -> tuple[Tensor, float]:
        """Mean loss of a batch, and its score."""
        ...

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        """Score and mean loss of the network on "train", "valid" or "test"."""
        ...


class Checkpoint(Protocol):
    """Where a training keeps its state, and finds it when it starts again."""

    def load(self) -> dict[str, Any] | None:
        """The state to continue from; None to start from the beginning."""
        ...

    def save(self, state: Callable[[], dict[str, Any]]) -> None:
        """Called after each epoch. What `state` returns must be stored before training goes on."""
        ...


# For fields that were added after records existed: records leave them out at their default, so
# that old keys stay valid. See experiment.settings.
ADDED_LATER: Any = {"added_later": True}


@dataclass(frozen=True)
class Schedule:
    """How long to train. Early stopping and the learning rate follow the validation score.

    With tie_break="loss", a round whose score is as good as the best one's is better if its
    validation loss is lower: a score such as accuracy may stand still while the network learns.
    With best_by="loss", the round with the lowest validation loss is the best, whatever its score,
    and early stopping and the learning rate follow that loss.

    A round is `round_passes` epochs, and as many more as `round_steps` optimiser steps need. Each
    round ends with an evaluation, except the first `silent_rounds`.

    With a `loss_limit`, a run fails if no round's mean loss is within the limit by round
    `limit_rounds`, or by the time patience runs out; with limit_rounds = 0 only the last round
    counts. A run also fails if patience runs out before round `failed_before`.
    """

    lr: float = 1e-3
    batch_size: int = 1024
    clip: float = 1.0  # maximum norm of the gradient; 0: no clipping
    round_passes: int = 1
    round_steps: int = 1
    max_rounds: int = 100
    patience: int = 20  # rounds without a better score before training stops
    lr_patience: int = 10  # rounds without a better score before the learning rate drops
    lr_factor: float = 0.5
    min_gain: float = 1e-4  # a score is better if it improves by more than this
    stop_at: float = 1.0  # training stops at this score; set it to 0 for an error
    weight_decay: float = field(default=0.0, metadata=ADDED_LATER)
    min_rounds: int = field(default=0, metadata=ADDED_LATER)  # before patience can run out
    silent_rounds: int = field(default=0, metadata=ADDED_LATER)
    loss_limit: float | None = field(default=None, metadata=ADDED_LATER)
    limit_rounds: int = field(default=0, metadata=ADDED_LATER)
    failed_before: int = field(default=0, metadata=ADDED_LATER)
    optimizer: Literal["adam", "adamw", "rmsprop"] = field(default="adam", metadata=ADDED_LATER)
    decay: float = field(default=0.98, metadata=ADDED_LATER)  # of rmsprop's average of squares
    momentum: float = field(default=0.85, metadata=ADDED_LATER)  # of rmsprop
    clip_each: bool = field(default=False, metadata=ADDED_LATER)  # the norm of each variable
    tie_break: Literal["none", "loss"] = field(default="none", metadata=ADDED_LATER)
    # The norms of embedding, layers and readout, each by itself.
    clip_parts: bool = field(default=False, metadata=ADDED_LATER)
    # lr is that of a batch of so many graphs, and in proportion for others; 0: the same for all.
    lr_graphs: int = field(default=0, metadata=ADDED_LATER)
    best_by: Literal["score", "loss"] = field(default="score", metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        for name in ("lr", "batch_size", "round_passes", "round_steps", "max_rounds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, but is {getattr(self, name)}")
        for name in ("clip", "patience", "lr_patience", "min_gain", "weight_decay", "min_rounds",
                     "silent_rounds", "limit_rounds", "failed_before", "lr_graphs"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.optimizer == "rmsprop" and self.weight_decay:
            raise ValueError(f"rmsprop has no weight_decay, but it is {self.weight_decay}")
        if not (0 <= self.decay < 1 and 0 <= self.momentum < 1):
            raise ValueError(
                f"decay and momentum must lie in [0, 1), but are {self.decay} and {self.momentum}"
            )
        if self.best_by == "loss" and self.tie_break != "none":
            raise ValueError(f"tie_break is for best_by=score, but is {self.tie_break!r}")
        if self.clip_each and self.clip_parts:
            raise ValueError("clip_each and clip_parts must not both be true")
        if not 0 < self.lr_factor < 1:
            raise ValueError(f"lr_factor must lie between 0 and 1, but is {self.lr_factor}")
        if self.silent_rounds >= self.max_rounds:
            raise ValueError(
                f"silent_rounds must be below max_rounds={self.max_rounds}, "
                f"but is {self.silent_rounds}"
            )

    def for_mechanism(self, mechanism: str) -> Schedule:
        """The schedule of one mechanism; some benchmarks train mechanisms differently."""
        return self


@dataclass(frozen=True)
class Round:
    """One round: mean loss and score of its training steps, validation score and loss."""

    round: int
    step: int
    loss: float
    train: float
    valid: float
    lr: float
    valid_loss: float = math.nan


@dataclass(frozen=True, eq=False)
class Outcome:
    """All rounds, the best one, and the weights after the best and after the last round."""

    history: tuple[Round, ...]
    best: Round
    best_state: Mapping[str, Tensor]
    last_state: Mapping[str, Tensor]
    ended: str  # "perfect", "patience", "budget", "failed" or "diverged"
    seconds: tuple[tuple[float, float], ...] = ()  # training and evaluation time of each round


def fit(
    network: nn.Module,
    task: Task,
    schedule: Schedule,
    generator: torch.Generator,
    watch: Callable[[Round], None] = lambda _: None,
    checkpoint: Checkpoint | None = None,
    group: Group = ALONE,
) -> Outcome:
    """Train until the score is perfect, patience runs out, the loss diverges, or rounds run out.

    With a checkpoint, training continues from the state that it has; `watch` is called with the
    earlier rounds too. In a group, the checkpoint of the first process counts; the others need
    none.
    """
    metric = task.metric
    optimizer = _optimizer(network, schedule)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        mode="max" if metric.higher_is_better and schedule.best_by == "score" else "min",
        factor=schedule.lr_factor,
        patience=schedule.lr_patience,
        threshold=schedule.min_gain,
        threshold_mode="abs",
    )
    state = _State(network, optimizer, plateau, generator)
    history, seconds, ended = state.history, state.seconds, ""
    saved = group.of_first(None if checkpoint is None else checkpoint.load())
    if saved is not None:
        state.restore(saved)
        ended = _end(history, state.best, schedule, metric) if history else ""
    for earlier in history:
        watch(earlier)

    def save() -> None:
        if checkpoint is not None:
            checkpoint.save(state.to_save)

    while not ended:
        lr = optimizer.param_groups[0]["lr"]
        _train_round(task, schedule, state, group, save)
        steps, loss, train = state.end_round()
        step, started = steps + (history[-1].step if history else 0), time.perf_counter()
        is_silent = len(history) < schedule.silent_rounds or not math.isfinite(loss)
        nothing = math.nan, math.nan
        valid, valid_loss = (
            nothing if is_silent else group.of_first(task.evaluate(network, "valid"))
        )
        seconds.append((state.spent, time.perf_counter() - started))
        state.spent = 0.0
        here = Round(len(history) + 1, step, loss, train, valid, lr, valid_loss)
        history.append(here)
        watch(here)
        if not is_silent:
            plateau.step(valid if schedule.best_by == "score" else valid_loss)
        if here.round == 1 or _is_better(here, state.best, schedule, metric):
            state.best_round, state.best_state = here.round, _weights(network)
            plateau.num_bad_epochs = 0  # also after a better loss
        ended = _end(history, state.best, schedule, metric)
        save()
    last = _weights(network)
    return Outcome(tuple(history), state.best, state.best_state, last, ended, tuple(seconds))


def _optimizer(network: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    parameters = list(network.parameters())
    if schedule.optimizer == "rmsprop":
        return TFRMSprop(parameters, schedule.lr, schedule.decay, schedule.momentum)
    optimizers = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    decay = schedule.weight_decay
    return optimizers[schedule.optimizer](parameters, schedule.lr, weight_decay=decay)


@dataclass
class _State:
    """Everything that changes while a network is trained."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    plateau: torch.optim.lr_scheduler.ReduceLROnPlateau
    generator: torch.Generator
    history: list[Round] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    best_round: int = 0
    best_state: Mapping[str, Tensor] = field(default_factory=dict)
    losses: list[Tensor] = field(default_factory=list)  # of the round's epochs: [steps] each
    scores: list[Tensor] = field(default_factory=list)  # as long
    spent: float = 0.0  # seconds of training in the round

    @property
    def best(self) -> Round:
        return self.history[self.best_round - 1]

    def end_round(self) -> tuple[int, float, float]:
        """Number of steps of the round, and the means of their losses and scores."""
        losses, scores = torch.cat(self.losses), torch.cat(self.scores).tolist()
        self.losses, self.scores = [], []
        return len(losses), float(losses.mean()), sum(scores) / len(scores)

    def to_save(self) -> dict[str, Any]:
        """Tensors and plain values only, which can be loaded without running code."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "plateau": self.plateau.state_dict(),
            "generator": self.generator.get_state(),
            "torch": torch.get_rng_state(),  # draws dropout
            "device": random_state(device_of(self.network)),
            "history": [asdict(each) for each in self.history],
            "seconds": self.seconds,
            "best_round": self.best_round,
            "best_state": self.best_state,
            "losses": self.losses,
            "scores": self.scores,
            "spent": self.spent,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.network.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.plateau.load_state_dict(saved["plateau"])
        self.generator.set_state(saved["generator"])
        torch.set_rng_state(saved["torch"])
        set_random_state(device_of(self.network), saved["device"])
        self.history += [Round(**each) for each in saved["history"]]
        self.seconds += saved["seconds"]
        self.best_round, self.best_state = saved["best_round"], saved["best_state"]
        self.losses, self.scores, self.spent = saved["losses"], saved["scores"], saved["spent"]


def _is_better(here: Round, best: Round, schedule: Schedule, metric: Metric) -> bool:
    """A perfect score counts however small the gain, and any round beats one without a score."""
    if schedule.best_by == "loss":
        return here.valid_loss < best.valid_loss - schedule.min_gain or math.isnan(best.valid_loss)
    if metric.reaches(here.valid, schedule.stop_at) or math.isnan(best.valid):
        return True
    if metric.is_gain(here.valid, best.valid, schedule.min_gain):
        return True
    is_tie = metric.reaches(here.valid, best.valid)
    return schedule.tie_break == "loss" and is_tie and here.valid_loss < best.valid_loss


def _train_round(
    task: Task, schedule: Schedule, state: _State, group: Group, save: Callable[[], None]
) -> None:
    """Train the epochs that the round lacks; `save` is called between them."""
    state.network.train()
    while (
        len(state.losses) < schedule.round_passes
        or sum(map(len, state.losses)) < schedule.round_steps
    ):
        if state.losses:
            save()
        started = time.perf_counter()
        losses, scores = _train_epoch(task, schedule, state, group)
        state.losses.append(losses)
        state.scores.append(scores)
        state.spent += time.perf_counter() - started


def _train_epoch(
    task: Task, schedule: Schedule, state: _State, group: Group
) -> tuple[Tensor, Tensor]:
    """The loss and the score of each step: [steps]."""
    losses, scores, optimizer = [], [], state.optimizer
    network = group.wrap(state.network)
    group.reseed(state.generator)
    for batch in task.batches(state.generator):
        loss, score = task.loss(network, batch)
        optimizer.zero_grad()
        loss.backward()
        _clip(state.network, schedule)
        _step(optimizer, len(batch) / schedule.lr_graphs if schedule.lr_graphs else 1.0)
        losses.append(loss.detach())
        scores.append(score)
    group.align(state.network)
    mean_losses = group.mean(torch.stack(losses)).cpu()  # for all devices of the group
    return mean_losses, group.mean(torch.tensor(scores, dtype=torch.float64))


def _step(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """A step with the learning rate times a factor."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] *= factor
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _clip(network: nn.Module, schedule: Schedule) -> None:
    """Limit the norm of the gradient, of the whole network or of what the schedule says."""
    if not schedule.clip:
        return
    if schedule.clip_each:
        return clip_each(network, schedule.clip)
    for part in network.children() if schedule.clip_parts else (network,):
        nn.utils.clip_grad_norm_(list(part.parameters()), schedule.clip)


def _end(history: list[Round], best: Round, schedule: Schedule, metric: Metric) -> str:
    """Why training ends after this round; empty if it goes on."""
    here = history[-1]
    if not math.isfinite(here.loss):
        return "diverged"
    if metric.reaches(best.valid, schedule.stop_at):
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


def _weights(network: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(network.state_dict())
