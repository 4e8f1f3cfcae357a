"""Attention by relation, relative to uniform weights, as the cells of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagat.analysis.attentive import Layer
from dynagat.analysis.focus import Mass
from dynagat.report.microscope.numbers import interval_text, two_decimals
from dynagat.report.microscope.shades import shade_of
from dynagat.report.wording import NOTHING

MAX_COLUMNS = 8


def relation_tables(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    """A table for each layer with relations: rows are heads, columns are relations.

    With many relations, rows and columns change places.
    """
    return [
        {
            "name": layer.name or layer.kind,
            "kind": layer.kind,
            "names": layer.relations,
            "is_tall": len(layer.relations) > MAX_COLUMNS,
            "uniform": [
                two_decimals(mass.uniform) if mass.uniform else NOTHING
                for mass in layer.heads[0].by_relation
            ],
            "rows": [[_cell(mass) for mass in head.by_relation] for head in layer.heads],
        }
        for layer in layers
        if layer.relations
    ]


def _cell(mass: Mass) -> dict[str, Any]:
    """The text of a cell; a dash for a relation without edges."""
    if not mass.uniform:
        return {"text": NOTHING, "times": "", "shade": None}
    share = mass.attention.value
    return {
        "text": two_decimals(share),
        "times": f"{share / mass.uniform:.1f}",
        "shade": shade_of(share, mass.uniform),
        "interval": interval_text(mass.attention),
    }
