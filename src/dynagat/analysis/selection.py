"""How many distinct keys are some query's first choice, of how many could be?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.analysis.agreement import firsts
from dynagat.analysis.resample import Estimate, Resampling, estimates
from dynagat.analysis.rows import Rows

EXACT = 2_000_000  # edges · queries up to which the largest matching is found exactly


@dataclass(frozen=True)
class Selection:
    """Of the queries that have a choice."""

    share: Estimate  # selected / selectable
    selected: int
    selectable: int


def selection(rows: Rows, limit: int, draws: Resampling) -> list[Selection]:
    """Per head, of `limit` keys that could be chosen. Of best keys that are tied, the first counts.

    An interval is the spread of the share in samples of the queries, around the share of all: a
    sample has fewer distinct choices, so its own share would be that of a smaller graph.
    """
    chooses = rows.degree >= 2
    choice = torch.where(chooses[:, None], _choices(rows), rows.num_keys)  # [Q, H]
    count = torch.tensor([len(_known(column, rows.num_keys).unique()) for column in choice.T])
    there = (draws.counts > 0).float()  # [draws, kept]
    sizes = (there @ chooses[draws.kept].float()).clamp(1, max(1, limit))[:, None]
    kept = choice[draws.kept]
    spread = torch.stack([_distinct(column, there, rows.num_keys) for column in kept.T], 1) / sizes
    spread = spread.double()
    share = count.double() / limit if limit else torch.full((rows.num_heads,), torch.nan)
    around = (share + (spread - spread.mean(0)) * draws.scale).clamp(0, 1)
    found = estimates(share, around)
    return [
        Selection(estimate, int(number), limit)
        for estimate, number in zip(found, count.tolist(), strict=True)
    ]


def _choices(rows: Rows) -> Tensor:  # [Q, H]
    """The key that each query ranks first; K for a query without keys."""
    none = torch.full((rows.num_queries, rows.num_heads), rows.num_keys)
    key = torch.where(firsts(rows), rows.key[:, None], rows.num_keys)
    return none.scatter_reduce(0, rows.query[:, None].expand_as(key), key, "amin")


def _known(choice: Tensor, num_keys: int) -> Tensor:
    return choice[choice < num_keys]


def _distinct(choice: Tensor, there: Tensor, num_keys: int) -> Tensor:
    """[Q] and [draws, Q] -> [draws]: how many keys are chosen by a query that is there."""
    keys, number = torch.unique(choice, return_inverse=True)
    chosen = torch.zeros(len(keys), len(there)).index_add(0, number, there.T.contiguous()) > 0
    return chosen[keys < num_keys].sum(0)


def selectable(rows: Rows) -> int:
    """The most distinct keys that queries with a choice could choose: the largest matching.

    Found exactly in small graphs; in large ones greedily, rarest keys first, hence a little low.
    """
    chooses = rows.degree >= 2
    kept = chooses[rows.query]
    query, key = rows.query[kept], rows.key[kept]
    if len(key) * int(chooses.sum()) <= EXACT:
        return _largest_matching(query.tolist(), key.tolist())
    return _greedy_matching(query, key, rows.num_queries, rows.num_keys)


def _greedy_matching(query: Tensor, key: Tensor, num_queries: int, num_keys: int) -> int:
    """Rounds in which each free query asks its rarest free key, and each key takes one."""
    fan = torch.bincount(key, minlength=num_keys)
    rarest_first = (fan[key] * num_keys + key).sort().indices
    query, key, count = query[rarest_first], key[rarest_first], 0
    place = torch.arange(len(key))
    while len(key):
        first = torch.full((num_queries,), len(key)).scatter_reduce(0, query, place, "amin")
        asks = first[first < len(key)]
        taker = torch.full((num_keys,), len(key)).scatter_reduce(0, key[asks], asks, "amin")
        taken = taker[taker < len(key)]
        count += len(taken)
        free = torch.ones(num_queries, dtype=torch.bool)
        free[query[taken]] = False
        left = free[query] & (taker[key] == len(key))
        query, key = query[left], key[left]
        place = torch.arange(len(key))
    return count


def _largest_matching(query: list[int], key: list[int]) -> int:
    """By augmenting paths."""
    keys: dict[int, list[int]] = {}
    for one, other in zip(query, key, strict=True):
        keys.setdefault(one, []).append(other)
    owner: dict[int, int] = {}

    def place(start: int) -> bool:
        """Give `start` a key, moving others if need be."""
        came: dict[int, tuple[int, int] | None] = {start: None}
        waiting = [start]
        asked: set[int] = set()
        while waiting:
            one = waiting.pop()
            for other in keys[one]:
                if other in asked:
                    continue
                asked.add(other)
                if other in owner:
                    came[owner[other]] = (one, other)
                    waiting.append(owner[other])
                    continue
                step: tuple[int, int] | None = (one, other)
                while step is not None:
                    owner[step[1]], step = step[0], came[step[0]]
                return True
        return False

    return sum([place(each) for each in keys])
