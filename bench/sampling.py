"""Samplers: batches of neighbours, or of walks, by DGL, pyg-lib, torch-sparse and us.

Each is a function of a number, by which it draws, and of batches of seeds, that tells how many
edges it sampled. Layered, every hop draws anew for all nodes known so far: DGL and we do. Merged,
for new ones only: pyg-lib, torch-sparse and we do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from bench.cases import Case
from bench.isolation import CannotRun, reason_of
from dynagat.sampling import GraphSAINTRandomWalkSampler, NeighborLoader, Neighbours

Draw = Callable[[int, np.ndarray], int]  # number, seeds [BATCHES, batch_size]

FANOUTS = [10, 10, 10]  # the paper's, of ogbn-products
WALK_LENGTH = 3  # the paper's, of ogbn-arxiv
BATCHES = 8  # in one go


def draw_rows(case: Case) -> Neighbours:
    key, query = case.graph.edge_index()
    return Neighbours.from_edges(query, key, case.graph.num_nodes)


def seeds_of(case: Case, number: int) -> np.ndarray:
    """[BATCHES, batch_size], distinct"""
    count = min(
        BATCHES * case.batch_size, case.graph.num_nodes // case.batch_size * case.batch_size
    )
    nodes = np.random.default_rng(number).permutation(case.graph.num_nodes)[:count]
    return nodes.reshape(-1, case.batch_size)


def start_sampler(name: str, case: Case, rows: Neighbours) -> Draw:
    """The sampler of that name, ready to draw; or CannotRun."""
    try:
        return SAMPLERS[name](case, rows)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise CannotRun(f"not importable: {reason_of(error)}") from error


def start_ours(case: Case, rows: Neighbours, layered: bool) -> Draw:
    def draw(number: int, seeds: np.ndarray) -> int:
        options = {"batch_size": case.batch_size, "layered": layered, "seed": number}
        loader = NeighborLoader(rows, FANOUTS, seeds.ravel(), **options)
        return sum(sum(batch.num_sampled_edges) for batch in loader)

    return draw


def start_dgl(case: Case, rows: Neighbours) -> Draw:
    import dgl

    graph = _dgl_graph(rows)

    def draw(number: int, seeds: np.ndarray) -> int:
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


def start_torch_sparse(case: Case, rows: Neighbours) -> Draw:
    import torch_sparse  # noqa: F401  # pyright: ignore

    rowptr, key = (torch.from_numpy(array).long() for array in rows.arrays[:2])

    def draw(number: int, seeds: np.ndarray) -> int:
        sample, count = torch.ops.torch_sparse.neighbor_sample, 0
        for batch in torch.from_numpy(seeds):
            count += len(sample(rowptr, key, batch, FANOUTS, False, True)[1])
        return count

    return draw


def start_pyg_lib(case: Case, rows: Neighbours) -> Draw:
    from pyg_lib.sampler import neighbor_sample  # pyright: ignore

    rowptr, key = (torch.from_numpy(array).long() for array in rows.arrays[:2])

    def draw(number: int, seeds: np.ndarray) -> int:
        batches = torch.from_numpy(seeds)
        return sum(len(neighbor_sample(rowptr, key, batch, FANOUTS)[0]) for batch in batches)

    return draw


def start_our_walks(case: Case, rows: Neighbours) -> Draw:
    def draw(number: int, seeds: np.ndarray) -> int:
        loader = GraphSAINTRandomWalkSampler(
            rows, case.batch_size, WALK_LENGTH, BATCHES, seed=number
        )
        return sum(sum(batch.num_sampled_edges) for batch in loader)

    return draw


def start_dgl_walks(case: Case, rows: Neighbours) -> Draw:
    import dgl

    graph = _dgl_graph(rows)
    graph.create_formats_()

    def draw(number: int, seeds: np.ndarray) -> int:
        generator, count = torch.Generator().manual_seed(number), 0
        for _ in range(BATCHES):
            roots = torch.randint(rows.num_nodes, (case.batch_size,), generator=generator).int()
            traces, _ = dgl.sampling.random_walk(graph, roots, length=WALK_LENGTH)
            nodes = traces.unique()
            count += dgl.node_subgraph(graph, nodes[nodes >= 0]).num_edges()
        return count

    return draw


SAMPLERS: Mapping[str, Callable[[Case, Neighbours], Draw]] = {
    "dgl": start_dgl,
    "dynagat, layered": lambda case, rows: start_ours(case, rows, True),
    "pyg-lib": start_pyg_lib,
    "torch-sparse": start_torch_sparse,
    "dynagat, merged": lambda case, rows: start_ours(case, rows, False),
    "dgl, walks": start_dgl_walks,
    "dynagat, walks": start_our_walks,
}
NEIGHBOURS = tuple(name for name in SAMPLERS if not name.endswith("walks"))
WALKS = ("dgl, walks", "dynagat, walks")


def pass_over(case: Case, rows: Neighbours, num_seeds: int) -> Callable[[object], None]:
    """All batches of a pass over that many seeds."""
    seeds = np.random.default_rng(0).permutation(rows.num_nodes)[:num_seeds]
    loader = NeighborLoader(rows, FANOUTS, seeds, batch_size=case.batch_size, layered=True)

    def run(_: object) -> None:
        for _ in loader:
            pass

    return run
