"""Tail: residual sum, activation, norm and dropout after a graph layer, in one native pass."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from dynagat.native import kernels
from dynagat.nn.dropout import Dropout
from dynagat.ops.fused import LARGE, STORAGE
from dynagat.ops.tail import tail

ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.ELU: "elu"}
INNER, SUM, NORM, OUTER, DROPOUT = range(1, 6)  # the steps of one pass, in this order
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@final
class Tail(nn.Sequential):
    """out = after(residual + g inner(x)), where `after` are the modules of this one, in order

    The result is that of the modules called one after the other, within rounding. On the CPU, steps
    in the order activation, residual sum, norm, activation, dropout are computed in one pass, and
    so are their gradients: those of ReLU, ELU, LayerNorm, BatchNorm1d, Dropout and torch's Dropout.
    Other modules, and those with hooks, are called as they are.

    Args:
        modules: as in `torch.nn.Sequential`; the keys of the state dict are the same.
        inner: applied to x before the residual is added; None for the identity.
    """

    def __init__(self, *modules: nn.Module, inner: nn.Module | None = None) -> None:
        super().__init__(*modules)
        self.__dict__["inner"] = inner  # no member of the sequence
        if inner is not None and any(True for _ in inner.parameters()):
            raise ValueError(f"inner must have no parameters, but is {inner}")

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, residual: Tensor | None = None, gain: float = 1.0
    ) -> Tensor:
        """[*, C] -> [*, C]

        Args:
            residual: [*, C], added after `inner`; None adds nothing.
            gain: g, used if there is a residual.
        """
        waiting = Waiting(x).then(self.__dict__["inner"])
        if residual is not None:
            waiting = waiting.plus(residual, gain)
        for module in self:
            waiting = waiting.then(module)
        return waiting.result()


@final
class Waiting:
    """x, and steps that are still to be computed on it, in one pass."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.last = 0  # the last of the steps
        self.modules: list[nn.Module] = []  # of the steps
        self.options: dict[str, Any] = {}  # of the op
        self.norm: nn.Module | None = None

    def then(self, module: nn.Module | None) -> Waiting:
        """With one more step: a module, or those of a Sequential."""
        if module is None or type(module) is nn.Identity or _is_off(module):
            return self
        if type(module) is nn.Sequential and not _has_hooks(module):
            waiting = self
            for each in module:
                waiting = waiting.then(each)
            return waiting
        step = self._step(module)
        if not step:
            return Waiting(module(self.result()))
        if step <= self.last:
            return Waiting(self.result()).then(module)
        self.last = step
        self.modules.append(module)
        if step == NORM:
            self.norm = module
        elif step == DROPOUT:
            self.options["dropout"] = module.p
        else:
            name = "inner" if step == INNER else "outer"
            self.options[name] = ACTIVATIONS[type(module)]
        return self

    def plus(self, residual: Tensor, gain: float) -> Waiting:
        """With the sum residual + gain · x."""
        is_alike = residual.shape == self.x.shape and residual.dtype == self.x.dtype
        if not (is_alike and _is_native(self.x)):
            return Waiting(residual + gain * self.result())
        if self.last >= SUM:
            return Waiting(self.result()).plus(residual, gain)
        self.options |= {"residual": residual, "gain": gain}
        self.last = SUM
        return self

    def result(self) -> Tensor:
        is_small = self.x.numel() * self.x.element_size() < LARGE
        num_steps = len(self.modules) + ("residual" in self.options)
        if not num_steps:
            return self.x
        if num_steps == 1 and self.modules and is_small:
            return self.modules[0](self.x)
        if "dropout" in self.options:
            self.options["seed"] = torch.randint(2**63 - 1, ())
        if self.norm is not None:
            self.options |= _norm_options(self.norm)
        out, mean, variance = tail(self.x, **self.options)
        if isinstance(self.norm, nn.BatchNorm1d):
            _update(self.norm, mean, variance, len(self.x))
        return out

    def _step(self, module: Any) -> int:
        """Which step of a pass a module is; 0 for none."""
        if not _is_native(self.x) or _has_hooks(module):
            return 0
        kind = type(module)
        if kind is nn.ReLU or (kind is nn.ELU and module.alpha == 1):
            return OUTER if self.last else INNER
        if kind is nn.LayerNorm:
            return NORM if module.normalized_shape == self.x.shape[-1:] else 0
        if kind is nn.BatchNorm1d:
            is_possible = self.x.dim() == 2 and self.x.shape[1] == module.num_features
            return NORM if is_possible and (len(self.x) > 1 or not _uses_batch(module)) else 0
        return DROPOUT if kind in (Dropout, nn.Dropout) and module.p < 1 else 0


def _is_off(module: Any) -> bool:
    is_dropout = type(module) in (Dropout, nn.Dropout) and not _has_hooks(module)
    return is_dropout and (not module.training or module.p == 0)


def _has_hooks(module: nn.Module) -> bool:
    """Whether a call computes more than the `forward` of its class, or another one."""
    return any(getattr(module, name) for name in HOOKS) or "forward" in module.__dict__


def _is_native(x: Tensor) -> bool:
    is_possible = kernels is not None and x.device.type == "cpu" and x.dtype in STORAGE
    return is_possible and x.dim() > 0 and not torch.is_autocast_enabled("cpu")


def _uses_batch(norm: nn.BatchNorm1d) -> bool:
    """Whether the mean and the variance are those of the batch."""
    return norm.training or norm.running_mean is None


def _norm_options(norm: Any) -> dict[str, Any]:
    options = {"weight": norm.weight, "bias": norm.bias, "eps": norm.eps}
    if isinstance(norm, nn.LayerNorm):
        return {**options, "norm": "layer"}
    given = {} if _uses_batch(norm) else {"mean": norm.running_mean, "variance": norm.running_var}
    return {**options, **given, "norm": "batch"}


@torch.no_grad()
def _update(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, rows: int) -> None:
    """Move the running statistics, as `torch.nn.BatchNorm1d` does."""
    if not norm.training or norm.running_mean is None or norm.running_var is None:
        return
    count = norm.num_batches_tracked
    if count is not None:
        count += 1
    share = norm.momentum if norm.momentum is not None else 1 / float(count or 1)
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
    unbiased = variance * (rows / (rows - 1))
    norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), share)
