"""Benchmark: an experiment as a value. run(benchmark, mechanism, seed) gives its Record."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal, Protocol

import torch
from torch import nn

from dynagat.experiment import settings, surroundings
from dynagat.experiment.record import Record, key_of
from dynagat.training import Outcome, Round, Schedule, Task, fit

Watch = Callable[[Round], None]
Heads = Mapping[str, tuple[int, ...]]  # of each mechanism
Look = Callable[..., Mapping[str, Any]]  # at a network, given its task's specimen and its marks


class Data(Protocol):
    """A frozen record of the data's settings."""

    def load(self, seed: int) -> Any: ...

    def missing(self) -> str | None:
        """How to get the data if they are not there; None if they are."""
        ...


class Network(Protocol):
    """A frozen record of the network's settings, `heads` among them."""

    @property
    def heads(self) -> int: ...

    def build(self, data: Any, mechanism: str) -> nn.Module: ...


class TaskSettings(Protocol):
    """A frozen record of how the network is asked and judged."""

    def on(self, data: Any, schedule: Schedule) -> Task: ...

    def metrics(self, task: Any, network: nn.Module, outcome: Outcome) -> dict[str, float]: ...

    def exhibits(self, task: Any, network: Any) -> dict[str, Any]:
        """What pictures are drawn from, as plain lists."""
        ...

    def specimen(self, task: Any) -> Any:
        """What the network is given when its attention is looked at: arguments of its forward.

        A `Specimen` where marks go with them.
        """
        ...


@dataclass(frozen=True, eq=False)
class Specimen:
    """Arguments of a network's forward, and what `how_attentive` is told of nodes and edges."""

    given: Any
    marks: Mapping[str, Any]  # "noise", "labels"

    @classmethod
    def of(cls, found: Any) -> Specimen:
        return found if isinstance(found, cls) else cls(found, {})


@dataclass(frozen=True)
class Published:
    """A number that the paper prints, and where."""

    where: str  # "Figure 3"
    mechanism: str
    heads: int | None  # None where it does not say
    settings: Mapping[str, Any]  # by last names: {"k": 10}
    metric: str
    mean: float  # in the metric's own unit: a share, not per cent
    std: float | None = None
    n: int = 1
    divided_by: Literal["n - 1", "n"] = "n - 1"  # the squares behind std (D23)


@dataclass(frozen=True)
class Benchmark:
    """What is compared, on what, how, and what the paper reports of it.

    Only data, network, task and schedule have settings, and they determine a run together with the
    mechanism and the seed. `revision` is raised when the same settings come to mean something else.
    What a run starts from, before anybody sets anything, is `base`: it may be another for another
    mechanism (`tuned`), and for another data set (`by_dataset`).
    """

    name: str
    title: str
    source: str
    data: Data
    network: Network
    task: TaskSettings
    schedule: Schedule
    mechanisms: Heads  # to compare
    seeds: range
    metric: str  # the one that tables show
    smoke: tuple[str, ...]  # settings that make a run short
    published: tuple[Published, ...] = ()
    revision: int = 1
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # all run, if none is set
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # the grid of `tune`
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what it chose
    by_dataset: Mapping[str, Settings] = field(default_factory=dict)  # "": of any other
    microscope: Literal["whole", "glance", "none"] = "whole"  # how runs are looked at
    caveats: Mapping[str, str] = field(default_factory=dict)  # of settings: {"k=3": "too easy"}
    published_heads: Mapping[str, Heads] = field(default_factory=dict)  # by data set, if others

    @property
    def settings(self) -> Settings:
        return Settings(self.data, self.network, self.task, self.schedule)

    def base(self, mechanism: str, dataset: str | None = None) -> Settings:
        """The settings to start from."""
        found = self.settings
        if dataset is not None and self.by_dataset:
            found = self.by_dataset.get(dataset) or self.by_dataset[""]
            found = settings.with_values(found, {"data.dataset": dataset})
        tuned = self.tuned.get(mechanism, {})
        by_path = {settings.resolve(found, name): value for name, value in tuned.items()}
        return settings.with_values(found, by_path)

    def heads(self, dataset: str | None, published: bool) -> Heads:
        """Those to run with, where nobody says."""
        name = dataset or str(getattr(self.data, "dataset", ""))
        return {**self.mechanisms, **(self.published_heads.get(name, {}) if published else {})}

    def with_settings(self, new: Settings) -> Benchmark:
        return replace(self, **{name: getattr(new, name) for name in PARTS})

    def with_heads(self, heads: int) -> Benchmark:
        return self.with_settings(settings.with_values(self.settings, {"network.heads": heads}))

    def as_recorded(self, record: Record) -> Benchmark:
        """The benchmark under the settings that a record has."""
        if record.settings.get("revision") != self.revision:
            raise ValueError(f"run {record.key} is of another revision of {self.name}")
        told = {name: value for name, value in record.settings.items() if name != "revision"}
        start = self.base(record.mechanism, told["data"].get("dataset"))
        return self.with_settings(settings.restored(start, told))

    def key(self, mechanism: str, seed: int) -> str:
        return key_of(self.name, mechanism, seed, self._told())

    def _told(self) -> dict[str, Any]:
        return settings.as_dict(self.settings, whole=False) | {"revision": self.revision}


