"""Linear: x Wᵀ + b, whose input width may stay open until the first x, as PyG's may."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter, UninitializedParameter, is_lazy

from dynagat.ops.project import project


@final
class Linear(nn.Module):
    """x Wᵀ + b, with W drawn from ±√(6 / (in + out)) and b from ±1 / √in, both uniformly.

    Args:
        in_channels: width of x; -1 leaves it open until the first x.
        out_channels: width of the result.
        bias: whether there is a b.
        blocks: W is this many matrices on top of each other, each drawn as if it stood alone.
    """

    def __init__(
        self, in_channels: int, out_channels: int, bias: bool = True, *, blocks: int = 1
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.blocks = blocks
        self.weight: Tensor = (
            Parameter(torch.empty(out_channels, in_channels))
            if in_channels > 0
            else UninitializedParameter()
        )
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    @property
    def is_open(self) -> bool:
        """Is the input width still to be read from the first x?"""
        return isinstance(self.weight, UninitializedParameter)

    def reset_parameters(self) -> None:
        """Draw W, then b; nothing while the width is open."""
        if self.is_open:
            return
        limit = math.sqrt(6 / (self.in_channels + self.out_channels // self.blocks))
        nn.init.uniform_(self.weight, -limit, limit)
        if self.bias is not None:
            limit = 1 / math.sqrt(self.in_channels)
            nn.init.uniform_(self.bias, -limit, limit)

    def settle(self, in_channels: int) -> None:
        """Fix an open width, and draw the parameters."""
        if not self.is_open:
            return
        if torch.compiler.is_compiling():
            raise RuntimeError(
                "in_channels=-1 is still open: call the layer once before compiling or exporting it"
            )
        self._materialize(in_channels)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:  # [*, in] -> [*, out]
        self.settle(x.shape[-1])
        return project(x, self.weight, self.bias)

    def _materialize(self, in_channels: int) -> None:
        assert isinstance(self.weight, UninitializedParameter)
        self.in_channels = in_channels
        self.weight.materialize((self.out_channels, in_channels))

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                as_it_is = keep_vars or is_lazy(parameter)  # an open one can't be detached
                destination[prefix + name] = parameter if as_it_is else parameter.detach()

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs) -> None:
        weight = state_dict.get(prefix + "weight")
        if is_lazy(weight):
            kind = {"device": self.weight.device, "dtype": self.weight.dtype}
            self.in_channels, self.weight = -1, UninitializedParameter(**kind)
        elif weight is not None and self.is_open:
            self._materialize(weight.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, bias={self.bias is not None}"
