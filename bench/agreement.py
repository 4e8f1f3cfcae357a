"""Agreement: how much the results of contenders differ, before they are timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from bench.contenders import Contender
from bench.records import Record

# Relative to the largest entry. A gradient of gat-8x8 differs from PyG's by 1.8e-3: probably,
# rounding moves a score close to zero to the other side of the kink of LeakyReLU.
TOLERANCE = 1e-2


def largest_difference(results: Mapping[Any, Tensor], expected: Mapping[Any, Tensor]) -> float:
    """Over all entries of all tensors, relative to the largest entry of the expected tensor."""
    return max(
        float((results[name].float() - tensor).abs().max() / tensor.abs().max())
        for name, tensor in expected.items()
        if name in results
    )


def results_of(contender: Contender, out: Tensor) -> dict[str, Tensor]:
    """The output of a step, named "", and its gradients by the names of their parameters."""
    grads = {name: p.grad.clone() for name, p in contender.parameters.items() if p.grad is not None}
    return {"": out.detach(), **grads}


def differences(
    name: str, result: dict[str, Tensor], other: str, expected: dict[str, Tensor]
) -> Iterator[Record]:
    if name == other:
        return
    grads = {key: grad for key, grad in expected.items() if key}
    for quantity, tensors in {"output": {"": expected[""]}, "gradients": grads}.items():
        difference = largest_difference(result, tensors)
        yield Record.rounded(name, f"{quantity} against {other}", [difference])
