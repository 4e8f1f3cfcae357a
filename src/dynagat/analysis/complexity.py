"""The cost of a layer: its time compared with O(|V| d d' + |E| d'), and its number of parameters.

Here d is the width of x, and d' = C is the width of the output of the only head.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from dynagat.analysis.theory import Certificate
from dynagat.graph import Graph
from dynagat.nn import DPGATConv, GATConv, GATv2Conv
from dynagat.nn.core import GraphAttention

LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
TOLERANCE = 0.25  # of an exponent: sizes beyond the CPU's cache cost more than proportionally


# Time


@dataclass(frozen=True)
class Problem:
    """The sizes of one forward pass on a random graph."""

    num_nodes: int
    num_edges: int
    in_dim: int
    out_dim: int

    def forward(self, kind: Callable[..., GraphAttention]) -> Callable[[], object]:
        """The forward pass of a layer of this kind, ready to be timed."""
        query, key = torch.randint(self.num_nodes, (2, self.num_edges))
        graph = Graph.from_edges(query, key, self.num_nodes)
        x = torch.randn(self.num_nodes, self.in_dim)
        layer = kind(self.in_dim, self.out_dim, bias=False, add_self_loops=False)
        return lambda: layer(x, graph)


# In each, the other term of |V| d d' + |E| d' and the constant costs are small.
BY_NODES = Problem(num_nodes=4000, num_edges=1000, in_dim=512, out_dim=256)
BY_EDGES = Problem(num_nodes=500, num_edges=100_000, in_dim=4, out_dim=64)
VARIED = (
    ("|V| d d'", BY_NODES, "num_nodes", (2000, 4000, 8000, 16000)),
    ("|V| d d'", BY_NODES, "in_dim", (256, 512, 1024, 2048)),
    ("|V| d d'", BY_NODES, "out_dim", (128, 256, 512, 1024)),
    ("|E| d'", BY_EDGES, "num_edges", (250_000, 500_000, 1_000_000, 2_000_000)),
    ("|E| d'", BY_EDGES, "out_dim", (256, 512, 1024, 2048)),
)
SYMBOLS = {"num_nodes": "|V|", "num_edges": "|E|", "in_dim": "d", "out_dim": "d'"}


@dataclass(frozen=True)
class Scaling:
    """seconds ≈ constant · size^exponent, as one size of a problem grows"""

    mechanism: str
    term: str  # the dominating term
    varied: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        return fit_exponent(self.sizes, self.seconds)

    def __str__(self) -> str:
        times = f"{1e3 * self.seconds[0]:.2g} to {1e3 * self.seconds[-1]:.3g} ms"
        sizes = f"{self.sizes[0]} to {self.sizes[-1]}"
        return (
            f"{self.mechanism}, large {self.term}: time grows as {self.varied}^{self.exponent:.2f} "
            f"({self.varied} = {sizes}: {times})"
        )


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds against log size, by least squares."""
    if len(sizes) != len(seconds) or len(set(sizes)) < 2:
        raise ValueError(
            "sizes must contain at least two different sizes, one per entry of seconds, "
            f"but are {list(sizes)} for {len(seconds)} entries"
        )
    if not all(0 < value < math.inf for value in (*sizes, *seconds)):
        raise ValueError(f"sizes and seconds must be positive, but are {sizes} and {seconds}")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def time_exponents(mechanisms: Sequence[str] = ("gatv2",), repeats: int = 7) -> list[Scaling]:
    """Forward time of one head on one thread as |V|, |E|, d and d' grow, one at a time."""
    unknown = [name for name in mechanisms if name not in LAYERS]
    if unknown:
        raise ValueError(
            f"mechanisms must be among {', '.join(LAYERS)}, but contain {unknown[0]!r}"
        )
    scalings = []
    with _one_thread(), torch.no_grad():
        for name in mechanisms:
            for term, problem, field, sizes in VARIED:
                passes = [replace(problem, **{field: size}).forward(LAYERS[name]) for size in sizes]
                seconds = tuple(median_seconds(passes, repeats))
                scalings.append(Scaling(name, term, SYMBOLS[field], sizes, seconds))
    return scalings


def median_seconds(passes: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The median processor time of each pass; they alternate, so that load affects all equally."""
    times: list[list[float]] = [[] for _ in passes]
    for repeat in range(repeats + 1):
        for run, seconds in zip(passes, times, strict=True):
            start = time.process_time()  # excludes other processes
            run()
            if repeat:  # the first run is a warm-up
                seconds.append(time.process_time() - start)
    return [statistics.median(seconds) for seconds in times]


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(before)


# Parameters


@dataclass(frozen=True)
class ParameterCount:
    """The number of parameters by the paper's formula, and that of the module."""

    what: str
    formula: str
    stated: int
    counted: int

    def __str__(self) -> str:
        return f"{self.what}: {self.formula} = {self.stated}, the module has {self.counted}"


def parameter_counts(in_dim: int, out_dim: int) -> list[ParameterCount]:
    """The paper's table for d = in_dim and d' = d_k = out_dim, with one head and no bias."""
    d, c = in_dim, out_dim
    gat, gatv2, dpgat = (make(d, c, bias=False) for make in LAYERS.values())
    shared_gatv2 = GATv2Conv(d, c, bias=False, share_weights=True)
    shared_dpgat = DPGATConv(d, c, bias=False, share_weights=True)
    rows = (
        ("GAT", "2d' + dd'", 2 * c + d * c, gat),
        ("GATv2", "d' + 2dd'", c + 2 * d * c, gatv2),
        ("DPGAT", "2dd_k + dd'", 2 * d * c + d * c, dpgat),
        ("GATv2 as run, W = [W'‖W']", "d' + dd'", c + d * c, shared_gatv2),
        ("DPGAT as run, Q = K", "2dd'", 2 * d * c, shared_dpgat),
    )
    return [
        ParameterCount(what, formula, stated, sum(p.numel() for p in layer.parameters()))
        for what, formula, stated, layer in rows
    ]


# Both, as certificates


def certificates(*, timed: bool = True) -> list[Certificate]:
    """The parameters of all mechanisms, and their time, which takes about ten seconds."""
    counts = [count for dims in ((16, 8), (128, 256)) for count in parameter_counts(*dims)]
    times = [certify_times(time_exponents(tuple(LAYERS), repeats=3))] if timed else []
    return [*times, certify_counts(counts)]


def certify_times(scalings: Sequence[Scaling]) -> Certificate:
    """Shown if no exponent exceeds 1. Lower ones are fine: O() is an upper bound."""
    shown = all(scaling.exponent <= 1 + TOLERANCE for scaling in scalings)
    return Certificate("Time", "O(|V| d d' + |E| d')", shown, tuple(map(str, scalings)))


def certify_counts(counts: Sequence[ParameterCount]) -> Certificate:
    shown = all(count.stated == count.counted for count in counts)
    return Certificate("Parameters", "as the paper counts them", shown, tuple(map(str, counts)))
