"""Webs: the captured attention as rows that layers with the same edges share, nodes told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dynagat.analysis.attentive import Attentiveness
from dynagat.analysis.rows import Rows, rows_of
from dynagat.analysis.table import LayerAttention

ONE_SET = ("node", "node")
TWO_SETS = ("query", "key")


@dataclass(frozen=True)
class Codes:
    """One number for each (set of nodes, call, node): the same node elsewhere is another query."""

    sets: tuple[str, ...]
    num_calls: int
    size: int  # the largest node, and one

    def of(self, name: str, call: Tensor, node: Tensor) -> Tensor:
        return (self.sets.index(name) * self.num_calls + call) * self.size + node

    def split(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The set's place in `sets`, the call, the node."""
        outer = code // self.size
        return outer // self.num_calls, outer % self.num_calls, code % self.size


@dataclass(frozen=True, eq=False)
class Web:
    """Layers whose queries have the same keys. Row i holds key[rowptr[i] : rowptr[i + 1]]."""

    layers: list[int]  # places in `Attentiveness.layers`
    weights: list[Tensor]  # [E, H] of each
    rows: Rows  # of the first
    sets: tuple[str, str]  # of queries, of keys
    query_code: Tensor  # [Q]
    key_code: Tensor  # [K]

    @property
    def num_heads(self) -> int:
        return sum(weight.shape[1] for weight in self.weights)

    def edges_of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Of some rows, row by row: the place of each edge's row among them; the edge."""
        degree = self.rows.degree[rows]
        place = torch.arange(len(rows)).repeat_interleave(degree)
        turn = torch.arange(len(place)) - (degree.cumsum(0) - degree)[place]
        return place, self.rows.rowptr[rows][place] + turn

    def strongest(
        self, rows: Tensor, count: int, kept: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same, but at most `count` edges of a row: the largest weights in any head first,
        before which come the edges that are `kept` anyway."""
        place, edge = self.edges_of(rows)
        strength = torch.stack([weight[edge].amax(1) for weight in self.weights]).amax(0)
        if kept is not None:
            strength = torch.where(torch.isin(edge, kept), 2.0, strength)
        order = strength.argsort(descending=True, stable=True)
        order = order[place[order].argsort(stable=True)]
        place, edge = place[order], edge[order]
        degree = self.rows.degree[rows]
        turn = torch.arange(len(place)) - (degree.cumsum(0) - degree)[place]
        return place[turn < count], edge[turn < count]


def webs_of(found: Attentiveness) -> tuple[Codes, list[Web]]:
    """Every layer in one web."""
    by_layer = [[view for view in found.attention.seen if view.layer == layer.name]
                for layer in found.layers]  # fmt: skip
    sets = [_sets(views) for views in by_layer]
    ends = [int(end.max()) for view in found.attention.seen for end in (view.query, view.key)
            if len(end)]  # fmt: skip
    codes = Codes(
        sets=tuple(dict.fromkeys(name for pair in sets for name in pair)),
        num_calls=max(map(len, by_layer)),
        size=max(ends) + 1,
    )
    webs: list[Web] = []
    for place, (views, pair) in enumerate(zip(by_layer, sets, strict=True)):
        web = _web(place, views, pair, codes)
        same = next((each for each in webs if _are_alike(each, web)), None)
        if same is None:
            webs.append(web)
        else:
            same.layers.append(place)
            same.weights.extend(web.weights)
    return codes, webs


def _web(place: int, views: list[LayerAttention], sets: tuple[str, str], codes: Codes) -> Web:
    rows = rows_of([_weighed(view) for view in views])
    return Web(
        [place],
        [rows.weight],
        rows,
        sets,
        codes.of(sets[0], _calls([view.query for view in views]), rows.query_id),
        codes.of(sets[1], _calls([view.key for view in views]), rows.key_id),
    )


def _weighed(view: LayerAttention) -> LayerAttention:
    """Without scores, which no page shows."""
    weight = view.weight.detach()
    return replace(view, weight=weight, score=weight[:, :0])


def _calls(ends: list[Tensor]) -> Tensor:
    """The call of each query or key, in the order of `rows_of`."""
    if len(ends) == 1:
        return torch.zeros((), dtype=torch.long)
    sizes = torch.tensor([len(torch.unique(each)) for each in ends])
    return torch.arange(len(ends)).repeat_interleave(sizes)


def _are_alike(one: Web, other: Web) -> bool:
    pairs = (
        (one.query_code, other.query_code),
        (one.key_code, other.key_code),
        (one.rows.rowptr, other.rows.rowptr),
        (one.rows.key, other.rows.key),
    )
    return one.sets == other.sets and all(torch.equal(*pair) for pair in pairs)


def _sets(views: Sequence[LayerAttention]) -> tuple[str, str]:
    """What queries and keys are: the node types in the layer's path; else nodes of one set, unless
    an edge from a number to itself is no self-loop."""
    types = re.split(r"_{2,3}", re.sub(r"[<>#]", "", views[0].layer.rsplit(".", 1)[-1]))
    if len(types) == 3 and all(types):
        return types[2], types[0]
    is_one = all(not bool(((v.query == v.key) & ~v.is_self_loop).any()) for v in views)
    return ONE_SET if is_one else TWO_SETS
