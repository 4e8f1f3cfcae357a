"""GATConv: static attention, in which all queries rank the keys in the same order."""

from __future__ import annotations

from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from dynagat import ops
from dynagat.graph import Graph
from dynagat.nn.core import Channels, GraphAttention, used_rows
from dynagat.nn.direct import Direct
from dynagat.nn.linear import Linear
from dynagat.nn.loops import FillValue
from dynagat.ops.head_scores import is_native, with_score, with_scores
from dynagat.ops.project import project, project_rows
from dynagat.used_rows import UsedRows


@final
class GATConv(GraphAttention):
    """score_ij = LeakyReLU(a_dstᵀ W x_i + a_srcᵀ W x_j [+ a_edgeᵀ W_e e_ij]),  value_j = W x_j

    From "Graph Attention Networks". W, W_e and the vectors are `lin`, `lin_edge`, `att_dst`,
    `att_src` and `att_edge`, as in PyG; if in_channels is a pair, the keys' W is `lin_src` and the
    queries' W is `lin_dst`. With `num_relations`, each relation has its own. In a pair (x_key,
    None) the queries have no features, and the first term is left out.

    Args: as in `GraphAttention`, and
        negative_slope: slope of LeakyReLU for negative inputs.
        bias: whether the output has a bias.
    """

    attention_halves: ClassVar[int] = 2  # a = [a_dst ‖ a_src]
    needs_query: ClassVar[bool] = False
    direct: ClassVar[Direct] = Direct("gat", ("lin",), (-1, -1, 0), ("att_dst", "att_src"))

    lin: Linear | None
    lin_src: Linear | None
    lin_dst: Linear | None

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool | None = None,
        edge_dim: int | None = None,
        fill_value: FillValue = "mean",
        bias: bool = True,
        residual: bool = False,
        *,
        aggr: str = "add",
        flow: str = "source_to_target",
        num_relations: int | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            heads=heads,
            concat=concat,
            dropout=dropout,
            add_self_loops=add_self_loops,
            edge_dim=edge_dim,
            fill_value=fill_value,
            residual=residual,
            aggr=aggr,
            flow=flow,
            num_relations=num_relations,
        )
        self.negative_slope = negative_slope
        is_shared = isinstance(in_channels, int)
        self.lin = self.linear(in_channels) if is_shared else None
        self.lin_src = None if is_shared else self.linear(in_channels[0])
        self.lin_dst = None if is_shared else self.linear(in_channels[1])
        self.att_src, self.att_dst = self.vector(), self.vector()
        self.att_edge = None if edge_dim is None else self.vector()
        self.complete(bias)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
        return_attention_weights: bool | None = None,
        *,
        relation: Tensor | None = None,
    ) -> Any:
        """[*, N, in] -> [*, N, H·C]; see `GraphAttention.run` for the arguments."""
        return self.run(x, edge_index, edge_attr, size, relation, return_attention_weights)

    def project(
        self, x_key: Tensor, x_query: Tensor | None, graph: Graph | None = None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """The op's query_score, key_score and value."""
        (of_key,), (of_query,) = self.projections()
        by_query, by_key = used_rows(graph)
        value = self.table(of_key, x_key, by_key)
        if x_query is x_key and of_query is of_key:
            if self.num_relations is None:
                return self._score_nodes(x_key, of_key, value, by_key)
            if by_key is not None and self._scores_from_rows(x_key):
                return with_scores(value, self.att_dst, self.att_src, by_key.offset)
        if self._reads_value(value) and x_key.shape[-1] >= self.heads * self.out_channels:
            key_score, value = with_score(value, self.att_src)
        else:
            key_score = self._score(x_key, of_key, self.att_src, by_key)
        query_score = None
        if x_query is not None:
            query_score = self._score(x_query, of_query, self.att_dst, by_query)
        return query_score, key_score, value

    def _reads_value(self, value: Tensor) -> bool:
        """Whether native code takes scores from W x, and adds their gradients to its own there."""
        return self.num_relations is None and is_native(value, self.att_dst, self.att_src)

    def _scores_from_rows(self, x: Tensor) -> bool:
        """Whether to read both scores from the used rows of W x rather than to multiply x with
        two merged vectors per head and relation; the kernel is the CPU's."""
        return x.is_cpu and x.dim() == 2 and 2 * x.shape[-1] > self.heads * self.out_channels

    def _score_nodes(
        self, x: Tensor, linear: Linear, value: Tensor, rows: UsedRows | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both scores from W x; or from x in one product, where that is narrower and plain torch
        would read W x once for each."""
        is_narrow = 2 * x.shape[-1] <= self.heads * self.out_channels
        if self._reads_value(value) or rows is not None or not is_narrow:
            return with_scores(value, self.att_dst, self.att_src)
        folded = [_fold(a, linear.weight) for a in (self.att_dst, self.att_src)]
        scores = project(x, torch.cat(folded).flatten(0, 1), None)  # [*, N, 2·H]
        query_score, key_score = scores.chunk(2, -1)
        return query_score, key_score, value

    def attend(
        self, x_key: Tensor, x_query: Tensor | None, graph: Graph, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        query_score, key_score, value = self.project(x_key, x_query, graph)
        if query_score is None:
            used = graph.used_query_rows
            num_rows = graph.num_query_rows or graph.num_queries * graph.num_relations
            num_rows = num_rows if used is None else len(used)
            query_score = key_score.new_zeros(*key_score.shape[:-2], num_rows, self.heads)
        if graph.key_index.shape[0] == 0:  # att_edge and lin_edge get no gradient, as in PyG
            options |= {"edge": None, "edge_weight": None}
        slope = self.negative_slope
        return ops.gat(query_score, key_score, value, graph, slope=slope, **options)

    def edge_weight(self, lin_edge: Linear) -> Tensor:  # [R, H, D]
        assert self.att_edge is not None
        return _fold(self.att_edge, lin_edge.weight)

    def projections(self) -> tuple[tuple[Linear], tuple[Linear]]:
        by_key, by_query = self.lin or self.lin_src, self.lin or self.lin_dst
        assert by_key is not None
        assert by_query is not None
        return (by_key,), (by_query,)

    def attention_vectors(self) -> tuple[Parameter, ...]:
        vectors = (self.att_src, self.att_dst)
        return vectors if self.att_edge is None else (*vectors, self.att_edge)

    def _score(
        self, x: Tensor, linear: Linear, a: Tensor, rows: UsedRows | None
    ) -> Tensor:  # [*, N·R, H], or [*, U, H]
        """aᵀ W x computed as (aᵀ W) x, which does not need W x of the queries."""
        folded = _fold(a, linear.weight)
        if rows is not None:
            return project_rows(x, folded, None, rows)
        score = project(x, folded.flatten(0, 1), None)  # [*, N, R·H]
        num_rows = x.shape[-2] * a.shape[0]
        return score.reshape(*x.shape[:-2], num_rows, self.heads)


def _fold(a: Tensor, weight: Tensor) -> Tensor:
    """aᵀ W per relation and head: [R, H, C] and [R·H·C, in] -> [R, H, in]"""
    return (a[..., None, :] @ weight.unflatten(0, a.shape)).squeeze(-2)
