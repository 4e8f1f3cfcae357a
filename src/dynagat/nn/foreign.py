"""OnGraph: PyG's layers in our networks, as baselines and to compare with; PyG must be there."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from dynagat.graph import Graph


@final
class OnGraph(nn.Module):
    """A PyG layer that takes (x, edge_index), given a Graph.

    Args:
        conv: the layer.
        keep_loops: False of layers that have a term of their own for x_i: GIN and GraphSAGE.
    """

    def __init__(self, conv: nn.Module, keep_loops: bool = True) -> None:
        super().__init__()
        self.conv, self.keep_loops = conv, keep_loops

    def forward(self, x: Tensor | tuple[Tensor, Tensor], graph: Graph) -> Tensor:
        """[num_keys, in] -> [num_queries, out]"""
        edge_index = torch.stack([graph.key_index.long(), graph.query_index.long()])
        if not self.keep_loops:
            edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        return self.conv(x, edge_index)  # which reads the sizes off x


def make_sage(width: int, out: int, heads: int) -> OnGraph:
    """W_l mean_j x_j + b + W_r x_i"""
    from torch_geometric.nn import SAGEConv

    return OnGraph(SAGEConv(width, out), keep_loops=False)


def make_gin(width: int, out: int, heads: int) -> OnGraph:
    """W' ReLU(BatchNorm(W (x_i + Σ_j x_j)))"""
    from torch_geometric.nn import GINConv

    inner = nn.BatchNorm1d(out), nn.ReLU()
    mlp = nn.Sequential(nn.Linear(width, out), *inner, nn.Linear(out, out))
    return OnGraph(GINConv(mlp), keep_loops=False)


def make_pyg(mechanism: str, width: int, out: int, heads: int, options: dict[str, Any]) -> OnGraph:
    """PyG's own GATConv or GATv2Conv."""
    from torch_geometric.nn import GATConv, GATv2Conv

    kinds: dict[str, Any] = {"gat": GATConv, "gatv2": GATv2Conv}
    return OnGraph(kinds[mechanism](width, out, heads=heads, **options))
