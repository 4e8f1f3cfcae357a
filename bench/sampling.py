"""Samplers: batches of neighbours or random walks by DGL, pyg-lib, torch-sparse and dynagat.

Each is a function of a random seed and of batches of seed nodes that returns the number of sampled
edges. Layered sampling draws neighbours for all nodes of the batch so far in each hop (DGL,
dynagat); merged sampling draws them for new nodes only (pyg-lib, torch-sparse, dynagat).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from bench.cases import Case
from bench.isolation import CannotRun, reason_of
from dynagat.sampling import GraphSAINTRandomWalkSampler, NeighborLoader, Neighbours

Draw = Callable[[int, np.ndarray], int]  # random seed, seed nodes [NUM_BATCHES, batch_size]

FANOUTS = [10, 10, 10]  # those of ogbn-products in the paper
WALK_LENGTH = 3  # that of ogbn-arxiv in the code of the paper
NUM_BATCHES = 8  # per measurement


def draw_rows(case: Case) -> Neighbours:
    key, query = case.graph.edge_index()
    return Neighbours.from_edges(query, key, case.graph.num_nodes)


def seeds_of(case: Case, random_seed: int) -> np.ndarray:
    """[NUM_BATCHES, batch_size] of distinct nodes"""
    count = min(
        NUM_BATCHES * case.batch_size, case.graph.num_nodes // case.batch_size * case.batch_size
    )
    nodes = np.random.default_rng(random_seed).permutation(case.graph.num_nodes)[:count]
    return nodes.reshape(-1, case.batch_size)


def start_sampler(name: str, case: Case, rows: Neighbours) -> Draw:
    """The sampler, ready to draw. Raises CannotRun if it cannot be imported."""
    try:
        return SAMPLERS[name](case, rows)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise CannotRun(f"cannot be imported: {reason_of(error)}") from error


def start_dynagat(case: Case, rows: Neighbours, layered: bool) -> Draw:
    def draw(random_seed: int, seeds: np.ndarray) -> int:
        options = {"batch_size": case.batch_size, "layered": layered, "seed": random_seed}
        loader = NeighborLoader(rows, FANOUTS, seeds.ravel(), **options)
        return sum(sum(batch.num_sampled_edges) for batch in loader)

    return draw


def start_dgl(case: Case, rows: Neighbours) -> Draw:
    import dgl

    graph = _dgl_graph(rows)

    def draw(random_seed: int, seeds: np.ndarray) -> int:
        count = 0
        for batch in torch.from_numpy(seeds).int():
            for fanout in FANOUTS:
                picked = dgl.sampling.sample_neighbors(graph, batch, fanout)
                block = dgl.to_block(picked, batch)
                block.edata[dgl.EID] = picked.edata[dgl.EID]
                batch = block.srcdata[dgl.NID]
                count += block.num_edges()
        return count

    return draw


def _dgl_graph(rows: Neighbours) -> Any:
    import dgl

    arrays = tuple(map(torch.from_numpy, rows.arrays))
    return dgl.graph(("csc", arrays), num_nodes=rows.num_nodes, idtype=torch.int32)


def _long_arrays(rows: Neighbours) -> list[torch.Tensor]:
    """rowptr and key_index as int64"""
    return [torch.from_numpy(array).long() for array in rows.arrays[:2]]


def start_torch_sparse(case: Case, rows: Neighbours) -> Draw:
    import torch_sparse  # noqa: F401  # pyright: ignore

    rowptr, key = _long_arrays(rows)

    def draw(random_seed: int, seeds: np.ndarray) -> int:
        sample, count = torch.ops.torch_sparse.neighbor_sample, 0
        for batch in torch.from_numpy(seeds):
            count += len(sample(rowptr, key, batch, FANOUTS, False, True)[1])
        return count

    return draw


def start_pyg_lib(case: Case, rows: Neighbours) -> Draw:
    from pyg_lib.sampler import neighbor_sample  # pyright: ignore

    rowptr, key = _long_arrays(rows)

    def draw(random_seed: int, seeds: np.ndarray) -> int:
        batches = torch.from_numpy(seeds)
        return sum(len(neighbor_sample(rowptr, key, batch, FANOUTS)[0]) for batch in batches)

    return draw


def start_dynagat_walks(case: Case, rows: Neighbours) -> Draw:
    def draw(random_seed: int, seeds: np.ndarray) -> int:
        loader = GraphSAINTRandomWalkSampler(
            rows, case.batch_size, WALK_LENGTH, NUM_BATCHES, seed=random_seed
        )
        return sum(sum(batch.num_sampled_edges) for batch in loader)

    return draw


def start_dgl_walks(case: Case, rows: Neighbours) -> Draw:
    import dgl

    graph = _dgl_graph(rows)
    graph.create_formats_()

    def draw(random_seed: int, seeds: np.ndarray) -> int:
        generator, count = torch.Generator().manual_seed(random_seed), 0
        for _ in range(NUM_BATCHES):
            roots = torch.randint(rows.num_nodes, (case.batch_size,), generator=generator).int()
            traces, _ = dgl.sampling.random_walk(graph, roots, length=WALK_LENGTH)
            nodes = traces.unique()
            count += dgl.node_subgraph(graph, nodes[nodes >= 0]).num_edges()
        return count

    return draw


SAMPLERS: Mapping[str, Callable[[Case, Neighbours], Draw]] = {
    "dgl": start_dgl,
    "dynagat, layered": lambda case, rows: start_dynagat(case, rows, True),
    "pyg-lib": start_pyg_lib,
    "torch-sparse": start_torch_sparse,
    "dynagat, merged": lambda case, rows: start_dynagat(case, rows, False),
    "dgl, walks": start_dgl_walks,
    "dynagat, walks": start_dynagat_walks,
}
NEIGHBOURS = tuple(name for name in SAMPLERS if not name.endswith("walks"))
WALKS = ("dgl, walks", "dynagat, walks")


def epoch_over(case: Case, rows: Neighbours, num_seeds: int) -> Callable[[object], None]:
    """A function that draws all batches of an epoch with that many seeds."""
    seeds = np.random.default_rng(0).permutation(rows.num_nodes)[:num_seeds]
    loader = NeighborLoader(rows, FANOUTS, seeds, batch_size=case.batch_size, layered=True)

    def run(_: object) -> None:
        for _ in loader:
            pass

    return run