@dataclass(frozen=True)
class Settings:
    """The parts of a benchmark that can be set."""

    data: Data
    network: Network
    task: TaskSettings
    schedule: Schedule

    def __post_init__(self) -> None:
        """A task may refuse networks that it can't be asked of: `check`, if it has that."""
        check = getattr(self.task, "check", None)
        if check is not None:
            check(self.network)


PARTS = ("data", "network", "task", "schedule")


def run(
    benchmark: Benchmark,
    mechanism: str,
    seed: int,
    watch: Watch = lambda _: None,
    look: Look | None = None,
) -> Record:
    """Load, build, fit, measure. Draws from generators of its own, whatever ran before.

    What `look` finds when all is done goes into the exhibits, as "microscope".
    """
    torch.optim.Adam([torch.zeros(1)])  # the first of a process imports for seconds: no run's time
    started = time.perf_counter()
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with surroundings.peak_memory() as peak, torch.random.fork_rng(devices=[]):
        network, task, outcome = _fitted(benchmark, mechanism, seed, watch)
        network.load_state_dict(outcome.best_state)
        metrics = benchmark.task.metrics(task, network, outcome)
        exhibits = benchmark.task.exhibits(task, network)
    seconds = round(time.perf_counter() - started, 3)
    if look is not None:
        seen = Specimen.of(benchmark.task.specimen(task))
        exhibits = exhibits | {"microscope": look(network, seen.given, **seen.marks)}
    return Record(
        key=benchmark.key(mechanism, seed),
        benchmark=benchmark.name,
        mechanism=mechanism,
        heads=benchmark.network.heads,
        seed=seed,
        fidelity=fidelity(benchmark),
        settings=benchmark._told(),
        metrics=metrics,
        history=[asdict(each) for each in outcome.history],
        ended=outcome.ended,
        converged=outcome.ended in ("perfect", "patience") and _are_finite(metrics),
        seconds=seconds,
        peak_memory_bytes=peak.bytes,
        versions=surroundings.versions(),
        commit=surroundings.commit(),
        created=created,
        exhibits=exhibits,
        round_seconds=[[round(part, 4) for part in each] for each in outcome.seconds],
        weights=_saved(network),
    )


def validate(
    benchmark: Benchmark, mechanism: str, seed: int, watch: Watch = lambda _: None
) -> Outcome:
    """Load, build, fit, as `run` does; but nothing is asked of the test data."""
    with torch.random.fork_rng(devices=[]):
        return _fitted(benchmark, mechanism, seed, watch)[2]


def _fitted(
    benchmark: Benchmark, mechanism: str, seed: int, watch: Watch
) -> tuple[nn.Module, Task, Outcome]:
    """Sets the seed of torch's own generator."""
    if mechanism not in benchmark.mechanisms:
        known = ", ".join(benchmark.mechanisms)
        raise ValueError(f"{benchmark.name} has no mechanism {mechanism!r}; it has {known}")
    torch.manual_seed(seed)
    data = benchmark.data.load(seed)
    network = benchmark.network.build(data, mechanism)
    task = benchmark.task.on(data, benchmark.schedule)
    generator = torch.Generator().manual_seed(seed)
    schedule = benchmark.schedule.of(mechanism)
    return network, task, fit(network, task, schedule, generator, watch)


def revive(
    benchmark: Benchmark, mechanism: str, seed: int, weights: bytes
) -> tuple[nn.Module, Specimen]:
    """The network of a run as it was at its end, and the specimen to look at it with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = benchmark.data.load(seed)
        network = benchmark.network.build(data, mechanism)
        task = benchmark.task.on(data, benchmark.schedule)
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return network, Specimen.of(benchmark.task.specimen(task))


def _saved(network: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    return file.getvalue()


def fidelity(benchmark: Benchmark) -> str:
    """Which of the two readings of the paper the departures make; "changed" if neither."""
    now = settings.flat(settings.as_dict(benchmark.settings))
    marks = list(settings.departures(benchmark.settings))
    for name, side in (("corrected", "corrected"), ("as-published", "published")):
        if all(now[m.path] == settings.as_dict(getattr(m, side)) for m in marks):
            return name
    return "changed"


def _are_finite(metrics: Mapping[str, float]) -> bool:
    return all(math.isfinite(value) for value in metrics.values())
