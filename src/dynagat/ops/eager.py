"""What native code for eager programs on the CPU shares: when it may run, and how it is called."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynagat.native import kernels

SUMMED = (torch.float32, torch.float64)  # the dtypes that the kernels beside attention can add
PLAIN = (Tensor, torch.nn.Parameter)

# What compiles the functions that are called now, or None. torch.compile does not compile functions
# with sparse arguments, but the functions which they call; native code would break in those.
_eval_frame: Any = torch._C._dynamo.eval_frame  # pyright: ignore[reportAttributeAccessIssue]
_frame_compiler = getattr(_eval_frame, "get_eval_frame_callback", lambda: None)


def is_eager(x: Tensor) -> bool:
    """Whether x is an ordinary tensor on the CPU in a program that is not being compiled."""
    if kernels is None or type(x) not in PLAIN or not x.is_cpu:
        return False
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    if torch._C._are_functorch_transforms_active():  # plain torch has rules for all of torch.func
        return False
    return not callable(_frame_compiler())


class Function(torch.autograd.Function):
    """Abstract. A Function whose `apply` does not inspect the signature of `forward` in each call,
    which takes longer than a small op; outside of torch.func, torch has no other use for it.

    Under torch.func.vmap it is called once for each entry of the batch.
    """

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return super().apply(*arguments)
        return super(torch.autograd.Function, cls).apply(*arguments)  # pyright: ignore

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *arguments: Any) -> Any:  # pyright: ignore
        each = [cls.apply(*_entry(arguments, in_dims, n)) for n in range(info.batch_size)]
        outputs = tuple(torch.stack(parts) for parts in zip(*each, strict=True))
        return outputs, (0,) * len(outputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(
            "dynagat's native ops have no forward-mode derivative (jvp); use reverse mode, or set"
            " DYNAGAT_BACKEND=reference"
        )


def _entry(values: Any, in_dims: Any, n: int) -> list[Any]:
    """The arguments, or those of a list, of entry n of a batch."""
    return [
        value if dim is None
        else _entry(value, dim, n) if isinstance(value, list)
        else value.select(dim, n)
        for value, dim in zip(values, in_dims, strict=True)
    ]  # fmt: skip
