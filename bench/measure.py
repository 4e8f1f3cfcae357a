"""Measuring: turns a case into records."""

from __future__ import annotations

import gc
import math
import mmap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from bench.agreement import TOLERANCE, differences, largest_difference, results_of
from bench.cases import Case
from bench.contenders import Contender, draw_inputs, start, start_dynagat
from bench.device import measure_on_device
from bench.first_call import measure_first_call
from bench.first_five import measure_epochs
from bench.graphs import Recipe
from bench.importing import measure_import
from bench.isolation import CannotRun, OutOfTime, reason_of, time_limit
from bench.larger_than_memory import measure_large
from bench.lessons import Dataset
from bench.links import measure_links
from bench.memory import measure_memory
from bench.planning import measure_plan
from bench.programs import measure_programs
from bench.records import Entry, Record
from bench.relational import measure_molecules
from bench.sampling import (
    NEIGHBOURS,
    WALKS,
    Draw,
    draw_rows,
    epoch_over,
    seeds_of,
    start_sampler,
)
from bench.sweep import measure_sweep
from bench.training import measure_epoch, measure_training
from bench.trials import (
    Trial,
    alternation,
    repetitions,
    seconds_of,
    settled,
    time_calls,
    time_trials,
)
from bench.workers import measure_workers
from dynagat import GATv2Conv, Graph, capture, how_attentive, ops
from dynagat.native import kernels

FLOOR_PASSES = 4  # keys in forward and backward; queries and output gradients in backward
THREADS = (1, 2)


def measure(case: Case) -> Entry:
    """All records of a case. Some groups start their own processes."""
    begin = time.perf_counter()
    records = tuple(MEASURES[case.group](case))
    seconds = round(time.perf_counter() - begin, 1)
    return Entry(case.describe(), case.graph.num_nodes, case.graph.num_edges, seconds, records)


def measure_layers(case: Case) -> Iterator[Record]:
    """The first step of each contender and its difference from PyG; then steps in turns."""
    inputs = draw_inputs(case)
    trials, durations, expected = {}, {}, None
    for name in case.contenders:
        try:
            with time_limit(case.effort.first_step):
                contender = start(name, case, inputs)
                first, result = _first_step(contender)
        except (Exception, OutOfTime) as error:  # the other contenders still run
            yield Record(name, "step", reason=reason_of(error))
            continue
        expected = expected or (name, result)
        records = list(differences(name, result, *expected))
        yield from (Record.rounded(name, "first step", [first]), *records)
        if not all(record.values[0] <= TOLERANCE for record in records):  # also true for NaN
            yield Record(name, "step", reason=f"its results differ from {expected[0]}")
            continue
        trials[name] = Trial(contender.step, contender.prepare)
        durations[name] = seconds_of(trials[name]) if name == "compiled" else first
    yield from time_trials("step", trials, durations, case.effort)


def measure_tiny(case: Case) -> Iterator[Record]:
    """A forward pass that autograd records, and a whole step: what a call costs beside its work."""
    inputs, expected = draw_inputs(case), None
    calls: dict[str, dict[str, Callable[[], Any]]] = {"forward": {}, "step": {}}
    for name in case.contenders:
        contender = start(name, case, inputs)
        _, result = _first_step(contender)
        expected = expected or (name, result)
        yield from differences(name, result, *expected)
        edges = contender.prepare()
        calls["forward"][name] = partial(contender.forward, edges)
        calls["step"][name] = partial(contender.step, edges)
    for quantity, each in calls.items():
        durations = {name: settled(call) for name, call in each.items()}
        yield from time_calls(quantity, each, durations, case.effort)


def measure_floor(case: Case) -> Iterator[Record]:
    """The op, forward and backward, compared with reading every needed row once."""
    graph = _graph(case.graph)
    tables = draw_tables(case, huge_pages=case.huge_pages)
    trials = {"dynagat": attention(graph, *tables)}
    if kernels is None:
        yield Record("floor", "attention", reason="the native module was not built")
    else:
        trials["floor"] = _floor(graph, tables[1])
    yield from _time_all("attention", trials, case)


def measure_degrees(case: Case) -> Iterator[Record]:
    """The op on a graph with uneven or high degrees, compared with an even graph."""
    assert case.against is not None
    graphs = {"uneven": case.graph, "even": case.against}
    trials = {}
    for name, recipe in graphs.items():
        tables = draw_tables(case, recipe.num_nodes)
        trials[name] = attention(_graph(recipe), *tables)
    yield from _time_all("attention", trials, case)


