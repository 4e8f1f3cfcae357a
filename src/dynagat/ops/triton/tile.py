"""Device code that several kernels share: tiles of edges, heads and channels; scores; dropout."""

import triton
import triton.language as tl

GAT = tl.constexpr(0)
GATV2 = tl.constexpr(1)
DPGAT = tl.constexpr(2)


@triton.jit
def tile_axes(group, H: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr):
    """The heads of a group, offsets [HEADS, CHANNELS] into a row of H·C numbers, and masks."""
    head = group * HEADS + tl.arange(0, HEADS)
    channel = tl.arange(0, CHANNELS)
    is_head = head < H
    return head, head[:, None] * C + channel[None], is_head, is_head[:, None] & (channel[None] < C)


@triton.jit
def load_row(table, row, width: tl.constexpr, offset, inside):
    """A row of a table in float32, for the offsets; zeros where `inside` is false."""
    at = table + row.to(tl.int64) * width + offset
    return tl.load(at, mask=inside & (row >= 0), other=0.0).to(tl.float32)


@triton.jit
def load_rows(table, row, live, width: tl.constexpr, offset, inside):
    """[B] rows of a table -> [B, HEADS, CHANNELS] in float32"""
    at = table + row.to(tl.int64)[:, None, None] * width + offset[None]
    return tl.load(at, mask=live[:, None, None] & inside[None], other=0.0).to(tl.float32)


@triton.jit
def load_heads(table, row, live, H: tl.constexpr, head, is_head):
    """[B] rows of a table with a number per head -> [B, HEADS] in float32"""
    at = table + row.to(tl.int64)[:, None] * H + head[None]
    return tl.load(at, mask=live[:, None] & is_head[None], other=0.0).to(tl.float32)


@triton.jit
def table_rows(rows, row, live, IS_COMPACT: tl.constexpr):
    """Where a table has the rows; only a compact graph's tables lack some."""
    if IS_COMPACT:
        return tl.load(rows + row, mask=live, other=0)
    return row


@triton.jit
def project_edges(
    edge, weight, edge_id, live, relation, edge_dim, width: tl.constexpr, offset, inside, projected
):
    """projected [B, ...] + W_e e; `weight` is [R, D, width], and `offset` [...] is within width"""
    base = weight + relation * edge_dim * width + offset
    for d in range(edge_dim):
        e = tl.load(edge + edge_id.to(tl.int64) * edge_dim + d, mask=live, other=0.0)
        w = tl.load(base + d * width, mask=inside, other=0.0)
        if len(projected.shape) == 3:
            projected += e[:, None, None] * w[None]
        else:
            projected += e[:, None] * w[None]
    return projected


@triton.jit
def mix(x):
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def keep_factor(seed, number, threshold, scale):
    """1 / (1 - p) or 0 for the weights with these numbers: `is_kept` of ops/reference.py"""
    bits = tl.load(seed).to(tl.uint64)
    first = mix((bits & 0xFFFFFFFF).to(tl.uint32) ^ 0x9E3779B9)
    second = mix((bits >> 32).to(tl.uint32) ^ first)
    low = (number & 0xFFFFFFFF).to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    drawn = mix(mix(low ^ first) + (high ^ second))
    return tl.where(drawn.to(tl.int64) >= threshold, scale, 0.0)


@triton.jit
def leaky(z, slope):
    return tl.where(z > 0, z, z * slope)


@triton.jit
def pack(is_positive, EDGES: tl.constexpr, BYTES: tl.constexpr):
    """[EDGES, HEADS, CHANNELS] of booleans -> [EDGES, BYTES], eight to a byte"""
    eight = tl.reshape(is_positive.to(tl.int32), (EDGES, BYTES, 8)) << tl.arange(0, 8)[None, None]
    return tl.sum(eight, 2).to(tl.uint8)


@triton.jit
def unpack(bytes, EDGES: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr):
    """The inverse of `pack`: integers 0 and 1"""
    bits = (bytes[:, :, None].to(tl.int32) >> tl.arange(0, 8)[None, None]) & 1
    return tl.reshape(bits, (EDGES, HEADS, CHANNELS))
