"""cut_record: the record of a slot, from the graph of the whole program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagat.data.programs.context import NONE, GraphArrays
from dynagat.data.programs.layout import EDGE_TYPES, SLOT

DISTANCE = 8  # from the slot to the nodes that a record keeps


@dataclass(frozen=True, eq=False)
class Wiring:
    """A slot and its candidates, and how they change the graph of N nodes.

    Candidate c is node N + c in `added`, which holds type, source and target of edges.
    """

    slot: int  # node
    names: Sequence[str]  # of the candidates
    types: Sequence[str | None]
    correct: int  # candidate
    added: Sequence[tuple[str, int, int]]
    removed: np.ndarray = field(default_factory=lambda: NONE)  # numbers of edges


def cut_record(
    arrays: GraphArrays,
    labels: Sequence[str],
    types: Mapping[int, str],
    wiring: Wiring,
    distance: int = DISTANCE,
) -> dict[str, Any]:
    """ContextGraph, SlotDummyNode and SymbolCandidates of a record.

    The slot is node 0, then come the candidates, then the nodes within the distance of one of them.
    """
    slot, first = wiring.slot, arrays.num_nodes
    near = [end for _, *ends in wiring.added for end in ends if end < first and end != slot]
    inside = arrays.within(slot, near, distance, wiring.removed)
    others = np.flatnonzero(inside).tolist()
    others.remove(slot)
    order = [slot, *range(first, first + len(wiring.names)), *others]
    texts = [SLOT, *wiring.names, *map(labels.__getitem__, others)]
    kinds = [None, *wiring.types, *map(types.get, others)]
    return {
        "ContextGraph": {
            "Edges": _numbered(arrays, order, inside, wiring),
            "NodeLabels": dict(zip(map(str, range(len(texts))), texts, strict=True)),
            "NodeTypes": {str(number): kind for number, kind in enumerate(kinds) if kind},
        },
        "SlotDummyNode": 0,
        "SymbolCandidates": [
            {"SymbolDummyNode": 1 + n, "SymbolName": name, "IsCorrect": n == wiring.correct}
            for n, name in enumerate(wiring.names)
        ],
    }


def _numbered(
    arrays: GraphArrays, order: Sequence[int], inside: np.ndarray, wiring: Wiring
) -> dict[str, list[list[int]]]:
    """The edges inside by type; nodes are numbered by their places in `order`."""
    number = np.zeros(arrays.num_nodes + len(wiring.names), np.int64)
    number[order] = np.arange(len(order))
    edges = arrays.edges_inside(inside, wiring.removed)
    pairs = np.stack([number[arrays.source[edges]], number[arrays.target[edges]]], 1)
    cuts = np.searchsorted(arrays.kind[edges], np.arange(len(EDGE_TYPES) + 1))
    by_type = {kind: pairs[cuts[n] : cuts[n + 1]].tolist() for n, kind in enumerate(EDGE_TYPES)}
    for kind, source, target in wiring.added:
        by_type[kind].append([int(number[source]), int(number[target])])
    return {kind: each for kind, each in by_type.items() if each}
