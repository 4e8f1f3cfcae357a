"""Training with relations: a step of the QM9 network, beside the same network on PyG's parts.

PyG has no GATv2 with relations and one softmax over all of them. The peer is written as PyG's own
layers are: one linear map of all nodes for all relations, rows gathered per edge, PyG's softmax and
PyG's scatter. (PyG's RGATConv gathers a matrix per edge: 10 GB for one batch of this size.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bench.cases import Case
from bench.isolation import reason_of
from bench.records import Record
from bench.trials import Trial, seconds_of, time_trials
from dynagat.benchmarks.qm9 import QM9
from dynagat.data.collection import GraphCollection
from dynagat.graph import Graph
from dynagat.nn.averaged import AveragedNetwork
from dynagat.prediction.graphs import GraphPrediction, GraphProblem

TRAINING_MOLECULES = 110_462  # of QM9
SHARES = (0.908, 0.034, 0.014, 0.044)  # of single, double, triple and aromatic bonds in QM9
SQUARE = 4096  # rows of the matrices that measure the machine's speed
PRODUCTS = ("aten::mm", "aten::addmm")
ATTENTION = ("_Attend", "_AttendBackward")


@dataclass(frozen=True)
class Workload:
    """A batch, and networks that are trained on it. `make` makes ours."""

    make: Callable[[], AveragedNetwork]
    run: Callable[[nn.Module], Tensor]  # the network's output
    loss: Callable[[nn.Module], Tensor]
    mechanism: str

    def network(self, name: str) -> AveragedNetwork:
        """Ours; as "pyg", with PyG's parts in place of our layers, and with the same weights.

        Ours may compute layers again in the backward pass; the peer keeps what autograd keeps.
        """
        torch.manual_seed(0)
        network = self.make()
        if name == "pyg":
            network.recompute_from = None
            for layer in network.layers:
                layer.conv = RelationalPyG(layer.conv, self.mechanism)  # pyright: ignore
        return network

    def step(self, name: str) -> Step:
        return Step(self.network(name), self.loss)


def measure_molecules(case: Case) -> Iterator[Record]:
    """A whole training step of both networks; what share of ours is products and attention."""
    for record in compare_steps(case, molecules(case)):
        yield record
        if (record.contender, record.quantity) == ("dynagat", "step") and record.values:
            steps_per_epoch = TRAINING_MOLECULES / case.graph.num_graphs
            yield Record.rounded("dynagat", "epoch", [steps_per_epoch * record.median])
    yield Record.rounded("machine", "flops", [_peak()])


def compare_steps(case: Case, work: Workload) -> Iterator[Record]:
    """Times of a training step of the contenders in turns, and how they differ."""
    steps, trials, durations = {}, {}, {}
    for name in case.contenders:
        try:
            steps[name] = work.step(name)
            durations[name] = steps[name].timed()
            trials[name] = Trial(lambda _, step=steps[name]: step())
        except Exception as error:
            yield Record(name, "step", reason=reason_of(error))
    yield Record.rounded("pyg", "difference", [_difference(work)])
    yield from time_trials("step", trials, durations, case.effort)
    if "dynagat" in steps:
        yield from _shares(steps["dynagat"])


@torch.no_grad()
def _difference(work: Workload) -> float:
    """Of the outputs with equal weights, relative to the largest."""
    ours, theirs = (work.run(work.network(name).eval()) for name in ("dynagat", "pyg"))
    known = theirs.isfinite()  # missing candidates have -inf
    return float((ours - theirs)[known].abs().max() / theirs[known].abs().max())


class Step:
    """One training step."""

    def __init__(self, network: nn.Module, loss: Callable[[nn.Module], Tensor]) -> None:
        self.network, self.loss = network.train(), loss
        self.optimizer = torch.optim.Adam(network.parameters(), 1e-3)

    def __call__(self) -> None:
        loss = self.loss(self.network)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def timed(self) -> float:
        """Seconds of a step after the first one."""
        self()
        return _seconds(self)


def _shares(step: Step) -> Iterator[Record]:
    """By the profiler: seconds in products and attention, and operations per second in products."""
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        step()
    events = profiler.key_averages()
    total = sum(each.self_cpu_time_total for each in events)
    for title, names in (("products", PRODUCTS), ("attention", ATTENTION)):
        time = sum(each.self_cpu_time_total for each in events if each.key in names)
        yield Record.rounded("dynagat", f"share of {title}", [time / total])
    products = [each for each in events if each.key in PRODUCTS]
    seconds = sum(each.self_cpu_time_total for each in products) / 1e6
    yield Record.rounded("dynagat", "flops", [sum(each.flops for each in products) / seconds])


def _peak() -> float:
    """Operations per second of the product of two large square matrices; the best of five."""
    x, y = torch.randn(2, SQUARE, SQUARE)
    return 2 * SQUARE**3 / min(_seconds(lambda: x @ y) for _ in range(5))


def _seconds(call: Callable[[], object]) -> float:
    return seconds_of(Trial(lambda _: call()))


# Data and networks


def draw_prediction(case: Case) -> GraphPrediction:
    """The case's molecules with bond types, features and targets drawn at random."""
    generator = Generator().manual_seed(0)
    edges = case.graph.edge_index()
    key, query = edges[:, edges[0] != edges[1]]
    size, count = case.graph.num_atoms, case.graph.num_graphs
    order = (query // size).argsort(stable=True)
    key, query = key[order], query[order]
    kinds = torch.multinomial(torch.tensor(SHARES), len(key), replacement=True, generator=generator)
    ends = torch.bincount(query // size, minlength=count).cumsum(0)
    collection = GraphCollection(
        size * torch.arange(count + 1),
        torch.cat([ends.new_zeros(1), ends]),
        query,
        key,
        _symmetric(kinds + 1, key, query, case.graph.num_nodes),
        len(SHARES) + 1,
    )
    x = torch.randn(case.graph.num_nodes, 15, generator=generator)
    y = torch.randn(count, 1, generator=generator)
    split = {"train": torch.arange(count), "valid": torch.arange(1), "test": torch.arange(1)}
    problem = GraphProblem(collection, x, y, split, "regression", 1)
    return replace(QM9.task, max_nodes=case.graph.num_nodes).prepare(problem, QM9.schedule)


def _symmetric(kind: Tensor, key: Tensor, query: Tensor, num_nodes: int) -> Tensor:
    """Both directions of a bond get the type of the first one."""
    pair = torch.minimum(key, query) * num_nodes + torch.maximum(key, query)
    _, bond = pair.unique(return_inverse=True)
    first = kind.new_zeros(int(bond.max()) + 1).scatter(0, bond.flip(0), kind.flip(0))
    return first[bond]


def molecules(case: Case) -> Workload:
    prediction = draw_prediction(case)
    pack = next(prediction.batches(Generator().manual_seed(0)))
    sizes = replace(QM9.network, heads=case.heads, dim=case.heads * case.channels)
    return Workload(
        make=lambda: sizes.build(prediction.problem, case.mechanism),
        run=lambda network: prediction.run(network, pack),
        loss=lambda network: prediction.loss(network, pack)[0],
        mechanism=case.mechanism,
    )


class RelationalPyG(nn.Module):
    """GAT or GATv2 with relations, written with PyG's softmax and scatter."""

    def __init__(self, ours: nn.Module, mechanism: str) -> None:
        super().__init__()
        self.ours, self.mechanism = ours, mechanism

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        from torch_geometric.utils import scatter, softmax

        ours, relations = self.ours, graph.num_relations
        linear = ours.lin if self.mechanism == "gat" else ours.lin_l
        z = nn.functional.linear(x, linear.weight).view(-1, ours.heads, ours.out_channels)
        query, relation = graph.query_index.long(), graph.relation.long()
        key_row = graph.key_index.long() * relations + relation
        query_row = query * relations + relation
        if self.mechanism == "gat":
            score = (z * ours.att_src.repeat(len(x), 1, 1)).sum(-1)[key_row]
            score = score + (z * ours.att_dst.repeat(len(x), 1, 1)).sum(-1)[query_row]
            score = nn.functional.leaky_relu(score, 0.2)
        else:
            pair = nn.functional.leaky_relu(z[query_row] + z[key_row], 0.2)
            score = (pair * ours.att[relation]).sum(-1)
        weight = softmax(score, query, num_nodes=len(x))
        out = scatter(z[key_row] * weight[..., None], query, 0, dim_size=len(x), reduce="sum")
        return out.flatten(1)
