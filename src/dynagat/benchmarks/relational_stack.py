"""RelationalStack: the network of the released code for QM9 and VarMisuse, as frozen settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from dynagat.experiment import departure
from dynagat.nn.averaged import AveragedNetwork
from dynagat.nn.dropout import Dropout
from dynagat.nn.network import Layer, make_conv

ACTIVATIONS = {"elu": nn.ELU, "leaky_relu": lambda: nn.LeakyReLU(0.2)}
DENSE_AFTER = 0  # D37: "dense every 32 layers" is meant, but it follows the first layer only


@dataclass(frozen=True)
class RelationalStack:
    """h ← tanh(W x); h ← f(conv(z)), where z is the dropped-out h, averaged every r layers

    A dense layer tanh(W h) follows the first layer.
    """

    dim: int = 128
    heads: int = 8
    layers: int = 8
    dropout: float = 0.1  # of the input of each layer
    residual_every: int = 1  # r, except for GAT
    gat_residual_every: int = departure(1, published=2, number="D36")
    norm: bool = False  # LayerNorm after each layer
    activation: Literal["elu", "leaky_relu"] = "elu"
    share_weights: bool = True  # of GATv2, and of queries and keys in DPGAT

    def __post_init__(self) -> None:
        if self.dim < 1 or self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads must divide dim={self.dim}, but is {self.heads}")
        for name in ("layers", "residual_every", "gat_residual_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), but is {self.dropout}")

    def network(
        self, mechanism: str, features: int, num_relations: int, readout: nn.Module
    ) -> AveragedNetwork:
        return AveragedNetwork(
            features,
            self.dim,
            self._layers(mechanism, num_relations),
            readout,
            dropout=Dropout(self.dropout),
            every=self.gat_residual_every if mechanism == "gat" else self.residual_every,
        )

    def _layers(self, mechanism: str, num_relations: int) -> Iterator[Layer]:
        make = make_conv(
            mechanism,
            share_weights=self.share_weights,
            num_relations=num_relations,
            activation=ACTIVATIONS[self.activation],
        )
        for t in range(self.layers):
            after: list[nn.Module] = []
            if mechanism != "gin":  # its layer has the activation inside
                after += [ACTIVATIONS[self.activation]()]
            if self.norm:
                after += [nn.LayerNorm(self.dim)]
            if t == DENSE_AFTER:
                dense = nn.Linear(self.dim, self.dim, bias=False)
                nn.init.xavier_uniform_(dense.weight)
                after += [dense, nn.Tanh()]
            yield Layer(make(self.dim, self.dim, self.heads), after=nn.Sequential(*after))
