"""Which implementation of the ops computes on a device."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

import torch

from dynagat.native import FORCED, kernels
from dynagat.ops import streamed
from dynagat.ops.inputs import AttentionInputs

TRITON_DEVICES = ("cuda", "xpu")  # ROCm calls its devices cuda, too
TRITON_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HAS_TRITON = importlib.util.find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # then it computes on the CPU, slowly

forced = FORCED  # by DYNAGAT_BACKEND; empty: the best one for the device


class ImpossibleBackend(RuntimeError):
    """DYNAGAT_BACKEND names an implementation that can't compute on a device."""


def choose(device: torch.device) -> str:
    """reference, fused, triton or streamed. An impossible DYNAGAT_BACKEND raises an error."""
    kind = device.type
    if forced:
        reason = _reason_against(forced, kind)
        if reason:
            raise ImpossibleBackend(
                f"DYNAGAT_BACKEND={forced} {reason}, but the tensors are on {device}"
            )
        return forced
    if kind == "cpu":
        return "reference" if kernels is None else "fused"
    return "triton" if kind in TRITON_DEVICES and HAS_TRITON else "streamed"


def _reason_against(name: str, kind: str) -> str:
    """Why an implementation can't compute on devices of a kind; empty if it can."""
    if name == "fused" and kind != "cpu":
        return "computes on the CPU only"
    if name == "triton" and not HAS_TRITON:
        return "needs the package triton, which is not installed"
    known = (*TRITON_DEVICES, "cpu") if IS_INTERPRETED else TRITON_DEVICES
    if name == "triton" and kind not in known:
        return f"computes on {' and '.join(TRITON_DEVICES)} devices only"
    return ""


def implementation(inputs: AttentionInputs) -> ModuleType | None:
    """The module whose `forward` and `backward` compute this call; None: the native kernels."""
    values = inputs.value_table
    name = choose(values.device)
    if name == "triton" and values.dtype in TRITON_DTYPES:  # it computes in float32
        from dynagat.ops.triton import attention

        return attention
    return None if name == "fused" else streamed
