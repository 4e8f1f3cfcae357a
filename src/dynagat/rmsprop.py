"""TFRMSprop: RMSProp as TensorFlow 1 has it, which torch's can't imitate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor


@final
class TFRMSprop(torch.optim.Optimizer):
    """s ← d s + (1 - d) g²,  m ← μ m + lr g / √(s + ε),  w ← w - m;  s starts at 1, m at 0

    torch's RMSprop starts with s = 0, adds ε outside the root, and its m holds no learning rate.

    Args:
        params: the parameters, as for any optimiser.
        lr: learning rate.
        decay: d, of the average of squared gradients.
        momentum: μ.
        eps: ε.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        decay: float = 0.9,
        momentum: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        for name, value in (("lr", lr), ("decay", decay), ("momentum", momentum), ("eps", eps)):
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, but is {value}")
        super().__init__(params, {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    self._update(each, each.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state |= {"square": torch.ones_like(grad), "step": torch.zeros_like(grad)}
        state["square"].mul_(group["decay"]).addcmul_(grad, grad, value=1 - group["decay"])
        root = (state["square"] + group["eps"]).sqrt_()
        state["step"].mul_(group["momentum"]).addcdiv_(grad, root, value=group["lr"])
        parameter.sub_(state["step"])
