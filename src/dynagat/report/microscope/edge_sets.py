"""EdgeSet: the edges that several layers have in common, with the weights of each layer."""

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
    """One integer per (node set, call, node): a node in another call is a different query."""

    sets: tuple[str, ...]
    num_calls: int
    size: int  # largest node id + 1

    def of(self, name: str, call: Tensor, node: Tensor) -> Tensor:
        return (self.sets.index(name) * self.num_calls + call) * self.size + node

    def split(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The index of the node set, the call, the node id."""
        outer = code // self.size
        return outer // self.num_calls, outer % self.num_calls, code % self.size


@dataclass(frozen=True, eq=False)
class EdgeSet:
    """Layers whose queries have the same keys. Row i holds key[rowptr[i] : rowptr[i + 1]]."""

    layers: list[int]  # indices into `Attentiveness.layers`
    weights: list[Tensor]  # [E, H] of each layer
    rows: Rows  # of the first layer
    sets: tuple[str, str]  # node sets of the queries and keys
    query_code: Tensor  # [Q]
    key_code: Tensor  # [K]

    @property
    def num_heads(self) -> int:
        return sum(weight.shape[1] for weight in self.weights)

    def edges_of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The edges of some rows, row by row: the index of the row in `rows`, and the edge."""
        degree = self.rows.degree[rows]
        row = torch.arange(len(rows)).repeat_interleave(degree)
        offset = torch.arange(len(row)) - (degree.cumsum(0) - degree)[row]
        return row, self.rows.rowptr[rows][row] + offset

    def strongest(
        self, rows: Tensor, count: int, kept: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `edges_of`, but at most `count` edges per row: first the edges in `kept`, then those
        with the largest weight in any head."""
        row, edge = self.edges_of(rows)
        strength = torch.stack([weight[edge].amax(1) for weight in self.weights]).amax(0)
        if kept is not None:
            strength = torch.where(torch.isin(edge, kept), 2.0, strength)
        order = strength.argsort(descending=True, stable=True)
        order = order[row[order].argsort(stable=True)]
        row, edge = row[order], edge[order]
        degree = self.rows.degree[rows]
        rank = torch.arange(len(row)) - (degree.cumsum(0) - degree)[row]
        return row[rank < count], edge[rank < count]


def edge_sets_of(result: Attentiveness) -> tuple[Codes, list[EdgeSet]]:
    """Group the layers by the edges that were analysed."""
    by_layer = [layer.views for layer in result.layers]
    sets = [_sets(views) for views in by_layer]
    ends = [int(end.max()) for views in by_layer for view in views
            for end in (view.query, view.key) if len(end)]  # fmt: skip
    codes = Codes(
        sets=tuple(dict.fromkeys(name for pair in sets for name in pair)),
        num_calls=max(map(len, by_layer)),
        size=max(ends) + 1,
    )
    edge_sets: list[EdgeSet] = []
    for layer, (views, pair) in enumerate(zip(by_layer, sets, strict=True)):
        edge_set = _edge_set(layer, views, pair, codes)
        same = next((each for each in edge_sets if _have_same_edges(each, edge_set)), None)
        if same is None:
            edge_sets.append(edge_set)
        else:
            same.layers.append(layer)
            same.weights.extend(edge_set.weights)
    return codes, edge_sets


def _edge_set(
    layer: int, views: Sequence[LayerAttention], sets: tuple[str, str], codes: Codes
) -> EdgeSet:
    rows = rows_of([_without_scores(view) for view in views])
    return EdgeSet(
        [layer],
        [rows.weight],
        rows,
        sets,
        codes.of(sets[0], _calls([view.query for view in views]), rows.query_id),
        codes.of(sets[1], _calls([view.key for view in views]), rows.key_id),
    )


def _without_scores(view: LayerAttention) -> LayerAttention:
    """The page does not show scores."""
    weight = view.weight.detach()
    return replace(view, weight=weight, score=weight[:, :0])


def _calls(ends: list[Tensor]) -> Tensor:
    """The call index of each query or key, in the order of `rows_of`."""
    if len(ends) == 1:
        return torch.zeros((), dtype=torch.long)
    sizes = torch.tensor([len(torch.unique(each)) for each in ends])
    return torch.arange(len(ends)).repeat_interleave(sizes)


def _have_same_edges(one: EdgeSet, other: EdgeSet) -> bool:
    pairs = (
        (one.query_code, other.query_code),
        (one.key_code, other.key_code),
        (one.rows.rowptr, other.rows.rowptr),
        (one.rows.key, other.rows.key),
    )
    return one.sets == other.sets and all(torch.equal(*pair) for pair in pairs)


def _sets(views: Sequence[LayerAttention]) -> tuple[str, str]:
    """The node sets of queries and keys: the node types in the layer's path; otherwise one set,
    unless an edge between equal ids is not a self-loop."""
    types = re.split(r"_{2,3}", re.sub(r"[<>#]", "", views[0].layer.rsplit(".", 1)[-1]))
    if len(types) == 3 and all(types):
        return types[2], types[0]
    is_one_set = all(not bool(((v.query == v.key) & ~v.is_self_loop).any()) for v in views)
    return ONE_SET if is_one_set else TWO_SETS
