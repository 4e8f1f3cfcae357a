"""GATv2Conv: dynamic attention, in which each query may rank the keys differently."""

from __future__ import annotations

from typing import Any, ClassVar, final

from torch import Tensor
from torch.nn.parameter import Parameter

from dynagat import ops
from dynagat.graph import Graph
from dynagat.nn.core import Channels, GraphAttention, used_rows
from dynagat.nn.direct import Direct
from dynagat.nn.linear import Linear
from dynagat.nn.loops import FillValue


@final
class GATv2Conv(GraphAttention):
    """score_ij = aᵀ LeakyReLU(W_r x_i + W_l x_j [+ W_e e_ij]),  value_j = W_l x_j

    From "How Attentive are Graph Attention Networks?". W_l, W_r, W_e and a are `lin_l`, `lin_r`,
    `lin_edge` and `att`, as in PyG. With `num_relations`, each relation has its own, and without
    shared weights there is a third matrix `lin_v`: value_j = W_v x_j.

    Args: as in `GraphAttention`, and
        negative_slope: slope of LeakyReLU for negative inputs.
        bias: whether W_l, W_r and the output have a bias.
        share_weights: whether W_r = W_l.
    """

    direct: ClassVar[Direct] = Direct("gatv2", ("lin_l", "lin_r"), (1, 0, -1), ("att",))

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
        share_weights: bool = False,
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
        self.share_weights = share_weights
        key_width, query_width = self.channel_pair
        self.lin_l = self.linear(key_width, bias)
        self.lin_r = self.lin_l if share_weights else self.linear(query_width, bias)
        has_value = num_relations is not None and not share_weights
        self.lin_v = self.linear(key_width, bias) if has_value else None
        self.att = self.vector()
        self.complete(bias)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
        *,
        size: tuple[int | None, int | None] | None = None,
        relation: Tensor | None = None,
    ) -> Any:
        """[*, N, in] -> [*, N, H·C]; see `GraphAttention.run` for the arguments."""
        return self.run(x, edge_index, edge_attr, size, relation, return_attention_weights)

    def project(
        self, x_key: Tensor, x_query: Tensor, graph: Graph | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The op's query, key and value; value is None if it equals the key."""
        by_query, by_key = used_rows(graph)
        key = self.table(self.lin_l, x_key, by_key)
        is_same = x_query is x_key and self.lin_r is self.lin_l
        query = key if is_same else self.table(self.lin_r, x_query, by_query)
        return query, key, None if self.lin_v is None else self.table(self.lin_v, x_key, by_key)

    def attend(
        self, x_key: Tensor, x_query: Tensor | None, graph: Graph, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        assert x_query is not None
        query, key, value = self.project(x_key, x_query, graph)
        slope = self.negative_slope
        return ops.gatv2(query, key, self.att, graph, value=value, slope=slope, **options)

    def edge_weight(self, lin_edge: Linear) -> Tensor:  # [R, H, C, D]
        return lin_edge.weight.unflatten(0, self.att.shape)

    def projections(self) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
        by_key = (self.lin_l,) if self.lin_v is None else (self.lin_l, self.lin_v)
        return by_key, (self.lin_r,)

    def attention_vectors(self) -> tuple[Parameter, ...]:
        return (self.att,)
