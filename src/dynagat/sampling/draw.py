"""The samplers with checked arguments: the native ones, or those of reference.py without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.sampling import reference
from dynagat.sampling.reference import FULL, Picks, Sample, mix
from dynagat.sampling.rows import Neighbours, read_array, samplers

WALKS, NODES, EDGES = 0, 1, 2  # kinds of `visit`
NO_NODES = np.zeros(0, np.int64)


def sample(
    neighbours: Neighbours,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    *,
    replace: bool = False,
    layered: bool = False,
    seed: int = 0,
    threads: int = 1,
) -> Sample:
    """Sample hop by hop from distinct seeds; a fan-out of -1 takes all keys.

    If layered, each hop samples again for all nodes so far, else for the new ones only.
    """
    seeds = _nodes(seeds, neighbours, "seeds")
    given = (neighbours.arrays, seeds, list(fanouts), replace, layered, seed, threads)
    node, layers, new_nodes, num_edges = samplers.sample(*given)
    return Sample(node, [Picks(*each) for each in layers], new_nodes, num_edges)


def sample_neighbours(
    neighbours: Neighbours,
    queries: np.ndarray,
    fanout: int,
    *,
    replace: bool = False,
    seed: int = 0,
    hop: int = 0,
    threads: int = 1,
) -> Picks:
    """Sample `fanout` keys of each query, or all if it has fewer; queries may repeat."""
    queries = _nodes(queries, neighbours, "queries")
    given = (neighbours.arrays, queries, fanout, replace, seed, hop, threads)
    return Picks(*samplers.pick(*given))


def visit(
    neighbours: Neighbours,
    kind: int,
    count: int,
    *,
    length: int = 0,
    live: np.ndarray = NO_NODES,
    seed: int = 0,
    threads: int = 1,
) -> np.ndarray:
    """The nodes of `count` random walks, nodes or edges, each once, in ascending order."""
    return samplers.visit(neighbours.arrays, kind, count, length, live, seed, threads)


def induce(neighbours: Neighbours, nodes: np.ndarray, *, threads: int = 1) -> Picks:
    """All edges among distinct nodes; keys are positions in `nodes`."""
    nodes = _nodes(nodes, neighbours, "nodes")
    return Picks(*samplers.induce(neighbours.arrays, nodes, threads))


def transpose(picks: Picks, num_keys: int, threads: int = 1) -> tuple[np.ndarray, ...]:
    """The transposed rows: key_rowptr, key_query, key_position."""
    return samplers.transpose(picks.rowptr, picks.key, num_keys, threads)


def take_rows(table: Tensor | np.ndarray, index: np.ndarray, threads: int = 1) -> Tensor:
    """table[index] as a tensor, with this number of threads; torch would use all."""
    if kernels is None or not _is_plain(table):
        if isinstance(table, np.ndarray):
            return torch.from_numpy(np.take(table, index, axis=0))
        return table.detach()[torch.from_numpy(index).to(table.device)]
    if isinstance(table, np.ndarray):
        address, like = table.ctypes.data, torch.from_numpy(np.empty(0, table.dtype))
    else:
        address, like = table.data_ptr(), table
    out = like.new_empty(len(index), *table.shape[1:])
    row_bytes = like.element_size() * math.prod(table.shape[1:])
    kernels.gather(address, len(table), row_bytes, index, out.data_ptr(), threads)
    return out


def _is_plain(table: Tensor | np.ndarray) -> bool:
    """Whether it is contiguous and in CPU memory."""
    if isinstance(table, np.ndarray):
        return table.flags.c_contiguous
    return table.device.type == "cpu" and table.layout == torch.strided and table.is_contiguous()


def derive_seed(seed: int, *numbers: int) -> int:
    """A different seed for each sequence of numbers."""
    for each in numbers:
        seed = mix(mix(seed) + each + 1)
    return seed


def shuffle(items: np.ndarray, seed: int) -> np.ndarray:
    """A permutation of the items that depends on the seed alone."""
    keys = reference.Stream(seed, 0).at(np.arange(len(items)))
    return items[np.argsort(keys, kind="stable")]


def random_nodes(count: int, num_nodes: int, seed: int, stage: int) -> np.ndarray:
    """[count] int64: independent uniform nodes that depend on (seed, stage) alone."""
    at = reference.Stream(seed, stage).at(np.arange(count))
    return reference.random_below(at, 0, num_nodes)


def check_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= FULL:
        raise ValueError(f"seed must be an integer in [0, 2**64), but is {seed!r}")
    return int(seed)


def check_count(name: str, count: int, least: int = 1) -> int:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < least:
        raise ValueError(f"{name} must be an integer of {least} or more, but is {count!r}")
    return int(count)


def _nodes(nodes: Any, neighbours: Neighbours, name: str) -> np.ndarray:
    nodes = read_array(nodes, name).astype(np.int64, copy=False)
    bad = nodes[(nodes < 0) | (nodes >= neighbours.num_nodes)]
    if len(bad):
        size = neighbours.num_nodes
        raise ValueError(f"{name} must lie in [0, {size}), but hold {bad[0]}")
    return nodes
