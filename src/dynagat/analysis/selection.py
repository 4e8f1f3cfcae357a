"""How many distinct keys are ranked first by some query, and how many could be?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling, estimates
from dynagat.analysis.rows import Rows

# Widens the bootstrap interval for rarely chosen keys. In a new sample, such a key is chosen if a
# Poisson variable is positive, with a variance of about its mean; in a resample, a key with a
# single chooser has the variance (1 - 1/e) / e.
RARE = ((1 - math.exp(-1)) / math.e) ** -0.5
EXACT = 2_000_000  # edges · queries up to which the largest matching is computed exactly


@dataclass(frozen=True)
class Selection:
    """Distinct first choices of the queries with at least two keys."""

    share: Estimate  # selected / selectable
    selected: int
    selectable: int


def selection(rows: Rows, limit: int, resampling: Resampling) -> list[Selection]:
    """Per head, out of `limit` keys that could be chosen. A query with tied best keys chooses none.

    A resample has fewer distinct queries, so its fraction is that of a smaller graph. Therefore the
    interval takes the deviations of the resamples around the measured fraction, after removing what
    the number of distinct queries in a resample explains, and widens them by `RARE`.
    """
    chooses = rows.degree >= 2
    choice = torch.where(chooses[:, None], _choices(rows), rows.num_keys)  # [Q, H]
    count = torch.tensor([len(_known(column, rows.num_keys).unique()) for column in choice.T])
    limit = max(limit, int(count.max()))  # the greedy matching may be slightly too small
    is_drawn = (resampling.counts > 0).float()  # [draws, kept]
    sizes = (is_drawn @ chooses[resampling.kept].float())[:, None].double()
    kept = choice[resampling.kept]
    distinct = torch.stack([_distinct(column, is_drawn, rows.num_keys) for column in kept.T], 1)
    deviation = RARE * _residual(sizes, distinct.double()) / resampling.scale
    share = count.double() / limit if limit else torch.full((rows.num_heads,), torch.nan)
    shares = estimates(share, (share + deviation / max(1, limit)).clamp(0, 1))
    return [
        Selection(estimate, selected, limit)
        for estimate, selected in zip(shares, count.tolist(), strict=True)
    ]


def _choices(rows: Rows) -> Tensor:  # [Q, H]
    """The key that each query ranks first; K if it has none, or more than one."""
    is_first = rows.is_first
    key = rows.sum(torch.where(is_first, rows.key[:, None], 0))
    return torch.where(rows.sum(is_first.long()) == 1, key, rows.num_keys)


def _residual(cause: Tensor, effect: Tensor) -> Tensor:
    """The residual of a linear regression of `effect` [draws, H] on `cause` [draws, 1]."""
    cause, effect = cause - cause.mean(0), effect - effect.mean(0)
    slope = (cause * effect).sum(0) / cause.square().sum(0).clamp_min(1e-9)
    return effect - cause * slope


def _known(choice: Tensor, num_keys: int) -> Tensor:
    return choice[choice < num_keys]


def _distinct(choice: Tensor, is_drawn: Tensor, num_keys: int) -> Tensor:
    """[Q] and [draws, Q] -> [draws]: number of keys chosen by a query that is drawn."""
    keys, index = torch.unique(choice, return_inverse=True)
    chosen = torch.zeros(len(keys), len(is_drawn)).index_add(0, index, is_drawn.T.contiguous()) > 0
    return chosen[keys < num_keys].sum(0)


def selectable(rows: Rows) -> int:
    """The maximum number of distinct first choices: the largest matching of queries and keys.

    Exact in small graphs; in large ones a greedy matching, rarest keys first, which may be slightly
    too small.
    """
    chooses = rows.degree >= 2
    kept = chooses[rows.query]
    query, key = rows.query[kept], rows.key[kept]
    if len(key) * int(chooses.sum()) <= EXACT:
        return _largest_matching(query.tolist(), key.tolist())
    return _greedy_matching(query, key, rows.num_queries, rows.num_keys)


def _greedy_matching(query: Tensor, key: Tensor, num_queries: int, num_keys: int) -> int:
    """In each round, every free query proposes to its rarest free key, and every key accepts the
    query with the fewest free keys."""
    count, none = 0, torch.iinfo(torch.long).max
    while len(key):
        width = torch.bincount(query, minlength=num_queries)
        key_degree = torch.bincount(key, minlength=num_keys)
        rarest = torch.full((num_queries,), none)
        rarest = rarest.scatter_reduce(0, query, key_degree[key] * num_keys + key, "amin")
        proposers = (width > 0).nonzero()[:, 0]
        accepted = torch.full((num_keys,), none).scatter_reduce(
            0, rarest[proposers] % num_keys, width[proposers] * num_queries + proposers, "amin"
        )
        is_taken = accepted < none
        count += int(is_taken.sum())
        is_free = torch.ones(num_queries, dtype=torch.bool)
        is_free[accepted[is_taken] % num_queries] = False
        left = is_free[query] & ~is_taken[key]
        query, key = query[left], key[left]
    return count


def _largest_matching(query: list[int], key: list[int]) -> int:
    """Size of the largest matching, by augmenting paths."""
    keys: dict[int, list[int]] = {}
    for one, other in zip(query, key, strict=True):
        keys.setdefault(one, []).append(other)
    owner: dict[int, int] = {}

    def augment(start: int) -> bool:
        """Give `start` a key, reassigning other queries if necessary."""
        previous: dict[int, tuple[int, int] | None] = {start: None}
        waiting = [start]
        visited: set[int] = set()
        while waiting:
            one = waiting.pop()
            for other in keys[one]:
                if other in visited:
                    continue
                visited.add(other)
                if other in owner:
                    previous[owner[other]] = (one, other)
                    waiting.append(owner[other])
                    continue
                step: tuple[int, int] | None = (one, other)
                while step is not None:
                    owner[step[1]], step = step[0], previous[step[0]]
                return True
        return False

    return sum([augment(each) for each in keys])
