"""Readouts: from features of nodes to predictions for graphs, pairs of nodes, or candidates."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dynagat.nn.dropout import Dropout
from dynagat.nn.segments import sum_by
from dynagat.ops import pair_linear


@final
class MeanReadout(nn.Module):
    """out_g = W mean(x_i over the nodes i of graph g) + b"""

    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, out_dim)

    def forward(self, x: Tensor, node_graph: Tensor, num_graphs: int) -> Tensor:
        """[n, dim], [n] -> [num_graphs, out]"""
        total = sum_by(x, node_graph, num_graphs)
        count = torch.bincount(node_graph, minlength=num_graphs).clamp_min(1)
        return self.linear(total / count[:, None])


@final
class PairReadout(nn.Module):
    """score_ij = MLP(x_i ∘ x_j), with `layers` linear layers, and ReLU and dropout between them"""

    def __init__(self, dim: int, layers: int = 2, *, dropout: float = 0.0) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for _ in range(layers - 1):
            parts += [nn.Linear(dim, dim), nn.ReLU()]
            parts += [Dropout(dropout)] if dropout else []
        self.mlp = nn.Sequential(*parts, nn.Linear(dim, 1))

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        """[N, dim], [P, 2] -> [P]"""
        first, *others = self.mlp
        assert isinstance(first, nn.Linear)
        hidden = pair_linear(x, pairs, first.weight, first.bias)
        for part in others:
            hidden = part(hidden)
        return hidden[:, 0]


@final
class CandidateReadout(nn.Module):
    """score_c = w · [x_slot ‖ x_c] for each candidate node c of a slot"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, 1)

    def forward(self, x: Tensor, slot: Tensor, candidate: Tensor) -> Tensor:
        """[n, dim], and for each candidate the nodes of its slot and of itself [K] -> [K]"""
        return self.linear(torch.cat([x[slot], x[candidate]], dim=1))[:, 0]
