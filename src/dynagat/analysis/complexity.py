"""What a layer costs: its time beside O(|V| d d' + |E| d'), and its parameters beside the paper's.

Here d is the width of x and d' = C that of the one head's output.
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
TOLERANCE = 0.25  # of an exponent, for sizes that outgrow a cache cost more than their share


# Time


@dataclass(frozen=True)
class Problem:
    """The sizes of one forward pass on a random graph."""

    num_nodes: int
    num_edges: int
    in_dim: int
    out_dim: int

    def forward(self, kind: Callable[..., GraphAttention]) -> Callable[[], object]:
        """The pass of a layer of this kind, ready to be timed."""
        query, key = torch.randint(self.num_nodes, (2, self.num_edges))
        graph = Graph.from_edges(query, key, self.num_nodes)
        x = torch.randn(self.num_nodes, self.in_dim)
        layer = kind(self.in_dim, self.out_dim, bias=False, add_self_loops=False)
        return lambda: layer(x, graph)


# In each, the other term of |V| d d' + |E| d' is small, and so are costs that do not grow.
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
    term: str  # the one that dominates
    varied: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        return fit_exponent(self.sizes, self.seconds)

    def __str__(self) -> str:
        spent = f"{1e3 * self.seconds[0]:.2g} to {1e3 * self.seconds[-1]:.3g} ms"
        sizes = f"{self.sizes[0]} to {self.sizes[-1]}"
        return (
            f"{self.mechanism}, {self.term} large: time grows as {self.varied}^{self.exponent:.2f} "
            f"({self.varied} = {sizes}: {spent})"
        )


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log size, by least squares."""
    if len(sizes) != len(seconds) or len(set(sizes)) < 2:
        raise ValueError(
            "sizes must hold at least two different sizes, one for each of seconds, "
            f"but are {list(sizes)} for {len(seconds)} of those"
        )
    if not all(0 < number < math.inf for number in (*sizes, *seconds)):
        raise ValueError(f"sizes and seconds must be positive, but are {sizes} and {seconds}")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def time_exponents(mechanisms: Sequence[str] = ("gatv2",), repeats: int = 7) -> list[Scaling]:
    """Forward time of one head on one thread as |V|, |E|, d and d' grow, each by itself."""
    unknown = [name for name in mechanisms if name not in LAYERS]
    if unknown:
        raise ValueError(f"mechanisms must be of {', '.join(LAYERS)}, but hold {unknown[0]!r}")
    found = []
    with _one_thread(), torch.no_grad():
        for name in mechanisms:
            for term, problem, field, sizes in VARIED:
                passes = [replace(problem, **{field: size}).forward(LAYERS[name]) for size in sizes]
                seconds = tuple(median_seconds(passes, repeats))
                found.append(Scaling(name, term, SYMBOLS[field], sizes, seconds))
    return found


def median_seconds(passes: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The median processor time of each pass, taken in turns so that all see the same weather."""
    taken: list[list[float]] = [[] for _ in passes]
    for turn in range(repeats + 1):
        for run, own in zip(passes, taken, strict=True):
            start = time.process_time()  # what other processes take does not count
            run()
            if turn:  # the first pass of each warms up
                own.append(time.process_time() - start)
    return [statistics.median(own) for own in taken]


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
    """What the paper's formula gives, and what the module has."""

    what: str
    formula: str
    stated: int
    counted: int

    def __str__(self) -> str:
        return f"{self.what}: {self.formula} = {self.stated}, the module has {self.counted}"


def parameter_counts(in_dim: int, out_dim: int) -> list[ParameterCount]:
    """The paper's table for d = in_dim and d' = d_k = out_dim: one head, no biases."""
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


def certificates() -> list[Certificate]:
    """The time of all mechanisms, which takes some ten seconds, and their parameters."""
    counts = [count for dims in ((16, 8), (128, 256)) for count in parameter_counts(*dims)]
    return [certify_times(time_exponents(tuple(LAYERS), repeats=3)), certify_counts(counts)]


def certify_times(scalings: Sequence[Scaling]) -> Certificate:
    """Shown if no exponent is above 1: O bounds from above, and small sizes cost more than it."""
    shown = all(scaling.exponent <= 1 + TOLERANCE for scaling in scalings)
    return Certificate("Time", "O(|V| d d' + |E| d')", shown, tuple(map(str, scalings)))


def certify_counts(counts: Sequence[ParameterCount]) -> Certificate:
    shown = all(count.stated == count.counted for count in counts)
    return Certificate("Parameters", "as the paper counts them", shown, tuple(map(str, counts)))
