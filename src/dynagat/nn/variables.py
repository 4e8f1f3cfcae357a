"""The variables of a network as the released code has them: one for each relation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dynagat.nn.core import GraphAttention
from dynagat.nn.linear import Linear
from dynagat.nn.relational import RGCNConv, RGINConv


def variables(network: nn.Module) -> Iterator[tuple[tuple[Tensor, ...], int]]:
    """Parameters that belong together, and into how many variables their first axis is cut.

    A matrix or an attention vector with relations is a variable for each; both halves of GAT's
    vector a = [a_dst ‖ a_src] belong to one.
    """
    seen: set[Tensor] = set()
    for module in network.modules():
        for group, count in _of_relations(module):
            if seen.isdisjoint(group):
                yield group, count
            seen.update(group)
    yield from (((each,), 1) for each in network.parameters() if each not in seen)


def _of_relations(module: nn.Module) -> Iterator[tuple[tuple[Tensor, ...], int]]:
    if isinstance(module, Linear) and module.blocks > 1:
        yield (module.weight,), module.blocks
    if isinstance(module, (RGCNConv, RGINConv)):
        yield from (((each,), len(each)) for each in module.parameters(recurse=False))
    if isinstance(module, GraphAttention) and module.num_relations is not None:
        vectors = module.attention_vectors()
        if vectors:
            yield vectors, module.num_relations


@torch.no_grad()
def clip_each(network: nn.Module, limit: float) -> None:
    """Scale the gradient of each variable down to the norm `limit` where it is larger."""
    for group, count in variables(network):
        grads = [each.grad.view(count, -1) for each in group if each.grad is not None]
        if not grads:
            continue
        squares = [grad.square().sum(1, keepdim=True) for grad in grads]
        norm = torch.stack(squares).sum(0).sqrt()  # [count, 1]
        scale = limit / norm.clamp_min(limit)
        for grad in grads:
            grad.mul_(scale)
