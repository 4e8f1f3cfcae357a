"""Network: graph layers in a row, each with what stands around it. One forward for every use.

Training on a whole graph, on samples of it, layer-wise inference and the microscope all go through
`Layer.forward`: a layer takes what its keys have and gives what its queries get, where the queries
are the first of the keys. On a whole graph they are the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, final

import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.nn.dpgat import DPGATConv
from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv
from dynagat.nn.gcn import GCNConv
from dynagat.nn.linear import Linear

ATTENTION: dict[str, Any] = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
MECHANISMS = ("gcn", *ATTENTION)


@final
class Layer(nn.Module):
    """out_i = dropout(ReLU(norm(conv(x)_i + W x_i))),  the last layer's is conv(x)_i + W x_i

    Args:
        conv: one of ours, which takes (x, graph).
        skip: W, or None to leave it out.
        norm: a module on [N, width], or None.
        dropout: the probability that a number is dropped in training.
        is_last: whether norm, ReLU and dropout are left out.
    """

    def __init__(
        self,
        conv: nn.Module,
        skip: nn.Module | None,
        norm: nn.Module | None,
        dropout: float,
        is_last: bool = False,
    ) -> None:
        super().__init__()
        self.conv, self.skip, self.norm = conv, skip, norm
        self.dropout, self.is_last = dropout, is_last

    def forward(self, x: Tensor, graph: Graph, degree: Tensor | None = None) -> Tensor:
        """[num_keys, in] -> [num_queries, out]; only GCN needs the degrees, and only of parts."""
        own = x[: graph.num_queries]
        if isinstance(self.conv, GCNConv):
            out = self.conv(x, graph, degree)
        else:
            out = self.conv(x if len(own) == len(x) else (x, own), graph)
        if self.skip is not None:
            out = out + self.skip(own)
        if self.is_last:
            return out
        out = F.relu(out if self.norm is None else self.norm(out))
        return F.dropout(out, self.dropout, self.training)


@final
class Network(nn.Module):
    """Layers one after the other; in training, some of what the first reads is dropped."""

    def __init__(self, layers: Iterable[Layer], feature_dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.feature_dropout = feature_dropout

    def forward(
        self, x: Tensor, graphs: Graph | Sequence[Graph], degree: Tensor | None = None
    ) -> Tensor:
        """What the last layer's queries get.

        Args:
            x: [N, in], of the first layer's keys.
            graphs: the whole graph, or a part of it for each layer, the first layer's first.
            degree: [N], of the first layer's keys in the whole graph, if the graphs are parts.
        """
        each = [graphs] * len(self.layers) if isinstance(graphs, Graph) else graphs
        if len(each) != len(self.layers):
            raise ValueError(f"graphs must be one for each of {len(self.layers)} layers, "
                             f"but are {len(each)}")  # fmt: skip
        x = F.dropout(x, self.feature_dropout, self.training)
        for layer, graph in zip(self.layers, each, strict=True):
            x = layer(x, graph, None if degree is None else degree[: graph.num_keys])
        return x


def make_network(
    mechanism: str,
    in_dim: int,
    out_dim: int,
    *,
    dim: int = 64,
    heads: int = 8,
    layers: int = 2,
    dropout: float = 0.5,
    attention_dropout: float = 0.0,
    feature_dropout: float = 0.0,
    skip: bool = True,
    norm: bool = True,
) -> Network:
    """Layers of `dim` channels in `heads` heads side by side; the last has one head."""
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ValueError(f"mechanism must be one of {known}, but is {mechanism!r}")
    widths = [in_dim, *[dim] * (layers - 1), out_dim]
    made = []
    for number, (width, out) in enumerate(pairwise(widths)):
        is_last = number == layers - 1
        conv = _conv(mechanism, width, out, 1 if is_last else heads, attention_dropout)
        made.append(
            Layer(
                conv,
                Linear(width, out, bias=False) if skip else None,
                nn.LayerNorm(out) if norm and not is_last else None,
                dropout,
                is_last,
            )
        )
    return Network(made, feature_dropout)


def _conv(mechanism: str, width: int, out: int, heads: int, dropout: float) -> nn.Module:
    if mechanism == "gcn":
        return GCNConv(width, out)
    # Loops are edges of the graph, where there are any: the same for every mechanism.
    return ATTENTION[mechanism](width, out // heads, heads=heads, add_self_loops=False,
                                dropout=dropout)  # fmt: skip


def degrees(graph: Graph) -> Tensor:
    """[num_queries] int32: how many keys each query has."""
    return graph.rowptr.diff()
