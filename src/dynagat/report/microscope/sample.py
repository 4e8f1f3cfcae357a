"""A connected sample of queries for the page, packed into a small size."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynagat.analysis.attentive import Layer
from dynagat.report.microscope.blocks import Block, blocks_of
from dynagat.report.microscope.edge_sets import Codes, EdgeSet

WALK = 10  # strongest neighbours of a query that are added to the sample with it
MAX_KEYS, MIN_KEYS = 60, 10  # range for the limit on keys per query
MAX_BYTES = 5_000_000  # fewer keys per query if the page were larger; base64 adds a third
LOG_STEPS = 4096  # log weights are stored in steps of 1/4096: accurate to 0.02 %, down to 1e-7
NO_WEIGHT = 65535
NAME_LENGTH = 60


def embed(
    codes: Codes,
    edge_sets: list[EdgeSet],
    layers: Sequence[Layer],
    names: Sequence[str] | None,
    nodes: int,
) -> dict[str, Any]:
    """The data for the page's script."""
    if names is not None and len(names) < codes.size:
        raise ValueError(
            f"names must have at least {codes.size} entries, because the largest node is"
            f" {codes.size - 1}, but has {len(names)}"
        )
    blocks = [blocks_of(edge_set) for edge_set in edge_sets]
    queries = torch.unique(torch.cat([edge_set.query_code for edge_set in edge_sets]))
    chosen = _grow(edge_sets, blocks, queries, nodes)
    rows = [torch.isin(edge_set.query_code, chosen).nonzero()[:, 0] for edge_set in edge_sets]
    max_keys = _max_keys(edge_sets, rows)
    edges = [edge_set.strongest(mine, max_keys, torch.cat([*(b.edge for b in its), mine[:0]]))
             for edge_set, mine, its in zip(edge_sets, rows, blocks, strict=True)]  # fmt: skip
    seen = [edge_set.query_code[mine] for edge_set, mine in zip(edge_sets, rows, strict=True)]
    seen += [
        edge_set.key_code[edge_set.rows.key[edge]]
        for edge_set, (_, edge) in zip(edge_sets, edges, strict=True)
    ]
    known = torch.unique(_node(codes, torch.cat(seen)))
    return {
        "queries": len(chosen),
        "allQueries": len(queries),
        "calls": codes.num_calls,
        "sets": codes.sets,
        "maxKeys": max_keys,
        "logSteps": LOG_STEPS,
        "node": {"set": _packed(known // codes.size, "u1"), "id": _packed(known % codes.size)},
        "names": None if names is None else [
            str(names[node])[:NAME_LENGTH] for node in (known % codes.size).tolist()],
        "edgeSets": [
            _edge_set(edge_set, mine, row, edge, its, codes, known, layers)
            for edge_set, mine, (row, edge), its in zip(edge_sets, rows, edges, blocks, strict=True)
        ],
    }  # fmt: skip


def _node(codes: Codes, code: Tensor) -> Tensor:
    """The code of a node without its call."""
    node_set, _, node = codes.split(code)
    return node_set * codes.size + node


def _grow(
    edge_sets: list[EdgeSet], blocks: list[list[Block]], queries: Tensor, nodes: int
) -> Tensor:
    """Breadth-first search from the blocks' queries along the strongest edges; when it ends, it
    continues from the remaining queries with the most keys."""
    if len(queries) <= nodes:
        return queries
    indices = [torch.searchsorted(queries, edge_set.query_code) for edge_set in edge_sets]
    row_of = [torch.full_like(queries, -1).scatter(0, at, torch.arange(len(at))) for at in indices]
    degree = torch.zeros_like(queries)
    for edge_set, index in zip(edge_sets, indices, strict=True):
        degree[index] = torch.maximum(degree[index], edge_set.rows.degree)
    is_in = torch.zeros(len(queries), dtype=torch.bool)
    starts = [at[block.query] for at, its in zip(indices, blocks, strict=True) for block in its]
    front = _unique(torch.cat([*starts, queries[:0]]))[:nodes]
    while True:
        is_in[front] = True
        left = nodes - int(is_in.sum())
        if not left:
            return queries[is_in]
        near = torch.cat(
            [
                _keys(edge_set, of[front], queries)
                for edge_set, of in zip(edge_sets, row_of, strict=True)
            ]
        )
        front = _unique(near[~is_in[near]])[:left]
        if not len(front):
            rest = torch.where(is_in, -1, degree)
            front = rest.argsort(descending=True, stable=True)[: 1 + (left - 1) // WALK]


def _keys(edge_set: EdgeSet, rows: Tensor, queries: Tensor) -> Tensor:
    """The strongest keys of some rows, if they are also queries: indices into `queries`."""
    _, edge = edge_set.strongest(rows[rows >= 0], WALK)
    code = edge_set.key_code[edge_set.rows.key[edge]]
    index = torch.searchsorted(queries, code).clamp_max(len(queries) - 1)
    return index[queries[index] == code]


def _unique(values: Tensor) -> Tensor:
    """Each value once, in the order of first occurrence."""
    unique, index = torch.unique(values, return_inverse=True)
    first = torch.full_like(unique, len(values))
    first = first.scatter_reduce(0, index, torch.arange(len(values)), "amin")
    return unique[first.argsort()]


def _max_keys(edge_sets: list[EdgeSet], rows: list[Tensor]) -> int:
    """The maximum number of keys per query that keeps the page small."""
    degrees = [edge_set.rows.degree[mine] for edge_set, mine in zip(edge_sets, rows, strict=True)]
    for limit in range(MAX_KEYS, MIN_KEYS, -1):
        size = sum(
            int(degree.clamp_max(limit).sum()) * (4 + 2 * edge_set.num_heads)
            for edge_set, degree in zip(edge_sets, degrees, strict=True)
        )
        if size <= MAX_BYTES:
            return limit
    return MIN_KEYS


def _edge_set(
    edge_set: EdgeSet,
    rows: Tensor,
    row_of_edge: Tensor,
    edge: Tensor,
    blocks: list[Block],
    codes: Codes,
    known: Tensor,
    layers: Sequence[Layer],
) -> dict[str, Any]:
    """Some rows of an edge set with some of their edges, as JSON."""
    code = edge_set.query_code[rows]
    keys = torch.searchsorted(known, _node(codes, edge_set.key_code))
    return {
        "layers": edge_set.layers,
        "query": _packed(torch.searchsorted(known, _node(codes, code))),
        "call": _packed(codes.split(code)[1]) if codes.num_calls > 1 else None,
        "degree": _packed(edge_set.rows.degree[rows]),
        "start": _packed(torch.searchsorted(row_of_edge, torch.arange(len(rows) + 1))),
        "key": _packed(keys[edge_set.rows.key[edge]]),
        "weights": [_packed(_logarithms(weight[edge]), "u2") for weight in edge_set.weights],
        "blocks": [
            {
                "rows": torch.searchsorted(rows, block.query).tolist(),
                "keys": keys[block.key].tolist(),
                "orders": [
                    _orders(edge_set, block.key, layers[each], codes) for each in edge_set.layers
                ],
            }
            for block in blocks
            if bool(torch.isin(block.query, rows).all())
        ],
    }


def _orders(edge_set: EdgeSet, key: Tensor, layer: Layer, codes: Codes) -> list[list[int]] | None:
    """Per head, the keys in its one ranking; None with several calls, which repeat nodes."""
    if codes.num_calls > 1:
        return None
    ids = edge_set.rows.key_id[key]
    is_mine = torch.isin(layer.one_ranking, ids)  # [K, H]
    heads = [ranking[mine] for ranking, mine in zip(layer.one_ranking.T, is_mine.T, strict=True)]
    return [(ids == head[:, None]).int().argmax(1).tolist() for head in heads]


def _logarithms(weight: Tensor) -> Tensor:
    """-ln weight in steps of 1 / LOG_STEPS."""
    return (weight.double().log() * -LOG_STEPS).round().clamp(0, NO_WEIGHT)


def _packed(values: Tensor, kind: str = "u4") -> str:
    """Little-endian and base64, for the script's typed arrays."""
    return base64.b64encode(values.numpy().astype(np.dtype("<" + kind)).tobytes()).decode()
