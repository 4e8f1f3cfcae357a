"""The network for VarMisuse: a character CNN of labels, relational layers, scores of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat.benchmarks.relational_stack import RelationalStack, dense
from dynagat.data.programs.labels import ALPHABET, LENGTH, NUM_CODES
from dynagat.data.programs.records import RELATIONS
from dynagat.experiment import departure
from dynagat.nn.averaged import AveragedNetwork

SLOPE = 0.2  # of LeakyReLU
FILTERS, WIDTH = 16, 5  # of the first convolution, and of the maximum after it
REST = LENGTH - 2 * (WIDTH - 1)  # width of the second convolution, which leaves one position
FEATURES = 64


class Labels(NamedTuple):
    """What nodes have: the characters of the distinct labels [L, 19], and the label of each [n]."""

    codes: Tensor
    label: Tensor


@final
class LabelEmbedding(nn.Module):
    """x_i = W c(label of node i),  c = f(U₂ * max(f(U₁ * one-hot characters + u₁)) + u₂)

    * is a convolution, the maximum is over 5 neighbouring positions, and f is LeakyReLU. c and W c
    are computed once for each distinct label.

    Args:
        dim: width of the output.
        depth: of the one-hot vectors; characters with a higher code get zeros.
    """

    def __init__(self, dim: int, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.first = nn.Conv1d(depth, FILTERS, WIDTH)
        self.second = nn.Conv1d(FILTERS, FEATURES, REST)
        for convolution in (self.first, self.second):
            nn.init.xavier_uniform_(convolution.weight)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        self.linear = dense(FEATURES, dim)

    def forward(self, x: Labels) -> Tensor:
        """[n, dim]"""
        return self.linear(self.features(x.codes)).index_select(0, x.label)

    def features(self, codes: Tensor) -> Tensor:  # [L, 19] -> [L, 64]
        one_hot = F.one_hot(codes.long(), NUM_CODES)[..., : self.depth]
        characters = one_hot.to(self.first.weight.dtype).transpose(1, 2)  # [L, depth, 19]
        hidden = F.leaky_relu(self.first(characters), SLOPE)
        pooled = F.max_pool1d(hidden, WIDTH, stride=1)
        return F.leaky_relu(self.second(pooled), SLOPE)[..., 0]


@final
class SlotReadout(nn.Module):
    """score_c = w · [h_c ‖ h_slot ‖ ⟨h_c, h_slot⟩] for each candidate node c of a slot"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = dense(2 * dim + 1, 1)

    def forward(self, h: Tensor, x: Any, slot: Tensor, candidate: Tensor) -> Tensor:
        """[n, dim], and for each candidate the nodes of its slot and of itself [K] -> [K]"""
        there, here = h[candidate], h[slot]
        product = (there * here).sum(1, keepdim=True)
        return self.linear(torch.cat([there, here, product], dim=1))[:, 0]


@dataclass(frozen=True)
class ProgramStack(RelationalStack):
    """Scores the candidates of a slot; see `SlotReadout`."""

    # The tables of 23 relations are many times as large as h: to keep those of 20,000 nodes, a step
    # takes 1.0 GB with GATv2 and 1.8 GB with GIN.
    RECOMPUTE_FROM: ClassVar[int | None] = 20_000

    dim: int = 96
    residual_every: int = 0  # D15: the attention models and GCN have no residual connections
    activation: Literal["elu", "leaky_relu", "relu", "tanh"] = "tanh"
    depth: int = departure(NUM_CODES, published=len(ALPHABET), number="D39")  # of one-hot vectors

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.depth <= NUM_CODES:
            raise ValueError(f"depth must lie between 1 and {NUM_CODES}, but is {self.depth}")

    def build(self, problem: Any, mechanism: str) -> AveragedNetwork:
        embedding = LabelEmbedding(self.dim, self.depth)
        return self.network(mechanism, embedding, len(RELATIONS), SlotReadout(self.dim))
