"""How many distinct keys are some query's first choice, of how many could be?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling, estimates
from dynagat.analysis.rows import Rows

# A key with few choosers is chosen in a new sample as a Poisson number is above zero, of variance
# about its mean; one with a single chooser is in a resample with the variance (1 - 1/e) / e.
RARE = ((1 - math.exp(-1)) / math.e) ** -0.5
EXACT = 2_000_000  # edges · queries up to which the largest matching is found exactly


@dataclass(frozen=True)
class Selection:
    """Of the queries that have a choice."""

    share: Estimate  # selected / selectable
    selected: int
    selectable: int


def selection(rows: Rows, limit: int, draws: Resampling) -> list[Selection]:
    """Per head, of `limit` keys that could be chosen. A query whose best keys tie chooses none.

    A resample has fewer distinct choices, so its own share would be that of a smaller graph. The
    interval is the spread of resamples around the share of all, less what comes from some having
    more distinct queries than others, and widened by `RARE`.
    """
    chooses = rows.degree >= 2
    choice = torch.where(chooses[:, None], _choices(rows), rows.num_keys)  # [Q, H]
    count = torch.tensor([len(_known(column, rows.num_keys).unique()) for column in choice.T])
    limit = max(limit, int(count.max()))  # which may have been found a little low
    there = (draws.counts > 0).float()  # [draws, kept]
    sizes = (there @ chooses[draws.kept].float())[:, None].double()
    kept = choice[draws.kept]
    distinct = torch.stack([_distinct(column, there, rows.num_keys) for column in kept.T], 1)
    spread = RARE * _without(sizes, distinct.double()) / draws.scale
    share = count.double() / limit if limit else torch.full((rows.num_heads,), torch.nan)
    found = estimates(share, (share + spread / max(1, limit)).clamp(0, 1))
    return [
        Selection(estimate, int(number), limit)
        for estimate, number in zip(found, count.tolist(), strict=True)
    ]


def _choices(rows: Rows) -> Tensor:  # [Q, H]
    """The key that each query ranks first; K where there is none, or more than one."""
    is_first = rows.is_first
    key = rows.sum(torch.where(is_first, rows.key[:, None], 0))
    return torch.where(rows.sum(is_first.long()) == 1, key, rows.num_keys)


def _without(cause: Tensor, effect: Tensor) -> Tensor:
    """What a straight line in `cause` [draws, 1] leaves of `effect` [draws, H], around zero."""
    cause, effect = cause - cause.mean(0), effect - effect.mean(0)
    slope = (cause * effect).sum(0) / cause.square().sum(0).clamp_min(1e-9)
    return effect - cause * slope


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
    """Rounds in which each free query asks its rarest free key, and each key takes the query with
    the fewest free keys."""
    count, none = 0, torch.iinfo(torch.long).max
    while len(key):
        width = torch.bincount(query, minlength=num_queries)
        fan = torch.bincount(key, minlength=num_keys)
        rarest = torch.full((num_queries,), none)
        rarest = rarest.scatter_reduce(0, query, fan[key] * num_keys + key, "amin")
        asks = (width > 0).nonzero()[:, 0]
        taker = torch.full((num_keys,), none).scatter_reduce(
            0, rarest[asks] % num_keys, width[asks] * num_queries + asks, "amin"
        )
        is_taken = taker < none
        count += int(is_taken.sum())
        is_free = torch.ones(num_queries, dtype=torch.bool)
        is_free[taker[is_taken] % num_queries] = False
        left = is_free[query] & ~is_taken[key]
        query, key = query[left], key[left]
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
