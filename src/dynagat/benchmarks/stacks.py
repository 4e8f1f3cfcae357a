"""Stacks: networks for nodes and for links as frozen settings that build themselves.

Every mechanism can stand in every stack. `x ← f(x)` below is one layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, final

from torch import nn

from dynagat.experiment import departure
from dynagat.nn.dropout import Dropout
from dynagat.nn.linear import Linear
from dynagat.nn.network import BASELINES, Layer, MakeConv, Network, make_conv
from dynagat.nn.readout import PairReadout
from dynagat.prediction.links import LinkProblem
from dynagat.prediction.nodes import NodeProblem

Position = Literal["first", "middle", "last"]


@dataclass(frozen=True)
class LayerShape:
    """Widths and heads of one layer."""

    width: int
    out: int
    heads: int
    position: Position  # a single layer is the last


def layer_shapes(widths: list[int], heads: int, last_heads: int) -> Iterator[LayerShape]:
    """The layers between consecutive widths."""
    count = len(widths) - 1
    for index, (width, out) in enumerate(pairwise(widths)):
        is_last = index == count - 1
        position = "last" if is_last else "middle" if index else "first"
        yield LayerShape(width, out, last_heads if is_last else heads, position)


class Stack(ABC):
    """Abstract. The subclasses are frozen dataclasses that also have the fields below."""

    dim: int
    heads: int
    layers: int

    def __post_init__(self) -> None:
        self.check()

    def check(self, least_layers: int = 1) -> None:
        """Refuse values that no network can have."""
        if self.dim < 1 or self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads must divide dim={self.dim}, but is {self.heads}")
        if self.layers < least_layers:
            raise ValueError(f"layers must be at least {least_layers}, but is {self.layers}")
        for name, value in vars(self).items():
            if name.endswith("dropout") and not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1), but is {value}")

    def widths(self, problem: NodeProblem) -> list[int]:
        return [problem.x.shape[1], *[self.dim] * (self.layers - 1), problem.out_dim]

    @abstractmethod
    def build(self, problem: Any, mechanism: str) -> Network:
        """The network, with new weights from torch's generator."""


@dataclass(frozen=True)
class PyGStack(Stack):
    """Abstract. What the stacks of the released PyG code have in common."""

    dim: int = 256
    heads: int = 8
    layers: int = 3
    dropout: float = 0.25
    last_heads: int = 1  # D16: "8 heads" are those of the layers before the last
    bias: bool = False
    share_weights: bool = True  # D10: of GATv2
    share_query: bool = departure(True, published=False, number="D3")  # Q = K, of DPGAT
    source: Literal["dynagat", "pyg"] = "dynagat"  # whose layers

    def conv(self, mechanism: str) -> MakeConv:
        is_shared = self.share_query if mechanism == "dpgat" else self.share_weights
        return make_conv(mechanism, bias=self.bias, share_weights=is_shared, source=self.source)

    def shapes(self, problem: NodeProblem) -> Iterator[LayerShape]:
        return layer_shapes(self.widths(problem), self.heads, self.last_heads)


@dataclass(frozen=True)
class ResidualLayers(PyGStack):
    """Abstract. x ← dropout(LayerNorm(x + g ReLU(conv(x)))), and conv alone in the last layer

    residual="middle" adds x where both widths are the hidden one; "all" adds it elsewhere too,
    through a linear map, also in the last layer.
    """

    residual: Literal["none", "middle", "all"] = "middle"  # D15: not "all", as the paper says
    gain: float = 1.0  # g of the middle layers
    norm: bool = True

    @property
    def eval_gain(self) -> float:
        """g of the middle layers in evaluation."""
        return 1.0

    def layers_between(self, widths: list[int], mechanism: str) -> Iterator[Layer]:
        conv = self.conv(mechanism)
        for shape in layer_shapes(widths, self.heads, self.last_heads):
            yield self._layer(conv, shape)

    def _layer(self, conv: MakeConv, shape: LayerShape) -> Layer:
        is_middle, is_last = shape.position == "middle", shape.position == "last"
        # Drawn before conv, and also where it is not used: the random stream of older records.
        skip = nn.Identity() if is_middle else Linear(shape.width, shape.out, bias=False)
        is_added = self.residual == "all" or (self.residual == "middle" and is_middle)
        norm: list[nn.Module] = [nn.LayerNorm(shape.out)] if self.norm else []
        return Layer(
            conv(shape.width, shape.out, shape.heads),
            inner=None if is_last else nn.ReLU(),
            skip=skip if is_added else None,
            after=None if is_last else nn.Sequential(*norm, Dropout(self.dropout)),
            gain=self.gain if is_middle else 1.0,
            eval_gain=self.eval_gain if is_middle else 1.0,
        )


@final
@dataclass(frozen=True)
class ResidualStack(ResidualLayers):
    """For nodes: arxiv, mag and edge noise."""

    gain: float = departure(1.0, published=2.0, number="D14")  # in training

    def build(self, problem: NodeProblem, mechanism: str) -> Network:
        return Network(self.layers_between(self.widths(problem), mechanism))


@dataclass(frozen=True)
class LinkStack(ResidualLayers):
    """For links: score_ij = MLP(h_i ∘ h_j), with as many linear layers as graph layers

    Nodes without features get a row of a learned table.
    """

    dim: int = 64
    dropout: float = 0.0
    # "ogb": GCN and GraphSAGE are 256 wide, without norm and residual, as in OGB's scripts.
    baselines: Literal["same", "ogb"] = departure("same", published="ogb", number="D27")

    def build(self, problem: LinkProblem, mechanism: str) -> Network:
        if mechanism in BASELINES and self.baselines == "ogb":
            own = replace(self, baselines="same", dim=256, norm=False, residual="none")
            return own.build(problem, mechanism)
        is_learned = problem.x.dim() == 1
        width = self.dim if is_learned else problem.x.shape[1]
        layers = list(self.layers_between([width, *[self.dim] * self.layers], mechanism))
        embedding = nn.Embedding(len(problem.x), self.dim) if is_learned else None
        if embedding is not None:
            nn.init.xavier_uniform_(embedding.weight)  # as OGB's script for ddi
        readout = PairReadout(self.dim, self.layers, dropout=self.dropout)
        return Network(layers, embedding=embedding, readout=readout)


@final
@dataclass(frozen=True)
class LinearSkipStack(PyGStack):
    """x ← dropout(ELU(conv(x) + W x + b)), and conv(x) + W x + b in the last layer: products"""

    dim: int = 128
    dropout: float = 0.5

    def build(self, problem: NodeProblem, mechanism: str) -> Network:
        conv = self.conv(mechanism)
        return Network(
            Layer(
                conv(shape.width, shape.out, shape.heads),
                skip=nn.Linear(shape.width, shape.out),
                after=None
                if shape.position == "last"
                else nn.Sequential(nn.ELU(), Dropout(self.dropout)),
            )
            for shape in self.shapes(problem)
        )
