"""Small graphs for the node benchmarks, stored or as files, and settings for short runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from bench.synthetic_ogb import make_ogb

from dynagat.benchmarks import find
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes
from dynagat.experiment import Benchmark, as_published, grid

NUM_NODES = {"ogbn-arxiv": 400, "ogbn-mag": 3490, "ogbn-products": 470, "ogbn-proteins": 60}
SHORT = {
    "pubmed": ("hidden=4", "heads=2", "max_rounds=2"),
    "ogbn-arxiv": ("dim=8", "heads=2", "max_rounds=2", "roots=60", "steps=2"),
    "ogbn-mag": ("dim=8", "heads=2", "max_rounds=2", "batch_size=2000"),
    "ogbn-products": (
        "dim=8", "heads=2", "max_rounds=3", "silent_rounds=1", "round_passes=1", "batch_size=20",
    ),
    "ogbn-proteins": ("dim=8", "heads=2", "max_rounds=2", "round_passes=1", "batch_size=30"),
    "edge-noise": (
        "dataset=ogbn-arxiv", "noise=0.3", "dim=8", "heads=2", "max_rounds=2", "roots=60",
        "steps=2",
    ),
}  # fmt: skip


def tiny(name: str, *, nodes: int = 90, edges: int = 150, seed: int = 0, **about) -> GraphData:
    """Three classes, informative features, directed edges, a self-loop, and a duplicate edge."""
    draw = np.random.default_rng(seed)
    y = np.arange(nodes) % 3
    key, query = draw.integers(0, nodes, (2, edges))
    key, query = np.append(key, [5, 0, 0]), np.append(query, [5, 1, 1])
    x = draw.normal(size=(nodes, 6)).astype(np.float32) + y[:, None]
    third = nodes // 3
    parts = {"train": (0, third), "valid": (third, 2 * third), "test": (2 * third, nodes)}
    return GraphData(
        name,
        {NODE: Nodes(nodes, {"x": x, "y": y})},
        {EDGE: Edges(key.astype(np.int32), query.astype(np.int32))},
        {part: np.arange(*ends) for part, ends in parts.items()},
        {"task": {"kind": "classification", "classes": ["a", "b", "c"]}, **about},
    )


def without_features(data: GraphData) -> GraphData:
    nodes = data.nodes[data.node_type]
    arrays = {name: np.asarray(array) for name, array in nodes.arrays.items() if name != "x"}
    return replace(data, nodes={data.node_type: Nodes(nodes.count, arrays)}, folder=None)


def make_files(folder) -> None:
    """Write synthetic OGB datasets into the folder of DYNAGAT_DATA."""
    for name, nodes in NUM_NODES.items():
        make_ogb(name, folder / name, nodes=nodes)


def short(name: str, mechanism: str, *more: str, published: bool = False) -> Benchmark:
    """A benchmark with settings that make it quick, in either fidelity."""
    benchmark, texts = find(name), [*SHORT[name], *more]
    dataset = [text.partition("=")[2] for text in texts if text.startswith("dataset=")]
    start = benchmark.base(mechanism, *dataset[-1:])
    [settings] = grid(as_published(start) if published else start, texts)
    return benchmark.with_settings(settings)
