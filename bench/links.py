"""Link prediction at full size: time and memory of the ogbl-collab and ogbl-citation2 benchmarks.

The graph is synthetic, with the sizes of the real one. Each contender has its own process and
trains with the benchmark's own task, sampler and training loop. The peer has PyG's layers, and the
decoder of OGB's scripts: both rows of each pair, their product, then the linear layers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from bench.cases import Case
from bench.isolation import check_memory, in_fresh_process, reason_of
from bench.memory import peak_bytes, reset_peak
from bench.records import Record
from bench.training import BYTES_PER_EDGE, WARM_UP, TimedSteps
from dynagat.benchmarks import find
from dynagat.graph import Graph
from dynagat.link_metrics import MRR
from dynagat.nn.network import Network
from dynagat.nn.readout import PairReadout
from dynagat.prediction.links import LinkProblem
from dynagat.training import fit

PYG_ARRAYS = 15  # of E×H×C numbers: each of three layers keeps three, and a pass makes six more


@dataclass(frozen=True)
class Measured:
    """Seconds of each training step, steps of an epoch, and peak memory beyond the data, bytes."""

    steps: tuple[float, ...]
    steps_per_epoch: int
    peak: int


def measure_links(case: Case) -> Iterator[Record]:
    """Time of a training step and of an epoch, and the peak memory, of each contender."""
    for name in case.contenders:
        try:
            check_memory(_expected_bytes(case, name))
            measured: Measured = in_fresh_process(train, case, name)
        except Exception as error:
            yield Record(name, "step", reason=reason_of(error))
            continue
        yield Record.rounded(name, "step", measured.steps)
        epoch = measured.steps_per_epoch * statistics.median(measured.steps)
        yield Record.rounded(name, "steps per epoch", [float(measured.steps_per_epoch)])
        yield Record.rounded(name, "epoch", [epoch])
        yield Record(name, "memory", (float(measured.peak),))


def _expected_bytes(case: Case, name: str) -> float:
    num_edges = case.graph.num_edges
    has_arrays = name == "pyg" and not find(case.benchmark).task.neighbours
    arrays = 4 * PYG_ARRAYS * num_edges * case.heads * case.channels if has_arrays else 0
    return BYTES_PER_EDGE * num_edges + arrays


def train(case: Case, name: str) -> Measured:
    """Train for a number of steps; meant for a process of its own."""
    benchmark, problem = find(case.benchmark), draw_problem(case)
    network = build(case, problem, name)
    schedule = benchmark.schedule.for_mechanism(case.mechanism)
    timed = TimedSteps(benchmark.task.prepare(problem, schedule), case.effort)
    once = replace(schedule, max_rounds=1, silent_rounds=0, round_passes=1)
    before = reset_peak()
    fit(network, timed, once, Generator().manual_seed(0))
    num_links = len(problem.links["train"])
    steps_per_epoch = benchmark.task.steps or math.ceil(num_links / schedule.batch_size)
    return Measured(tuple(timed.seconds[WARM_UP:]), steps_per_epoch, peak_bytes() - before)


def draw_problem(case: Case) -> LinkProblem:
    """The edges of the recipe, each in both directions; one direction of each is a link to learn.

    Links are not held out: training does not depend on it, and nothing is evaluated.
    """
    edges = case.graph.edge_index()
    links = edges[:, : edges.shape[1] // 2].T.long().contiguous()
    x = torch.randn(case.graph.num_nodes, case.in_dim, generator=Generator().manual_seed(1))
    graph = Graph.from_edge_index(edges, case.graph.num_nodes)
    benchmark = find(case.benchmark)
    per_source = benchmark.data.METRIC is MRR
    return LinkProblem(x, graph, {"train": links}, {}, benchmark.data.METRIC, per_source=per_source)


def build(case: Case, problem: LinkProblem, name: str) -> Network:
    """The benchmark's network; for PyG with its layers and a plain decoder."""
    torch.manual_seed(0)
    stack = replace(find(case.benchmark).network, heads=case.heads)
    network = replace(stack, source=name).build(problem, case.mechanism)
    if name == "pyg":
        assert isinstance(network.readout, PairReadout)
        network.readout = PlainPairs(network.readout.mlp)
    return network


class PlainPairs(nn.Module):
    """score_ij = MLP(x_i ∘ x_j), as in OGB's scripts"""

    def __init__(self, mlp: nn.Sequential) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        return self.mlp(x[pairs[:, 0]] * x[pairs[:, 1]])[:, 0]
