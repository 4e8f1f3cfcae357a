"""PyGLayer: layers of PyTorch Geometric in our networks, as baselines and for comparison.

PyTorch Geometric is imported only when such a layer is made.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from dynagat.graph import Graph


@final
class PyGLayer(nn.Module):
    """Calls a PyG layer, which takes (x, edge_index), with a Graph.

    Args:
        conv: the layer.
        keep_loops: False removes self-loops; for GIN and GraphSAGE, which have a term for x_i.
    """

    def __init__(self, conv: nn.Module, keep_loops: bool = True) -> None:
        super().__init__()
        self.conv, self.keep_loops = conv, keep_loops

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], graph: Graph, edge_attr: Tensor | None = None
    ) -> Tensor:
        """[num_keys, in] -> [num_queries, out]; edge_attr is in the order of the edge numbers."""
        edge_index = torch.stack([graph.key_index.long(), graph.query_index.long()])
        if not self.keep_loops:
            edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        options = {} if edge_attr is None else {"edge_attr": edge_attr[graph.edge_id.long()]}
        return self.conv(x, edge_index, **options)


def make_sage(width: int, out: int) -> PyGLayer:
    """W_l mean_j x_j + b + W_r x_i"""
    from torch_geometric.nn import SAGEConv

    return PyGLayer(SAGEConv(width, out), keep_loops=False)


def make_gin(width: int, out: int) -> PyGLayer:
    """W' ReLU(BatchNorm(W (x_i + Σ_j x_j)))"""
    from torch_geometric.nn import GINConv

    inner = nn.BatchNorm1d(out), nn.ReLU()
    mlp = nn.Sequential(nn.Linear(width, out), *inner, nn.Linear(out, out))
    return PyGLayer(GINConv(mlp), keep_loops=False)


def make_pyg_attention(
    mechanism: str, width: int, out: int, heads: int, **options: Any
) -> PyGLayer:
    """PyG's own GATConv or GATv2Conv."""
    from torch_geometric.nn import GATConv, GATv2Conv

    layers: dict[str, Any] = {"gat": GATConv, "gatv2": GATv2Conv}
    return PyGLayer(layers[mechanism](width, out, heads=heads, **options))