def measure_build(case: Case) -> Iterator[Record]:
    """Building a Graph from an edge list, compared with a layer's forward pass on a built graph."""
    inputs = draw_inputs(case)
    layer = start_dynagat(case, inputs)
    num_nodes = case.graph.num_nodes
    trials = {
        "graph": Trial(
            lambda edges: Graph.from_edge_index(edges, num_nodes), inputs.edge_index.clone
        ),
        "layer": Trial(layer.forward, layer.prepare),
    }
    yield from _time_all("build", trials, case)


def measure_threads(case: Case) -> Iterator[Record]:
    """The op on one thread and on two."""
    num_threads = torch.get_num_threads()
    if num_threads < max(THREADS):
        yield Record("2 threads", "attention", reason=f"only {num_threads} thread is available")
        return
    run = attention(_graph(case.graph), *draw_tables(case)).run
    trials = {
        f"{count} thread{'s' * (count > 1)}": Trial(run, lambda n=count: torch.set_num_threads(n))
        for count in THREADS
    }
    yield from _time_all("attention", trials, case)
    torch.set_num_threads(num_threads)


def measure_bfloat16(case: Case) -> Iterator[Record]:
    """The op on bfloat16 tables compared with float32: time and loss of precision."""
    graph, tables = _graph(case.graph), draw_tables(case)
    halves = tuple(table.bfloat16() for table in tables)
    rounded = tuple(half.float() for half in halves)
    exact, same, rough = (_results(graph, each) for each in (tables, rounded, halves))
    yield Record.rounded("bfloat16", "difference", [largest_difference(rough, same)])
    error = largest_difference({"out": rough["out"]}, {"out": exact["out"]})
    yield Record.rounded("bfloat16", "output difference with rounded tables", [error])
    trials = {"float32": attention(graph, *tables), "bfloat16": attention(graph, *halves)}
    yield from _time_all("attention", trials, case)


def measure_locality(case: Case) -> Iterator[Record]:
    """The op on a real graph, in the given order of the nodes, a random one and that of
    `Graph.reordered`; the time of computing that order, and of moving x there and out back."""
    assert isinstance(case.graph, Dataset)
    try:
        edges = case.graph.both_directions()
    except CannotRun as error:
        yield Record("all", "attention", reason=str(error))
        return
    num_nodes = case.graph.num_nodes
    shuffled = torch.randperm(num_nodes, generator=Generator().manual_seed(4))[edges]
    given, random = (Graph.from_edge_index(each, num_nodes) for each in (edges, shuffled))
    ordered, tables = given.reordered(), draw_tables(case)
    graphs = {"given": given, "random": random, "reordered": ordered.graph}
    trials = {name: attention(graph, *tables) for name, graph in graphs.items()}
    yield from _time_all("attention", trials, case)
    order = Trial(lambda graph: graph.reordered(), lambda: replace(given))  # nothing is remembered
    yield from _time_all("seconds of ordering", {"reordered": order}, case)
    x = tables[0].flatten(1)
    move = Trial(lambda _: ordered.restore(ordered.permute(x)))
    yield from _time_all("seconds of moving", {"reordered": move}, case)


def measure_capture(case: Case) -> Iterator[Record]:
    """A layer's forward pass with `capture` and without; and a whole call of how_attentive."""
    inputs = draw_inputs(case)
    layer = GATv2Conv(case.in_dim, case.channels, heads=case.heads).eval()

    def captured(_: object) -> None:
        with capture(layer):
            layer(inputs.x, inputs.edge_index)

    with torch.no_grad():
        plain = Trial(lambda _: layer(inputs.x, inputs.edge_index))
        yield from _time_all("forward", {"captured": Trial(captured), "plain": plain}, case)
        whole = Trial(lambda _: how_attentive(layer, (inputs.x, inputs.edge_index)))
        yield Record.rounded("microscope", "seconds", (seconds_of(whole) for _ in range(3)))


def measure_sampling(case: Case, names: tuple[str, ...] = NEIGHBOURS) -> Iterator[Record]:
    """Seconds per edge of each sampler, in turns; and those of an epoch if the case has one."""
    rows, draws, durations = draw_rows(case), {}, {}
    for name in names:
        try:
            draws[name] = start_sampler(name, case, rows)
            durations[name], _ = _draw_once(draws[name], case, 0)  # also the warm-up
        except Exception as error:  # the other samplers still run
            yield Record(name, "edge", reason=reason_of(error))
            draws.pop(name, None)
    seconds: dict[str, list[float]] = {name: [] for name in draws}
    counts = {name: repetitions(durations[name], case.effort) for name in draws}
    for name in alternation(counts):
        duration, count = _draw_once(draws[name], case, 1 + len(seconds[name]))
        seconds[name].append(duration / count)
    for name, values in seconds.items():
        yield Record.rounded(name, "edge", values)
    if case.pass_seeds:
        whole = Trial(epoch_over(case, rows, case.pass_seeds))
        yield Record.rounded("dynagat, layered", "pass", [seconds_of(whole)])


