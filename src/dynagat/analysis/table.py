"""Captured attention: LayerAttention, one call of a layer; Table, one row per edge and head."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Extent:
    """Of a whole call of a layer."""

    queries: int
    keys: int
    edges: int


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Weights and scores of one call of a layer, in the caller's edge order."""

    layer: str  # path inside the model
    kind: str  # class of the layer
    query: Tensor  # [E]
    key: Tensor  # [E]
    edge_id: Tensor  # [E]: index of the caller's edge, -1 for an added self-loop
    is_self_loop: Tensor  # [E]
    weight: Tensor  # [E, H], before dropout
    score: Tensor | None = None  # [E, H], if the layer has one
    call: int = 0  # index of the call; a key's representation may differ between calls
    query_codes: Tensor | None = None  # a code for each content of a query, if known
    key_codes: Tensor | None = None
    whole: Extent | None = None  # if only some queries were captured
    relation: Tensor | None = None  # [E], if the layer has several relations
    num_relations: int = 1

    @property
    def extent(self) -> Extent:
        if self.whole is not None:
            return self.whole
        return Extent(count_used(self.query), count_used(self.key), len(self.query))

    @property
    def num_heads(self) -> int:
        return self.weight.shape[1]

    @property
    def ranked(self) -> Tensor:
        """What orders the keys of a query, [E, H]: scores, or log weights without scores."""
        return self.weight.log() if self.score is None else self.score

    def take(self, edges: Tensor) -> LayerAttention:
        """The same call with some of its edges only."""
        names = ("query", "key", "edge_id", "is_self_loop", "weight", "score", "relation")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{
            name: column[edges.to(column.device)]
            for name, column in columns.items() if column is not None
        })  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, one row per call of a layer, edge and head."""

    layers: tuple[str, ...]
    layer: Tensor  # an index into `layers`
    call: Tensor
    head: Tensor
    query: Tensor
    key: Tensor
    edge_id: Tensor
    is_self_loop: Tensor
    weight: Tensor
    score: Tensor  # nan if the layer has none

    def __len__(self) -> int:
        return len(self.weight)

    def to_pandas(self) -> Any:
        """As a pandas DataFrame, with the names of the layers."""
        import pandas

        columns = {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        frame = pandas.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})
        frame["layer"] = pandas.Categorical.from_codes(frame["layer"], list(self.layers))
        return frame

    def to_parquet(self, path: Path | str) -> None:
        """Write a Parquet file, whole or not at all."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.to_pandas().to_parquet(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def count_used(ids: Tensor) -> int:
    """The number of distinct node ids."""
    is_used = torch.zeros(int(ids.max()) + 1 if len(ids) else 0, dtype=torch.bool)
    is_used[ids.cpu()] = True
    return int(is_used.sum())


def tabulate(seen: Sequence[LayerAttention]) -> Table:
    """All views in one table."""
    layers = tuple(dict.fromkeys(view.layer for view in seen))
    parts = [_rows(view, layers.index(view.layer)) for view in seen]
    names = [each.name for each in fields(Table)[1:]]
    return Table(layers, **{name: torch.cat([part[name] for part in parts]) for name in names})


def _rows(view: LayerAttention, layer: int) -> dict[str, Tensor]:
    num_edges, num_heads = view.weight.shape
    count, device = num_edges * num_heads, view.weight.device
    dtype = torch.promote_types(view.weight.dtype, torch.float32)  # numpy has no bfloat16
    weight = view.weight.flatten().to(dtype)
    score = torch.full_like(weight, torch.nan) if view.score is None else view.score.flatten()
    columns = {name: getattr(view, name) for name in ("query", "key", "edge_id", "is_self_loop")}
    return {
        "layer": torch.full((count,), layer, device=device),
        "call": torch.full((count,), view.call, device=device),
        "head": torch.arange(num_heads, device=device).repeat(num_edges),
        "weight": weight,
        "score": score.to(dtype),
    } | {name: column.repeat_interleave(num_heads) for name, column in columns.items()}
