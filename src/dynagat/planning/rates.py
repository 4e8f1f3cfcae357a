"""Rates: how fast this machine samples, gathers, multiplies and attends, measured in seconds.

Each rate is that of all threads together, in the way that training uses the part: batches come from
a NeighborLoader, and the passes are forward and backward.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dynagat.benchmarks.ogbn_products import OGBN_PRODUCTS
from dynagat.data.store import cache_folder
from dynagat.graph import Graph
from dynagat.nn.dropout import Dropout
from dynagat.nn.network import ATTENTION, make_conv
from dynagat.nn.tail import Waiting
from dynagat.ops.project import project
from dynagat.prediction.nodes import NodePrediction, NodeProblem, NodeTask
from dynagat.sampling import Batch, NeighborLoader, Neighbours
from dynagat.sampling.draw import take_rows

KIND, VERSION = "dynagat rates", 1
SECONDS = 0.4  # of each measurement
NODES, DEGREE, WIDTH, HEADS = 1 << 20, 25, 128, 8  # larger than caches, and quick to draw
FANOUTS, SEEDS = (10, 10, 10), 128
COLD_BYTES, COLD_READS = 1 << 28, 400
DENSE = 20  # mean degree of the second graph of `_attention`
LEAST_SECONDS = 1e-10  # where noise makes a difference of times negative


@dataclass(frozen=True)
class Rates:
    """Per second, except `step`.

    Args:
        sampled: edges of batches, with renumbered nodes and rows in both directions.
        gathered: bytes of rows of a table in memory, at random.
        cold: rows of a file that is not in memory, at random, by one thread.
        flops: of projections.
        attention: by mechanism: edges times channels.
        tables: by mechanism: keys and queries times channels; the rest of an attention layer.
        elements: outputs of a layer that pass through sum, activation and dropout.
        step: seconds per layer of a training step that has next to nothing to compute.
        threads: of torch, with which this was measured.
        memory: bytes of this machine.
    """

    sampled: float
    gathered: float
    cold: float
    flops: float
    attention: Mapping[str, float]
    tables: Mapping[str, float]
    elements: float
    step: float
    threads: int
    memory: float

    def to_dict(self) -> dict[str, Any]:
        return {"kind": KIND, "version": VERSION, **asdict(self)}


def read_rates(path: Path) -> Rates:
    """From a file that holds `Rates.to_dict()`, by itself or as "rates" of a plan."""
    content: Any = None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content = content.get("rates", content)
        is_ours = content["kind"] == KIND and content["version"] == VERSION
        rates = Rates(**{field.name: content[field.name] for field in fields(Rates)})
        numbers: list[Any] = []
        for value in vars(rates).values():
            is_mapping = isinstance(value, dict)
            is_ours = is_ours and (not is_mapping or set(value) == set(ATTENTION))
            numbers += value.values() if is_mapping else [value]
        is_ours = is_ours and all(type(n) in (int, float) and 0 < n < 1e18 for n in numbers)
    except (ValueError, LookupError, TypeError, AttributeError):
        is_ours, rates = False, None
    if not is_ours or rates is None:
        raise ValueError(
            f"--rates must be a file that `dynagat plan DATASET --json` wrote, but {path} is not"
        )
    return rates


def measure_rates(tell: Callable[[str], None] = lambda _: None) -> Rates:
    """Measure all rates, in about ten seconds; `tell` is called with what is measured."""
    random = np.random.default_rng(0)
    tell("sampling")
    keys = random.integers(0, NODES, NODES * DEGREE, np.int32)
    rowptr = np.arange(NODES + 1, dtype=np.int32) * DEGREE
    rows = Neighbours.from_arrays(rowptr, keys)
    sampled, batch = _sampling(rows)
    tell("gathering rows")
    gathered = _gathering(random)
    tell("reading from disk")
    cold = _reading(random)
    tell("products")
    flops = _products()
    attention, tables = {}, {}
    for mechanism in ATTENTION:
        tell(f"attention of {mechanism}")
        attention[mechanism], tables[mechanism] = _attention(mechanism, batch.graphs[0], flops)
    tell("activations")
    elements, step = _elements(), _step()
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    threads = torch.get_num_threads()
    return Rates(sampled, gathered, cold, flops, attention, tables, elements, step, threads, memory)


def _per_second(work: float, run: Callable[[], object]) -> float:
    """`work` divided by the median time of a call, after one that is not timed."""
    run()
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return work / float(np.median(times))


def _sampling(rows: Neighbours) -> tuple[float, Batch]:
    loader = NeighborLoader(rows, FANOUTS, batch_size=SEEDS, shuffle=True, layered=True)
    batches = iter(loader)
    batch, edges = next(batches), 0
    begin = time.perf_counter()
    while time.perf_counter() < begin + SECONDS:
        edges += sum(next(batches).num_sampled_edges)
    return edges / (time.perf_counter() - begin), batch


def _gathering(random: np.random.Generator) -> float:
    table = torch.ones(NODES // 2, WIDTH)
    index = random.integers(0, len(table), 100_000)
    threads = torch.get_num_threads()
    return _per_second(4.0 * WIDTH * len(index), lambda: take_rows(table, index, threads))


def _reading(random: np.random.Generator) -> float:
    """Rows of a mapped file of which nothing is in memory; 1e9 where that can't be arranged."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        block = random.bytes(1 << 22)
        for _ in range(COLD_BYTES >> 22):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        mapped = mmap.mmap(file.fileno(), COLD_BYTES, prot=mmap.PROT_READ)
        pages = np.frombuffer(mapped, np.uint8).reshape(-1, mmap.PAGESIZE)
        index = random.integers(0, len(pages), COLD_READS)
        begin = time.perf_counter()
        for row in index:
            pages[row, 0].item()
        return COLD_READS / (time.perf_counter() - begin)


