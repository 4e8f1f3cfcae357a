"""Forward kernels: out_i = Σ_j α_ij value_j with a streaming softmax, one program per segment."""

import triton
import triton.language as tl

from dynagat.ops.triton.segments import split_row_of, task_of
from dynagat.ops.triton.tile import (
    GAT,
    GATV2,
    keep_factor,
    leaky,
    load_heads,
    load_row,
    load_rows,
    project_edges,
    table_rows,
    tile_axes,
)


@triton.jit
def scores_of(
    query, key_table, row, key, a, live, edge_id, relation,
    edge, edge_weight, edge_dim, slope, scale, head, offset, is_head, inside,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, EDGES: tl.constexpr,
    HAS_EDGE: tl.constexpr,
):  # fmt: skip
    """score [B, HEADS], z = query_i + key_j + W_e e_ij (for dpgat: key_j + W_e e_ij), key_j"""
    if MECHANISM == GAT:
        k = load_heads(key_table, key, live, H, head, is_head)
        z = k
        if HAS_EDGE:
            z = project_edges(
                edge, edge_weight, edge_id, live, relation, edge_dim, H, head, is_head, z
            )
        z += query[None]
        score = leaky(z, slope)
    else:
        k = load_rows(key_table, key, live, H * C, offset, inside)
        z = k
        if HAS_EDGE:
            z = project_edges(
                edge, edge_weight, edge_id, live, relation, edge_dim, H * C, offset, inside, z
            )
        if MECHANISM == GATV2:
            z += query[None]
            score = tl.sum(a[None] * leaky(z, slope), 2)
        else:
            score = tl.sum(query[None] * z, 2) * scale
    return score, z, k


@triton.jit
def load_query(
    table, rows, row, head, offset, is_head, inside,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, IS_COMPACT: tl.constexpr,
):  # fmt: skip
    """query_i under a relation: [HEADS, CHANNELS], or [HEADS] for gat"""
    at = table_rows(rows, row, row >= 0, IS_COMPACT)
    if MECHANISM == GAT:
        query = load_row(table, at, H, head, is_head)
    else:
        query = load_row(table, at, H * C, offset, inside)
    return query


@triton.jit
def attend_kernel(
    rowptr, key_index, edge_ids, query_rows, key_rows,
    query_table, key_table, value_table, a_table, edge, edge_weight, seed,
    out, state_out, top, total, part, scores,
    num_tasks, num_queries, num_query_rows, num_key_rows, num_edges, num_slots, edge_dim,
    slope, scale, threshold, keep_scale,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGES: tl.constexpr, CUT: tl.constexpr,
    IS_COMPACT: tl.constexpr, OWN_VALUE: tl.constexpr, HAS_EDGE: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, HAS_SCORES: tl.constexpr,
):  # fmt: skip
    batch, task = tl.program_id(0) // num_tasks, tl.program_id(0) % num_tasks
    i, begin, end, exists, is_split, slot = task_of(task, rowptr, R, num_queries, CUT)
    head, offset, is_head, inside = tile_axes(tl.program_id(1), H, C, HEADS, CHANNELS)
    wide = batch.to(tl.int64)
    width: tl.constexpr = H if MECHANISM == GAT else H * C
    query_table += wide * num_query_rows * width
    key_table += wide * num_key_rows * width
    value_table += wide * num_key_rows * (H * C)
    highest = tl.full((HEADS,), -float("inf"), tl.float32)
    sum_ = tl.zeros((HEADS,), tl.float32)
    accumulated = tl.zeros((HEADS, CHANNELS), tl.float32)
    for r in range(R):
        row = i * R + r
        first, last = begin, end
        if R > 1:
            first = tl.maximum(begin, tl.load(rowptr + row, mask=exists, other=0))
            last = tl.minimum(end, tl.load(rowptr + row + 1, mask=exists, other=0))
        row = tl.where(first < last, row, 0)
        query = load_query(
            query_table, query_rows, row, head, offset, is_head, inside, MECHANISM, H, C, IS_COMPACT
        )
        a = tl.zeros((HEADS, CHANNELS), tl.float32)
        if MECHANISM == GATV2:
            a = tl.load(a_table + r * (H * C) + offset, mask=inside, other=0.0)
        for at in range(first, last, EDGES):
            position = at + tl.arange(0, EDGES)
            live = position < last
            key = tl.load(key_index + position, mask=live, other=0) * R + r
            key = table_rows(key_rows, key, live, IS_COMPACT)
            edge_id = tl.load(edge_ids + position, mask=live, other=0)
            score, _, k = scores_of(
                query, key_table, row, key, a, live, edge_id, r, edge, edge_weight, edge_dim,
                slope, scale, head, offset, is_head, inside, MECHANISM, H, C, EDGES, HAS_EDGE,
            )  # fmt: skip
            number = (wide * num_edges + edge_id.to(tl.int64))[:, None] * H + head[None]
            if HAS_SCORES:
                tl.store(scores + number, score, mask=live[:, None] & is_head[None])
            score = tl.where(live[:, None], score, -float("inf"))
            new = tl.maximum(highest, tl.max(score, 0))
            weight = tl.exp(score - new[None])
            shrink = tl.exp(highest - new)
            sum_ = sum_ * shrink + tl.sum(weight, 0)
            if HAS_DROPOUT:
                weight *= keep_factor(seed, number, threshold, keep_scale)
            if OWN_VALUE or MECHANISM != GATV2:
                value = load_rows(value_table, key, live, H * C, offset, inside)
            else:
                value = k
            accumulated = accumulated * shrink[:, None] + tl.sum(weight[:, :, None] * value, 0)
            highest = new
    if is_split:
        at = part + (wide * num_slots + slot) * (H * (C + 2))
        channel = tl.arange(0, CHANNELS)
        tl.store(at + head[:, None] * (C + 2) + channel[None], accumulated, mask=inside)
        tl.store(at + head * (C + 2) + C, highest, mask=is_head)
        tl.store(at + head * (C + 2) + C + 1, sum_, mask=is_head)
    elif exists:
        store_query(
            out, state_out, top, total, wide * num_queries + i,
            accumulated, highest, sum_, head, offset, is_head, inside, H, C,
        )  # fmt: skip


