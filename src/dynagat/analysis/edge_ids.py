"""Which of the caller's edges is each edge that a layer computed on?"""

from __future__ import annotations

import torch
from torch import Tensor

Ends = tuple[Tensor, Tensor]  # query and key of each edge


def edge_ids(seen: Ends, given: Ends) -> Tensor:
    """The place of each edge that was seen among those given, [E]; -1 for an added self-loop.

    A loop that replaced the caller's own has the place of that one, the first if there are more.
    """
    if len(seen[0]) == len(given[0]) and all(map(torch.equal, seen, given)):
        return torch.arange(len(seen[0]), device=seen[0].device)
    kept = (given[0] != given[1]).nonzero()[:, 0]
    count = len(kept)
    rest = [end[count:] for end in seen]
    is_last = torch.equal(*rest) and bool((rest[0].diff() > 0).all())  # each node's loop, once
    if is_last and all(torch.equal(s[:count], g[kept]) for s, g in zip(seen, given, strict=True)):
        return torch.cat([kept, _own_loops(rest[0], given)])
    return _matched(seen, given)


def _own_loops(nodes: Tensor, given: Ends) -> Tensor:
    """The first of the given loops at each node, -1 where there is none."""
    found = torch.full_like(nodes, -1)
    at, loops = first_loops(given)
    place = torch.searchsorted(nodes, at)  # the nodes ascend
    place = place.clamp_max(max(0, len(nodes) - 1))
    is_there = nodes[place] == at if len(nodes) else torch.zeros_like(at, dtype=torch.bool)
    found[place[is_there]] = loops[is_there]
    return found


def first_loops(given: Ends) -> Ends:
    """The nodes that have a loop, ascending, and the number of each one's first."""
    loops = (given[0] == given[1]).nonzero()[:, 0]
    nodes, order = torch.sort(given[0][loops].long(), stable=True)
    is_first = torch.ones_like(nodes, dtype=torch.bool)
    is_first[1:] = nodes[1:] != nodes[:-1]
    return nodes[is_first], loops[order][is_first]


def _matched(seen: Ends, given: Ends) -> Tensor:
    """Any order: the r-th of equal edges seen is the r-th of those given."""
    if not len(seen[0]) or not len(given[0]):
        return torch.full_like(seen[0], -1)
    width = 1 + int(max(seen[1].max(), given[1].max()))
    codes = [query * width + key for query, key in (seen, given)]
    ordered, place = torch.sort(codes[1], stable=True)
    mine, order = torch.sort(codes[0], stable=True)
    turn = torch.arange(len(mine), device=mine.device) - torch.searchsorted(mine, mine)
    at = torch.searchsorted(ordered, mine) + turn
    inside = at.clamp_max(len(ordered) - 1)
    found = torch.where((at < len(ordered)) & (ordered[inside] == mine), place[inside], -1)
    return torch.empty_like(found).scatter(0, order, found)
