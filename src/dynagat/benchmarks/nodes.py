"""Node prediction: what the benchmarks on one large graph share. A benchmark is a small file.

Data say which graph, a network which layers, a task how nodes are asked about: on the whole graph,
on samples of neighbours, or on subgraphs of random walks. Evaluation is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat import metrics
from dynagat.data.arrays import FolderError
from dynagat.data.catalog import CATALOG, load
from dynagat.data.problems import check_split
from dynagat.data.store import SPLITS, GraphData, open_graph, stored_names, tensor
from dynagat.data.structure import structural_features
from dynagat.experiment import Published, Specimen, departure
from dynagat.graph import Graph
from dynagat.nn.network import MakeConv, Network, degrees, make_conv, stack_s
from dynagat.sampling.batch import Batch
from dynagat.sampling.inference import infer
from dynagat.sampling.neighbours import NeighborLoader
from dynagat.sampling.saint import GraphSAINTRandomWalkSampler
from dynagat.training import Outcome, Schedule

SCORES = {"classification": "accuracy", "multilabel": "roc_auc", "regression": "r_squared"}
DEGREE_COLUMNS = 24
MOST = 0.8  # of the nodes
INFERENCE_BATCH = 100_000  # nodes, where a network is not run on the whole graph at once


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """A graph, and what is to be predicted of its nodes."""

    x: Tensor  # [N, features]
    edges: Graph  # what is sampled from: without loops, where `self_loops` adds one to each node
    y: Tensor  # as in GraphData
    split: Mapping[str, Tensor]
    kind: str
    out_dim: int
    self_loops: bool = True
    centre: float = 0.0  # of regression targets, over the training nodes
    spread: float = 1.0
    noise: Tensor | None = None  # [E] bool: which edges were added

    @cached_property
    def graph(self) -> Graph:
        """What networks are run on."""
        return self.edges.with_self_loops() if self.self_loops else self.edges

    @cached_property
    def degree(self) -> Tensor:
        """[N]: how many keys each node has in `graph`."""
        return degrees(self.edges) + int(self.self_loops)


def problem_of(data: GraphData, self_loops: bool = True) -> NodeProblem:
    """What a stored graph asks, or a sentence that says why it can't be learnt."""
    kind = data.task.get("kind")
    if kind not in SCORES:
        raise ValueError(f"graph {data.name} must have a target for its nodes, but has {kind}")
    split = {part: tensor(data.split[part]) for part in SPLITS if part in data.split}
    for part in SPLITS:
        if not len(split.get(part, ())):
            raise ValueError(f"graph {data.name} has no nodes for {part} in its split")
    y, centre, spread = tensor(data.y), 0.0, 1.0
    if kind == "regression":
        train = y[split["train"]].double()
        centre, spread = float(train.mean()), float(train.std(correction=0))
        if not spread:
            raise ValueError(f"the target of {data.name} is {centre} for all training nodes")
    widths = {"regression": 1, "multilabel": y.shape[-1]}
    out_dim = widths[kind] if kind in widths else len(data.task["classes"])
    edges = (without_loops(data) if self_loops else data).graph()
    x = features_of(data, degrees(edges) + int(self_loops))
    return NodeProblem(x, edges, y, split, kind, out_dim, self_loops, centre, spread)


def without_loops(data: GraphData) -> GraphData:
    """The same graph, if it has no loops."""
    edges, (kind,) = data.sole_edges, data.edges
    kept = np.asarray(edges.key_index) != np.asarray(edges.query_index)
    if kept.all():
        return data
    arrays = {name: np.asarray(array)[kept] for name, array in edges.arrays.items()}
    fewer = replace(edges, key_index=np.asarray(edges.key_index)[kept],
                    query_index=np.asarray(edges.query_index)[kept], arrays=arrays)  # fmt: skip
    return replace(data, edges={kind: fewer}, folder=None)