def measure_walks(case: Case) -> Iterator[Record]:
    """Seconds per edge of the subgraphs that random walks visit."""
    return measure_sampling(case, WALKS)


def _draw_once(draw: Draw, case: Case, random_seed: int) -> tuple[float, int]:
    """Seconds, and number of sampled edges."""
    seeds = seeds_of(case, random_seed)
    gc.collect()
    begin = time.perf_counter()
    count = draw(random_seed, seeds)
    return time.perf_counter() - begin, count


MEASURES: Mapping[str, Callable[[Case], Iterator[Record]]] = {
    "first-five": measure_epochs,
    "tiny": measure_tiny,
    "layers": measure_layers,
    "floor": measure_floor,
    "first-call": measure_first_call,
    "memory": measure_memory,
    "streamed": measure_memory,
    "batches": measure_layers,
    "degrees": measure_degrees,
    "build": measure_build,
    "threads": measure_threads,
    "mechanisms": measure_layers,
    "bfloat16": measure_bfloat16,
    "capture": measure_capture,
    "locality": measure_locality,
    "sampling": measure_sampling,
    "walks": measure_walks,
    "import": measure_import,
    "epoch": measure_epoch,
    "training": measure_training,
    "larger-than-memory": measure_large,
    "plan": measure_plan,
    "ddp": measure_workers,
    "sweep": measure_sweep,
    "relational": measure_molecules,
    "links": measure_links,
    "sampled links": measure_links,
    "programs": measure_programs,
    "gpu": measure_on_device,
    "gpu hubs": measure_on_device,
}


# Trials


def _time_all(quantity: str, trials: Mapping[str, Trial], case: Case) -> Iterator[Record]:
    durations = {name: seconds_of(trial) for name, trial in trials.items()}  # also the warm-up
    return time_trials(quantity, trials, durations, case.effort)


# What is measured


def draw_tables(
    case: Case, num_nodes: int | None = None, *, huge_pages: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """query, key [N, H, C], a [1, H, C] and the gradient of the output [N, H, C]"""
    rows = case.graph.num_nodes if num_nodes is None else num_nodes
    shape, generator = (case.heads, case.channels), Generator().manual_seed(3)
    empty = _empty_on_huge_pages if huge_pages else torch.empty
    query, key, gradient = (empty((rows, *shape)).normal_(generator=generator) for _ in range(3))
    a = torch.randn(1, *shape, generator=generator) / case.channels**0.5
    return query, key, a, gradient


def _empty_on_huge_pages(shape: tuple[int, ...]) -> Tensor:
    """An uninitialised tensor, on huge pages if the system grants them."""
    memory = mmap.mmap(-1, math.prod(shape) * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32).view(shape)


def attention(graph: Graph, query: Tensor, key: Tensor, a: Tensor, gradient: Tensor) -> Trial:
    """The op alone: its output and the gradients of query, key and a."""
    tables = [table.detach().requires_grad_() for table in (query, key, a)]

    def run(_: object) -> tuple[Tensor, ...]:
        out, _ = ops.gatv2(*tables, graph)
        return out.detach(), *torch.autograd.grad(out, tables, gradient)

    return Trial(run)


def _results(graph: Graph, tables: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return dict(zip(("out", "query", "key", "a"), attention(graph, *tables).run(None), strict=True))


def _floor(graph: Graph, x: Tensor) -> Trial:
    assert kernels is not None
    out = torch.zeros_like(x)
    arrays = (graph.rowptr.data_ptr(), graph.key_index.data_ptr())
    sizes = (graph.num_queries, x[0].numel())
    call = kernels.gather_floor
    tables, threads = (x.data_ptr(), out.data_ptr()), torch.get_num_threads()

    def run(_: object, x: Tensor = x, out: Tensor = out) -> None:  # the defaults keep them alive
        for _ in range(FLOOR_PASSES):
            call(*arrays, *sizes, *tables, threads)

    return Trial(run)


def _graph(recipe: Recipe) -> Graph:
    return Graph.from_edge_index(recipe.edge_index(), recipe.num_nodes)


def _first_step(contender: Contender) -> tuple[float, dict[str, Tensor]]:
    """Its duration, and its output and gradients."""
    edges = contender.prepare()
    begin = time.perf_counter()
    out = contender.step(edges)
    seconds = time.perf_counter() - begin
    return seconds, results_of(contender, out)
