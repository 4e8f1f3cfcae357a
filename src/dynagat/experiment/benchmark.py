"""Benchmark: an experiment as a value. run(benchmark, mechanism, seed) gives its Record."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn

from dynagat.analysis.attentive import analyse
from dynagat.analysis.glance import glance
from dynagat.experiment import environment, settings
from dynagat.experiment.checkpoint import Checkpoint
from dynagat.experiment.record import Record, key_of
from dynagat.experiment.released import Released
from dynagat.group import ALONE, Group
from dynagat.metrics import Metric
from dynagat.placement import CPU, find_device, forked_random_state
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.training import Outcome, Round, Schedule, fit

Watch = Callable[[Round], None]
Heads = Mapping[str, tuple[int, ...]]  # numbers of heads, by mechanism
PARTS = ("data", "network", "task", "schedule")


class Data(Protocol):
    """A frozen dataclass of the data's settings."""

    def load(self, seed: int) -> Any:
        """The problem, of the kind that the task expects."""
        ...

    def missing(self) -> str | None:
        """How to get the data if they are missing; None if they are present."""
        ...


class NetworkSettings(Protocol):
    """A frozen dataclass of the network's settings, `heads` among them."""

    @property
    def heads(self) -> int: ...

    def build(self, problem: Any, mechanism: str) -> nn.Module: ...


class TaskSettings(Protocol):
    """A frozen dataclass of how the network is trained and scored.

    With a method `check(network_settings)`, it may refuse networks that it does not fit.
    """

    def prepare(self, problem: Any, schedule: Schedule) -> Prediction: ...


@dataclass(frozen=True)
class Settings:
    """The parts of a benchmark that can be set."""

    data: Data
    network: NetworkSettings
    task: TaskSettings
    schedule: Schedule

    def __post_init__(self) -> None:
        check = getattr(self.task, "check", None)
        if check is not None:
            check(self.network)


MeanStd = tuple[float, float]


@dataclass(frozen=True)
class Published:
    """A number that was published, and where."""

    where: str  # "Figure 3"
    mechanism: str
    heads: int | None  # None where the source does not say
    settings: Mapping[str, Any]  # by their short names: {"k": 10}
    metric: Metric
    mean: float  # in the metric's own unit: a fraction, not per cent
    std: float | None = None
    n: int = 1
    divided_by: Literal["n - 1", "n"] = "n - 1"  # how the source computes std (D23)

    @classmethod
    def from_percents(
        cls,
        where: str,
        table: Mapping[tuple[str, int], MeanStd] | Mapping[tuple[str, None], MeanStd],
        metric: Metric,
        n: int,
        divided_by: Literal["n - 1", "n"] = "n - 1",
        **settings: Any,
    ) -> Iterator[Published]:
        """The numbers of a table of (mean, std) in per cent, by mechanism and heads."""
        for (mechanism, heads), (mean, std) in table.items():
            mean, std = round(mean / 100, 6), round(std / 100, 6)
            yield cls(where, mechanism, heads, settings, metric, mean, std, n, divided_by)


def no_extras(findings: Any) -> None:
    """For a benchmark about which the report has nothing special to show."""


