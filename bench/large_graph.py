"""LargeGraph: a synthetic graph of any size, written block by block to a folder of the graph store.

Both directions of each edge are stored, as in ogbn-products. Memory stays that of a few blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Generator, Tensor

from bench.graphs import SEED, Recipe
from dynagat.data.arrays import write_folder
from dynagat.data.store import EDGE, KIND, NODE, SPLITS

BLOCK = 1 << 20  # edges drawn at a time
FEATURE_BLOCK = 1 << 16  # rows of features that repeat
CLASSES = 47  # those of ogbn-products
TRAIN = 200_000  # nodes for training, and as many each for validation and for the test
SMOOTH, EXPONENT = 10, 0.45  # ends are drawn with weights (rank + 10)^-0.55


@final
@dataclass(frozen=True)
class LargeGraph(Recipe):
    """Undirected, with the degrees of PowerLaw; duplicates and self-loops may occur."""

    num_nodes: int = 20_000_000
    num_edges: int = 100_000_000  # in both directions
    features: int = 320  # numbers of 4 bytes: 25.6 GB

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Key and query of the edges, block by block."""
        random = np.random.default_rng(SEED)
        for first in range(0, self.num_edges // 2, BLOCK):
            count = min(BLOCK, self.num_edges // 2 - first)
            one, other = (self._node(self._ranks(random, count)) for _ in range(2))
            yield np.concatenate([one, other]), np.concatenate([other, one])

    def draw(self, generator: Generator) -> Tensor:
        key, query = (np.concatenate(ends) for ends in zip(*self.blocks(), strict=True))
        return torch.from_numpy(np.stack([key, query]))

    def write(self, folder: Path, name: str) -> None:
        """Store the graph in a new folder. Features repeat; they take as much space as others."""
        random = np.random.default_rng(SEED)
        with write_folder(folder, KIND) as writer:
            x = writer.grow(f"nodes/{NODE}/x", np.float32, (self.features,))
            block = random.standard_normal((FEATURE_BLOCK, self.features), np.float32)
            for first in range(0, self.num_nodes, FEATURE_BLOCK):
                x.append(block[: self.num_nodes - first])
            y = writer.grow(f"nodes/{NODE}/y", np.int64)
            for first in range(0, self.num_nodes, BLOCK):
                y.append(np.arange(first, min(first + BLOCK, self.num_nodes)) % CLASSES)
            base = f"edges/{'__'.join(EDGE)}"
            ends = [writer.grow(f"{base}/{end}_index", np.int32) for end in ("key", "query")]
            for pair in self.blocks():
                for end, index in zip(ends, pair, strict=True):
                    end.append(index)
            for part, index in self._split(random).items():
                writer.add(f"split/{part}", index)
            writer.about = self._about(name)

    def _split(self, random: np.random.Generator) -> dict[str, np.ndarray]:
        size = min(TRAIN, self.num_nodes // 4)
        nodes = random.choice(self.num_nodes, 3 * size, replace=False, shuffle=False)
        return dict(zip(SPLITS, np.sort(nodes.reshape(3, size), 1), strict=True))

    def _about(self, name: str) -> dict[str, Any]:
        classes = list(map(str, range(CLASSES)))
        task = {"kind": "classification", "node_type": NODE, "classes": classes}
        about = {"task": task, "source": "synthetic, bench/large_graph.py"}
        return {
            "name": name,
            "nodes": {NODE: self.num_nodes},
            "edges": [list(EDGE)],
            "about": about,
        }

    def _ranks(self, random: np.random.Generator, count: int) -> np.ndarray:
        """By inverting the integral of the weights."""
        low, high = SMOOTH**EXPONENT, (self.num_nodes + SMOOTH) ** EXPONENT
        drawn = random.random(count) * (high - low) + low
        return np.clip(drawn ** (1 / EXPONENT) - SMOOTH, 0, self.num_nodes - 1).astype(np.int64)

    def _node(self, rank: np.ndarray) -> np.ndarray:
        """A permutation of the ranks, so that neighbours are spread over the graph."""
        step = int(self.num_nodes * 0.618) | 1
        while gcd(step, self.num_nodes) > 1:
            step += 2
        return (rank * step % self.num_nodes).astype(np.int32)
