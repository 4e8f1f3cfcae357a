"""A sample of queries for a page: connected, so that one can walk in it, and packed small."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynagat.analysis.attentive import Layer
from dynagat.report.microscope.blocks import Block, blocks_of
from dynagat.report.microscope.webs import Codes, Web

WALK = 10  # the strongest neighbours of a query that follow it into the sample
MOST_KEYS, FEWEST_KEYS = 60, 10  # of a query
MOST_BYTES = 5_000_000  # for which a query has fewer keys, if it must be; base64 adds a third
FINENESS = 4096  # steps of a weight's logarithm: to 0.02 % of it, and down to 1e-7
NO_WEIGHT = 65535
NAME_LENGTH = 60


def embed(
    codes: Codes,
    webs: list[Web],
    layers: Sequence[Layer],
    names: Sequence[str] | None,
    nodes: int,
) -> dict[str, Any]:
    """What the page's script draws from."""
    if names is not None and len(names) < codes.size:
        raise ValueError(
            f"names has {len(names)} entries, but the largest node is {codes.size - 1}, so it needs"
            f" {codes.size}"
        )
    blocks = [blocks_of(web) for web in webs]
    every = torch.unique(torch.cat([web.query_code for web in webs]))
    chosen = _grow(webs, blocks, every, nodes)
    rows = [torch.isin(web.query_code, chosen).nonzero()[:, 0] for web in webs]
    most = _most_keys(webs, rows)
    edges = [web.strongest(mine, most, torch.cat([*(b.edge for b in its), mine[:0]]))
             for web, mine, its in zip(webs, rows, blocks, strict=True)]  # fmt: skip
    seen = [web.query_code[mine] for web, mine in zip(webs, rows, strict=True)]
    seen += [web.key_code[web.rows.key[edge]] for web, (_, edge) in zip(webs, edges, strict=True)]
    known = torch.unique(_node(codes, torch.cat(seen)))
    return {
        "queries": len(chosen),
        "allQueries": len(every),
        "calls": codes.num_calls,
        "sets": codes.sets,
        "mostKeys": most,
        "fineness": FINENESS,
        "node": {"set": _packed(known // codes.size, "u1"), "id": _packed(known % codes.size)},
        "names": None if names is None else [
            str(names[at])[:NAME_LENGTH] for at in (known % codes.size).tolist()],
        "webs": [
            _web(web, mine, place, edge, its, codes, known, layers)
            for web, mine, (place, edge), its in zip(webs, rows, edges, blocks, strict=True)
        ],
    }  # fmt: skip


def _node(codes: Codes, code: Tensor) -> Tensor:
    """Of whatever call."""
    place, _, node = codes.split(code)
    return place * codes.size + node


def _grow(webs: list[Web], blocks: list[list[Block]], every: Tensor, nodes: int) -> Tensor:
    """Breadth first from the blocks' queries along the strongest edges; where that ends, from the
    queries with most keys among those left."""
    if len(every) <= nodes:
        return every
    places = [torch.searchsorted(every, web.query_code) for web in webs]
    row_of = [torch.full_like(every, -1).scatter(0, at, torch.arange(len(at))) for at in places]
    degree = torch.zeros_like(every)
    for web, at in zip(webs, places, strict=True):
        degree[at] = torch.maximum(degree[at], web.rows.degree)
    is_in = torch.zeros(len(every), dtype=torch.bool)
    starts = [at[block.query] for at, its in zip(places, blocks, strict=True) for block in its]
    front = _firsts(torch.cat([*starts, every[:0]]))[:nodes]
    while True:
        is_in[front] = True
        left = nodes - int(is_in.sum())
        if not left:
            return every[is_in]
        near = torch.cat(
            [_keys(web, of[front], every) for web, of in zip(webs, row_of, strict=True)]
        )
        front = _firsts(near[~is_in[near]])[:left]
        if not len(front):
            rest = torch.where(is_in, -1, degree)
            front = rest.argsort(descending=True, stable=True)[: 1 + (left - 1) // WALK]


def _keys(web: Web, rows: Tensor, every: Tensor) -> Tensor:
    """Those of the strongest keys of some rows that are queries, too: their places among all."""
    _, edge = web.strongest(rows[rows >= 0], WALK)
    code = web.key_code[web.rows.key[edge]]
    place = torch.searchsorted(every, code).clamp_max(len(every) - 1)
    return place[every[place] == code]


def _firsts(values: Tensor) -> Tensor:
    """Each value once, in the order of first appearance."""
    single, place = torch.unique(values, return_inverse=True)
    first = torch.full_like(single, len(values))
    first = first.scatter_reduce(0, place, torch.arange(len(values)), "amin")
    return single[first.argsort()]


def _most_keys(webs: list[Web], rows: list[Tensor]) -> int:
    """How many keys a query may have, for the page to stay small."""
    degrees = [web.rows.degree[mine] for web, mine in zip(webs, rows, strict=True)]
    for most in range(MOST_KEYS, FEWEST_KEYS, -1):
        size = sum(
            int(degree.clamp_max(most).sum()) * (4 + 2 * web.num_heads)
            for web, degree in zip(webs, degrees, strict=True)
        )
        if size <= MOST_BYTES:
            return most
    return FEWEST_KEYS


def _web(
    web: Web,
    rows: Tensor,
    place: Tensor,
    edge: Tensor,
    blocks: list[Block],
    codes: Codes,
    known: Tensor,
    layers: Sequence[Layer],
) -> dict[str, Any]:
    """Some rows of a web, and some of their edges."""
    code = web.query_code[rows]
    keys = torch.searchsorted(known, _node(codes, web.key_code))
    return {
        "layers": web.layers,
        "query": _packed(torch.searchsorted(known, _node(codes, code))),
        "call": _packed(codes.split(code)[1]) if codes.num_calls > 1 else None,
        "degree": _packed(web.rows.degree[rows]),
        "start": _packed(torch.searchsorted(place, torch.arange(len(rows) + 1))),
        "key": _packed(keys[web.rows.key[edge]]),
        "weights": [_packed(_logarithms(weight[edge]), "u2") for weight in web.weights],
        "blocks": [
            {
                "rows": torch.searchsorted(rows, block.query).tolist(),
                "keys": keys[block.key].tolist(),
                "orders": [_orders(web, block.key, layers[at], codes) for at in web.layers],
            }
            for block in blocks
            if bool(torch.isin(block.query, rows).all())
        ],
    }


def _orders(web: Web, key: Tensor, layer: Layer, codes: Codes) -> list[list[int]] | None:
    """Per head, the keys by its one ranking; nothing where the ranking has a node several times."""
    if codes.num_calls > 1:
        return None
    ids = web.rows.key_id[key]
    is_mine = torch.isin(layer.ranking, ids)  # [K, H]
    heads = [ranking[mine] for ranking, mine in zip(layer.ranking.T, is_mine.T, strict=True)]
    return [(ids == head[:, None]).int().argmax(1).tolist() for head in heads]


def _logarithms(weight: Tensor) -> Tensor:
    """-ln weight in steps of 1 / FINENESS."""
    return (weight.double().log() * -FINENESS).round().clamp(0, NO_WEIGHT)


def _packed(values: Tensor, kind: str = "u4") -> str:
    """Little-endian and base64, for the script's typed arrays."""
    return base64.b64encode(values.numpy().astype(np.dtype("<" + kind)).tobytes()).decode()
