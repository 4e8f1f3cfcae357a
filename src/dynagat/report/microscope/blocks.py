"""Blocks: a few queries that share many keys, so that their heat map is mostly filled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.report.microscope.edge_sets import EdgeSet

SIDE = 12  # maximum number of queries and of keys in a block
MAX_BLOCKS = 3
MAX_CANDIDATES = 400  # queries among which a block is searched
MAX_COLUMNS = 300  # keys among which a block is searched
MAX_DEGREE = 100  # queries with more keys have small weights; used only if a block lacks edges
ROUNDS = 6
ENOUGH_EDGES = 50  # in a block


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of an edge set, keys, and the edges between them."""

    query: Tensor
    key: Tensor
    edge: Tensor


def blocks_of(edge_set: EdgeSet) -> list[Block]:
    """Up to MAX_BLOCKS disjoint blocks, each around one of the keys with the most queries."""
    is_free = edge_set.rows.degree >= 2
    is_start = torch.ones(edge_set.rows.num_keys, dtype=torch.bool)
    key_degree = torch.bincount(edge_set.rows.key, minlength=edge_set.rows.num_keys)
    blocks: list[Block] = []
    while len(blocks) < MAX_BLOCKS and is_start.any():
        start = int(torch.where(is_start, key_degree, -1).argmax())
        block = _block(edge_set, start, is_free & (edge_set.rows.degree <= MAX_DEGREE))
        if block is None or len(block.edge) < ENOUGH_EDGES:
            block = _fuller(block, _block(edge_set, start, is_free))
        if block is None:
            break
        is_free[block.query] = False
        is_start[block.key] = False
        blocks.append(block)
    return blocks


def _fuller(one: Block | None, other: Block | None) -> Block | None:
    return max((one, other), key=lambda block: 0 if block is None else len(block.edge))


def _block(edge_set: EdgeSet, start: int, is_free: Tensor) -> Block | None:
    """Alternate between keys that many queries have and queries that have many of these keys."""
    rows = _candidates(edge_set, start, is_free)
    row, edge = edge_set.edges_of(rows)
    keys, counts = torch.unique(edge_set.rows.key[edge], return_counts=True)
    keys = keys[_top(counts, MAX_COLUMNS)].sort().values
    if len(rows) < 2 or len(keys) < 2:
        return None
    column = torch.searchsorted(keys, edge_set.rows.key[edge]).clamp_max(len(keys) - 1)
    is_kept = keys[column] == edge_set.rows.key[edge]
    has = torch.zeros(len(rows), len(keys))
    has[row[is_kept], column[is_kept]] = 1
    across = _top(has.sum(0), SIDE)
    down = across
    for _ in range(ROUNDS):
        down = _top(has[:, across].sum(1), SIDE)
        across = _top(has[down].sum(0), SIDE)
    down, across = _drop_sparse(has, down, across)
    if len(down) < 2 or len(across) < 2:
        return None
    down, key = down.sort().values, keys[across]
    inside = torch.isin(row, down) & torch.isin(edge_set.rows.key[edge], key)
    return Block(rows[down], key, edge[inside])


def _drop_sparse(has: Tensor, down: Tensor, across: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the emptiest row or column again and again; return the block with the highest
    number of edges · (fraction of filled cells)²."""
    candidates = []
    while len(down) >= 2 and len(across) >= 2:
        cells = has[down][:, across]
        rows, columns = cells.mean(1), cells.mean(0)
        candidates.append((float(cells.sum() * cells.mean() ** 2), down, across))
        if rows.min() <= columns.min():
            down = down[torch.arange(len(down)) != rows.argmin()]
        else:
            across = across[torch.arange(len(across)) != columns.argmin()]
    _, down, across = max(candidates, key=lambda each: each[0])
    across = across[has[down][:, across].sum(0) >= 2]
    return down[has[down][:, across].sum(1) >= 2], across


def _candidates(edge_set: EdgeSet, key: int, is_free: Tensor) -> Tensor:
    """The free queries of a key, at most MAX_CANDIDATES, preferring those with many keys."""
    edges = (edge_set.rows.key == key).nonzero()[:, 0]
    rows = torch.searchsorted(edge_set.rows.rowptr, edges, right=True) - 1
    rows = rows[is_free[rows]]
    return rows[_top(edge_set.rows.degree[rows], MAX_CANDIDATES)].sort().values


def _top(values: Tensor, count: int) -> Tensor:
    return values.argsort(descending=True, stable=True)[:count]