@dataclass(frozen=True)
class Benchmark:
    """What is compared, on which data, how, and which results were published.

    Data, network, task and schedule have the settings; together with the mechanism and the seed
    they determine a run. `revision` is raised when the same settings come to mean something else.
    A run starts from `base`, which may depend on the mechanism (`tuned`) and on the data set
    (`by_dataset`).
    """

    name: str
    title: str
    source: str
    data: Data
    network: NetworkSettings
    task: TaskSettings
    schedule: Schedule
    mechanisms: Heads  # to compare
    seeds: range
    metric: Metric  # the one that tables show
    smoke: tuple[str, ...]  # settings for a quick trial run
    published: tuple[Published, ...] = ()
    claim: str = ""  # of the paper, in a sentence; empty where the paper has none
    revision: int = 1
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # run all unless one is set
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # the grid of `tune`
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by mechanism
    tuned_by: str = "Tuned for each mechanism on validation data alone"  # where they come from
    by_dataset: Mapping[str, Settings] = field(default_factory=dict)  # "": for any other
    # Chosen by `tune` for a data set, in place of `tuned`: by data set, then by mechanism.
    tuned_on: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    microscope: Literal["whole", "glance", "none"] = "whole"  # how runs are analysed
    caveats: Mapping[str, str] = field(default_factory=dict)  # of settings: {"k=3": "too easy"}
    published_heads: Mapping[str, Heads] = field(default_factory=dict)  # of the released code
    extras: Callable[[Any], Any] = no_extras  # report.Findings -> report.Extras of this benchmark
    # Reads a checkpoint of the paper's released code, where there are any.
    released: Callable[[Path], Released] | None = None

    @property
    def settings(self) -> Settings:
        return Settings(self.data, self.network, self.task, self.schedule)

    @property
    def workers(self) -> int:
        """Number of processes that make a run together."""
        return getattr(self.task, "workers", 1)

    def check_workers(self, size: int) -> None:
        """Refuse a number of workers that is not the one in the settings, since results depend on
        it."""
        if self.workers != size:
            raise ValueError(
                f"{self.name} has the setting workers={self.workers}, so its runs need "
                f"--ddp {self.workers}, but are made with --ddp {size}"
            )

    def base(self, mechanism: str, dataset: str | None = None) -> Settings:
        """The settings that a run of a mechanism starts from."""
        start = self.settings
        if dataset is not None and self.by_dataset:
            start = self.by_dataset.get(dataset) or self.by_dataset[""]
            start = settings.with_values(start, {"data.dataset": dataset})
        tuned = self.tuned_for(mechanism, dataset)
        by_path = {settings.resolve(start, name): value for name, value in tuned.items()}
        return settings.with_values(start, by_path)

    def tuned_for(self, mechanism: str, dataset: str | None = None) -> Mapping[str, Any]:
        """What tuning chose for a mechanism, on a data set if it was tuned on that one."""
        return self.tuned_on.get(dataset or "", self.tuned).get(mechanism, {})

    def with_settings(self, new: Settings) -> Benchmark:
        return replace(self, **{name: getattr(new, name) for name in PARTS})

    def with_heads(self, heads: int) -> Benchmark:
        return self.with_settings(settings.with_values(self.settings, {"network.heads": heads}))

    def check_mechanism(self, name: str) -> None:
        if name not in self.mechanisms:
            known = ", ".join(self.mechanisms)
            raise ValueError(f"{self.name} has no mechanism {name!r}; it has {known}")

    def as_recorded(self, record: Record) -> Benchmark:
        """The benchmark under the settings of a record."""
        if record.settings.get("revision") != self.revision:
            raise ValueError(f"run {record.key} is of another revision of {self.name}")
        stored = {name: value for name, value in record.settings.items() if name != "revision"}
        start = self.base(record.mechanism, stored["data"].get("dataset"))
        return self.with_settings(settings.restored(start, stored))

    def key(self, mechanism: str, seed: int) -> str:
        return key_of(self.name, mechanism, seed, self.stored_settings())

    def stored_settings(self) -> dict[str, Any]:
        """What a record stores of the settings."""
        return settings.as_stored(self.settings) | {"revision": self.revision}


def run(
    benchmark: Benchmark,
    mechanism: str,
    seed: int,
    watch: Watch = lambda _: None,
    checkpoint: Checkpoint | None = None,
    device: str = "cpu",
    group: Group = ALONE,
) -> Record:
    """Load the data, build and train the network, measure it, and put it under the microscope.

    Uses random generators of its own, so a run does not depend on what ran before. With a
    checkpoint, a run that was interrupted continues to the same result. Networks are initialised on
    the CPU, with the same numbers for every device, but dropout is drawn on the device. The
    processes of a group must call this together, each with its own device; only the first one has a
    checkpoint and uses the microscope.
    """
    place = find_device(device)
    torch.optim.Adam([torch.zeros(1)])  # the first one of a process imports modules for seconds
    started = time.perf_counter()
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with forked_random_state(place), checkpoint or nullcontext():
        with environment.peak_memory(place) as peak:
            network, prediction, outcome = _train(
                benchmark, mechanism, seed, watch, checkpoint, place, group
            )
            network.load_state_dict(outcome.best_state)
            metrics = prediction.metrics(network, outcome)
            exhibits = prediction.exhibits(network)
        before = 0.0 if checkpoint is None else checkpoint.seconds_before
        seconds = round(before + time.perf_counter() - started, 3)
        if benchmark.microscope != "none" and group.rank == 0:
            measure = analyse if benchmark.microscope == "whole" else glance
            given = prediction.microscope_input()
            exhibits = exhibits | {"microscope": measure(network, given.inputs, **given.marks)}
    return Record(
        key=benchmark.key(mechanism, seed),
        benchmark=benchmark.name,
        mechanism=mechanism,
        heads=benchmark.network.heads,
        seed=seed,
        fidelity=fidelity(benchmark),
        settings=benchmark.stored_settings(),
        metrics=metrics,
        history=[asdict(each) for each in outcome.history],
        ended=outcome.ended,
        converged=outcome.ended in ("perfect", "patience") and _are_finite(metrics),
        seconds=seconds,
        peak_memory_bytes=peak.bytes,
        versions=environment.versions(place),
        commit=environment.commit(),
        created=created,
        exhibits=exhibits,
        round_seconds=[[round(part, 4) for part in each] for each in outcome.seconds],
        weights=_saved(network),
    )


