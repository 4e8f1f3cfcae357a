"""A device that is not there, for tests: tensors of the CPU that claim to be somewhere else.

Within `pretend_device()`, tensors can be moved to DEVICE and are computed there with real numbers.
As with a GPU, an operation on tensors of two places is an error, and so is reading their memory.
"""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dynagat import placement
from dynagat.ops import fused

DEVICE = torch.device("lazy:0")  # no GPU: autograd would ask for its threads
CPU = torch.device("cpu")
OURS = {"dynagat::attend": fused._forward, "dynagat::attend_backward": fused._backward}
MOVES = ("aten::_to_copy", "aten::copy_", "aten::to")


class There(Tensor):
    """A tensor on the device; `inner` has its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner):
        layout = {}
        if inner.layout == torch.strided:  # a sparse matrix looks dense from outside
            layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=DEVICE, **layout
        )

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(tensors, meta, size, stride):
        return There(tensors["inner"])

    def __reduce_ex__(self, protocol):
        return self.inner.__reduce_ex__(protocol)

    def tolist(self):
        return self.inner.tolist()

    def __repr__(self):
        return f"There({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


class Mode(TorchDispatchMode):
    """Sees functions without tensors, such as torch.zeros."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


def compute(function, args, kwargs):
    """The result of a torch function; on the device if it is asked for or if the inputs are."""
    name = function._schema.name
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    is_there = any(isinstance(each, There) for each in tensors)
    if name in OURS and is_there:
        with Mode():
            return OURS[name](*args)
    if is_there and name.removesuffix("_out") not in MOVES:
        for each in tensors:  # numbers may be anywhere, as with a GPU
            if not isinstance(each, There) and each.dim():
                raise RuntimeError(f"{name} got tensors on {DEVICE} and on {each.device}")
    wanted = kwargs.get("device")
    if wanted is not None:
        is_there = torch.device(wanted).type == DEVICE.type
        kwargs = kwargs | ({"device": CPU} if is_there else {})
    out = function(*tree_map(inner_of, args), **tree_map(inner_of, kwargs))
    if name == "aten::copy_":
        return args[0]
    same = {id(each.inner): each for each in tensors if isinstance(each, There)}

    def outer(each):
        if not is_there or not isinstance(each, Tensor) or isinstance(each, There):
            return each
        return same[id(each)] if id(each) in same else There(each)

    return tree_map(outer, out)


def inner_of(each):
    return each.inner if isinstance(each, There) else each


@contextmanager
def pretend_device():
    """The device exists within the block, under its name."""
    known = placement.find_device

    def find(name):
        return DEVICE if name == str(DEVICE) else known(name)

    modules = ("placement", "experiment.benchmark", "experiment.execution", "experiment.trials",
               "experiment.rescoring", "comparison.comparison", "cli.workers", "cli.inspect",
               "cli.prediction")  # fmt: skip
    names = [f"dynagat.{each}.find_device" for each in modules]
    patches = [patch(name, find) for name in names]
    for each in patches:
        each.start()
    try:
        with Mode():
            yield DEVICE
    finally:
        for each in patches:
            each.stop()
