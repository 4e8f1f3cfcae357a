"""The network of DictionaryLookup: embed, one layer of any mechanism, classify.

A node is a pair (attribute, value), so all graphs together have only k (k + 1) distinct nodes: k
queries, whose value is "empty", and k² keys. Only these rows are embedded and projected; the
queries and keys of the graphs are indices into them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.nn.core import GraphAttention


@dataclass(frozen=True, eq=False)
class Lookups:
    """A batch of graphs, B of them: key j of graph b holds values[b, j].

    Query i of graph b is query b·k + i of `graph`. It attends to the graph's k keys in the order
    of their attributes and, with `loops`, to itself.
    """

    values: Tensor  # [B, k]
    loops: bool = False

    @property
    def k(self) -> int:
        return self.values.shape[1]

    @cached_property
    def key_rows(self) -> Tensor:  # [B, k]
        return self._first_rows + self.values

    @cached_property
    def query_rows(self) -> Tensor:  # [k]
        return self._first_rows + self.k

    @property
    def _first_rows(self) -> Tensor:  # [k]: of each attribute
        return torch.arange(self.k, device=self.values.device) * (self.k + 1)

    @cached_property
    def graph(self) -> Graph:
        size, k = self.values.shape
        keys = self.key_rows[:, None, :].expand(size, k, k)
        if self.loops:
            own = self.query_rows[None, :, None].expand(size, k, 1)
            keys = torch.cat([keys, own], dim=2)
        query = torch.arange(size * k, dtype=torch.int32, device=keys.device)
        query = query.repeat_interleave(keys.shape[2])
        key = keys.reshape(-1).to(torch.int32)
        num_rows = k * (k + 1)
        graph = Graph.from_edges(query, key, size * k, num_rows)
        return graph.with_query_rows(self.query_rows.repeat(size), num_rows)


@final
class DictionaryNetwork(nn.Module):
    """logits_i = W_out dropout(f(layer(x)_i)),  x_(attribute, value) = ReLU(E_attribute + E_value)

    Args:
        k: number of attributes and of values.
        layer: an attention layer [N, dim] -> [N, dim], or a module called with (x, lookups).
        dim: width of the embeddings and of the layer's output.
        loops: whether each query attends to itself too.
        feature_dropout: probability, before the layer, drawn once per distinct node.
        dropout: probability, after the layer.
        always_drop: whether dropout stays on in evaluation, as in the released code.
        after: f, such as an activation or a norm of the layer's output; the identity if None.
    """

    def __init__(
        self,
        k: int,
        layer: nn.Module,
        *,
        dim: int = 128,
        loops: bool = False,
        feature_dropout: float = 0.0,
        dropout: float = 0.0,
        always_drop: bool = False,
        after: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attribute = nn.Embedding(k + 1, dim)
        self.value = nn.Embedding(k + 1, dim)
        self.layer = layer
        self.after = nn.Identity() if after is None else after
        self.out = nn.Linear(dim, k, bias=False)
        self.k, self.loops = k, loops
        self.feature_dropout, self.dropout = feature_dropout, dropout
        self.always_drop = always_drop

    def nodes(self) -> Tensor:  # [k·(k + 1), dim]
        """All distinct nodes; row attribute·(k + 1) + value, with value k for "empty"."""
        pair = self.attribute.weight[: self.k, None] + self.value.weight[None]
        return F.dropout(F.relu(pair).flatten(0, 1), self.feature_dropout, self.training)

    def forward(self, values: Tensor) -> Tensor:  # [B, k] -> [B, k, k]
        lookups = Lookups(values, self.loops)
        edges = lookups.graph if isinstance(self.layer, GraphAttention) else lookups
        hidden = self.after(self.layer(self.nodes(), edges)).view(*values.shape, -1)
        dropped = F.dropout(hidden, self.dropout, self.training or self.always_drop)
        return self.out(dropped)

    @torch.no_grad()
    def attention(self, values: Tensor) -> Tensor:  # [B, k] -> [B, H, queries, keys]
        """Attention weights of each query for the k keys and, with loops, for itself."""
        graph = Lookups(values, self.loops).graph
        _, (_, weight) = self.layer(self.nodes(), graph, return_attention_weights=True)
        return weight.view(*values.shape, -1, weight.shape[-1]).permute(0, 3, 1, 2)


@final
class LookupGIN(nn.Module):
    """MLP(x_i + Σ_j x_j): PyG's GINConv on complete bipartite graphs, one sum for all queries.

    Keys have no neighbours, but they pass through it too, since BatchNorm counts them.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, dim)
        again = (nn.Linear(dim, dim), nn.BatchNorm1d(dim), nn.ReLU())
        self.rest = nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), *again)

    def forward(self, x: Tensor, lookups: Lookups) -> Tensor:  # -> [B·k, dim]
        first = self.first
        projected = F.linear(x, first.weight)  # of the distinct rows only: sums commute with it
        total = F.embedding_bag(lookups.key_rows, projected, mode="sum")  # [B, dim]
        queries = (projected[lookups.query_rows] + total[:, None] + first.bias).flatten(0, 1)
        if not self.training:
            return self.rest(queries)
        keys = F.embedding(lookups.key_rows, projected + first.bias).flatten(0, 1)
        return self.rest(torch.cat([queries, keys]))[: len(queries)]


@final
class LookupGCN(nn.Module):
    """W (x_i / (k + 1) + Σ_j x_j / √(k + 1)) + b: PyG's GCNConv, whose self-loops give a query the
    degree k + 1 and a key the degree 1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor, lookups: Lookups) -> Tensor:  # -> [B·k, dim]
        degree = lookups.k + 1
        projected = F.linear(x, self.linear.weight)  # the distinct rows only
        total = F.embedding_bag(lookups.key_rows, projected, mode="sum")  # [B, dim]
        own = projected[lookups.query_rows]
        return (own / degree + total[:, None] / degree**0.5 + self.linear.bias).flatten(0, 1)
