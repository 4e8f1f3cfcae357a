"""The attention of a slot and of its candidates, for the text of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dynagat.analysis.attentive import Layer
from dynagat.data.programs.snippets import Snippet
from dynagat.report.microscope.shades import shade_of

DIGITS = 4  # of weights


def attention_in_text(
    programs: Mapping[int, Snippet], layers: Sequence[Layer], names: Sequence[str] | None
) -> dict[str, Any]:
    """What the script of the page draws: programs, and for each layer what queries attend to."""
    return {
        "layers": [
            {"name": layer.name or layer.kind, "heads": len(layer.heads), "edges": layer.relations}
            for layer in layers
        ],
        "programs": [
            {
                "name": snippet.name,
                "words": [list(word) for word in snippet.words],
                "slot": snippet.slot,
                "queries": _queries(snippet),
                "attention": [_attention(layer, first, snippet) for layer in layers],
                "labels": _labels(snippet, first, layers, names),
            }
            for first, snippet in programs.items()
        ],
    }


def _queries(snippet: Snippet) -> list[dict[str, Any]]:
    """The nodes whose attention can be shown, and what to call them."""
    (right, node), *others = snippet.candidates
    queries = [("the slot", snippet.slot), (f"candidate {right} (right)", node)]
    queries += [(f"candidate {name}", each) for name, each in others]
    return [{"title": title, "node": each} for title, each in queries]


def _attention(layer: Layer, first: int, snippet: Snippet) -> list[list[dict[str, Any]]]:
    """For each query its keys, in the first call of a layer."""
    view = layer.views[0]
    nodes = [query["node"] for query in _queries(snippet)]
    mine = torch.isin(view.query.cpu(), torch.tensor(nodes) + first).nonzero()[:, 0]
    ends = zip((view.query.cpu()[mine] - first).tolist(), (view.key.cpu()[mine] - first).tolist(),
               strict=True)  # fmt: skip
    kinds = [0] * len(mine) if view.relation is None else view.relation.cpu()[mine].tolist()
    weights = view.weight.cpu()[mine].double().tolist()
    by_query: dict[int, dict[int, list[tuple[int, list[float]]]]] = {node: {} for node in nodes}
    for (query, key), kind, weight in zip(ends, kinds, weights, strict=True):
        by_query[query].setdefault(key, []).append((kind, weight))
    return [_keys(by_query[node]) for node in nodes]


def _keys(edges: Mapping[int, list[tuple[int, list[float]]]]) -> list[dict[str, Any]]:
    """The keys of a query, each with its edges, and the sum of their weights for each head."""
    degree = sum(map(len, edges.values()))
    keys = []
    for key, mine in edges.items():
        uniform = len(mine) / degree
        sums = [sum(each) for each in zip(*(weight for _, weight in mine), strict=True)]
        keys.append(
            {
                "node": key,
                "uniform": round(uniform, DIGITS),
                "weights": [round(each, DIGITS) for each in sums],
                "shades": [shade_of(each, uniform) for each in sums],
                "edges": [
                    [kind, [round(each, DIGITS) for each in weight]] for kind, weight in mine
                ],
            }
        )
    return keys


def _labels(
    snippet: Snippet, first: int, layers: Sequence[Layer], names: Sequence[str] | None
) -> dict[int, str]:
    """What to call the nodes that the text lacks."""
    words = {word.node for word in snippet.words}
    known = {node: f"candidate {name}" for name, node in snippet.candidates}
    labels = {}
    for layer in layers:
        for keys in _attention(layer, first, snippet):
            for key in keys:
                node = key["node"]
                if node in words or node in labels:
                    continue
                if node < len(snippet.labels):
                    labels[node] = known.get(node, f"{snippet.labels[node]} (syntax)")
                else:
                    name = f"node {node}" if names is None else names[first + node]
                    labels[node] = f"{name} (part of names)"
    return labels
