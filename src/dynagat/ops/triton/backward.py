"""Backward kernels: by query (a record per edge, d query, d a), then by key (d key, d value).

The record of an edge is α after dropout and the gradient of its score, per head, and for gatv2 the
signs of z, one bit per channel: 8·H + H·C / 8 bytes. The pass by key reads the record and gathers
dout, so that neither the query's nor the key's row is gathered again.
"""

import triton
import triton.language as tl

from dynagat.ops.triton.forward import load_query, scores_of
from dynagat.ops.triton.segments import last_row_at, segment_of, task_of
from dynagat.ops.triton.tile import (
    GAT,
    GATV2,
    keep_factor,
    load_row,
    load_rows,
    pack,
    table_rows,
    tile_axes,
    unpack,
)


@triton.jit
def by_query_kernel(
    rowptr, key_index, edge_ids, query_rows, key_rows,
    query_table, key_table, value_table, a_table, edge, edge_weight, seed,
    dout, state_out, top, total, dweights, extra_delta,
    dquery, part, notes, signs, da_part,
    num_tasks, num_chunks, num_queries, num_query_rows, num_key_rows, num_edges, num_positions,
    num_slots, edge_dim, slope, scale, threshold, keep_scale,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGES: tl.constexpr, GROUPS: tl.constexpr,
    CUT: tl.constexpr, ROWS: tl.constexpr, IS_COMPACT: tl.constexpr, OWN_VALUE: tl.constexpr,
    HAS_EDGE: tl.constexpr, HAS_DROPOUT: tl.constexpr, HAS_DWEIGHTS: tl.constexpr,
):  # fmt: skip
    """Tasks are the first segments of ROWS queries under one relation, then the other segments.

    Each has a partial sum of d a, so that there are few of those.
    """
    batch, task = tl.program_id(0) // num_tasks, tl.program_id(0) % num_tasks
    group = tl.program_id(1)
    head, offset, is_head, inside = tile_axes(group, H, C, HEADS, CHANNELS)
    wide = batch.to(tl.int64)
    width: tl.constexpr = H if MECHANISM == GAT else H * C
    query_table += wide * num_query_rows * width
    key_table += wide * num_key_rows * width
    value_table += wide * num_key_rows * (H * C)
    is_first = task < num_chunks * R
    block = task - num_chunks * R + 1
    r = task % R
    first_query = task // R * ROWS
    count = tl.minimum(ROWS, num_queries - first_query)
    if task >= num_chunks * R:
        row = last_row_at(rowptr, 1, num_queries * R, block * CUT)
        r = row % R
        first_query = row // R
        count = tl.minimum(1, num_queries - first_query)
    a = tl.zeros((HEADS, CHANNELS), tl.float32)
    if MECHANISM == GATV2:
        a = tl.load(a_table + r * (H * C) + offset, mask=inside, other=0.0)
    da = tl.zeros((HEADS, CHANNELS), tl.float32)
    BYTES: tl.constexpr = HEADS * CHANNELS // 8
    byte = group * BYTES + tl.arange(0, BYTES)
    for n in range(count):
        i = first_query + n
        row = i * R + r
        begin, end, exists, is_split, slot = segment_of(
            row, block, is_first, rowptr, 1, num_queries * R, CUT
        )
        query = load_query(
            query_table, query_rows, row, head, offset, is_head, inside, MECHANISM, H, C, IS_COMPACT
        )
        of_query = wide * num_queries + i
        upstream = load_row(dout, of_query, H * C, offset, inside)
        delta = tl.sum(upstream * load_row(state_out, of_query, H * C, offset, inside), 1)
        if HAS_DWEIGHTS:
            delta += load_row(extra_delta, of_query, H, head, is_head)
        highest = load_row(top, of_query, H, head, is_head)
        sum_ = tl.load(total + of_query * H + head, mask=is_head, other=1.0)
        if MECHANISM == GAT:
            dq = tl.zeros((HEADS,), tl.float32)
        else:
            dq = tl.zeros((HEADS, CHANNELS), tl.float32)
        for at in range(begin, end, EDGES):
            position = at + tl.arange(0, EDGES)
            live = position < end
            key = tl.load(key_index + position, mask=live, other=0) * R + r
            key = table_rows(key_rows, key, live, IS_COMPACT)
            edge_id = tl.load(edge_ids + position, mask=live, other=0)
            score, z, k = scores_of(
                query, key_table, row, key, a, live, edge_id, r, edge, edge_weight, edge_dim,
                slope, scale, head, offset, is_head, inside, MECHANISM, H, C, EDGES, HAS_EDGE,
            )  # fmt: skip
            if OWN_VALUE or MECHANISM != GATV2:
                value = load_rows(value_table, key, live, H * C, offset, inside)
            else:
                value = k
            weight = tl.exp(score - highest[None]) / sum_[None]
            weight = tl.where(live[:, None], weight, 0.0)
            dweight = tl.sum(upstream[None] * value, 2)
            number = (wide * num_edges + edge_id.to(tl.int64))[:, None] * H + head[None]
            good = live[:, None] & is_head[None]
            kept = weight
            if HAS_DROPOUT:
                factor = keep_factor(seed, number, threshold, keep_scale)
                kept = weight * factor
                dweight *= factor
            if HAS_DWEIGHTS:
                dweight += tl.load(dweights + number, mask=good, other=0.0)
            dscore = weight * (dweight - delta[None])
            here = wide * num_positions + position
            if MECHANISM == GAT:
                dscore *= tl.where(z > 0, 1.0, slope)
                dq += tl.sum(dscore, 0)
            elif MECHANISM == GATV2:
                sloped = dscore[:, :, None] * tl.where(z > 0, 1.0, slope)
                dq += tl.sum(sloped, 0)
                da += tl.sum(sloped * z, 0)
                to = signs + here[:, None] * (GROUPS * BYTES) + byte[None]
                tl.store(to, pack(z > 0, EDGES, BYTES), mask=live[:, None])
            else:
                dscore *= scale
                dq += tl.sum(dscore[:, :, None] * z, 0)
            to = notes + here[:, None] * (2 * H) + head[None]
            tl.store(to, kept, mask=good)
            tl.store(to + H, dscore, mask=good)
        if MECHANISM == GATV2:
            dq *= a
        table_row = table_rows(query_rows, row, exists, IS_COMPACT)
        to_table = wide * num_query_rows + table_row
        to_part = wide * num_slots + slot
        whole = exists & (is_split == 0) & (table_row >= 0)
        if MECHANISM == GAT:
            tl.store(dquery + to_table * H + head, dq, mask=is_head & whole)
            tl.store(part + to_part * H + head, dq, mask=is_head & is_split)
        else:
            to = dquery + to_table * (H * C) + offset
            tl.store(to, dq.to(dquery.dtype.element_ty), mask=inside & whole)
            tl.store(part + to_part * (H * C) + offset, dq, mask=inside & is_split)
    if MECHANISM == GATV2:
        tl.store(da_part + tl.program_id(0).to(tl.int64) * (H * C) + offset, da, mask=inside)


