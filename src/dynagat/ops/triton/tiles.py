"""The static table of tile sizes: a function of H, C, dtype and architecture, never of timings.

A timed choice would change the order of sums, and so the bits, from run to run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

MAX_CHANNELS = 4096  # of a head; wider rows would not fit into the registers of a program
CUT = 512  # edges per segment of a row
ROWS = 8  # queries that share a partial sum of d a
EDGE_BLOCKS = 256  # partial sums of d W_e


class Tile(NamedTuple):
    """A program has `edges` edges at a time, of `heads` heads with `channels` channels."""

    edges: int
    heads: int
    channels: int
    warps: int

    @property
    def width(self) -> int:
        return self.heads * self.channels


def tile_for(kernel: str, heads: int, channels: int, dtype: torch.dtype, architecture: str) -> Tile:
    """The tile of "forward", "by_query" or "by_key"; sizes are powers of two."""
    if channels > MAX_CHANNELS:
        raise ValueError(
            f"the Triton kernels support at most {MAX_CHANNELS} channels per head, but C is "
            f"{channels}; DYNAGAT_BACKEND=streamed supports any number"
        )
    padded = max(_power_of_two(channels), 8)
    group = min(_power_of_two(heads), max(1024 // padded, 1))
    width = padded * group
    warps = 1 if width <= 256 else 4 if width <= 1024 else 8
    edges = max(_numbers(kernel, dtype, architecture) * warps // width, 1)
    return Tile(min(edges, 16), group, padded, warps)


def compiler_options(architecture: str) -> dict[str, int]:
    """Without a limit, NVIDIA's compiler spills a few registers to fit more programs."""
    return {"maxnreg": 255} if architecture.startswith("sm_") else {}


def _numbers(kernel: str, dtype: torch.dtype, architecture: str) -> int:
    """How many numbers of a tile each warp has."""
    if architecture.startswith("gfx"):  # warps of 64 threads
        return 2048 if kernel == "forward" else 1024
    return 1024 if kernel == "forward" else 512


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