def features_of(data: GraphData, degree: Tensor) -> Tensor:
    """x; of nodes without features, a one in the column ⌊log₂ d⌋ of their number d of keys."""
    x = data.nodes[data.node_type].arrays.get("x")
    if x is not None and np.shape(x)[1]:
        return tensor(np.asarray(x)).float()
    column = degree.clamp_min(1).double().log2().long().clamp_max(DEGREE_COLUMNS - 1)
    return F.one_hot(column, DEGREE_COLUMNS).float()


@dataclass(frozen=True)
class NodeData:
    """A data set of the catalogue, or a graph of the store, by its name."""

    dataset: str = "pubmed"
    self_loops: bool = True  # existing ones are removed, and each node gets one
    # Its own, or data/structure.py's: computed from the graph, and no match for the paper's.
    features: Literal["own", "structure"] = "own"
    made: bool = False  # whether the data are made up: they tell time and memory, not results

    def load(self, seed: int) -> NodeProblem:
        return problem_of(self.with_features(self.checked()), self.self_loops)

    def checked(self) -> GraphData:
        """The graph, if it is one that can be learnt from."""
        data = self.read()
        if bool(data.about.get("made")) != self.made:
            raise ValueError(
                f"graph {data.name} is made up, and tells nothing but time: ask with made=true"
                if data.about.get("made")
                else f"graph {data.name} is real, but made=true asks for made-up data"
            )
        check_split(data)
        return data

    def read(self) -> GraphData:
        """The graph with each edge in both directions."""
        return load(self.dataset).symmetric()

    def with_features(self, data: GraphData) -> GraphData:
        nodes = data.nodes[data.node_type]
        if self.features == "structure":
            x = structural_features(data.graph()).numpy()
        elif "x" in nodes.arrays or not self._should_have_features:
            return data
        else:
            raise FolderError(self._lacks_features)
        fresh = replace(nodes, arrays={**nodes.arrays, "x": x})
        return replace(data, nodes={**data.nodes, data.node_type: fresh}, folder=None)

    def missing(self) -> str | None:
        """How to get the data if they are not there; None if they are.

        Nothing is read but the list of a stored graph's arrays: files may be many gigabytes.
        """
        entry = CATALOG.get(self.dataset)
        if self.dataset not in stored_names():
            how = f"`dynagat data list` has names; {self.dataset!r} is not there"
            is_here = entry is not None and entry.raw() is not None
            return None if is_here else entry.how if entry else how
        if self.features == "structure" or not self._should_have_features:
            return None
        try:
            data = open_graph(self.dataset, verify=False)
            nodes = data.nodes.get(data.node_type)
        except (ValueError, OSError) as error:
            return str(error)
        return None if nodes and "x" in nodes.arrays else self._lacks_features

    @property
    def _should_have_features(self) -> bool:
        """Of other graphs, nodes may have none: see `features_of`."""
        return self.dataset in CATALOG and CATALOG[self.dataset].features > 0

    @property
    def _lacks_features(self) -> str:
        return (
            f"{self.dataset} is here without its features; `dynagat data get {self.dataset}` has "
            "them, or --set features=structure computes others from the graph"
        )


@dataclass(frozen=True)
class BothWays(NodeData):
    """A data set that has each edge in both directions already."""

    def read(self) -> GraphData:
        return load(self.dataset)


@dataclass(frozen=True)
class Stack:
    """What the stacks S and P have in common."""

    dim: int = 256
    heads: int = 8
    layers: int = 3
    dropout: float = 0.25
    last_heads: int = 1  # D16: "8 heads" are those of the layers before
    bias: bool = False
    share_weights: bool = True  # D10: of GATv2
    share_query: bool = departure(True, published=False, number="D3")  # Q = K, of DPGAT
    source: Literal["dynagat", "pyg"] = "dynagat"  # whose layers

    def __post_init__(self) -> None:
        check_network(self)


