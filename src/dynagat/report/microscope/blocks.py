"""Blocks: a few queries that share many keys, for a heat map that is not mostly empty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.report.microscope.webs import Web

SIDE = 12  # queries, and keys
BLOCKS = 3
CANDIDATES = 400  # queries among which a block is sought
COLUMNS = 300  # keys
LARGEST_DEGREE = 100  # weights of queries with more keys are small; taken only for want of edges
ROUNDS = 6
ENOUGH = 50  # edges of a block


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a web, its keys, and the edges between them."""

    query: Tensor
    key: Tensor
    edge: Tensor


def blocks_of(web: Web) -> list[Block]:
    """One from each of the most attended keys, no query in two of them."""
    is_free = web.rows.degree >= 2
    is_start = torch.ones(web.rows.num_keys, dtype=torch.bool)
    fan = torch.bincount(web.rows.key, minlength=web.rows.num_keys)
    found: list[Block] = []
    while len(found) < BLOCKS and is_start.any():
        start = int(torch.where(is_start, fan, -1).argmax())
        block = _block(web, start, is_free & (web.rows.degree <= LARGEST_DEGREE))
        if block is None or len(block.edge) < ENOUGH:
            block = _fuller(block, _block(web, start, is_free))
        if block is None:
            break
        is_free[block.query] = False
        is_start[block.key] = False
        found.append(block)
    return found


def _fuller(one: Block | None, other: Block | None) -> Block | None:
    return max((one, other), key=lambda block: 0 if block is None else len(block.edge))


def _block(web: Web, start: int, is_free: Tensor) -> Block | None:
    """Keys that many have, queries that have many of those, and again, from the start's queries."""
    rows = _candidates(web, start, is_free)
    place, edge = web.edges_of(rows)
    keys, counts = torch.unique(web.rows.key[edge], return_counts=True)
    keys = keys[_top(counts, COLUMNS)].sort().values
    if len(rows) < 2 or len(keys) < 2:
        return None
    column = torch.searchsorted(keys, web.rows.key[edge]).clamp_max(len(keys) - 1)
    is_there = keys[column] == web.rows.key[edge]
    has = torch.zeros(len(rows), len(keys))
    has[place[is_there], column[is_there]] = 1
    across = _top(has.sum(0), SIDE)
    down = across
    for _ in range(ROUNDS):
        down = _top(has[:, across].sum(1), SIDE)
        across = _top(has[down].sum(0), SIDE)
    down, across = _without_gaps(has, down, across)
    if len(down) < 2 or len(across) < 2:
        return None
    down, key = down.sort().values, keys[across]
    inside = torch.isin(place, down) & torch.isin(web.rows.key[edge], key)
    return Block(rows[down], key, edge[inside])


def _without_gaps(has: Tensor, down: Tensor, across: Tensor) -> tuple[Tensor, Tensor]:
    """The emptiest row or column goes, one after the other; of all that is left in turn, that with
    the most edges · (their share of the cells)²."""
    found = []
    while len(down) >= 2 and len(across) >= 2:
        cells = has[down][:, across]
        rows, columns = cells.mean(1), cells.mean(0)
        found.append((float(cells.sum() * cells.mean() ** 2), down, across))
        if rows.min() <= columns.min():
            down = down[torch.arange(len(down)) != rows.argmin()]
        else:
            across = across[torch.arange(len(across)) != columns.argmin()]
    _, down, across = max(found, key=lambda each: each[0])
    across = across[has[down][:, across].sum(0) >= 2]
    return down[has[down][:, across].sum(1) >= 2], across


def _candidates(web: Web, key: int, is_free: Tensor) -> Tensor:
    """Free queries that have the key, those with many keys first."""
    edges = (web.rows.key == key).nonzero()[:, 0]
    rows = torch.searchsorted(web.rows.rowptr, edges, right=True) - 1
    rows = rows[is_free[rows]]
    return rows[_top(web.rows.degree[rows], CANDIDATES)].sort().values


def _top(values: Tensor, count: int) -> Tensor:
    return values.argsort(descending=True, stable=True)[:count]
