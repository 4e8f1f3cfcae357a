"""Plan: sizes, memory per host, network traffic per step and time per epoch of a training.

In a step, layer l has q queries, k keys and e edges. W is the number of weights that are applied to
keys, V the number of those applied to queries, C the channels of all heads, and O the width of the
layer's output. The first layer has f features of b bytes. P is the number of weights in the network
and n the number of hosts. The others are rates: sampled, gathered, flops, ...; see `Rates`.

    sampling     = Σ_l e / sampled
    gathering    = k_1 f b / gathered
    products     = Σ_l 6 (k W + q V) / flops          4 in place of 6 in the first layer
    attention    = Σ_l e C / attention + (k + q) C / tables
    activations  = Σ_l q O / elements
    overhead     = L · step
    reading      = missing · (k_1 + Σ_l q) / cold     missing: the part of features and rows
                                                      that has no room in the host's memory
    traffic      = 2 (1 - 1/n) 4 P                    gradients, by a ring all-reduce
                 + (1 - 1/n) k_1 f b                  features, if they are partitioned
    network      = traffic / bandwidth
    time of a step   = max(sampling + gathering + products + attention + activations + overhead,
                           reading) + network
    time of an epoch = ⌈steps / n⌉ · time of a step
    memory of a host = process + 20 P + 3 (k_1 f b + 28 Σ_l e) + Σ_l 4 (2 k C + 8 q O) + 2 N

`tables` and `attention` are fitted to what a whole layer takes beyond its products.

If a step takes the whole graph, nothing is sampled or gathered, and the memory has the features and
24 bytes per edge in place of three batches.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from dynagat.benchmarks import BENCHMARKS, OGBN_PRODUCTS
from dynagat.data.store import stored_names
from dynagat.experiment import Benchmark
from dynagat.nn.core import GraphAttention
from dynagat.nn.network import ATTENTION, Layer
from dynagat.planning.rates import Rates
from dynagat.planning.sizes import Sizes, find_sizes
from dynagat.planning.steps import StepSizes, counted, expected, problem_like
from dynagat.prediction.nodes import DEGREE_FEATURES, NodeTask

PROCESS_BYTES = 400e6  # Python and torch
PREFETCHED = 3  # batches: two are prepared while one is trained on
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Hosts:
    """Where to train.

    Args:
        count: hosts, with one process each.
        memory: bytes of each; None means as much as the machine that was measured.
        gigabits: per second, that each host can send and receive.
        partitioned: whether each host has a part of the features; else each has a copy of all.
    """

    count: int = 1
    memory: float | None = None
    gigabits: float = 10.0
    partitioned: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"hosts must be 1 or more, but is {self.count}")
        if self.memory is not None and not self.memory > 0:
            raise ValueError(f"memory must be above 0, but is {self.memory / 1e9:g} GB")
        if not self.gigabits > 0:
            raise ValueError(f"gigabits must be above 0, but is {self.gigabits}")


@dataclass(frozen=True)
class LayerShape:
    """Numbers of weights by where they are applied, and widths; W, V, C and O of the formulas."""

    key_weights: int
    query_weights: int
    channels: int
    out: int


@dataclass(frozen=True)
class Plan:
    """Sizes in bytes, times in seconds."""

    sizes: Sizes
    benchmark: str  # whose network and sampler are planned with
    mechanism: str
    hosts: Hosts
    step: StepSizes
    parameters: int
    store: float  # bytes on disk, as are the next two
    rows: float
    features: float
    memory: float  # per host, that can't be given back
    mapped: float  # per host, of files; as much as there is room for
    gradients: float  # bytes that each host sends in a step
    remote: float
    seconds: dict[str, float]  # of a step, by part
    rates: Rates
    assumptions: tuple[str, ...]

    @property
    def step_seconds(self) -> float:
        parts = dict(self.seconds)
        reading, network = parts.pop("reading"), parts.pop("network")
        return max(sum(parts.values()), reading) + network

    @property
    def steps(self) -> int:
        return math.ceil(self.step.steps / self.hosts.count)

    @property
    def epoch_seconds(self) -> float:
        return self.steps * self.step_seconds

    def to_dict(self) -> dict[str, Any]:
        totals = {"step_seconds": self.step_seconds, "steps": self.steps}
        totals["epoch_seconds"] = self.epoch_seconds
        return {**asdict(self), **totals, "rates": self.rates.to_dict()}


def make_plan(name: str, rates: Rates, hosts: Hosts | None = None, mechanism: str = "") -> Plan:
    """What training on a data set would take.

    Args:
        name: a stored graph, or a data set of which the sizes are known.
        rates: of the hosts.
        hosts: default: one.
        mechanism: an attention mechanism; default: "gatv2".
    """
    hosts, mechanism = hosts or Hosts(), mechanism or "gatv2"
    check_mechanism(mechanism)
    sizes, benchmark = find_sizes(name), _benchmark(name)
    return plan_benchmark(benchmark, sizes, rates, hosts, mechanism)


def check_mechanism(name: str) -> None:
    if name not in ATTENTION:
        raise ValueError(f"mechanism must be one of {', '.join(ATTENTION)}, but is {name!r}")


def plan_benchmark(
    benchmark: Benchmark, sizes: Sizes, rates: Rates, hosts: Hosts, mechanism: str
) -> Plan:
    """The plan of a benchmark for nodes on a data set of these sizes."""
    data: Any = benchmark.data
    task, schedule = benchmark.task, benchmark.schedule.for_mechanism(mechanism)
    assert isinstance(task, NodeTask)
    problem = data.load(0) if sizes.name in stored_names() and sizes.classes else None
    features = problem.x.shape[1] if problem else sizes.features or DEGREE_FEATURES
    edges = len(problem.rows.key_index) if problem else sizes.edges
    sizes = replace(sizes, features=features, edges=edges)
    like = problem_like(sizes, features) if problem is None else problem
    network = benchmark.network.build(like, mechanism)
    shapes = [_shape(layer) for layer in network.modules() if isinstance(layer, Layer)]
    if problem is None:
        step = expected(sizes, task, schedule.batch_size, len(shapes), data.self_loops)
    else:
        step = counted(task.prepare(problem, schedule), len(shapes))
    return _estimate(benchmark.name, sizes, step, shapes, network, rates, hosts, mechanism)


def _benchmark(name: str) -> Benchmark:
    """That of the data set, if it has one for nodes; else ogbn-products on this data set."""
    own = BENCHMARKS.get(name)
    if own is not None and isinstance(own.task, NodeTask):
        return own
    data: Any = OGBN_PRODUCTS.data
    return replace(OGBN_PRODUCTS, data=replace(data, dataset=name))


def _shape(layer: Layer) -> LayerShape:
    conv = layer.conv
    assert isinstance(conv, GraphAttention)
    by_key, by_query = conv.projections()
    key_weights = sum(linear.weight.numel() for linear in by_key)
    query_weights = sum(linear.weight.numel() for linear in by_query)
    for inner in (layer.own, layer.skip, layer.inner, layer.after):
        query_weights += _weights(inner)
    key_weights += _weights(layer.before)
    channels = conv.heads * conv.out_channels
    return LayerShape(key_weights, query_weights, channels, channels)


def _weights(module: nn.Module | None) -> int:
    """Of the matrices."""
    if module is None:
        return 0
    return sum(each.numel() for each in module.parameters() if each.dim() == 2)


def _estimate(
    benchmark: str,
    sizes: Sizes,
    step: StepSizes,
    shapes: list[LayerShape],
    network: nn.Module,
    rates: Rates,
    hosts: Hosts,
    mechanism: str,
) -> Plan:
    parameters = sum(each.numel() for each in network.parameters())
    both = list(zip(step.layers, shapes, strict=True))
    features = float(sizes.nodes * sizes.features * sizes.feature_bytes)
    index = 4 if sizes.edges < 2**31 else 8
    rows = 4.0 * sizes.edges + index * sizes.nodes
    first, sharers = step.layers[0], min(hosts.count, step.steps)  # of a step
    away = 1 - 1 / sharers
    sampled = 0.0 if step.is_whole else sum(each.edges for each in step.layers)
    gathered = 0.0 if step.is_whole else first.keys * sizes.features * sizes.feature_bytes
    batch = gathered + 28 * sampled
    whole = features + 24.0 * sizes.edges if step.is_whole else 0.0
    tables = sum(4 * (2 * at.keys * w.channels + 8 * at.queries * w.out) for at, w in both)
    memory = PROCESS_BYTES + 20 * parameters + PREFETCHED * batch + tables + 2 * sizes.nodes
    memory += whole
    mapped = rows + (features / hosts.count if hosts.partitioned else features)
    room = max(0.0, (hosts.memory or rates.memory) - memory)
    missing = max(0.0, 1 - room / mapped)
    gradients = 2 * away * 4 * parameters
    remote = away * gathered if hosts.partitioned else 0.0
    work = [
        (4 if n == 0 else 6) * (at.keys * w.key_weights + at.queries * w.query_weights)
        for n, (at, w) in enumerate(both)
    ]
    seconds = {
        "sampling": sampled / rates.sampled,
        "gathering": gathered / rates.gathered,
        "products": sum(work) / rates.flops,
        "attention": sum(
            at.edges * w.channels / rates.attention[mechanism]
            + (at.keys + at.queries) * w.channels / rates.tables[mechanism]
            for at, w in both
        ),
        "activations": sum(at.queries * w.out for at, w in both) / rates.elements,
        "overhead": len(shapes) * rates.step,
        "reading": missing * (first.keys + sum(at.queries for at, _ in both)) / rates.cold,
        "network": (gradients + remote) / (hosts.gigabits * GIGABIT),
    }
    plan = Plan(
        sizes=sizes,
        benchmark=benchmark,
        mechanism=mechanism,
        hosts=hosts,
        step=step,
        parameters=parameters,
        store=8.0 * sizes.stored + features + 8.0 * sizes.nodes,
        rows=rows,
        features=features,
        memory=memory,
        mapped=mapped,
        gradients=gradients,
        remote=remote,
        seconds=seconds,
        rates=rates,
        assumptions=(),
    )
    return replace(plan, assumptions=_assumptions(plan, missing))


def _assumptions(plan: Plan, missing: float) -> tuple[str, ...]:
    sizes, hosts, rates = plan.sizes, plan.hosts, plan.rates
    origin = "those of the stored graph" if sizes.origin == "stored" else "published"
    memory = (hosts.memory or rates.memory) / 1e9
    lines = [
        f"Sizes of {sizes.name}: {origin}.",
        f"Network, sampler and batch size: those of {plan.benchmark} with {plan.mechanism}.",
        plan.step.how,
        f"Each host is as fast as the machine that was measured, with {rates.threads} threads.",
        f"Each host has {memory:.1f} GB of memory and runs one process.",
        "Sampling, reading features and the network share the cores, so their times add up.",
    ]
    if missing:
        lines.append(
            f"{missing:.0%} of the features and rows have no room in memory. They are read from a "
            "disk as fast as this one, by one thread, while the network computes."
        )
    else:
        lines.append("Features and rows stay in memory after the first epoch has read them.")
    if hosts.count > 1 and plan.step.steps > 1:
        lines.append(
            f"Hosts send and receive {hosts.gigabits:g} Gbit/s; gradients are exchanged by a ring "
            "all-reduce after the backward pass."
        )
        lines.append(
            "Each host keeps a part of the features and gets the others over the network; dynagat "
            "has no server for that, so this is a plan for one of your own."
            if hosts.partitioned
            else "Each host has a copy of all features and rows, so no features are sent."
        )
        lines.append("The batch size is that of each host: a step takes more nodes in total.")
    return (*lines, "The time of evaluations is not included.")