@dataclass(frozen=True)
class StackS(Stack):
    """See `stack_s`; of arxiv, mag and the edge noise."""

    residual: Literal["none", "middle", "all"] = "middle"  # D15: not all, as the paper says
    gain: float = departure(1.0, published=2.0, number="D14")  # of the middle layer, in training
    norm: bool = True

    def build(self, data: NodeProblem, mechanism: str) -> Network:
        return stack_s(
            conv_of(self, mechanism),
            widths_of(self, data),
            heads=self.heads,
            last_heads=self.last_heads,
            dropout=self.dropout,
            residual=self.residual,
            gain=self.gain,
            norm=self.norm,
        )


def conv_of(network: Any, mechanism: str, *, dropout: float = 0.0) -> MakeConv:
    """The mechanism's layers, by what a network's settings say of them."""
    is_shared = network.share_weights
    if mechanism == "dpgat":
        is_shared = getattr(network, "share_query", is_shared)
    options = {"bias": network.bias, "share_weights": is_shared, "source": network.source}
    return make_conv(mechanism, dropout=dropout, **options)


def widths_of(network: Any, data: NodeProblem) -> list[int]:
    return [data.x.shape[1], *[network.dim] * (network.layers - 1), data.out_dim]


def check_network(network: Any, least_layers: int = 1) -> None:
    """A sentence for what no network can have."""
    if network.dim < 1 or network.heads < 1 or network.dim % network.heads:
        raise ValueError(f"heads must divide dim={network.dim}, but is {network.heads}")
    if network.layers < least_layers:
        raise ValueError(f"layers must be at least {least_layers}, but is {network.layers}")
    for name, value in vars(network).items():
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), but is {value}")


@dataclass(frozen=True)
class NodeTask:
    """Predict the target of nodes: trained on the whole graph, or on samples of it."""

    neighbours: tuple[int, ...] = ()  # sampled for each layer, the first layer's first; (): all
    shuffle: bool = True  # the training nodes, before they are cut into batches
    roots: int = 0  # of random walks, whose nodes are a step's subgraph (GraphSAINT); 0: no walks
    walk_length: int = 3
    steps: int = 30  # of a pass, where there are walks
    looked_at: tuple[int, ...] = ()  # neighbours sampled in evaluation; (): all, which is exact

    def __post_init__(self) -> None:
        if self.neighbours and self.roots:
            given = ",".join(map(str, self.neighbours))
            raise ValueError(f"roots must be 0 where neighbours are {given}, but is {self.roots}")
        for name in ("roots", "walk_length", "steps"):
            if getattr(self, name) < (name != "roots"):
                raise ValueError(f"{name} is too small: {getattr(self, name)}")

    def check(self, network: Any) -> None:
        """A sentence if layers and numbers of neighbours do not go together."""
        layers = getattr(network, "depth", network.layers)
        for name in ("neighbours", "looked_at"):
            numbers = getattr(self, name)
            if numbers and len(numbers) != layers:
                told = f"{name} must be a number for each of {layers} layers"
                raise ValueError(f"{told}, but is {','.join(map(str, numbers))}")

    def on(self, data: NodeProblem, schedule: Schedule) -> NodePrediction:
        return NodePrediction(data, self, schedule.batch_size)

    def batches(self, task: NodePrediction, seed: int) -> Iterator[Batch | None]:
        """One pass; None stands for the whole graph."""
        if self.neighbours:
            return iter(task.loader("train", self.neighbours, self.shuffle, task.batch_size, seed))
        if not self.roots:
            return iter([None])
        walks = self.roots, self.walk_length, self.steps
        return iter(GraphSAINTRandomWalkSampler(task.data.edges, *walks, seed=seed))

    def metrics(
        self, task: NodePrediction, network: nn.Module, outcome: Outcome
    ) -> dict[str, float]:
        out = task.outputs(network, SPLITS)
        score = SCORES[task.data.kind]
        found = {f"{part}_{score}": task.measure(out[part], part) for part in SPLITS}
        more = task.more(out["test"], "test").items()
        return found | {f"test_{name}": value for name, value in more}

    def exhibits(self, task: NodePrediction, network: nn.Module) -> dict[str, Any]:
        return {}

    def specimen(self, task: NodePrediction) -> Specimen:
        data, marks = task.data, {}
        if data.noise is not None:  # loops are numbered after all edges
            loops = torch.zeros(len(data.x) if data.self_loops else 0, dtype=torch.bool)
            marks["noise"] = torch.cat([data.noise, loops])
        return Specimen((data.x, data.graph), marks)


