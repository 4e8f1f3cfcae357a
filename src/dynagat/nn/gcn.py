"""GCNConv: neighbours are weighted by degrees alone, without attention."""

from __future__ import annotations

import warnings
from typing import Any, final

import torch
from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.nn.checks import check_graph
from dynagat.nn.linear import Linear


@final
class GCNConv(nn.Module):
    """out_i = Σ_j W x_j / √(d_i d_j) + b,  where d is the degree in the whole graph

    Self-loops count if the graph has them: add them with `Graph.with_self_loops`. In a sample that
    has only n_i of the d_i keys of query i, the sum is multiplied by d_i / n_i.

    Args:
        in_channels: width of x.
        out_channels: width of the output.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.lin.reset_parameters()

    def forward(self, x: Tensor, graph: Graph, degree: Tensor | None = None) -> Tensor:
        """[num_keys, in] -> [num_queries, out]; a sample needs the degrees [num_keys]."""
        check_graph(graph, x)
        here = graph.rowptr.diff()  # [num_queries]
        if degree is None:
            if graph.num_queries != graph.num_keys:
                raise ValueError("degree is missing, but the graph is a sample: it has more keys")
            degree = here
        scale = degree.clamp_min(1).to(x.dtype).rsqrt()[:, None]  # [num_keys, 1]
        whole = degree[: graph.num_queries] / here.clamp_min(1)
        total = sum_keys(self.lin(x) * scale, graph)
        return total * (whole[:, None] * scale[: graph.num_queries]) + self.bias


def sum_keys(value: Tensor, graph: Graph) -> Tensor:
    """out_i = Σ_j value_j: [num_keys, C] -> [num_queries, C]"""
    return _SumKeys.apply(value, graph)  # pyright: ignore[reportReturnType]


class _SumKeys(torch.autograd.Function):
    """A sparse matrix of ones times a dense matrix; backward uses its transpose."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return _ones(graph.rowptr, graph.key_index, graph.num_keys, value) @ value

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        graph = ctx.graph
        ones = _ones(graph.key_rowptr, graph.key_query, graph.num_queries, dout)
        return ones @ dout.contiguous(), None


def _ones(rowptr: Tensor, column: Tensor, width: int, like: Tensor) -> Tensor:
    values = torch.ones(len(column), dtype=like.dtype, device=like.device)
    size = (len(rowptr) - 1, width)
    with warnings.catch_warnings():  # torch warns that its sparse tensors are in beta
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(rowptr, column, values, size, check_invariants=False)
