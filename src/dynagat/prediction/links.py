"""Link prediction: whether two nodes of a graph are linked.

Training compares links with drawn pairs, on the whole graph or on sampled neighbours of the pairs'
nodes. Evaluation is exact: it encodes all nodes once, then scores pairs in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.data.store import SPLITS, GraphData, tensor
from dynagat.graph import Graph
from dynagat.metrics import ROC_AUC, Metric
from dynagat.nn.network import degrees
from dynagat.placement import copied_ahead, moved
from dynagat.prediction.nodes import encode_nodes, has_features, neighbourhoods, without_loops
from dynagat.prediction.prediction import MicroscopeInput, Prediction
from dynagat.sampling.batch import Batch
from dynagat.sampling.links import LinkNeighborLoader
from dynagat.training import Outcome, Schedule

MICROSCOPE_PAIRS = 64
SCORED_PAIRS = 1 << 16  # at once, in evaluation
DRAWS = 100  # of pairs that must not be links, until the graph counts as complete


@dataclass(frozen=True, eq=False)
class LinkProblem:
    """A graph to pass messages on, and pairs of nodes that are links or are not.

    Args:
        x: [N, features]; or [N] int64, the rows of a learned table, where nodes have no features.
        edges: what messages are passed on, without self-loops if `self_loops` adds them.
        links: [n, 2] pairs of nodes, by part.
        non_links: [m, 2], by part; with `per_source` [n, K]: nodes that the first node of each link
            is not linked to. Without those of "train", its score uses those of "valid".
        metric: of scores and of targets 1 and 0, both [P]; with `per_source` [n, 1 + K].
        further: other metrics that records keep, of the same form.
        test_edges: what messages are passed on when test links are scored, if other edges are.
    """

    x: Tensor
    edges: Graph
    links: Mapping[str, Tensor]
    non_links: Mapping[str, Tensor]
    metric: Metric = ROC_AUC
    further: tuple[Metric, ...] = ()
    per_source: bool = False
    self_loops: bool = True
    test_edges: Graph | None = None

    @cached_property
    def graph(self) -> Graph:
        """What networks run on."""
        return self._looped(self.edges)

    @cached_property
    def test_graph(self) -> Graph:
        return self.graph if self.test_edges is None else self._looped(self.test_edges)

    @cached_property
    def degree(self) -> Tensor:
        """[N]: degree of each node in `graph`."""
        return (degrees(self.edges) + int(self.self_loops)).to(self.device)

    def _looped(self, edges: Graph) -> Graph:
        return moved(edges.with_self_loops() if self.self_loops else edges, self.device)

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device) -> LinkProblem:
        """The same problem for networks on a device; links are drawn on the CPU."""
        return replace(self, x=self.x.to(device))


def link_problem(
    data: GraphData,
    metric: Metric,
    *,
    further: tuple[Metric, ...] = (),
    self_loops: bool = True,
    test_data: GraphData | None = None,
) -> LinkProblem:
    """The problem that a stored graph poses; a ValueError if it can't be learnt.

    `test_data` has the edges for messages when test links are scored, if these are others.
    """
    if data.task.get("kind") != "links":
        raise ValueError(
            f"graph {data.name} must have links to predict, but has {data.task.get('kind')}"
        )
    links, non_links = {}, {}
    for part in SPLITS:
        links[part] = _links(data, part)
        if part != "train":
            non_links[part] = _non_links(data, part)
    x = tensor(np.asarray(data.x)).float() if has_features(data) else torch.arange(data.num_nodes)
    graphs = [
        None if each is None else (without_loops(each) if self_loops else each).graph()
        for each in (data, test_data)
    ]
    assert graphs[0] is not None
    return LinkProblem(
        x=x,
        edges=graphs[0],
        links=links,
        non_links=non_links,
        metric=metric,
        further=further,
        per_source="valid/target_node_neg" in data.split,
        self_loops=self_loops,
        test_edges=graphs[1],
    )


def _links(data: GraphData, part: str) -> Tensor:
    """[n, 2] from an array of pairs, or from arrays of both ends."""
    split = data.split
    if f"{part}/edge" in split:
        pairs = np.asarray(split[f"{part}/edge"])
    else:
        ends = [_array(data, f"{part}/{end}") for end in ("source_node", "target_node")]
        pairs = np.stack(ends, axis=1)
    if not len(pairs):
        raise ValueError(f"graph {data.name} has no links for {part} in its split")
    return tensor(pairs).long()


def _non_links(data: GraphData, part: str) -> Tensor:
    per_source = f"{part}/target_node_neg"
    name = per_source if per_source in data.split else f"{part}/edge_neg"
    pairs = tensor(_array(data, name))
    if not pairs.numel():
        raise ValueError(f"graph {data.name} has no negative pairs for {part} in its split")
    return pairs.long() if name != per_source else pairs


def _array(data: GraphData, name: str) -> np.ndarray:
    if name not in data.split:
        raise ValueError(
            f"the split of {data.name} must have {name}, but has {', '.join(data.split)}"
        )
    return np.asarray(data.split[name])


@dataclass(frozen=True)
class LinkTask:
    """How to train on links.

    Args:
        negatives: what is drawn for each link: "uniform", any two nodes; "unlinked", two different
            nodes that no training link joins; "per_source", the link's first node and any other.
        ratio: how many for each link.
        neighbours: sampled for each layer, the first layer's first; (): the whole graph.
        steps: of an epoch, each of random links; 0: all links once, in random order.
    """

    negatives: Literal["uniform", "unlinked", "per_source"] = "uniform"
    ratio: int = 1
    neighbours: tuple[int, ...] = ()
    steps: int = 0

    def __post_init__(self) -> None:
        if self.ratio < 1:
            raise ValueError(f"ratio must be at least 1, but is {self.ratio}")
        if self.steps < 0:
            raise ValueError(f"steps must not be negative, but is {self.steps}")

    def check(self, network: Any) -> None:
        """Refuse numbers of neighbours that do not fit the number of layers."""
        if self.neighbours and len(self.neighbours) != network.layers:
            raise ValueError(
                f"neighbours must hold a number for each of {network.layers} layers, "
                f"but is {','.join(map(str, self.neighbours))}"
            )

    def prepare(self, problem: LinkProblem, schedule: Schedule) -> LinkPrediction:
        return LinkPrediction(problem, self, schedule.batch_size)


@dataclass(frozen=True, eq=False)
class LinkBatch:
    """Links and then their negatives, link by link; with a sample of the graph, if one is used."""

    pairs: Tensor  # [P, 2] nodes of the graph, or of the sample
    num_links: int
    sample: Batch | None = None


@dataclass(eq=False)
class LinkPrediction(Prediction):
    """A link problem under the settings of a task."""

    problem: LinkProblem
    settings: LinkTask = field(default_factory=LinkTask)
    batch_size: int = 1024  # links

    def to(self, device: torch.device) -> LinkPrediction:
        return replace(self, problem=self.problem.to(device))

    @property
    def metric(self) -> Metric:
        return self.problem.metric

    def batches(self, generator: torch.Generator) -> Iterator[LinkBatch]:
        links, task = self.problem.links["train"], self.settings
        if task.steps:
            order = torch.randint(len(links), (task.steps * self.batch_size,), generator=generator)
        else:
            order = torch.randperm(len(links), generator=generator)
        batches = (self._with_negatives(links[some], generator)
                   for some in order.split(self.batch_size))  # fmt: skip
        sampled = self._sampled(list(batches), generator) if task.neighbours else batches
        return copied_ahead(sampled, self.problem.device)

    def _with_negatives(self, links: Tensor, generator: torch.Generator) -> LinkBatch:
        return LinkBatch(torch.cat([links, self.negatives(links, generator)]), len(links))

    def negatives(self, links: Tensor, generator: torch.Generator) -> Tensor:
        """[n × ratio, 2], those of the first link first."""
        num_nodes, count = len(self.problem.x), len(links) * self.settings.ratio
        kind = self.settings.negatives
        if kind == "per_source":
            first = links[:, 0].repeat_interleave(self.settings.ratio)
            second = torch.randint(num_nodes - 1, (count,), generator=generator)
            return torch.stack([first, second + (second >= first)], dim=1)
        pairs = torch.randint(num_nodes, (count, 2), generator=generator)
        return pairs if kind == "uniform" else self._unlinked(pairs, generator)

    def _unlinked(self, pairs: Tensor, generator: torch.Generator) -> Tensor:
        """Draw again, until no pair is a training link or joins a node with itself."""
        num_nodes = len(self.problem.x)
        for _ in range(DRAWS):
            code = pairs.amin(1) * num_nodes + pairs.amax(1)
            place = torch.searchsorted(self._link_codes, code).clamp_max(len(self._link_codes) - 1)
            is_link = (self._link_codes[place] == code) | (pairs[:, 0] == pairs[:, 1])
            bad = is_link.nonzero()[:, 0]
            if not len(bad):
                return pairs
            pairs[bad] = torch.randint(num_nodes, (len(bad), 2), generator=generator)
        raise ValueError(
            f"negatives=unlinked needs pairs without a link, but {DRAWS} draws found too few: "
            f"{num_nodes} nodes have {len(self._link_codes)} links"
        )

    @cached_property
    def _link_codes(self) -> Tensor:
        """Sorted, one number for each training link, whatever its direction."""
        links = self.problem.links["train"]
        return (links.amin(1) * len(self.problem.x) + links.amax(1)).unique()

    def _sampled(
        self, batches: Sequence[LinkBatch], generator: torch.Generator
    ) -> Iterator[LinkBatch]:
        """The batches, with sampled neighbours of their nodes and pairs that are numbered there."""
        size = self.batch_size * (1 + self.settings.ratio)
        loader = LinkNeighborLoader(
            self.problem.edges,
            num_neighbors=self.settings.neighbours[::-1],  # it counts layers from the pairs
            edge_label_index=torch.cat([batch.pairs for batch in batches]).T,
            batch_size=size,
            layered=True,
            seed=int(torch.randint(2**31, (), generator=generator)),
        )
        for batch, sample in zip(batches, loader, strict=True):
            looped = sample.with_self_loops() if self.problem.self_loops else sample
            yield LinkBatch(looped.pairs, batch.num_links, looped)

    def loss(self, network: nn.Module, batch: LinkBatch) -> tuple[Tensor, float]:
        score = self._run(network, batch)
        links, negatives = score[: batch.num_links], score[batch.num_links :]
        value = self._value(self.metric, links.detach(), negatives.detach())
        return _mean_loss(links, negatives), value

    def _run(self, network: nn.Module, batch: LinkBatch) -> Tensor:
        problem, sample = self.problem, batch.sample
        if sample is None:
            return network(problem.x, problem.graph, batch.pairs)
        degree = problem.degree[sample.node_id]
        graphs = neighbourhoods(sample.graphs, degree)
        return network(problem.x[sample.node_id], graphs, batch.pairs)

    def _value(self, metric: Metric, links: Tensor, negatives: Tensor) -> float:
        """A metric of the scores of n links and of their negatives."""
        links, negatives = links.cpu(), negatives.cpu()
        if self.problem.per_source:
            score = torch.cat([links[:, None], negatives.view(len(links), -1)], dim=1)
            target = (torch.arange(score.shape[1]) == 0).float().expand_as(score)
        else:
            score = torch.cat([links, negatives.flatten()])
            target = (torch.arange(len(score)) < len(links)).float()
        return metric.function(score, target)

    def evaluate(self, network: nn.Module, part: str) -> tuple[float, float]:
        links, negatives = self.scores(network, part)
        value = self._value(self.metric, links, negatives)
        return value, float(_mean_loss(links, negatives))

    def metrics(self, network: nn.Module, outcome: Outcome) -> dict[str, float]:
        """The metric on each part, and the further ones on the test links."""
        values = {}
        for part in SPLITS:
            scores = self.scores(network, part)
            metrics = (self.metric, *(self.problem.further if part == "test" else ()))
            values |= {each.on(part).name: self._value(each, *scores) for each in metrics}
        return values

    @torch.no_grad()
    def scores(self, network: Any, part: str) -> tuple[Tensor, Tensor]:
        """[n] of a part's links, and [m] or [n, K] of its negative pairs."""
        x = self.encode(network, part)
        links, negatives = moved(self._pairs_of(part), self.problem.device)
        if not self.problem.per_source:
            return score_pairs(network, x, links), score_pairs(network, x, negatives)
        rows = max(1, SCORED_PAIRS // negatives.shape[1])
        parts = zip(links[:, 0].split(rows), negatives.split(rows), strict=True)
        scores = [score_pairs(network, x, _beside(*each)).view(each[1].shape) for each in parts]
        return score_pairs(network, x, links), torch.cat(scores)

    def _pairs_of(self, part: str) -> tuple[Tensor, Tensor]:
        """Links and negative pairs; training links may borrow the negatives of validation."""
        links, non_links = self.problem.links[part], self.problem.non_links
        negatives = non_links.get(part, non_links["valid"])
        if self.problem.per_source and len(links) != len(negatives):
            links = links[torch.linspace(0, len(links) - 1, len(negatives)).long()]
        return links, negatives

    @torch.no_grad()
    def encode(self, network: Any, part: str = "valid") -> Tensor:
        """[N, dim]: what the readout takes, for every node."""
        network.eval()
        problem = self.problem
        if self.settings.neighbours:
            edges = problem.test_edges if part == "test" else None
            edges = problem.edges if edges is None else edges
            return encode_nodes(network, problem.x, edges, self_loops=problem.self_loops)
        return network.encode(problem.x, problem.test_graph if part == "test" else problem.graph)

    def microscope_input(self) -> MicroscopeInput:
        pairs = self.problem.links["test"][:MICROSCOPE_PAIRS].to(self.problem.device)
        return MicroscopeInput((self.problem.x, self.problem.graph, pairs))


@torch.no_grad()
def score_pairs(network: Any, x: Tensor, pairs: Tensor) -> Tensor:
    """[P]: the readout of encoded nodes for any number of pairs [P, 2], in bounded memory."""
    return torch.cat([network.readout(x, some) for some in pairs.split(SCORED_PAIRS)])


def _beside(first: Tensor, second: Tensor) -> Tensor:
    """[n], [n, K] -> [n × K, 2]"""
    return torch.stack([first[:, None].expand_as(second), second], dim=2).view(-1, 2)


def _mean_loss(links: Tensor, negatives: Tensor) -> Tensor:
    """Mean over links of -log p, plus mean over negatives of -log(1 - p), p = sigmoid(score)"""
    return F.softplus(-links).mean() + F.softplus(negatives).mean()
