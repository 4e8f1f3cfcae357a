"""StepSizes: how many queries, keys and edges each layer has in a training step.

They are counted in batches of a stored graph. Without data they are expected numbers: of N nodes of
mean degree d, sampling k neighbours of n nodes gives n min(k, d) edges, whose keys add
(N - n) (1 - exp(-edges / N)) nodes, as if they were uniformly distributed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from dynagat.data.store import SPLITS
from dynagat.graph import Graph
from dynagat.planning.sizes import Sizes
from dynagat.prediction.nodes import NodePrediction, NodeProblem, NodeTask

BATCHES = 4  # that are counted


@dataclass(frozen=True)
class LayerSizes:
    """Mean numbers of one layer in a step; edges include self-loops."""

    queries: float
    keys: float
    edges: float


@dataclass(frozen=True)
class StepSizes:
    """Of each layer, the first one first; and how many steps an epoch has on one host."""

    layers: tuple[LayerSizes, ...]
    steps: int
    how: str  # the numbers were found, as a sentence
    is_whole: bool = False  # whether a step takes the whole graph, so that nothing is sampled


def counted(prediction: NodePrediction, layers: int) -> StepSizes:
    """From the first batches of an epoch."""
    problem, task = prediction.problem, prediction.settings
    steps = _num_steps(task, len(problem.split["train"]), prediction.batch_size)
    if not task.neighbours and not task.roots:
        graph = problem.graph
        return StepSizes((_sizes_of([graph]),) * layers, 1, WHOLE, is_whole=True)
    batches = list(islice(prediction.batches(torch.Generator()), BATCHES))
    graphs = [each.with_self_loops().graphs if problem.self_loops else each.graphs
              for each in batches if each is not None]  # fmt: skip
    by_layer = [_sizes_of([each[layer if len(each) > 1 else 0] for each in graphs])
                for layer in range(layers)]  # fmt: skip
    how = f"Sizes of a step: the mean of {len(graphs)} batches of the stored graph."
    return StepSizes(tuple(by_layer), steps, how)


WHOLE = "A step is one pass over the whole graph, which is not split over hosts."


def _sizes_of(graphs: Sequence[Graph]) -> LayerSizes:
    sums = [sum(values) / len(graphs) for values in (
        [graph.num_queries for graph in graphs],
        [graph.num_keys for graph in graphs],
        [len(graph.key_index) for graph in graphs],
    )]  # fmt: skip
    return LayerSizes(*sums)


def _num_steps(task: NodeTask, train: int, batch_size: int) -> int:
    if task.neighbours:
        return math.ceil(train / batch_size)
    return task.steps if task.roots else 1


def expected(
    sizes: Sizes, task: NodeTask, batch_size: int, layers: int, self_loops: bool
) -> StepSizes:
    """Without data; see above."""
    total, loops = sizes.nodes, int(self_loops)
    steps = _num_steps(task, sizes.train, batch_size)
    if not task.neighbours and not task.roots:
        whole = LayerSizes(total, total, sizes.edges + loops * total)
        return StepSizes((whole,) * layers, 1, WHOLE, is_whole=True)
    if task.roots:
        nodes = -total * math.expm1(-task.roots * (task.walk_length + 1) / total)
        edges = sizes.edges * (nodes / total) ** 2 + loops * nodes
        how = "Sizes of a step: walks visit nodes uniformly, and edges join nodes uniformly."
        return StepSizes((LayerSizes(nodes, nodes, edges),) * layers, steps, how)
    degree, nodes = sizes.edges / total, sizes.train / steps
    by_hop = []
    for fanout in task.neighbours[::-1]:  # from the seeds
        edges = nodes * min(fanout, degree)
        keys = nodes - (total - nodes) * math.expm1(-edges / total)
        by_hop.append(LayerSizes(nodes, keys, edges + loops * nodes))
        nodes = keys
    how = (
        f"Sizes of a step: every node has the mean degree, {degree:.1f}, and its neighbours are "
        "uniformly distributed. Hubs make real batches smaller."
    )
    return StepSizes(tuple(by_hop[::-1]), steps, how)


def problem_like(sizes: Sizes, features: int) -> NodeProblem:
    """Of one node, for building a network of the right widths."""
    none = torch.zeros(0, dtype=torch.int32)
    graph, y = Graph.from_edges(none, none, 1), torch.zeros(1, dtype=torch.int64)
    split = {part: torch.zeros(1, dtype=torch.int64) for part in SPLITS}
    classes = max(1, sizes.classes)
    return NodeProblem(torch.zeros(1, features), graph, y, split, "classification", classes)
