"""SAGEConv: the mean of the neighbours beside the node itself (GraphSAGE), without attention."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.nn.checks import check_graph
from dynagat.nn.gcn import sum_keys


@final
class SAGEConv(nn.Module):
    """out_i = W_l mean_j x_j + b + W_r x_i,  over the keys j other than i

    Args:
        in_channels: width of x.
        out_channels: width of the output.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l = nn.Linear(in_channels, out_channels)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor | tuple[Tensor, Tensor], graph: Graph) -> Tensor:
        """[num_keys, in] -> [num_queries, out]; of a sample, x is (keys, queries)."""
        key, own = x if isinstance(x, tuple) else (x, x)
        check_graph(graph, key)
        query_index = graph.query_index
        loops = query_index[graph.key_index == query_index].long()
        loops = torch.bincount(loops, minlength=graph.num_queries)[:, None].to(key.dtype)
        count = graph.rowptr.diff()[:, None] - loops
        mean = (sum_keys(key, graph) - loops * own) / count.clamp_min(1)
        return self.lin_l(mean) + self.lin_r(own)
