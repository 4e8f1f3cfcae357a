"""In a large graph, a random sample of queries is analysed, each with all of its keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dynagat.analysis.rows import renumber
from dynagat.analysis.table import LayerAttention

MAX_EDGES = 500_000  # of a layer; with more, queries are drawn until they have this many edges


def subset(views: Sequence[LayerAttention], seed: int) -> Sequence[LayerAttention]:
    """The views of a layer; of a large one, the edges of some queries, chosen by the seed."""
    if sum(len(view.query) for view in views) <= MAX_EDGES:
        return views
    query, ids = renumber([view.query.cpu() for view in views])
    degree = torch.bincount(query, minlength=len(ids))
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))
    before = degree[order].cumsum(0) - degree[order]  # edges of the queries drawn so far
    is_kept = torch.zeros(len(ids), dtype=torch.bool)
    is_kept[order[before < MAX_EDGES]] = True
    parts = is_kept[query].split([len(view.query) for view in views])
    chosen = (part.nonzero()[:, 0] for part in parts)
    return [view.take(edge) for view, edge in zip(views, chosen, strict=True)]
