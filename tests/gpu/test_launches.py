"""On which device kernels are launched. Nothing is executed, and no GPU is needed."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch.utils._pytree import tree_map_only

pytest.importorskip("triton", reason="needs the extra gpu-check")

from bench.gpu import tiny_call

from dynagat.ops.inputs import State
from dynagat.ops.triton import attention
from tests.problems import MECHANISMS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kernels_are_launched_on_the_device_of_their_inputs(mechanism, monkeypatch):
    """Triton launches on torch's current device, wherever the tensors are."""
    current, launched = ["another"], []

    @contextmanager
    def device(chosen):
        current.append(str(chosen))
        yield
        current.pop()

    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace(device=device))
    monkeypatch.setattr(attention, "architecture_of", lambda _: "sm_90")
    monkeypatch.setattr(attention, "launch", lambda *_, **more: launched.append(current[-1]))
    inputs = tiny_call(mechanism, 2, 8, torch.float32, has_all=True)
    there = tree_map_only(torch.Tensor, lambda each: each.to("meta"), inputs)
    attention.forward(there, True)
    in_forward = len(launched)
    numbers = torch.empty(State.size(there, True), device="meta")
    dout, dweights = torch.empty(4, 2, 8, device="meta"), torch.empty(4, 2, device="meta")
    attention.backward(there, numbers, dout, dweights, wants_dedge=True)
    assert 0 < in_forward < len(launched)
    assert set(launched) == {"meta"}
    assert current == ["another"]
