"""Attention as values: LayerAttention, one call of a layer; Table, one row per edge and head."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """What the queries of one call of a layer gave to their keys, in the caller's edge order."""

    layer: str  # its path inside the model
    kind: str  # its class
    query: Tensor  # [E]
    key: Tensor  # [E]
    edge_id: Tensor  # [E]: the caller's number of each edge, -1 for a loop that the layer added
    is_self_loop: Tensor  # [E]
    weight: Tensor  # [E, H], before dropout
    score: Tensor | None = None  # [E, H], where the layer has one
    call: int = 0  # the how-manieth of the layer's calls; a key is the same in one call only

    @property
    def num_heads(self) -> int:
        return self.weight.shape[1]

    @property
    def ranked(self) -> Tensor:
        """What orders the keys of a query, [E, H]: scores, or else the logarithms of weights."""
        return self.weight.log() if self.score is None else self.score


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
    score: Tensor  # nan where the layer has none

    def __len__(self) -> int:
        return len(self.weight)

    def to_pandas(self) -> Any:
        """The same as a pandas frame, with the layers' names."""
        import pandas

        columns = {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        frame = pandas.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})
        frame["layer"] = pandas.Categorical.from_codes(frame["layer"], list(self.layers))
        return frame

    def to_parquet(self, path: Path | str) -> None:
        """Written whole or not at all."""
        path = Path(path)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.to_pandas().to_parquet(unfinished)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def tabulate(seen: Sequence[LayerAttention]) -> Table:
    """The long form of what was seen."""
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