def _products() -> float:
    x = torch.randn(50_000, WIDTH, requires_grad=True)
    weight = torch.randn(WIDTH, WIDTH, requires_grad=True)
    gradient = torch.randn(50_000, WIDTH)

    def run() -> None:
        torch.autograd.grad(project(x, weight, None), [x, weight], gradient)

    return _per_second(6.0 * x.numel() * WIDTH, run)


def _attention(mechanism: str, sampled: Graph, flops: float) -> tuple[float, float]:
    """Edges times channels, and keys and queries times channels, per second.

    A sampled graph has about as many keys as edges, the other one a twentieth. Their times t give
    the seconds per edge and per row: t = edges · per_edge + rows · per_row.
    """
    nodes = torch.arange(sampled.num_edges // DENSE)
    query = nodes.repeat(DENSE)
    key = torch.randint(len(nodes), (len(query),), generator=torch.Generator().manual_seed(0))
    dense = Graph.from_edges(query, key, len(nodes))
    sizes = [[graph.num_edges, graph.num_keys + graph.num_queries] for graph in (sampled, dense)]
    times = [_seconds_of_attention(mechanism, graph, flops) for graph in (sampled, dense)]
    per_edge, per_row = np.linalg.solve(np.array(sizes, float), np.array(times))
    edges, tables = (WIDTH / max(float(each), LEAST_SECONDS) for each in (per_edge, per_row))
    return edges, tables


def _seconds_of_attention(mechanism: str, graph: Graph, flops: float) -> float:
    """Of a layer, forward and backward, beyond those of its projections at this rate."""
    conv: Any = make_conv(mechanism)(WIDTH, WIDTH, HEADS)
    x = torch.randn(graph.num_keys, WIDTH, requires_grad=True)
    gradient = torch.randn(graph.num_queries, WIDTH)

    def run() -> None:
        out = conv((x, x[: graph.num_queries]), graph)
        torch.autograd.grad(out, [x, *conv.parameters()], gradient)

    by_key, by_query = conv.projections()
    work = graph.num_keys * sum(linear.weight.numel() for linear in by_key)
    work += graph.num_queries * sum(linear.weight.numel() for linear in by_query)
    return 1 / _per_second(1.0, run) - 6 * work / flops


def _elements() -> float:
    h, own = (torch.randn(30_000, WIDTH, requires_grad=True) for _ in range(2))
    after = nn.Sequential(nn.ELU(), Dropout(0.5))
    gradient = torch.randn(30_000, WIDTH)

    def run() -> None:
        out = Waiting(h).plus(own, 1.0).then(after).result()
        torch.autograd.grad(out, [h, own], gradient)

    return _per_second(float(h.numel()), run)


def _step() -> float:
    """Seconds per layer: the network of ogbn-products on a few nodes, loader and optimiser too."""
    nodes = torch.arange(400)
    graph = Graph.from_edges(nodes, nodes.roll(1), len(nodes))
    split = {"train": nodes}
    y = torch.zeros(len(nodes), dtype=torch.int64)
    problem = NodeProblem(torch.randn(len(nodes), 4), graph, y, split, "classification", 2)
    with torch.random.fork_rng(devices=[]):
        network = OGBN_PRODUCTS.network.build(problem, "gatv2")
    prediction = NodePrediction(problem, NodeTask(neighbours=(1, 1, 1)), batch_size=2)
    optimizer = torch.optim.Adam(network.parameters())
    batches = prediction.batches(torch.Generator())

    def run() -> None:
        loss: Tensor = prediction.loss(network, next(batches))[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    times = []
    for _ in range(60):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) / len(prediction.settings.neighbours)