@dataclass(eq=False)
class NodePrediction:
    """The task on a given graph: `training.Task`."""

    data: NodeProblem
    settings: NodeTask = field(default_factory=NodeTask)
    batch_size: int = 1024
    _fields: dict[Any, Batch | None] = field(default_factory=dict, init=False)

    def batches(self, generator: torch.Generator) -> Iterator[Batch | None]:
        return self.settings.batches(self, int(torch.randint(2**31, (), generator=generator)))

    def loader(
        self, part: str, neighbours: tuple[int, ...], shuffle: bool, batch_size: int, seed: int
    ) -> NeighborLoader:
        return NeighborLoader(
            self.data.edges,
            num_neighbors=neighbours[::-1],  # it counts from the nodes asked about
            batch_size=batch_size,
            input_nodes=self.data.split[part],
            shuffle=shuffle,
            layered=True,
            seed=seed,
        )

    def loss(self, network: nn.Module, batch: Batch | None) -> tuple[Tensor, float]:
        if batch is not None:
            nodes, out = self._on_batch(network, batch)
        else:
            nodes, out = self.data.split["train"], self._on_field(network, "train")
            out = network(self.data.x, self.data.graph)[nodes] if out is None else out
        target = self.target(nodes)
        return self.error(out, target), SCORE[self.data.kind](out.detach(), target)

    def _on_batch(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The training nodes of a sample, and what the network gives for them."""
        batch = batch.with_self_loops() if self.data.self_loops else batch
        seen = batch.node_id
        given = self.data.x[seen], self.data.degree[seen]
        if self.settings.roots:  # a subgraph, of which some nodes are for training
            kept = self._is_training[seen].nonzero()[:, 0]
            if not len(kept):  # the mean loss of none is no number
                told = f"a step's {len(seen)} nodes hold none for training"
                raise ValueError(f"roots={self.settings.roots} are too few: {told}")
            return seen[kept], network(given[0], batch.graphs[0], given[1])[kept]
        return seen[: batch.num_seeds], network(given[0], batch.graphs, given[1])

    @cached_property
    def _is_training(self) -> Tensor:
        marks = torch.zeros(len(self.data.x), dtype=torch.bool)
        marks[self.data.split["train"]] = True
        return marks

    def _on_field(self, network: Any, part: str) -> Tensor | None:
        """What the network gives for a part's nodes, from all that they depend on.

        None if that is most of the graph, which then may as well be taken whole.
        """
        key = part, len(network.layers)
        if key not in self._fields:
            self._fields[key] = self._field(*key)
        batch = self._fields[key]
        return batch and network(batch.x, batch.graphs, self.data.degree[batch.node_id])

    def _field(self, part: str, layers: int) -> Batch | None:
        """All that the nodes of a part depend on, if it is less than most of the graph."""
        nodes, most = self.data.split[part], MOST * len(self.data.x)
        if len(nodes) > most:
            return None
        (batch,) = self.loader(part, (-1,) * layers, False, len(nodes), 0)
        if batch.num_nodes > most:
            return None
        batch = batch.with_self_loops() if self.data.self_loops else batch
        return replace(batch, x=self.data.x[batch.node_id])

    def error(self, out: Tensor, target: Tensor) -> Tensor:
        """The mean loss of the nodes of which the target is known."""
        if self.data.kind == "classification":
            return F.cross_entropy(out, target)
        if self.data.kind == "regression":
            return F.mse_loss(out[:, 0], target)
        known = ~target.isnan()
        return F.binary_cross_entropy_with_logits(out[known], target[known])

    def target(self, nodes: Tensor) -> Tensor:
        """In the network's terms."""
        y = self.data.y[nodes]
        if self.data.kind != "regression":
            return y
        return ((y.double() - self.data.centre) / self.data.spread).float()

    def score(self, network: nn.Module, part: str) -> float:
        return self.measure(self.outputs(network, [part])[part], part)

    def measure(self, out: Tensor, part: str) -> float:
        return SCORE[self.data.kind](out, self.target(self.data.split[part]))

    def more(self, out: Tensor, part: str) -> dict[str, float]:
        """Further numbers; errors are in the target's own unit."""
        target = self.target(self.data.split[part])
        if self.data.kind == "classification":
            return {"macro_f1": metrics.macro_f1(out, target)}
        if self.data.kind == "multilabel":
            return {}
        errors = (metrics.mean_absolute_error, metrics.root_mean_squared_error)
        return {each.__name__: each(out[:, 0], target) * self.data.spread for each in errors}

    @torch.no_grad()
    def outputs(self, network: nn.Module, parts: Sequence[str]) -> dict[str, Tensor]:
        """[n, out] for each part, of its nodes."""
        network.eval()
        if self.settings.looked_at:
            return {part: self._sampled(network, part) for part in parts}
        is_sampled = bool(self.settings.neighbours)
        found = {part: None if is_sampled else self._on_field(network, part) for part in parts}
        missing = [part for part, out in found.items() if out is None]
        if missing:
            out = self._in_parts(network) if is_sampled else network(self.data.x, self.data.graph)
            found |= {part: out[self.data.split[part]] for part in missing}
        return {part: out for part, out in found.items() if out is not None}

    def _in_parts(self, network: nn.Module) -> Tensor:
        data = self.data
        return run_in_parts(network, data.x, data.edges, self_loops=data.self_loops)

    def _sampled(self, network: nn.Module, part: str) -> Tensor:
        """From samples of neighbours, the same at every evaluation."""
        batches = self.loader(part, self.settings.looked_at, False, self.batch_size, 0)
        return torch.cat([self._on_batch(network, batch)[1] for batch in batches])


SCORE: dict[str, Callable[[Tensor, Tensor], float]] = {
    "classification": metrics.accuracy,
    "multilabel": metrics.roc_auc,
    "regression": lambda out, target: metrics.r_squared(out[:, 0], target),
}


@torch.no_grad()
def run_in_parts(
    network: Any,
    x: Tensor,
    graph: Graph,
    batch_size: int = INFERENCE_BATCH,
    *,
    self_loops: bool = False,
) -> Tensor:
    """What the network gives for every node, layer by layer, in bounded memory.

    The degrees travel as the last column of what the nodes have. With `self_loops`, each node of
    the graph, which has none, gets one.
    """
    degree = degrees(graph)[:, None].float() + int(self_loops)

    def step(layer: nn.Module) -> Callable[[Tensor, Graph], Tensor]:
        def run(both: Tensor, part: Graph) -> Tensor:
            part = part.with_self_loops() if self_loops else part
            out = layer(both[:, :-1], part, both[:, -1])
            return torch.cat([out, both[: part.num_queries, -1:]], dim=1)

        return run

    network.eval()
    steps = [step(layer) for layer in network.layers]
    out = infer(steps, torch.cat([x, degree], dim=1), graph, batch_size=batch_size)
    return torch.as_tensor(out)[:, :-1]


def percents(
    where: str,
    table: Mapping[tuple[str, int], tuple[float, float]],
    metric: str,
    n: int,
    divided_by: Literal["n - 1", "n"] = "n - 1",
    **settings: Any,
) -> Iterator[Published]:
    """The numbers of a table: per cent, mean and deviation, by mechanism and heads."""
    for (mechanism, heads), (mean, std) in table.items():
        mean, std = round(mean / 100, 6), round(std / 100, 6)
        yield Published(where, mechanism, heads, settings, metric, mean, std, n, divided_by)