@triton.jit
def by_key_kernel(
    key_rowptr, key_query, key_position, query_rows, key_rows,
    query_table, a_table, dout, notes, signs, dkey, dvalue, key_part, value_part,
    num_tasks, num_queries, num_keys, num_query_rows, num_key_rows, num_positions, num_slots, slope,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGES: tl.constexpr, GROUPS: tl.constexpr,
    CUT: tl.constexpr, IS_COMPACT: tl.constexpr, OWN_VALUE: tl.constexpr,
):  # fmt: skip
    """d key_j and d value_j, of key j under one relation; a sum if they are one table"""
    batch, task = tl.program_id(0) // num_tasks, tl.program_id(0) % num_tasks
    group = tl.program_id(1)
    row, begin, end, exists, is_split, slot = task_of(task, key_rowptr, 1, num_keys * R, CUT)
    head, offset, is_head, inside = tile_axes(group, H, C, HEADS, CHANNELS)
    r = row % R
    wide = batch.to(tl.int64)
    dout += wide * num_queries * (H * C)
    query_table += wide * num_query_rows * (H * C)
    BYTES: tl.constexpr = HEADS * CHANNELS // 8
    byte = group * BYTES + tl.arange(0, BYTES)
    dv = tl.zeros((HEADS, CHANNELS), tl.float32)
    if MECHANISM == GAT:
        dk = tl.zeros((HEADS,), tl.float32)
    else:
        dk = tl.zeros((HEADS, CHANNELS), tl.float32)
    for at in range(begin, end, EDGES):
        position = at + tl.arange(0, EDGES)
        live = position < end
        i = tl.load(key_query + position, mask=live, other=0)
        here = wide * num_positions + tl.load(key_position + position, mask=live, other=0)
        upstream = load_rows(dout, i, live, H * C, offset, inside)
        good = live[:, None] & is_head[None]
        note = notes + here[:, None] * (2 * H) + head[None]
        kept = tl.load(note, mask=good, other=0.0)
        dscore = tl.load(note + H, mask=good, other=0.0)
        dv += tl.sum(kept[:, :, None] * upstream, 0)
        if MECHANISM == GAT:
            dk += tl.sum(dscore, 0)
        elif MECHANISM == GATV2:
            from_ = signs + here[:, None] * (GROUPS * BYTES) + byte[None]
            packed = tl.load(from_, mask=live[:, None], other=0)
            is_positive = unpack(packed, EDGES, HEADS, CHANNELS) != 0
            dk += tl.sum(dscore[:, :, None] * tl.where(is_positive, 1.0, slope), 0)
        else:
            query = table_rows(query_rows, i * R + r, live, IS_COMPACT)
            q = load_rows(query_table, query, live, H * C, offset, inside)
            dk += tl.sum(dscore[:, :, None] * q, 0)
    if MECHANISM == GATV2:
        a = tl.load(a_table + r * (H * C) + offset, mask=inside & exists, other=0.0)
        dk *= a
        if not OWN_VALUE:
            dk += dv
    table_row = table_rows(key_rows, row, exists, IS_COMPACT)
    whole = exists & (is_split == 0) & (table_row >= 0)
    to_table = wide * num_key_rows + table_row
    to_part = wide * num_slots + slot
    if MECHANISM == GAT:
        tl.store(dkey + to_table * H + head, dk, mask=is_head & whole)
        tl.store(key_part + to_part * H + head, dk, mask=is_head & is_split)
    else:
        to = dkey + to_table * (H * C) + offset
        tl.store(to, dk.to(dkey.dtype.element_ty), mask=inside & whole)
        tl.store(key_part + to_part * (H * C) + offset, dk, mask=inside & is_split)
    if OWN_VALUE or MECHANISM != GATV2:
        to = dvalue + to_table * (H * C) + offset
        tl.store(to, dv.to(dvalue.dtype.element_ty), mask=inside & whole)
        tl.store(value_part + to_part * (H * C) + offset, dv, mask=inside & is_split)
