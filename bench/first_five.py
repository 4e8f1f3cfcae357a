"""First five minutes: whole training epochs of the usual two-layer network on small real graphs.

The network is that of the GAT paper: 8 heads of 8 channels, ELU, then one head with a channel per
class; dropout before both layers and of the attention weights. An epoch is a forward pass over the
whole graph, the loss, the backward pass and a step of Adam.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn

import dynagat
from bench.cases import Case
from bench.contenders import DGL_NAMES
from bench.isolation import CannotRun, OutOfTime, reason_of, time_limit
from bench.lessons import Dataset, Lesson
from bench.records import Record
from bench.trials import settled, time_calls

TOLERANCE = 1e-3  # of the output without dropout, relative to the largest entry


# Networks


class FunctionalDropout(nn.Module):
    """torch.nn.functional.dropout, which `accelerate` can't see and leaves as it is."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)


class Network(nn.Module):
    """Two layers, each after dropout, with ELU between them."""

    def __init__(self, first: nn.Module, second: nn.Module, dropouts: tuple[nn.Module, ...]):
        super().__init__()
        self.first, self.second = first, second
        self.before_first, self.before_second = dropouts

    def forward(self, x: Tensor, edges: Any) -> Tensor:
        x = F.elu(self.first(self.before_first(x), edges))
        return self.second(self.before_second(x), edges)


class FromGraph(nn.Module):
    """DGL's layer, which takes the graph first, with PyG's order of arguments."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        return self.layer(graph, x).flatten(1)


def make_pyg(case: Case, lesson: Lesson, dropout: type[nn.Module] = nn.Dropout) -> Network:
    """PyG's network. Without dropout it has no dropout modules, as users would write it."""
    torch.manual_seed(0)
    make = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv}[case.mechanism]
    width, p = case.heads * case.channels, case.dropout
    first = make(lesson.x.shape[1], case.channels, heads=case.heads, dropout=p)
    second = make(width, lesson.out_dim, dropout=p)
    dropouts = tuple(dropout(p) if p else nn.Identity() for _ in range(2))  # pyright: ignore
    return Network(first, second, dropouts)


def make_dgl(case: Case, lesson: Lesson) -> Network:
    """DGL's layers with the weights of PyG's."""
    try:
        from dgl.nn import pytorch as layers
    except (ImportError, OSError, RuntimeError) as error:
        raise CannotRun(f"cannot be imported: {reason_of(error)}") from error
    make = {"gat": layers.GATConv, "gatv2": layers.GATv2Conv}[case.mechanism]
    network, names = make_pyg(case, lesson), DGL_NAMES[case.mechanism]
    for at, sizes in (("first", (case.channels, case.heads)), ("second", (lesson.out_dim, 1))):
        theirs = getattr(network, at)
        layer = make(theirs.in_channels, *sizes, attn_drop=case.dropout, negative_slope=0.2)
        own = dict(layer.named_parameters())
        for name, value in theirs.named_parameters():
            if names.get(name, name):
                own[names.get(name, name)].data.copy_(value.data)
        setattr(network, at, FromGraph(layer))
    return network


# Contenders


def start_pyg(case: Case, lesson: Lesson) -> Epoch:
    return Epoch(make_pyg(case, lesson), lesson)


def start_compiled(case: Case, lesson: Lesson) -> Epoch:
    if not case.compiles:
        raise CannotRun("not measured in a quick run")
    torch.compiler.reset()
    network = make_pyg(case, lesson)
    return Epoch(network, lesson, torch.compile(network, dynamic=False))


def start_dgl(case: Case, lesson: Lesson) -> Epoch:
    network = make_dgl(case, lesson)
    import dgl

    graph = dgl.graph(tuple(lesson.edge_index), num_nodes=len(lesson.x))
    graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
    graph.create_formats_()
    return Epoch(network, replace(lesson, edge_index=graph))


def start_dynagat(case: Case, lesson: Lesson) -> Epoch:
    network = make_pyg(case, lesson)
    dynagat.accelerate(network)
    return Epoch(network, lesson)


def start_unchanged(case: Case, lesson: Lesson) -> Epoch:
    network = make_pyg(case, lesson, FunctionalDropout)
    dynagat.accelerate(network)
    return Epoch(network, lesson)


CONTENDERS: Mapping[str, Callable[[Case, Lesson], Epoch]] = {
    "pyg": start_pyg,
    "compiled": start_compiled,
    "dgl": start_dgl,
    "dynagat": start_dynagat,
    "dynagat, F.dropout": start_unchanged,
}


class Epoch:
    """A network with its optimiser; a call trains it for one epoch."""

    def __init__(self, network: Network, lesson: Lesson, call: Any = None) -> None:
        self.network, self.lesson = network, lesson
        self.call = network if call is None else call
        self.optimizer = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=5e-4)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.lesson.loss(self.call(self.lesson.x, self.lesson.edge_index)).backward()
        self.optimizer.step()

    @torch.no_grad()
    def output(self) -> Tensor:
        """Without dropout."""
        self.network.eval()
        out = self.network(self.lesson.x, self.lesson.edge_index)
        self.network.train()
        return out


# Measuring


def measure_epochs(case: Case) -> Iterator[Record]:
    """Epochs of all contenders in turns, after a comparison of their outputs before training."""
    assert isinstance(case.graph, Dataset)
    try:
        lesson = case.graph.read()
    except CannotRun as error:
        yield Record("all", "epoch", reason=str(error))
        return
    epochs, durations, expected = {}, {}, None
    for name in case.contenders:
        try:
            with time_limit(case.effort.first_step):
                epoch = CONTENDERS[name](case, lesson)
                output = epoch.output()
                begin = time.perf_counter()
                epoch()
                first = time.perf_counter() - begin
                seconds = settled(epoch)
        except (Exception, OutOfTime) as error:  # the other contenders still run
            yield Record(name, "epoch", reason=reason_of(error))
            continue
        expected = output if expected is None else expected
        difference = float((output - expected).abs().max() / expected.abs().max())
        yield Record.rounded(name, "first epoch", [first])
        yield Record.rounded(name, "output against pyg", [difference])
        if not difference <= TOLERANCE:  # also true for NaN
            yield Record(name, "epoch", reason="its outputs differ from PyG's")
            continue
        epochs[name], durations[name] = epoch, seconds
    yield from time_calls("epoch", epochs, durations, case.effort)
