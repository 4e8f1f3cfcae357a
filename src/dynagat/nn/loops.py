"""Edge features of added self-loops: a fixed value, or a reduction over the node's edges."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from dynagat.nn.segments import EMPTY, reduce_sorted

# PyG's name of each reduction -> torch's name.
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
    """[E, D] -> [num_loops, D]: the value `fill`, or the reduction it names over a node's edges."""
    shape = (num_loops, edge.shape[1])
    if isinstance(fill, str):
        query, key = ends
        reduces = (query != key) & (target < num_loops)
        return _reduce(edge, torch.where(reduces, target, num_loops), num_loops, fill)
    if isinstance(fill, Tensor):
        return fill.to(edge.device, edge.dtype).expand(shape)
    return edge.new_full(shape, fill)


def keep_real_loops(
    edge: Tensor, ends: tuple[Tensor, Tensor], loop: Tensor
) -> Tensor:  # edge [E, D], loop [num_loops, D]
    """`loop`, except that a node with real self-loops keeps the features of the last one."""
    query, key = ends
    num_edges, num_loops = edge.shape[0], loop.shape[0]
    is_real = (query == key) & (query < num_loops)
    node = torch.where(is_real, query, num_loops).long()
    edge_index = torch.arange(num_edges, device=edge.device)
    filled = num_edges + torch.arange(num_loops + 1, device=edge.device)  # rows of `loop`
    last = filled.scatter_reduce(0, node, edge_index, "amax", include_self=False)
    return torch.cat([edge, loop])[last[:num_loops]]


def warn_about_pair_loops() -> None:
    """Warn once per process: self-loops on two node sets only make sense for sampled blocks."""
    global _warned
    if _warned or torch.compiler.is_compiling():
        return
    _warned = True
    warnings.warn(
        "add_self_loops=True on a pair (x_key, x_query) connects key i with query i for the first "
        "min(num_keys, num_queries) nodes. This is correct if the queries are the first keys, as "
        "in sampled blocks; pass add_self_loops=False if they are different nodes",
        UserWarning,
        stacklevel=2,
    )


def _reduce(edge: Tensor, index: Tensor, num_loops: int, how: str) -> Tensor:
    # Edges that belong to no self-loop go to an extra row: cheaper than selecting the others.
    kind, shape = REDUCTIONS[how], (num_loops + 1, edge.shape[1])
    if edge.is_cuda and kind in EMPTY:  # the order of the edges matters
        return reduce_sorted(edge, index.long(), num_loops + 1, kind)[:num_loops]
    start = edge.new_ones(shape) if how == "mul" else edge.new_zeros(shape)
    row = index.long()[:, None].expand_as(edge)
    return start.scatter_reduce(0, row, edge, kind, include_self=False)[:num_loops]
