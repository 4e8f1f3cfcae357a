"""DPGATConv: dot-product attention over a graph, as in Transformers."""

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
class DPGATConv(GraphAttention):
    """score_ij = ⟨W_r x_i, W_l x_j [+ W_e e_ij]⟩ / √C,  value_j = W_v x_j

    The paper's DPGAT: no projection has a bias, and edge features only affect the score. W_l, W_r,
    W_v and W_e are `lin_l`, `lin_r`, `lin_v` and `lin_edge`; with `num_relations`, each relation
    has its own.

    Args: as in `GraphAttention`, and
        bias: whether the output has a bias.
        share_weights: whether W_r = W_l, that is Q = K.
    """

    direct: ClassVar[Direct] = Direct("dpgat", ("lin_l", "lin_r", "lin_v"), (1, 0, 2), ())

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
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
        self.share_weights = share_weights
        key_width, query_width = self.channel_pair
        self.lin_l = self.linear(key_width)
        self.lin_r = self.lin_l if share_weights else self.linear(query_width)
        self.lin_v = self.linear(key_width)
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
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The op's query, key and value."""
        by_query, by_key = used_rows(graph)
        key = self.table(self.lin_l, x_key, by_key)
        is_same = x_query is x_key and self.lin_r is self.lin_l
        query = key if is_same else self.table(self.lin_r, x_query, by_query)
        return query, key, self.table(self.lin_v, x_key, by_key)

    def attend(
        self, x_key: Tensor, x_query: Tensor | None, graph: Graph, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        assert x_query is not None
        return ops.dpgat(*self.project(x_key, x_query, graph), graph, **options)

    def edge_weight(self, lin_edge: Linear) -> Tensor:  # [R, H, C, D]
        return lin_edge.weight.unflatten(0, (-1, self.heads, self.out_channels))

    def projections(self) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
        return (self.lin_l, self.lin_v), (self.lin_r,)

    def attention_vectors(self) -> tuple[Parameter, ...]:
        return ()
