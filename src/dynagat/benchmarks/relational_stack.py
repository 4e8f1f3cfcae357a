"""RelationalStack: the network of the released code for QM9 and VarMisuse, as frozen settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import nn

from dynagat.nn.averaged import AveragedNetwork
from dynagat.nn.dropout import Dropout
from dynagat.nn.network import Layer, make_conv
from dynagat.training import ADDED_LATER

ACTIVATIONS = {
    "elu": nn.ELU,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}


def dense(in_dim: int, out_dim: int) -> nn.Linear:
    """A linear map without bias, initialised as in the released code."""
    linear = nn.Linear(in_dim, out_dim, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear


@dataclass(frozen=True)
class RelationalStack:
    """h ← tanh(W x); h ← f(conv(z)), where z is the dropped-out h, averaged every r layers

    A dense layer tanh(W h) follows layer 0 and every `dense_every`-th layer after it.
    """

    # Nodes of a batch from which layers are computed again in the backward pass: the same numbers
    # with less memory, in more time. None: never.
    RECOMPUTE_FROM: ClassVar[int | None] = None

    dim: int = 128
    heads: int = 8
    layers: int = 8
    dropout: float = 0.1  # of the input of each layer
    residual_every: int = 1  # r; 0: never
    norm: bool = False  # LayerNorm after each layer
    activation: Literal["elu", "leaky_relu", "relu", "tanh"] = "elu"
    share_weights: bool = True  # of GATv2, and of queries and keys in DPGAT
    dense_every: int = field(default=32, metadata=ADDED_LATER)  # D37: so it follows layer 0 only

    def __post_init__(self) -> None:
        if self.dim < 1 or self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads must divide dim={self.dim}, but is {self.heads}")
        for name, least in (("layers", 1), ("dense_every", 1), ("residual_every", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), but is {self.dropout}")

    def averaged_every(self, mechanism: str) -> int:
        """r of a mechanism."""
        return self.residual_every

    def network(
        self, mechanism: str, embedding: nn.Module, num_relations: int, readout: nn.Module
    ) -> AveragedNetwork:
        return AveragedNetwork(
            embedding,
            self._layers(mechanism, num_relations),
            readout,
            dropout=Dropout(self.dropout),
            every=self.averaged_every(mechanism),
            recompute_from=self.RECOMPUTE_FROM,
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
            if t % self.dense_every == 0:
                after += [dense(self.dim, self.dim), nn.Tanh()]
            yield Layer(make(self.dim, self.dim, self.heads), after=nn.Sequential(*after))
