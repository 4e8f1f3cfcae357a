"""A record of VarMisuse: a program graph with a slot, and the variables that could stand there.

filename, slotTokenIdx   where the slot is
SlotDummyNode            node of the slot
SymbolCandidates         list of {SymbolDummyNode, SymbolName, IsCorrect}
ContextGraph             {NodeLabels: {id: label}, NodeTypes, Edges: {type: [[from, to], …]}}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from dynagat.data.programs.labels import KEYWORDS, encode_all, split_label
from dynagat.data.programs.layout import EDGE_TYPES as FILE_TYPES
from dynagat.data.programs.layout import MAX_CANDIDATES

SUBTOKEN = "UsesSubtoken"  # from a node to each part of its label
EDGE_TYPES = (*FILE_TYPES, SUBTOKEN)
RELATIONS = ("self-loop", *EDGE_TYPES, *(f"{name}, reversed" for name in EDGE_TYPES))
NOWHERE = -1  # distance of a name that the tokens around the slot lack


class ProgramError(ValueError):
    """A record, or a file of records, can't be used."""


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """A program around a slot: n nodes with L distinct labels, E edges, K candidates.

    The last nodes are the parts of identifiers. Edges are in the direction of the file only; an
    edge's second end is the query, which attends to the first.
    """

    codes: np.ndarray  # [L, 19] uint8: the characters of each distinct label
    label: np.ndarray  # [n]: the label of each node
    key: np.ndarray  # [E]
    query: np.ndarray  # [E]
    kind: np.ndarray  # [E]: position of the type in EDGE_TYPES
    slot: np.ndarray  # [1]: a node
    candidates: np.ndarray  # [K]: nodes, the right one first
    uses: np.ndarray  # [K]: tokens that are the candidate's name
    distance: np.ndarray  # [K]: tokens from the slot to the nearest of them, or NOWHERE

    @property
    def num_nodes(self) -> int:
        return len(self.label)


def read_record(record: Any, language: str) -> ProgramGraph:
    """Check a record and make its graph; a ProgramError says what is wrong with it."""
    context = _take(record, "ContextGraph", dict, "a record")
    labels = _labels(_take(context, "NodeLabels", dict, "ContextGraph"))
    count = len(labels)
    edges = dict(_edges(_take(context, "Edges", dict, "ContextGraph"), count))
    slot = _node(_take(record, "SlotDummyNode", int, "a record"), count, "SlotDummyNode")
    names, candidates = _candidates(_take(record, "SymbolCandidates", list, "a record"), count)
    tokens = edges.get("NextToken", np.zeros((0, 2), np.int64))
    uses, distance = _evidence(names, labels, tokens, slot)
    labels, edges[SUBTOKEN] = _with_parts(labels, KEYWORDS[language])
    codes, label = encode_all(labels)
    key, query = np.concatenate(list(edges.values())).T.astype(np.int32)
    kind = np.repeat([EDGE_TYPES.index(name) for name in edges], [len(e) for e in edges.values()])
    return ProgramGraph(
        codes=codes,
        label=label,
        key=key,
        query=query,
        kind=kind.astype(np.uint8),
        slot=np.array([slot], np.int32),
        candidates=np.array(candidates, np.int32),
        uses=np.array(uses, np.int32),
        distance=np.array(distance, np.int32),
    )


def _take(inside: Any, name: str, kind: type, owner: str) -> Any:
    if not isinstance(inside, Mapping):
        raise ProgramError(f"{owner} must be a JSON object, but is a {type(inside).__name__}")
    if name not in inside:
        raise ProgramError(f"{owner} must have {name}, but has {', '.join(inside) or 'nothing'}")
    value = inside[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        given = type(value).__name__
        raise ProgramError(f"{name} must be of type {kind.__name__}, but is of type {given}")
    return value


def _labels(by_id: Mapping[str, Any]) -> list[str]:
    """In the order of the nodes, whose ids must be 0 .. n-1."""
    try:
        labels = [by_id[str(node)] for node in range(len(by_id))]
    except KeyError as error:
        raise ProgramError(
            f"NodeLabels must have the ids 0 to {len(by_id) - 1}, but lacks {error.args[0]}"
        ) from None
    for node, label in enumerate(labels):
        if not isinstance(label, str):
            raise ProgramError(f"the label of node {node} must be a text, but is {label!r}")
    return labels


def _node(node: int, count: int, name: str) -> int:
    if not 0 <= node < count:
        raise ProgramError(f"{name} must be a node below {count}, but is {node}")
    return node


def _edges(by_type: Mapping[str, Any], count: int) -> Iterator[tuple[str, np.ndarray]]:
    """[E, 2] of each type that has edges."""
    for name, pairs in by_type.items():
        if name not in FILE_TYPES:
            known = ", ".join(FILE_TYPES)
            raise ProgramError(f"edges must be of the types {known}, but some are of type {name!r}")
        if pairs == []:
            continue
        try:
            array: np.ndarray = np.array(pairs)
        except ValueError:
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype != np.int64:
            raise ProgramError(f"the edges {name} must be pairs of node ids")
        outside = (array < 0) | (array >= count)
        if outside.any():
            edge, end = np.argwhere(outside)[0]
            node = int(array[edge, end])
            raise ProgramError(f"edge {edge} of {name} must join nodes below {count}, not {node}")
        yield name, array


def _candidates(given: Sequence[Any], count: int) -> tuple[list[str], list[int]]:
    """Names and nodes: the right candidate, then the first others."""
    right, others = [], []
    for each in given:
        node = _take(each, "SymbolDummyNode", int, "a candidate")
        pair = (_take(each, "SymbolName", str, "a candidate"), _node(node, count, "a candidate"))
        (right if _take(each, "IsCorrect", bool, "a candidate") else others).append(pair)
    if len(right) != 1:
        raise ProgramError(f"one candidate must be correct, but {len(right)} of {len(given)} are")
    names, nodes = zip(*(right + others)[:MAX_CANDIDATES], strict=True)
    return list(names), list(nodes)


def _evidence(
    names: Sequence[str], labels: list[str], tokens: np.ndarray, slot: int
) -> tuple[list[int], list[int]]:
    """How often each name is used, and how near to the slot: what needs no learning."""
    pairs: list[list[int]] = tokens.tolist()
    words = Counter(labels[node] for node in set(chain.from_iterable(pairs)) - {slot})
    nearest: dict[str, int] = {}
    ahead = dict(zip(tokens[:, 0].tolist(), tokens[:, 1].tolist(), strict=True))
    for steps in (ahead, {after: before for before, after in ahead.items()}):
        node = slot
        for distance in range(1, len(steps) + 1):  # a ring of tokens ends too
            if node not in steps:
                break
            node = steps[node]
            nearest[labels[node]] = min(distance, nearest.get(labels[node], distance))
    return [words[name] for name in names], [nearest.get(name, NOWHERE) for name in names]


def _with_parts(labels: list[str], keywords: frozenset[str]) -> tuple[list[str], np.ndarray]:
    """Labels of all nodes and of the parts of identifiers; edges [E, 2] from nodes to parts."""
    parts: dict[str, int] = {}
    edges = [
        (node, parts.setdefault(part, len(labels) + len(parts)))
        for node, label in enumerate(labels)
        if label not in keywords
        for part in split_label(label)
    ]
    return [*labels, *parts], np.array(edges, np.int64).reshape(-1, 2)
