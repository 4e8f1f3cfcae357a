"""glance: a fast `how_attentive` without rankings, for sweeps of many runs.

It measures where attention is and how scores interact, in about a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from dynagat.analysis.attentive import masses, relation_names
from dynagat.analysis.calling import evaluating, run
from dynagat.analysis.capture import capture
from dynagat.analysis.focus import Mass, mass_by_relation, sharpness
from dynagat.analysis.interaction import interaction
from dynagat.analysis.resample import Resampling
from dynagat.analysis.rows import rows_of
from dynagat.analysis.table import LayerAttention

DIGITS = 5


def glance(
    model: nn.Module,
    data: Any,
    *,
    labels: Tensor | None = None,
    noise: Tensor | None = None,
    relations: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Plain numbers for a record, in the form of `Attentiveness.to_dict`; or an error message."""
    try:
        with capture(model) as attention, evaluating(model), torch.no_grad():
            run(model, data)
        attention.check()
    except ValueError as error:
        return {"refused": str(error)}
    resamplings: dict[int, Resampling] = {}
    marks = (labels, noise, relations)
    return {"layers": [_layer(view, *marks, resamplings) for view in attention.seen]}


def _layer(
    view: LayerAttention,
    labels: Tensor | None,
    noise: Tensor | None,
    relations: Sequence[str] | None,
    resamplings: dict[int, Resampling],
) -> dict[str, Any]:
    rows = rows_of([view])
    resampling = resamplings.setdefault(rows.num_queries, Resampling(rows.num_queries))
    inner, _ = interaction(rows, resampling)
    sharp = sharpness(rows, resampling)
    loops, same, marked = masses([view], labels, noise, resampling)
    by_relation = mass_by_relation([view], resampling)
    heads = [
        {
            "head": h,
            "interaction": asdict(inner[h]),
            "effective": asdict(sharp.effective[h]),
            "degree": sharp.degree,
            "self_loops": _as_dict(loops[h]),
            "same_label": _as_dict(same[h]),
            "noise": _as_dict(marked[h]),
            "by_relation": [asdict(mass) for mass in by_relation[h]],
        }
        for h in range(rows.num_heads)
    ]
    return {
        "name": view.layer,
        "kind": view.kind,
        "queries": rows.num_queries,
        "edges": len(view.query),
        "relations": list(relation_names(view, relations)),
        "heads": _rounded(heads),
    }


def _as_dict(mass: Mass | None) -> dict[str, Any] | None:
    return None if mass is None else asdict(mass)


def _rounded(value: Any) -> Any:
    """Floats rounded to DIGITS digits; None for nan."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return None if value != value else round(value, DIGITS)
    return value
