"""Jobs: the runs that a request stands for, and those of them that a store does not have yet.

The settings of a run are the benchmark's, replaced in this order by
1. those for the data set (`by_dataset`), 2. what tuning chose for the mechanism (`tuned`),
3. the released code's, as published, or our improvements, 4. the short ones of a smoke run,
5. the benchmark's sweep, 6. what the request sets. The heads are the request's; else those tuned
for the mechanism; else, as published, the released code's; else those that the benchmark compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynagat.experiment.benchmark import Benchmark, Settings
from dynagat.experiment.checkpoint import Checkpoints
from dynagat.experiment.execution import Job, Tell, Watch, execute
from dynagat.experiment.record import Record
from dynagat.experiment.runner import Runner, Say
from dynagat.experiment.settings import (
    as_published,
    as_text,
    grid,
    improved,
    parse_settings,
    paths,
    resolve,
    with_values,
)
from dynagat.experiment.store import Store

HEADS = "network.heads"
DATASET = "data.dataset"
WORKERS = "task.workers"


@dataclass(frozen=True)
class Request:
    """What to run of a benchmark; empty fields stand for the benchmark's own choice."""

    settings: tuple[str, ...] = ()  # "k=4-20", as --set takes them
    mechanisms: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    as_published: bool = False
    smoke: bool = False  # one short run of each
    improved: bool = False  # with our improvements
    workers: int = 1  # that make each run together

    @property
    def dataset(self) -> str | None:
        """The value of the last "dataset=NAME"."""
        named = [text.partition("=")[2].strip() for text in self.settings if _sets(text, DATASET)]
        return named[-1] if named else None


def jobs_of(benchmark: Benchmark, request: Request) -> list[Job]:
    """One job for each mechanism, variant, number of heads and seed."""
    names = request.mechanisms or tuple(benchmark.mechanisms)
    for name in names:
        benchmark.check_mechanism(name)
    seeds = request.seeds or tuple(benchmark.seeds)[: 1 if request.smoke else None]
    return [
        Job(variant.with_heads(heads), name, seed)
        for name in names
        for variant in variants(benchmark, name, request)
        for heads in _heads(variant, name, request)
        for seed in seeds
    ]


def variants(benchmark: Benchmark, mechanism: str, request: Request) -> list[Benchmark]:
    """The benchmark under each combination of settings that a request stands for."""
    start = benchmark.base(mechanism, request.dataset)
    if request.as_published:
        start = as_published(start)
    if request.improved:
        start = _improved(benchmark, start, request)
    if request.smoke:
        (start,) = grid(start, list(benchmark.smoke))
    sweep = [] if request.smoke else _sweep(benchmark, request)
    each = grid(start, [*sweep, *request.settings])
    return [benchmark.with_settings(divided(one, request.workers)) for one in each]


def divided(settings: Settings, workers: int) -> Settings:
    """The settings of runs that so many workers make together."""
    if workers == 1:
        return settings
    if WORKERS not in paths(settings):
        raise ValueError(
            f"--ddp {workers} is for predictions of nodes that are trained on sampled neighbours, "
            "not for graphs or links"
        )
    return with_values(settings, {WORKERS: workers})


def _improved(benchmark: Benchmark, start: Settings, request: Request) -> Settings:
    if request.as_published:
        raise ValueError("--as-published and --improved exclude each other; give one of them")
    if improved(start) == start:
        raise ValueError(f"{benchmark.name} has no improvements of ours; leave out --improved")
    return improved(start)


def _sweep(benchmark: Benchmark, request: Request) -> list[str]:
    """All values of the settings that the benchmark varies and the request does not set."""
    given = {path for path, _ in parse_settings(benchmark.settings, list(request.settings))}
    return [
        f"{name}={','.join(map(as_text, values))}"
        for name, values in benchmark.sweep.items()
        if resolve(benchmark.settings, name) not in given
    ]


def _heads(variant: Benchmark, mechanism: str, request: Request) -> tuple[int, ...]:
    if request.heads:
        return request.heads
    is_set = any(_sets(text, HEADS) for text in request.settings)
    dataset = request.dataset or str(getattr(variant.data, "dataset", ""))
    if is_set or "heads" in variant.tuned_for(mechanism, dataset):
        return (variant.network.heads,)
    published = variant.published_heads.get(dataset, {}) if request.as_published else {}
    return published.get(mechanism, variant.mechanisms[mechanism])


def _sets(text: str, path: str) -> bool:
    """Whether "name=value" sets the field at a dotted path."""
    return text.partition("=")[0].strip() in (path, path.partition(".")[2])


def lacking(jobs: list[Job], store: Store) -> list[Job]:
    """The jobs whose records the store does not have, each once."""
    present = store.keys()
    return list({job.key: job for job in jobs if job.key not in present}.values())


def run_lacking(
    jobs: list[Job],
    store: Store,
    workers: int | Runner = 1,
    watch: Watch = lambda job, round: None,
    tell: Tell = lambda job, text, seconds: None,
    say: Say = lambda text: None,
) -> Iterator[Record]:
    """Run the jobs whose records the store does not have; each record is stored, then yielded.

    Long runs keep checkpoints in a folder next to the store until they are stored. `watch` is
    called with each round, `tell` with a sentence about a run that continues from a checkpoint,
    `say` with sentences about the workers.
    """
    path = store.path.resolve()  # workers on other hosts have another working folder
    checkpoints = Checkpoints.beside(path)
    checkpoints.remove(store.keys())  # of processes that were killed after they stored a record
    todo = lacking(jobs, store)
    for record in execute(todo, workers, watch, checkpoints, tell, say, path):
        store.add(record)
        checkpoints.remove([record.key])
        yield record