def validate(
    benchmark: Benchmark,
    mechanism: str,
    seed: int,
    watch: Watch = lambda _: None,
    checkpoint: Checkpoint | None = None,
    device: str = "cpu",
) -> Outcome:
    """Train as `run` does, but never touch the test data."""
    place = find_device(device)
    with forked_random_state(place), checkpoint or nullcontext():
        return _train(benchmark, mechanism, seed, watch, checkpoint, place)[2]


def _train(
    benchmark: Benchmark,
    mechanism: str,
    seed: int,
    watch: Watch,
    checkpoint: Checkpoint | None,
    device: torch.device,
    group: Group = ALONE,
) -> tuple[nn.Module, Prediction, Outcome]:
    benchmark.check_workers(group.size)
    network, prediction = _build(benchmark, mechanism, seed, device)
    prediction = prediction.together(group)
    generator = torch.Generator().manual_seed(seed)
    schedule = benchmark.schedule.for_mechanism(mechanism)
    if not prediction.metric.higher_is_better and schedule.stop_at == Schedule.stop_at:
        raise ValueError(
            f"stop_at of {benchmark.name} must be set, such as 0: {prediction.metric.title} is an "
            f"error, and training would stop at {Schedule.stop_at}"
        )
    return (
        network,
        prediction,
        fit(network, prediction, schedule, generator, watch, checkpoint, group),
    )


def _build(
    benchmark: Benchmark, mechanism: str, seed: int, device: torch.device = CPU
) -> tuple[nn.Module, Prediction]:
    """Seeds torch's global generators, which draw the initial weights and dropout."""
    benchmark.check_mechanism(mechanism)
    torch.manual_seed(seed)
    problem = benchmark.data.load(seed)
    network = benchmark.network.build(problem, mechanism)
    prediction = benchmark.task.prepare(problem, benchmark.schedule)
    if device.type == "cpu":
        return network, prediction
    return network.to(device), prediction.to(device)


def revive(
    benchmark: Benchmark, mechanism: str, seed: int, weights: bytes
) -> tuple[nn.Module, MicroscopeInput]:
    """The trained network of a run from its saved weights, and what the microscope runs it on."""
    with torch.random.fork_rng(devices=[]):
        network, prediction = _build(benchmark, mechanism, seed)
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return network, prediction.microscope_input()


def _saved(network: nn.Module) -> bytes:
    """The weights, which can be loaded where the device is missing."""
    file, state = io.BytesIO(), network.state_dict()
    for name in state:
        state[name] = state[name].cpu()
    torch.save(state, file)
    return file.getvalue()


def fidelity(benchmark: Benchmark) -> str:
    """ "corrected", "improved" or "as-published", by all departures; "changed" if none of them."""
    values = settings.values_of(benchmark.settings)
    marks = list(settings.departures(benchmark.settings))
    for name in settings.FIDELITIES:
        side = name.removeprefix("as-")
        if all(values[mark.path] == settings.as_dict(getattr(mark, side)) for mark in marks):
            return name
    return "changed"


def _are_finite(metrics: Mapping[str, float]) -> bool:
    return all(math.isfinite(value) for value in metrics.values())
