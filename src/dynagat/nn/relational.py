"""Layers without attention for edges with relations: RGCNConv and RGINConv.

Each relation r has its own weights; only the rows that edges use are transformed.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from dynagat.graph import Graph
from dynagat.nn.checks import check_graph
from dynagat.nn.segments import sum_by
from dynagat.ops.project import project_rows, take_rows
from dynagat.used_rows import UsedRows

TINY = 1e-7  # of the released code, in RGCN's divisor


def _matrices(relations: int, width: int, out: int) -> Parameter:  # [R, out, in]
    limit = math.sqrt(6 / (width + out))
    return Parameter(torch.empty(relations, out, width).uniform_(-limit, limit))


@final
class RGCNConv(nn.Module):
    """out_i = Σ_r Σ_j W_r x_j / (c_ir + 1e-7),  c_ir the number of keys of query i under relation r

    Args:
        in_channels: width of x.
        out_channels: width of the output.
        num_relations: R.
    """

    def __init__(self, in_channels: int, out_channels: int, num_relations: int) -> None:
        super().__init__()
        self.weight = _matrices(num_relations, in_channels, out_channels)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """[N, in] -> [N, out]"""
        check_graph(graph, x)
        graph, rows = _compact(graph)
        count = graph.rowptr.diff().to(x.dtype) + TINY  # [N·R]
        scale = (1 / count)[graph.row_index.long()]  # [E]
        return _sum(project_rows(take_rows(x, rows), self.weight, None, rows), graph, rows, scale)


@final
class RGINConv(nn.Module):
    """out_i = LayerNorm(f(Σ_r Σ_j f(V_r f(U_r x_j)))),  f the activation

    Args:
        in_channels: width of x.
        out_channels: width of the output and of the hidden layer.
        num_relations: R.
        activation: f.
    """

    def __init__(
        self, in_channels: int, out_channels: int, num_relations: int, activation: nn.Module
    ) -> None:
        super().__init__()
        self.first = _matrices(num_relations, in_channels, out_channels)
        self.second = _matrices(num_relations, out_channels, out_channels)
        self.activation = activation
        self.norm = nn.LayerNorm(out_channels)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """[N, in] -> [N, out]"""
        check_graph(graph, x)
        graph, rows = _compact(graph)
        hidden = self.activation(project_rows(take_rows(x, rows), self.first, None, rows))
        message = self.activation(project_rows(hidden, self.second, None, rows))
        return self.norm(self.activation(_sum(message, graph, rows)))


def _compact(graph: Graph) -> tuple[Graph, UsedRows]:
    graph = graph.compact
    assert graph.used_key_rows is not None
    return graph, graph.used_key_rows


def _sum(message: Tensor, graph: Graph, rows: UsedRows, scale: Tensor | None = None) -> Tensor:
    """out_i = Σ scale_e message of the key of edge e, over the edges of query i: -> [N, out]"""
    at = rows.number[graph.key_index * graph.num_relations + graph.relation]
    taken = message.index_select(0, at)
    taken = taken if scale is None else taken * scale[:, None]
    return sum_by(taken, graph.query_index, graph.num_queries)
