"""Node prediction on one graph: trained on all of it, on sampled neighbours, or on random walks.

Evaluation is exact: it uses all neighbours, layer by layer where the graph is large. A graph that
is only sampled from may be larger than memory: its rows and features are mapped from files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.data.scratch import memory_limit, new_table
from dynagat.data.store import SPLITS, GraphData, tensor
from dynagat.graph import Graph
from dynagat.group import ALONE, Group
from dynagat.metrics import MACRO_F1, METRICS, Metric, find_metric
from dynagat.nn.network import Neighbourhood, Network, degrees
from dynagat.placement import copied_ahead, device_of, moved
from dynagat.prediction.prediction import (
    MicroscopeInput,
    Prediction,
    balanced_weights,
    mean_and_std,
    split_of,
    variety,
)
from dynagat.sampling.batch import Batch
from dynagat.sampling.draw import take_rows
from dynagat.sampling.inference import collect, infer
from dynagat.sampling.neighbours import NeighborLoader
from dynagat.sampling.rows import Neighbours
from dynagat.sampling.saint import GraphSAINTRandomWalkSampler
from dynagat.sampling.source import Source
from dynagat.training import ADDED_LATER, Outcome, Schedule

DEGREE_FEATURES = 24
LARGE_FIELD = 0.8  # fraction of the nodes from which a receptive field is not worth extracting
INFERENCE_BATCH = 100_000  # nodes, where a network does not run on the whole graph at once
LEAST_BATCH = 500  # the same, if memory is short


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """A graph, and what is to be predicted for its nodes."""

    x: Tensor  # [N, features]; float32 unless it is mapped from a file
    # What is sampled from: without self-loops, if `self_loops` adds them. A large graph's rows are
    # mapped from files.
    edges: Graph | Neighbours
    y: Tensor  # as in GraphData
    split: Mapping[str, Tensor]
    kind: str  # "classification", "multilabel" or "regression"
    out_dim: int
    self_loops: bool = True
    target_mean: float = 0.0  # of regression targets, over the training nodes
    target_std: float = 1.0
    noise: Tensor | None = None  # [E] bool: edges that were added as noise
    has_features: bool = True  # False: x encodes the degree

    @cached_property
    def whole_edges(self) -> Graph:
        """All edges, in memory."""
        return self.edges if isinstance(self.edges, Graph) else self.edges.graph()

    @cached_property
    def graph(self) -> Graph:
        """What networks run on that are given the whole graph."""
        graph = self.whole_edges.with_self_loops() if self.self_loops else self.whole_edges
        return moved(graph, self.device)

    @cached_property
    def rows(self) -> Neighbours:
        return _rows(self.edges)

    def degree_of(self, nodes: Tensor) -> Tensor:
        """Their degrees in `graph`."""
        if self.device.type != "cpu":
            return self._degree[nodes]
        return torch.from_numpy(self.rows.degrees(nodes.numpy())) + int(self.self_loops)

    @cached_property
    def _degree(self) -> Tensor:
        return (all_degrees(self.edges) + int(self.self_loops)).to(self.device)

    @cached_property
    def target(self) -> Tensor:
        """What networks are to give: y, but regression targets are standardised."""
        if self.kind != "regression":
            return self.y
        y = (self.y.cpu().double() - self.target_mean) / self.target_std
        return y.float().to(self.device)

    @property
    def device(self) -> torch.device:
        return self.y.device

    def to(self, device: torch.device) -> NodeProblem:
        """The same problem for networks on a device; it is sampled from on the CPU.

        Features that are too large to be copied stay there, too: batches take theirs along.
        """
        x = self.x if _is_large(self.x) else self.x.to(device)
        y, split = moved((self.y, self.split), device)
        return replace(self, x=x, y=y, split=split)


def _rows(edges: Graph | Neighbours) -> Neighbours:
    return edges if isinstance(edges, Neighbours) else Neighbours.from_graph(edges)


def node_problem(
    data: GraphData, self_loops: bool = True, rows: Neighbours | None = None
) -> NodeProblem:
    """The problem that a stored graph poses; a ValueError if it can't be learnt.

    Args:
        data: the graph.
        self_loops: whether to remove existing self-loops and to add one to each node.
        rows: of a large graph, mapped from files (`Neighbours.on_disk`), without self-loops if
            `self_loops` adds them. They are used in place of the edges of `data`.
    """
    kind = data.task.get("kind")
    if kind not in METRICS:
        raise ValueError(f"graph {data.name} must have a target for its nodes, but has {kind}")
    split = split_of(data, "nodes")
    y, mean, std = tensor(data.y), 0.0, 1.0
    if kind == "regression":
        mean, std = mean_and_std(y[split["train"]], data, "nodes")
    widths = {"regression": 1, "multilabel": y.shape[-1]}
    out_dim = widths[kind] if kind in widths else len(data.task["classes"])
    edges = (without_loops(data) if self_loops else data).graph() if rows is None else rows
    own = has_features(data)
    x = node_features(data) if own else degree_features(all_degrees(edges) + int(self_loops))
    return NodeProblem(x, edges, y, split, kind, out_dim, self_loops, mean, std, has_features=own)


def without_loops(data: GraphData) -> GraphData:
    """The graph without its self-loops; the same value if it has none."""
    edges, (kind,) = data.sole_edges, data.edges
    kept = np.asarray(edges.key_index) != np.asarray(edges.query_index)
    if kept.all():
        return data
    arrays = {name: np.asarray(array)[kept] for name, array in edges.arrays.items()}
    fewer = replace(edges, key_index=np.asarray(edges.key_index)[kept],
                    query_index=np.asarray(edges.query_index)[kept], arrays=arrays)  # fmt: skip
    return replace(data, edges={kind: fewer}, folder=None)


def has_features(data: GraphData) -> bool:
    x = data.nodes[data.node_type].arrays.get("x")
    return x is not None and np.shape(x)[1] > 0


def node_features(data: GraphData) -> Tensor:
    """x as float32; of another type, it stays mapped from its file if a copy would be large."""
    x = tensor(np.asarray(data.x))
    return x if 4 * x.numel() > memory_limit() else x.float()


def all_degrees(edges: Graph | Neighbours) -> Tensor:
    """[N]"""
    return degrees(edges) if isinstance(edges, Graph) else torch.from_numpy(np.diff(edges.rowptr))


def degree_features(degree: Tensor) -> Tensor:
    """A one-hot encoding of ⌊log₂ degree⌋, for nodes without features."""
    size = degree.clamp_min(1).double().log2().long().clamp_max(DEGREE_FEATURES - 1)
    return F.one_hot(size, DEGREE_FEATURES).float()


@dataclass(frozen=True)
class NodeTask:
    """How to train on a graph, and how to evaluate."""

    neighbours: tuple[int, ...] = ()  # sampled for each layer, the first layer's first; (): all
    shuffle: bool = True  # the training nodes, before they are cut into batches
    roots: int = 0  # of random walks, whose nodes make a step's subgraph (GraphSAINT); 0: no walks
    walk_length: int = 3
    steps: int = 30  # of an epoch of random walks
    # Neighbours sampled in evaluation; (): all of them, which is exact.
    eval_neighbours: tuple[int, ...] = field(default=(), metadata={"stored_as": "looked_at"})
    metric: str = field(default="", metadata=ADDED_LATER)  # "": the default of the kind
    # "balanced": each class counts alike in the loss, however many nodes it has.
    class_weights: Literal["none", "balanced"] = field(default="none", metadata=ADDED_LATER)
    # Processes that train the network together (--ddp). Each samples a part of every batch.
    workers: int = field(default=1, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        if self.neighbours and self.roots:
            given = ",".join(map(str, self.neighbours))
            raise ValueError(f"roots must be 0 where neighbours are {given}, but is {self.roots}")
        for name in ("roots", "walk_length", "steps", "workers"):
            if getattr(self, name) < (name != "roots"):
                raise ValueError(f"{name} is too small: {getattr(self, name)}")
        if self.workers > 1 and not self.neighbours:
            how = "random walks" if self.roots else "the whole graph at once"
            raise ValueError(
                f"--ddp {self.workers} divides batches of sampled neighbours, but this trains on "
                f"{how}; --set neighbours=10,10 samples 10 neighbours in each of two layers"
            )

    def check(self, network: Any) -> None:
        """Refuse numbers of neighbours that do not fit the number of layers."""
        layers = getattr(network, "depth", network.layers)
        for name in ("neighbours", "eval_neighbours"):
            numbers = getattr(self, name)
            if numbers and len(numbers) != layers:
                raise ValueError(
                    f"{name} must hold a number for each of {layers} layers, "
                    f"but is {','.join(map(str, numbers))}"
                )

    def prepare(self, problem: NodeProblem, schedule: Schedule) -> NodePrediction:
        self.metric_of(problem.kind)
        if problem.kind == "regression" and self.class_weights != "none":
            raise ValueError(f"class_weights={self.class_weights} needs a target with classes")
        return NodePrediction(problem, self, schedule.batch_size)

    def metric_of(self, kind: str) -> Metric:
        """The metric of the scores; a ValueError if the kind of target has no such metric."""
        return find_metric(self.metric, METRICS[kind]) if self.metric else METRICS[kind][0]


@dataclass(eq=False)
class NodePrediction(Prediction):
    """A node problem under the settings of a task."""

    problem: NodeProblem
    settings: NodeTask = field(default_factory=NodeTask)
    batch_size: int = 1024
    group: Group = ALONE
    _fields: dict[Any, Batch | None] = field(default_factory=dict, init=False)

    def to(self, device: torch.device) -> NodePrediction:
        return replace(self, problem=self.problem.to(device))

    @property
    def metric(self) -> Metric:
        return self.settings.metric_of(self.problem.kind)

    def together(self, group: Group) -> NodePrediction:
        return replace(self, group=group)

    def batches(self, generator: torch.Generator) -> Iterator[Batch | None]:
        """One epoch; None stands for the whole graph."""
        task, seed = self.settings, int(torch.randint(2**31, (), generator=generator))
        if task.neighbours:
            options = task.neighbours, task.shuffle, self.batch_size, seed, self.group
            return self._placed(self.loader("train", *options))
        if not task.roots:
            return iter([None])
        walks = task.roots, task.walk_length, task.steps
        return self._placed(GraphSAINTRandomWalkSampler(self.problem.rows, *walks, seed=seed))

    def _placed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches with their self-loops, on the device of the problem."""
        if self.problem.self_loops:
            batches = (batch.with_self_loops() for batch in batches)
        return copied_ahead(batches, self.problem.device)

    def loader(
        self,
        part: str,
        neighbours: tuple[int, ...],
        shuffle: bool,
        batch_size: int,
        seed: int,
        group: Group = ALONE,
    ) -> NeighborLoader:
        x = self.problem.x
        arrays = {"x": x} if x.device.type == "cpu" else {}  # else they are taken on the device
        return NeighborLoader(
            Source(self.problem.rows, arrays),
            num_neighbors=neighbours[::-1],  # it counts layers from the seed nodes
            batch_size=batch_size,
            input_nodes=self.problem.split[part].cpu(),
            shuffle=shuffle,
            layered=True,
            seed=seed,
            rank=group.rank,
            world_size=group.size,
        )

    def loss(self, network: nn.Module, batch: Batch | None) -> tuple[Tensor, float]:
        problem = self.problem
        if batch is not None:
            nodes, out = self._run_batch(network, batch)
        else:
            nodes, out = problem.split["train"], self._run_receptive_field(network, "train")
            out = network(problem.x, problem.graph)[nodes] if out is None else out
        target = self.target(nodes)
        loss, score = self.mean_loss(out, target), self.value(self.metric, out.detach(), target)
        if self.group.size == 1:
            return loss, score
        # Of the mean loss of the whole batch, each process computes a part.
        of_loss, of_score = self.group.factors(self._loss_weight(target), len(target))
        return (loss * of_loss if of_loss else 0 * out.sum()), score * of_score

    def _loss_weight(self, target: Tensor) -> float:
        """What the mean loss of these nodes counts in a mean over more of them."""
        if self.problem.kind == "classification" and (weights := self._class_weights) is not None:
            return float(weights[target].sum())
        return float((~target.isnan()).sum())

    def _run_batch(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The nodes of a sample that are trained on, and the network's output for them."""
        nodes = batch.node_id
        x = self.problem.x[nodes] if batch.x is None else batch.x
        x, degree = x.to(_dtype(network)), self.problem.degree_of(nodes)
        if batch.layered:  # sampled neighbours, not a subgraph of random walks
            return nodes[: batch.num_seeds], network(x, neighbourhoods(batch.graphs, degree))
        kept = self._is_training[nodes].nonzero()[:, 0]  # some nodes of the subgraph
        if not len(kept):  # the mean loss of no nodes is nan
            raise ValueError(
                f"roots={self.settings.roots} is too small: a step's {len(nodes)} nodes "
                "hold none for training"
            )
        return nodes[kept], network(x, Neighbourhood(batch.graphs[0], degree))[kept]

    @cached_property
    def _is_training(self) -> Tensor:
        problem = self.problem
        is_training = torch.zeros(len(problem.x), dtype=torch.bool, device=problem.device)
        is_training[problem.split["train"]] = True
        return is_training

    def _run_receptive_field(self, network: Any, part: str) -> Tensor | None:
        """Output for a part's nodes, computed on their receptive field alone.

        None if that is most of the graph: then the whole graph is as fast.
        """
        key = part, len(network.layers)
        if key not in self._fields:
            self._fields[key] = self._receptive_field(*key)
        batch = self._fields[key]
        if batch is None:
            return None
        degree = self.problem.degree_of(batch.node_id)
        return network(batch.x, neighbourhoods(batch.graphs, degree))

    def _receptive_field(self, part: str, layers: int) -> Batch | None:
        problem = self.problem
        nodes, limit = problem.split[part], LARGE_FIELD * len(problem.x)
        if len(nodes) > limit:
            return None
        (batch,) = self.loader(part, (-1,) * layers, False, len(nodes), 0)
        if batch.num_nodes > limit:
            return None
        (batch,) = self._placed([batch])
        return batch if batch.x is not None else replace(batch, x=problem.x[batch.node_id])

    def mean_loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Mean over the nodes whose target is known."""
        if self.problem.kind == "classification":
            return F.cross_entropy(out, target, weight=self._class_weights)
        if self.problem.kind == "regression":
            return F.mse_loss(out[:, 0], target)
        known = ~target.isnan()
        weights = None if self._class_weights is None else self._class_weights.expand_as(out)[known]
        loss = F.binary_cross_entropy_with_logits
        return loss(out[known], target[known], pos_weight=weights)

    @cached_property
    def _class_weights(self) -> Tensor | None:
        """Those of `balanced_weights`; of each label, zeros / ones."""
        if self.settings.class_weights == "none":
            return None
        y = self.problem.y[self.problem.split["train"]]
        if self.problem.kind == "classification":
            return balanced_weights(y, self.problem.out_dim)
        ones = (y == 1).sum(0).clamp_min(1).float()
        return (y == 0).sum(0).clamp_min(1) / ones

    def target(self, nodes: Tensor) -> Tensor:
        """What the network is to give."""
        return self.problem.target[nodes]

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        out, target = self.outputs(network, [part])[part]
        return self.value(self.metric, out, target), self._loss_in_parts(out, target)

    def _loss_in_parts(self, out: Tensor, target: Tensor) -> float:
        """The mean loss, without a copy of large outputs."""
        if 4 * out.numel() <= memory_limit():
            return float(self.mean_loss(out, target))
        total, weights = 0.0, 0.0
        for part in zip(out.split(INFERENCE_BATCH), target.split(INFERENCE_BATCH), strict=True):
            if weight := self._loss_weight(part[1]):
                total += weight * float(self.mean_loss(*part))
                weights += weight
        return total / weights if weights else math.nan

    def value(self, metric: Metric, out: Tensor, target: Tensor) -> float:
        """A metric of the network's output; errors are in the unit of the target."""
        out, target = out.cpu(), target.cpu()
        if self.problem.kind != "regression":
            return metric.function(out, target)
        scale = self.problem.target_std
        return metric.function(out.double() * scale, target.double() * scale)

    def metrics(self, network: nn.Module, outcome: Outcome) -> dict[str, float]:
        """The metric on each part, and others on the test nodes; see `_further_metrics`."""
        outputs, metric = self.outputs(network, SPLITS), self.metric
        values = {metric.on(part).name: self.value(metric, *outputs[part]) for part in SPLITS}
        further = {
            each.on("test").name: self.value(each, *outputs["test"])
            for each in self._further_metrics()
        }
        out = outputs["test"][0].cpu()
        return values | further | (variety(self.problem.kind, out) if self.settings.metric else {})

    def _further_metrics(self) -> Sequence[Metric]:
        """All of the kind where one was chosen; else those that records have always had."""
        kind = self.problem.kind
        if self.settings.metric or kind == "regression":
            return METRICS[kind]
        return (MACRO_F1,) if kind == "classification" else ()

    @torch.no_grad()
    def outputs(self, network: nn.Module, parts: Sequence[str]) -> dict[str, tuple[Tensor, Tensor]]:
        """For the nodes of each part: [n, out], and their targets."""
        network.eval()
        outputs = dict.fromkeys(parts)
        if self.settings.eval_neighbours:
            outputs = {part: self._run_sampled(network, part) for part in parts}
        elif not self.settings.neighbours:
            outputs = {part: self._run_receptive_field(network, part) for part in parts}
        if any(out is None for out in outputs.values()):
            whole = self._run_whole(network)
            outputs = {
                part: _select(whole, self.problem.split[part]) if out is None else out
                for part, out in outputs.items()
            }
        targets = {part: self.target(self.problem.split[part]) for part in parts}
        return {part: (out, targets[part]) for part, out in outputs.items() if out is not None}

    def _run_whole(self, network: Any) -> Tensor:
        """[N, out]; layer by layer if training samples neighbours because the graph is large."""
        problem = self.problem
        if self.settings.neighbours:
            options = {"self_loops": problem.self_loops, "group": self.group}
            return infer_nodes(network, problem.x, problem.rows, **options)
        return network(problem.x, problem.graph)

    def _run_sampled(self, network: nn.Module, part: str) -> Tensor:
        """From samples of neighbours, the same ones at every evaluation."""
        batches = self.loader(part, self.settings.eval_neighbours, False, self.batch_size, 0)
        outputs = (self._run_batch(network, batch)[1] for batch in self._placed(batches))
        return torch.as_tensor(collect(outputs, len(self.problem.split[part])))

    def microscope_input(self) -> MicroscopeInput:
        problem, marks = self.problem, {}
        if problem.noise is not None:  # self-loops are numbered after all edges
            num_loops = len(problem.x) if problem.self_loops else 0
            loops = torch.zeros(num_loops, dtype=torch.bool)
            marks["noise"] = torch.cat([problem.noise, loops])
        return MicroscopeInput((problem.x, problem.graph), marks)


def _select(whole: Tensor, nodes: Tensor) -> Tensor:
    """whole[nodes], in a new table; see `new_table`."""
    if whole.device.type != "cpu":
        return whole[nodes]
    out = new_table((len(nodes), *whole.shape[1:]), whole.dtype)
    return torch.index_select(whole, 0, nodes, out=out)


def _dtype(network: nn.Module) -> torch.dtype:
    """Of the network's weights."""
    return next((each.dtype for each in network.parameters()), torch.float32)


def neighbourhoods(graphs: Sequence[Graph], degree: Tensor) -> list[Neighbourhood]:
    """One for each layer; its keys are the first of the sample's nodes."""
    return [Neighbourhood(graph, degree[: graph.num_keys]) for graph in graphs]


@torch.no_grad()
def infer_nodes(
    network: Network,
    x: Tensor,
    edges: Graph | Neighbours,
    batch_size: int | None = None,
    *,
    self_loops: bool = False,
    group: Group = ALONE,
) -> Tensor:
    """[N, out] of a network for every node, layer by layer, in bounded memory.

    By default, as many nodes go through a layer at once as DYNAGAT_MEMORY has room for the features
    of their neighbours. `self_loops` adds one to each node of the graph, which must have none. The
    processes of a group must call this together; each computes a part.
    """
    options = {"self_loops": self_loops, "group": group}
    encoded = encode_nodes(network, x, edges, batch_size, **options)
    return _by_rows(network.readout, encoded, device_of(network))


@torch.no_grad()
def encode_nodes(
    network: Network,
    x: Tensor,
    edges: Graph | Neighbours,
    batch_size: int | None = None,
    *,
    self_loops: bool = False,
    group: Group = ALONE,
) -> Tensor:
    """As `infer_nodes`, before the readout. Degrees travel as the last column of the features."""
    network.eval()
    rows, device = _rows(edges), device_of(network)
    table = _by_rows(network.embedding, x, device)
    batch_size = _batch_size(rows, table) if batch_size is None else batch_size

    def inputs(nodes: np.ndarray, threads: int) -> Tensor:
        features = take_rows(table, nodes, threads).to(_dtype(network))
        degree = torch.from_numpy(rows.degrees(nodes)) + int(self_loops)
        return torch.cat([features, degree[:, None].to(features.dtype)], dim=1)

    def step(layer: nn.Module) -> Callable[[Tensor, Graph], Tensor]:
        def run(features: Tensor, part: Graph) -> Tensor:
            part = part.with_self_loops() if self_loops else part
            out = layer(features[:, :-1], Neighbourhood(part, features[:, -1]))
            return torch.cat([out, features[: part.num_queries, -1:]], dim=1)

        return run

    steps = [step(layer) for layer in network.layers]
    options = {"batch_size": batch_size, "device": device, "group": group}
    if table.device.type == "cpu":
        out = infer(steps, inputs, rows, **options)
    else:
        degree = (all_degrees(edges) + int(self_loops)).to(device, table.dtype)
        out = infer(steps, torch.cat([table, degree[:, None]], dim=1), rows, **options)
    return torch.as_tensor(out)[:, :-1]


def _batch_size(rows: Neighbours, table: Tensor) -> int:
    """Of inference: the features of the nodes of a batch and of their neighbours fit the limit."""
    row_bytes = max(1, 4 * table[:1].numel())
    if rows.num_nodes * row_bytes <= memory_limit():
        return INFERENCE_BATCH
    keys_per_node = 1 + len(rows.key_index) / rows.num_nodes
    fitting = int(memory_limit() / (row_bytes * keys_per_node))
    return min(INFERENCE_BATCH, max(LEAST_BATCH, fitting))


def _by_rows(module: nn.Module, x: Tensor, device: torch.device) -> Tensor:
    """module(x) of a module on a device, in parts if x is large: the result is then where x is, and
    may be mapped from a file."""
    if isinstance(module, nn.Identity):
        return x
    if not _is_large(x):
        return module(x.to(device))
    parts = (module(part.to(device)).to(x.device) for part in x.split(INFERENCE_BATCH))
    return torch.as_tensor(collect(parts, len(x)))


def _is_large(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.element_size() * x.numel() > memory_limit()
