"""AveragedNetwork: relational layers with averaged residual connections, for many small graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dynagat.graph import Graph
from dynagat.nn.network import Neighbourhood
from dynagat.nn.segments import sum_by


@final
class GatedSum(nn.Module):
    """out_g = Σ_i sigmoid(U [h_i ‖ x_i] + u) ∘ (V h_i + v) over the nodes i of graph g

    Args:
        dim: width of h, the output of the last layer.
        features: width of x, the input of the network.
        out_dim: of the prediction.
    """

    def __init__(self, dim: int, features: int, out_dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim + features, out_dim)
        self.value = nn.Linear(dim, out_dim)
        for linear in (self.gate, self.value):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, h: Tensor, x: Tensor, node_graph: Tensor, num_graphs: int) -> Tensor:
        """[n, dim], [n, features], [n] -> [num_graphs, out]"""
        terms = torch.sigmoid(self.gate(torch.cat([h, x], dim=1))) * self.value(h)
        return sum_by(terms, node_graph, num_graphs)


@final
class AveragedNetwork(nn.Module):
    """h ← tanh(embedding(x)), then for each layer t: h ← layer_t(z_t), and a readout of h and x

    z_t = dropout(h). Where `every` divides t, z_t is kept, and the layer gets its mean with the
    one kept before.

    Args:
        embedding: of x.
        layers: modules that take (h, graph).
        readout: takes (h, x, further inputs of the network).
        dropout: a module.
        every: distance of the layers that get a mean; 0: none does.
        recompute_from: number of nodes from which the backward pass computes each layer again,
            with the same result, instead of keeping its tables, which takes more time and less
            memory; None: never.
    """

    def __init__(
        self,
        embedding: nn.Module,
        layers: Iterable[nn.Module],
        readout: nn.Module,
        *,
        dropout: nn.Module,
        every: int,
        recompute_from: int | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.layers = embedding, nn.ModuleList(layers)
        self.readout, self.dropout, self.every = readout, dropout, every
        self.recompute_from = recompute_from

    def forward(self, x: Any, edges: Graph | Neighbourhood, *readout_inputs: Any) -> Tensor:
        """The output of the readout."""
        return self.readout(self.encode(x, edges), x, *readout_inputs)

    def encode(self, x: Any, edges: Graph | Neighbourhood) -> Tensor:
        """[n, dim] of the last layer, before the readout."""
        graph = Neighbourhood.of(edges).graph
        h, kept = torch.tanh(self.embedding(x)), None
        for t, layer in enumerate(self.layers):
            z = self.dropout(h)
            if self.every and t % self.every == 0:
                mean = z if kept is None else torch.lerp(z, kept, 0.5)
                kept, z = z, mean
            if self._recomputes(len(h)):
                h = checkpoint(layer, z, graph, use_reentrant=False, preserve_rng_state=False)
            else:
                h = layer(z, graph)
        return h

    def _recomputes(self, num_nodes: int) -> bool:
        is_large = self.recompute_from is not None and num_nodes >= self.recompute_from
        return is_large and self.training and torch.is_grad_enabled()
