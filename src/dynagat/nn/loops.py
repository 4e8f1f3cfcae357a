"""Edge features of self-loops: given, or reduced from the edges that share the loop's node."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

# PyG's name of each reduction, and torch's.
REDUCTIONS = {
    "add": "sum",
    "sum": "sum",
    "mean": "mean",
    "min": "amin",
    "max": "amax",
    "mul": "prod",
}
FillValue = float | Tensor | str

_warned = False


def loop_features(
    edge: Tensor, ends: tuple[Tensor, Tensor], target: Tensor, num_loops: int, fill: FillValue
) -> Tensor:
    """[E, D] -> [num_loops, D]: `fill`, or the reduction it names, of each target's edges."""
    shape = (num_loops, edge.shape[1])
    if isinstance(fill, str):
        query, key = ends
        reduces = (query != key) & (target < num_loops)
        return _reduce(edge, torch.where(reduces, target, num_loops), num_loops, fill)
    if isinstance(fill, Tensor):
        return fill.to(edge.device, edge.dtype).expand(shape)
    return edge.new_full(shape, fill)


def keep_own(
    edge: Tensor, ends: tuple[Tensor, Tensor], loop: Tensor
) -> Tensor:  # edge [E, D], loop [num_loops, D]
    """`loop`, but a node with edges to itself keeps the features of the last of them."""
    query, key = ends
    num_edges, num_loops = edge.shape[0], loop.shape[0]
    own = (query == key) & (query < num_loops)
    at = torch.where(own, query, num_loops).long()
    number = torch.arange(num_edges, device=edge.device)
    filled = num_edges + torch.arange(num_loops + 1, device=edge.device)  # where `loop` comes from
    last = filled.scatter_reduce(0, at, number, "amax", include_self=False)
    return torch.cat([edge, loop])[last[:num_loops]]


def warn_of_pair_loops() -> None:
    """Once per process: loops on a pair of node sets are right only for sampled blocks."""
    global _warned
    if _warned or torch.compiler.is_compiling():
        return
    _warned = True
    warnings.warn(
        "add_self_loops=True on a pair (x_key, x_query) joins key i with query i for the first "
        "min(num_keys, num_queries) nodes; that is right if the queries are the first keys, as in "
        "sampled blocks; pass add_self_loops=False if they are other nodes",
        UserWarning,
        stacklevel=2,
    )


def _reduce(edge: Tensor, index: Tensor, num_loops: int, how: str) -> Tensor:
    # One row more, for the edges that belong to no loop: cheaper than picking the others out.
    shape = (num_loops + 1, edge.shape[1])
    start = edge.new_ones(shape) if how == "mul" else edge.new_zeros(shape)
    at = index.long()[:, None].expand_as(edge)
    return start.scatter_reduce(0, at, edge, REDUCTIONS[how], include_self=False)[:num_loops]