@triton.jit
def store_query(
    out, state_out, top, total, i, accumulated, highest, sum_, head, offset, is_head, inside,
    H: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Results of a query: zeros if it has no edges."""
    result = accumulated / tl.where(sum_ == 0, 1.0, sum_)[:, None]
    tl.store(out + i * (H * C) + offset, result.to(out.dtype.element_ty), mask=inside)
    tl.store(state_out + i * (H * C) + offset, result, mask=inside)
    tl.store(top + i * H + head, highest, mask=is_head)
    tl.store(total + i * H + head, sum_, mask=is_head)


@triton.jit
def merge_kernel(
    rowptr, part, out, state_out, top, total, num_queries, num_blocks, num_slots,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Joins the segments of a query, in their order."""
    batch, block = tl.program_id(0) // num_blocks, tl.program_id(0) % num_blocks + 1
    i, exists, last = split_row_of(block, rowptr, R, num_queries, CUT)
    if exists:
        head, offset, is_head, inside = tile_axes(tl.program_id(1), H, C, HEADS, CHANNELS)
        channel = tl.arange(0, CHANNELS)
        wide = batch.to(tl.int64)
        highest = tl.full((HEADS,), -float("inf"), tl.float32)
        sum_ = tl.zeros((HEADS,), tl.float32)
        accumulated = tl.zeros((HEADS, CHANNELS), tl.float32)
        for at in range(block - 1, last + 1):
            slot = tl.where(at < block, 2 * at + 1, 2 * at)
            base = part + (wide * num_slots + slot) * (H * (C + 2)) + head * (C + 2)
            other = tl.load(base + C, mask=is_head, other=0.0)
            new = tl.maximum(highest, other)
            shrink, grow = tl.exp(highest - new), tl.exp(other - new)
            sum_ = sum_ * shrink + tl.load(base + C + 1, mask=is_head, other=0.0) * grow
            more = tl.load(base[:, None] + channel[None], mask=inside, other=0.0)
            accumulated = accumulated * shrink[:, None] + more * grow[:, None]
            highest = new
        store_query(
            out, state_out, top, total, wide * num_queries + i,
            accumulated, highest, sum_, head, offset, is_head, inside, H, C,
        )  # fmt: skip


@triton.jit
def weights_kernel(
    rowptr, edge_ids, scores, top, total, weights, num_tasks, num_queries, num_edges,
    H: tl.constexpr, R: tl.constexpr, HEADS: tl.constexpr, EDGES: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """weights = exp(score - top_i) / total_i, by edge id"""
    batch, task = tl.program_id(0) // num_tasks, tl.program_id(0) % num_tasks
    i, begin, end, exists, _, _ = task_of(task, rowptr, R, num_queries, CUT)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    is_head = (head < H) & exists
    wide = batch.to(tl.int64)
    of_query = (wide * num_queries + i) * H + head
    highest = tl.load(top + of_query, mask=is_head, other=0.0)
    sum_ = tl.load(total + of_query, mask=is_head, other=1.0)
    for at in range(begin, end, EDGES):
        position = at + tl.arange(0, EDGES)
        live = (position < end)[:, None] & is_head[None]
        edge_id = tl.load(edge_ids + position, mask=position < end, other=0)
        number = (wide * num_edges + edge_id.to(tl.int64))[:, None] * H + head[None]
        score = tl.load(scores + number, mask=live, other=0.0)
        tl.store(weights + number, tl.exp(score - highest[None]) / sum_[None], mask=live)


@triton.jit
def delta_kernel(
    rowptr, edge_ids, weights, dweights, delta, part, num_tasks, num_queries, num_edges, num_slots,
    H: tl.constexpr, R: tl.constexpr, HEADS: tl.constexpr, EDGES: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """delta_i = Σ_j α_ij dα_ij, where dα is the gradient of the returned weights"""
    batch, task = tl.program_id(0) // num_tasks, tl.program_id(0) % num_tasks
    i, begin, end, exists, is_split, slot = task_of(task, rowptr, R, num_queries, CUT)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    is_head = (head < H) & exists
    wide = batch.to(tl.int64)
    sum_ = tl.zeros((HEADS,), tl.float32)
    for at in range(begin, end, EDGES):
        position = at + tl.arange(0, EDGES)
        live = (position < end)[:, None] & is_head[None]
        edge_id = tl.load(edge_ids + position, mask=position < end, other=0)
        number = (wide * num_edges + edge_id.to(tl.int64))[:, None] * H + head[None]
        weight = tl.load(weights + number, mask=live, other=0.0)
        sum_ += tl.sum(weight * tl.load(dweights + number, mask=live, other=0.0), 0)
    if is_split:
        tl.store(part + (wide * num_slots + slot) * H + head, sum_, mask=is_head)
    else:
        tl.store(delta + (wide * num_queries + i) * H + head, sum_, mask=is_head)
