"""ProgramProblem: graphs streamed from the chunks of a stored set, in bounded memory.

Chunks are read by a background thread, a window of them at a time. The order of an epoch is a
function of its seed: chunks are shuffled, and so are the graphs of each window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dynagat.benchmarks.varmisuse.network import Labels
from dynagat.data.programs.chunks import read_chunk, read_evidence
from dynagat.data.programs.records import EDGE_TYPES, MAX_CANDIDATES, RELATIONS, ProgramGraph
from dynagat.graph import Graph
from dynagat.prediction.candidates import CandidateBatch
from dynagat.sampling.ahead import work_ahead

Place = tuple[Path, int]  # of a graph: its chunk, and its number there
WINDOW = 10  # chunks whose graphs are shuffled together; up to three windows are in memory


@dataclass(frozen=True, eq=False)
class ProgramProblem:
    """The chunks of each part."""

    chunks: Mapping[str, Sequence[Path]]
    language: str

    def graphs(self, part: str, seed: int | None = None) -> Iterator[ProgramGraph]:
        """The graphs of a part, shuffled by a seed; without one, in order."""
        return (graph for _, graph in self.placed(part, seed))

    def placed(self, part: str, seed: int | None = None) -> Iterator[tuple[Place, ProgramGraph]]:
        """The graphs of a part in the same order, with their places."""
        paths = list(self.chunks[part])
        if seed is not None:
            paths = [paths[n] for n in np.random.default_rng(seed).permutation(len(paths))]

        def window(n: int, threads: int) -> list[tuple[Place, ProgramGraph]]:
            here = paths[n * WINDOW : (n + 1) * WINDOW]
            graphs = [
                ((path, place), graph)
                for path in here
                for place, graph in enumerate(read_chunk(path, self.language))
            ]
            if seed is None:
                return graphs
            order = np.random.default_rng([seed, n]).permutation(len(graphs))
            return [graphs[n] for n in order]

        for graphs in work_ahead(window, -(-len(paths) // WINDOW), depth=1, workers=1):
            yield from graphs

    def batches(
        self, part: str, max_nodes: int, seed: int | None = None
    ) -> Iterator[CandidateBatch]:
        """Consecutive graphs of a part, as many as have at most `max_nodes` nodes together."""
        return map(join, fill(self.graphs(part, seed), max_nodes))

    def evidence(self, part: str) -> Iterator[dict[str, np.ndarray]]:
        """What needs no network, of each graph."""
        for path in self.chunks[part]:
            yield from read_evidence(path, self.language)


def fill(graphs: Iterable[ProgramGraph], max_nodes: int) -> Iterator[list[ProgramGraph]]:
    """A graph with more nodes than that is a batch of its own."""
    batch, total = [], 0
    for graph in graphs:
        if batch and total + graph.num_nodes > max_nodes:
            yield batch
            batch, total = [], 0
        batch.append(graph)
        total += graph.num_nodes
    if batch:
        yield batch


def join(graphs: Sequence[ProgramGraph]) -> CandidateBatch:
    """Graphs as one, with reversed edges, self-loops, and each distinct label once."""
    starts = _starts([graph.num_nodes for graph in graphs])
    slot = [int(graph.slot[0]) + start for graph, start in zip(graphs, starts, strict=False)]
    candidates = torch.full((len(graphs), MAX_CANDIDATES), -1)
    for row, graph, start in zip(candidates, graphs, starts, strict=False):
        row[: len(graph.candidates)] = torch.from_numpy(graph.candidates.astype(np.int64)) + start
    labels, graph = _labels(graphs), _graph(graphs, starts)
    y = torch.zeros(len(graphs), dtype=torch.int64)  # the right candidate is the first
    return CandidateBatch(labels, graph, torch.tensor(slot), candidates, y)


def _starts(sizes: Sequence[int]) -> list[int]:
    """Of n sizes, n + 1 numbers."""
    return [0, *np.cumsum(sizes).tolist()]


def _labels(graphs: Sequence[ProgramGraph]) -> Labels:
    codes = np.concatenate([graph.codes for graph in graphs])
    whole = np.ascontiguousarray(codes).view(f"V{codes.shape[1]}")[:, 0]  # a row as one value
    distinct, place = np.unique(whole, return_inverse=True)
    first = _starts([len(graph.codes) for graph in graphs])
    label = _shifted([graph.label for graph in graphs], first)
    rows = distinct.view(np.uint8).reshape(-1, codes.shape[1])
    return Labels(torch.from_numpy(rows), torch.from_numpy(place.reshape(-1)[label]))


def _graph(graphs: Sequence[ProgramGraph], starts: Sequence[int]) -> Graph:
    key, query = (
        torch.from_numpy(_shifted([getattr(graph, name) for graph in graphs], starts))
        for name in ("key", "query")
    )
    kind = 1 + torch.from_numpy(np.concatenate([graph.kind for graph in graphs]).astype(np.int64))
    loop = torch.arange(starts[-1])
    return Graph.from_edges(
        torch.cat([query, key, loop]),
        torch.cat([key, query, loop]),
        starts[-1],
        relation=torch.cat([kind, kind + len(EDGE_TYPES), torch.zeros_like(loop)]),
        num_relations=len(RELATIONS),
    )


def _shifted(parts: Sequence[np.ndarray], starts: Sequence[int]) -> np.ndarray:
    """The arrays one after the other, each plus its start."""
    shift = np.repeat(starts[: len(parts)], [len(part) for part in parts])
    return np.concatenate(parts).astype(np.int64) + shift
