"""Turn score matrices into captured attention, as a layer with these scores would produce."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dynagat.analysis.attentive import Head, measure
from dynagat.analysis.capture import Attention
from dynagat.analysis.rows import Rows, rows_of
from dynagat.analysis.table import LayerAttention

NAN = torch.nan  # no edge


def view_of(scores: Sequence | Tensor, weights: Sequence | Tensor | None = None, **more):
    """[queries, keys] or [queries, keys, H], nan for no edge -> one call of a layer.

    Weights default to the softmax of the scores.
    """
    scores = torch.as_tensor(scores)
    scores = scores if scores.is_floating_point() else scores.double()
    scores = scores[..., None] if scores.dim() == 2 else scores
    query, key = (~scores[..., 0].isnan()).nonzero().T
    if weights is None:
        weights = scores.where(~scores.isnan(), -torch.inf).softmax(1)
    weights = torch.as_tensor(weights).to(scores).view(scores.shape)
    edge_id, no_loops = torch.arange(len(query)), torch.zeros(len(query), dtype=torch.bool)
    return LayerAttention(
        "layer", "Simulated", query, key, edge_id, more.pop("is_self_loop", no_loops),
        weights[query, key], scores[query, key], **more,
    )  # fmt: skip


def attention_of(*views: LayerAttention) -> Attention:
    attention = Attention()
    attention._add(lambda: views)
    return attention


def rows_from(scores: Sequence | Tensor) -> Rows:
    return rows_of([view_of(scores)])


def heads_of(scores: Sequence | Tensor, **options) -> tuple[Head, ...]:
    return measure(attention_of(view_of(scores)), **options).heads


def head_of(scores: Sequence | Tensor, **options) -> Head:
    return heads_of(scores, **options)[0]


def random_scores(seed: int, queries: int, keys: int, heads: int = 1, missing: float = 0.3):
    """[queries, keys, heads] with nan at random; the first query has every key."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(queries, keys, heads, generator=generator, dtype=torch.double)
    is_missing = torch.rand(queries, keys, generator=generator) < missing
    is_missing[0] = False
    return scores.masked_fill(is_missing[..., None], NAN)
