"""Match the edges that a layer computed on with the caller's edges."""

from __future__ import annotations

import torch
from torch import Tensor

Ends = tuple[Tensor, Tensor]  # query and key of each edge


def edge_ids(seen: Ends, given: Ends) -> Tensor:
    """The index of each seen edge among the given edges, [E]; -1 for an added self-loop.

    A self-loop that replaced one of the caller's has the index of that one (of the first, if there
    are several).
    """
    if len(seen[0]) == len(given[0]) and all(map(torch.equal, seen, given)):
        return torch.arange(len(seen[0]), device=seen[0].device)
    kept = (given[0] != given[1]).nonzero()[:, 0]
    count = len(kept)
    rest = [end[count:] for end in seen]
    is_last = torch.equal(*rest) and bool((rest[0].diff() > 0).all())  # one self-loop per node
    if is_last and all(torch.equal(s[:count], g[kept]) for s, g in zip(seen, given, strict=True)):
        return torch.cat([kept, _own_loops(rest[0], given)])
    return _matched(seen, given)


def _own_loops(nodes: Tensor, given: Ends) -> Tensor:
    """The first given self-loop of each node, -1 if there is none. `nodes` is ascending."""
    result = torch.full_like(nodes, -1)
    looped, loops = first_loops(given)
    index = torch.searchsorted(nodes, looped).clamp_max(max(0, len(nodes) - 1))
    is_match = nodes[index] == looped if len(nodes) else torch.zeros_like(looped, dtype=torch.bool)
    result[index[is_match]] = loops[is_match]
    return result


def first_loops(given: Ends) -> Ends:
    """The nodes with a self-loop, ascending, and the index of the first self-loop of each."""
    loops = (given[0] == given[1]).nonzero()[:, 0]
    nodes, order = torch.sort(given[0][loops].long(), stable=True)
    is_first = torch.ones_like(nodes, dtype=torch.bool)
    is_first[1:] = nodes[1:] != nodes[:-1]
    return nodes[is_first], loops[order][is_first]


def _matched(seen: Ends, given: Ends) -> Tensor:
    """For any order of edges: the r-th of equal seen edges is the r-th of equal given ones."""
    if not len(seen[0]) or not len(given[0]):
        return torch.full_like(seen[0], -1)
    width = 1 + int(max(seen[1].max(), given[1].max()))
    codes = [query * width + key for query, key in (seen, given)]
    seen_code, seen_order = torch.sort(codes[0], stable=True)
    given_code, given_order = torch.sort(codes[1], stable=True)
    count = torch.arange(len(seen_code), device=seen_code.device)
    repeat = count - torch.searchsorted(seen_code, seen_code)  # r
    index = torch.searchsorted(given_code, seen_code) + repeat
    inside = index.clamp_max(len(given_code) - 1)
    is_match = (index < len(given_code)) & (given_code[inside] == seen_code)
    ids = torch.where(is_match, given_order[inside], -1)
    return torch.empty_like(ids).scatter(0, seen_order, ids)
