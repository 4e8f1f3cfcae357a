"""Linear: x Wᵀ + b, which may take its input width from the first x, as in PyG."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter, UninitializedParameter, is_lazy

from dynagat.ops.project import project


@final
class Linear(nn.Module):
    """x Wᵀ + b, initialised uniformly: W in ±√(6 / (in + out)), b in ±1 / √in.

    Args:
        in_channels: width of x; -1 makes the layer lazy.
        out_channels: width of the result.
        bias: whether to add b.
        blocks: number of matrices stacked in W; each is initialised on its own.
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
    def is_lazy(self) -> bool:
        """Is the input width still unknown?"""
        return type(self.weight) is UninitializedParameter  # isinstance is slow for parameters

    def reset_parameters(self) -> None:
        """Initialise W, then b; a lazy layer stays as it is."""
        if self.is_lazy:
            return
        limit = math.sqrt(6 / (self.in_channels + self.out_channels // self.blocks))
        nn.init.uniform_(self.weight, -limit, limit)
        if self.bias is not None:
            limit = 1 / math.sqrt(self.in_channels)
            nn.init.uniform_(self.bias, -limit, limit)

    def initialize(self, in_channels: int) -> None:
        """Set the input width of a lazy layer and initialise its parameters."""
        if not self.is_lazy:
            return
        if torch.compiler.is_compiling():
            raise RuntimeError(
                "in_channels=-1 is still unknown: call the layer once before compiling or exporting"
            )
        self._materialize(in_channels)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:  # [*, in] -> [*, out]
        self.initialize(x.shape[-1])
        return project(x, self.weight, self.bias)

    def _materialize(self, in_channels: int) -> None:
        assert isinstance(self.weight, UninitializedParameter)
        self.in_channels = in_channels
        self.weight.materialize((self.out_channels, in_channels))

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                is_kept = keep_vars or is_lazy(parameter)  # a lazy parameter can't be detached
                destination[prefix + name] = parameter if is_kept else parameter.detach()

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs) -> None:
        weight = state_dict.get(prefix + "weight")
        if is_lazy(weight):
            kind = {"device": self.weight.device, "dtype": self.weight.dtype}
            self.in_channels, self.weight = -1, UninitializedParameter(**kind)
        elif weight is not None and self.is_lazy:
            self._materialize(weight.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, bias={self.bias is not None}"
