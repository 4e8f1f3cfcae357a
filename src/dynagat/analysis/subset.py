"""In a large graph, a random sample of queries is analysed, each with all of its keys.

Where our own layers are captured for analysis, the sample is taken as soon as a layer has run, so
that the weights of the other edges need not be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dynagat.analysis.rows import renumber
from dynagat.analysis.table import LayerAttention

MAX_EDGES = 500_000  # of a layer; with more, queries are drawn until they have this many edges


def subset(views: Sequence[LayerAttention], seed: int) -> Sequence[LayerAttention]:
    """The views of a layer; of a large one, the edges of some queries, chosen by the seed."""
    if sum(len(view.query) for view in views) <= MAX_EDGES:
        return views
    query, ids = renumber([view.query.cpu() for view in views])
    is_kept = drawn_queries(torch.bincount(query, minlength=len(ids)), seed)
    parts = is_kept[query].split([len(view.query) for view in views])
    chosen = (part.nonzero()[:, 0] for part in parts)
    return [view.take(edge) for view, edge in zip(views, chosen, strict=True)]


def drawn_queries(degree: Tensor, seed: int) -> Tensor:  # [Q] -> [Q] bool
    """Queries in a random order until they have MAX_EDGES edges."""
    order = torch.randperm(len(degree), generator=torch.Generator().manual_seed(seed))
    before = degree[order].cumsum(0) - degree[order]  # edges of the queries drawn so far
    is_kept = torch.zeros(len(degree), dtype=torch.bool)
    is_kept[order[before < MAX_EDGES]] = True
    return is_kept
