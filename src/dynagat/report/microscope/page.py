"""write_microscope: how attentive a model is, as one HTML file that works offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynagat.analysis.attentive import Attentiveness, Head, Layer
from dynagat.analysis.focus import entropy
from dynagat.analysis.verdict import LEAST_MIXED, LEAST_STATIC, UNIFORM, UNKNOWN
from dynagat.data.molecules import Molecule
from dynagat.data.programs.snippets import Snippet
from dynagat.files import write_text
from dynagat.report.drawing import QUERY_COLOURS
from dynagat.report.microscope.advice import (
    FOCUSES,
    MEANINGS,
    RANKINGS,
    advise,
    agreement_text,
    answer,
    setting,
    why,
)
from dynagat.report.microscope.edge_sets import EdgeSet, edge_sets_of
from dynagat.report.microscope.molecules import pictures
from dynagat.report.microscope.numbers import every_number, numbers
from dynagat.report.microscope.programs import attention_in_text
from dynagat.report.microscope.relations import relation_tables
from dynagat.report.microscope.sample import embed
from dynagat.report.page import for_script as as_json
from dynagat.report.page import template
from dynagat.report.wording import NOTHING

MAX_NODES = 20_000
BINS = 20


def write_microscope(
    result: Attentiveness,
    path: Path | str,
    *,
    title: str = "How attentive is this model?",
    names: Sequence[str] | None = None,
    nodes: int = 2000,
    molecules: Mapping[int, Molecule] | None = None,
    programs: Mapping[int, Snippet] | None = None,
) -> Path:
    """Write the page and return its path.

    Args:
        result: the result of `how_attentive`.
        path: path of the file; missing folders are created.
        title: title of the page.
        names: name of each node, indexed by node id. Default: show the ids.
        nodes: maximum number of queries in the page.
        molecules: if the nodes are atoms, their molecules by the number of their first atom; some
            are drawn.
        programs: if the nodes are from programs, their text by the number of their first node.
    """
    path = Path(path)
    text = microscope(
        result, title=title, names=names, nodes=nodes, molecules=molecules, programs=programs
    )
    write_text(path, text)
    return path


def microscope(
    result: Attentiveness,
    *,
    title: str,
    names: Sequence[str] | None = None,
    nodes: int = 2000,
    molecules: Mapping[int, Molecule] | None = None,
    programs: Mapping[int, Snippet] | None = None,
) -> str:
    """The page as HTML."""
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1, but is {nodes}")
    if nodes > MAX_NODES:
        raise ValueError(
            f"nodes must be at most {MAX_NODES}, because browsers can't open larger pages,"
            f" but is {nodes}"
        )
    codes, edge_sets = edge_sets_of(result)
    data = embed(codes, edge_sets, result.layers, names, nodes)
    data["layers"] = [_names(layer) for layer in result.layers]
    data["colours"] = QUERY_COLOURS
    lowest = _lowest(result.heads)
    return template(Path(__file__).with_suffix(".html")).render(
        title=title,
        answer=answer(result.heads),
        setting=setting(result),
        layers=[_layer(layer, sharpness, lowest) for layer, sharpness in
                zip(result.layers, _sharpness(edge_sets, len(result.layers)), strict=True)],
        ticks=_ticks(lowest),
        limits=[(each, _at(each, lowest)) for each in (LEAST_STATIC, LEAST_MIXED)],
        rankings=[(_css(each), each, MEANINGS[each]) for each in RANKINGS],
        focuses=[(each, MEANINGS[each]) for each in FOCUSES[:2]],
        explained=[(number.name, number.meaning) for number in every_number(result.heads)],
        advice=[(_css(each.word), each) for each in advise(result.heads)],
        included=_included(data, result.layers),
        relations=relation_tables(result.layers),
        molecules=pictures(molecules or {}, result.layers),
        programs=programs and as_json(attention_in_text(programs, result.layers, names)),
        data=as_json(data),
    )  # fmt: skip


def _included(data: dict[str, Any], layers: Sequence[Layer]) -> str:
    """ "2,000 of 19,717 nodes are included in this page, ..." """
    noun = "nodes" if data["calls"] == 1 and data["sets"] == ("node",) else "queries"
    if any(layer.analysed_queries < layer.num_queries for layer in layers):
        noun = f"analysed {noun}"
    count, total = data["queries"], data["allQueries"]
    which = f"All {total:,} {noun}" if count == total else f"{count:,} of {total:,} {noun}"
    keys = f"at most its {data['maxKeys']} strongest keys"
    return f"{which} are included in this page, each with {keys}."


def _names(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name or layer.kind,
        "kind": layer.kind,
        "verdicts": [{"words": _words(head), "css": _classes(head)} for head in layer.heads],
    }


# The gauge


def _lowest(heads: Sequence[Head]) -> float:
    """The lower end of the axis: 0, or the next lower quarter below all intervals."""
    lows = [
        head.weighted_agreement.low for head in heads if not math.isnan(head.weighted_agreement.low)
    ]
    return max(-1.0, math.floor(4 * min([0.0, *lows])) / 4)


def _at(value: float, lowest: float) -> float:
    """Position on the axis in per cent, from 1 on the left to `lowest` on the right."""
    return round(100 * (1 - max(value, lowest)) / (1 - lowest), 2)


def _ticks(lowest: float) -> list[tuple[str, float]]:
    values = [1.0, 0.5, 0.0] + [each for each in (-0.5, -1.0) if each >= lowest]
    return [(f"{value:g}".replace("-", "−"), _at(value, lowest)) for value in values]


def _layer(layer: Layer, sharpness: list[Sharpness], lowest: float) -> dict[str, Any]:
    return {
        "name": layer.name or layer.kind,
        "kind": layer.kind,
        "heads": [
            _head(head, each, lowest) for head, each in zip(layer.heads, sharpness, strict=True)
        ],
    }


def _head(head: Head, sharpness: Sharpness, lowest: float) -> dict[str, Any]:
    agreement = head.weighted_agreement
    return {
        "head": head.head,
        "ranking": head.ranking,
        "attends": head.attends,
        "uniformity": head.uniformity.value,
        "words": _words(head),
        "css": _classes(head),
        "why": why(head),
        "agreement": NOTHING if math.isnan(agreement.value) else agreement_text(agreement.value),
        "at": None if math.isnan(agreement.value) else _at(agreement.value, lowest),
        "from": _at(agreement.high, lowest) if not math.isnan(agreement.high) else 0,
        "to": _at(agreement.low, lowest) if not math.isnan(agreement.low) else 0,
        "numbers": list(numbers(head)),
        "by_name": {number.name: number for number in numbers(head)},
        "sharpness": sharpness,
    }


def _words(head: Head) -> str:
    """ "static, attends" """
    return f"{head.ranking.word}, {head.attends.word}"


def _classes(head: Head) -> str:
    """The ranking gives a mark its shape and colour; the mark of a uniform head is hollow."""
    return _css(head.ranking.word) + (" uniform" if head.attends.word == UNIFORM else "")


def _css(word: str) -> str:
    return "unknown" if word == UNKNOWN else word


# Sharpness


@dataclass(frozen=True)
class Sharpness:
    """Histogram of the queries' effective neighbours / degree, in BINS bins from 0 to 1."""

    shares: list[float]  # relative to the fullest bin
    median: float | None  # None if no query has two keys
    queries: int


def _sharpness(edge_sets: list[EdgeSet], num_layers: int) -> list[list[Sharpness]]:
    """Per layer and head, over all queries with at least two keys."""
    result: list[list[Sharpness]] = [[] for _ in range(num_layers)]
    for edge_set in edge_sets:
        degree = edge_set.rows.degree
        for layer, weight in zip(edge_set.layers, edge_set.weights, strict=True):
            effective = entropy(replace(edge_set.rows, weight=weight)).exp()
            share = (effective / degree[:, None])[degree >= 2]  # [queries, H]
            result[layer] = [_histogram(column) for column in share.T]
    return result


def _histogram(share: Tensor) -> Sharpness:
    counts = torch.bincount((share * BINS).long().clamp(0, BINS - 1), minlength=BINS).float()
    shares = (counts / counts.max().clamp_min(1)).tolist()
    return Sharpness(shares, float(share.median()) if len(share) else None, len(share))
