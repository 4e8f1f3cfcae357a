"""Gradients of edge features and their weights, from the records of the pass by query.

d (W_e e) of an edge is dscore · a · LeakyReLU'(z) for gatv2, dscore for gat and dscore · query_i
for dpgat: a row of M = H·C or H numbers. The kernels multiply it with e or with W_e.
"""

import triton
import triton.language as tl

from dynagat.ops.triton.segments import last_row_at
from dynagat.ops.triton.tile import DPGAT, GAT, GATV2, table_rows


@triton.jit
def projected_gradient(
    notes, signs, a_table, query_table, query_rows, here, live, row, column, slope,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    CHANNELS: tl.constexpr, BYTES: tl.constexpr, IS_COMPACT: tl.constexpr,
):  # fmt: skip
    """[edges, columns] of d (W_e e), for edges with these records, all in one row"""
    M: tl.constexpr = H if MECHANISM == GAT else H * C
    per_head: tl.constexpr = 1 if MECHANISM == GAT else C
    good = live[:, None] & (column < M)[None]
    at = notes + here[:, None] * (2 * H) + H + (column // per_head)[None]
    gradient = tl.load(at, mask=good, other=0.0)
    if MECHANISM == GATV2:
        bit = column // C * CHANNELS + column % C
        byte = tl.load(signs + here[:, None] * BYTES + (bit // 8)[None], mask=good, other=0)
        is_positive = ((byte.to(tl.int32) >> (bit % 8)[None]) & 1) != 0
        a = tl.load(a_table + row % R * M + column, mask=column < M, other=0.0)
        gradient *= a[None] * tl.where(is_positive, 1.0, slope)
    elif MECHANISM == DPGAT:
        from_ = table_rows(query_rows, row, row >= 0, IS_COMPACT).to(tl.int64) * M + column
        query = tl.load(query_table + from_, mask=column < M, other=0.0)
        gradient *= query.to(tl.float32)[None]
    return gradient


@triton.jit
def edge_weight_kernel(
    rowptr, edge_ids, query_rows, query_table, a_table, edge, notes, signs, part,
    num_blocks, block_size, num_rows, num_query_rows, num_positions, edge_dim, slope,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    CHANNELS: tl.constexpr, BYTES: tl.constexpr, IS_COMPACT: tl.constexpr,
    EDGES: tl.constexpr, COLUMNS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """part[batch, block, relation] = Σ e ⊗ d (W_e e) over the edges of a block of positions"""
    M: tl.constexpr = H if MECHANISM == GAT else H * C
    batch, block = tl.program_id(0) // num_blocks, tl.program_id(0) % num_blocks
    r = tl.program_id(1)
    num_tiles = (edge_dim + FEATURES - 1) // FEATURES
    feature = tl.program_id(2) % num_tiles * FEATURES + tl.arange(0, FEATURES)
    column = tl.program_id(2) // num_tiles * COLUMNS + tl.arange(0, COLUMNS)
    wide = batch.to(tl.int64)
    query_table += wide * num_query_rows * M
    begin, end = block * block_size, tl.minimum((block + 1) * block_size, num_positions)
    sum_ = tl.zeros((FEATURES, COLUMNS), tl.float32)
    row = last_row_at(rowptr, 1, num_rows, begin)
    row += (r - row % R + R) % R  # the first row of this relation, from there on
    row_begin = tl.load(rowptr + tl.minimum(row, num_rows))
    while (row < num_rows) & (row_begin < end):
        last = tl.minimum(tl.load(rowptr + row + 1), end)
        for at in range(tl.maximum(row_begin, begin), last, EDGES):
            position = at + tl.arange(0, EDGES)
            live = position < last
            gradient = projected_gradient(
                notes, signs, a_table, query_table, query_rows, wide * num_positions + position,
                live, row, column, slope, MECHANISM, H, C, R, CHANNELS, BYTES, IS_COMPACT,
            )  # fmt: skip
            edge_id = tl.load(edge_ids + position, mask=live, other=0).to(tl.int64)
            e = tl.load(
                edge + edge_id[None] * edge_dim + feature[:, None],
                mask=live[None] & (feature < edge_dim)[:, None],
                other=0.0,
            )
            sum_ = tl.dot(e, gradient, sum_, input_precision="ieee")
        row += R
        row_begin = tl.load(rowptr + tl.minimum(row, num_rows))
    to = (tl.program_id(0).to(tl.int64) * R + r) * M
    good = (feature < edge_dim)[:, None] & (column < M)[None]
    tl.store(part + (to + column[None]) * edge_dim + feature[:, None], sum_, mask=good)


@triton.jit
def edge_kernel(
    rowptr, edge_ids, query_rows, query_table, a_table, edge_weight, notes, signs, dedge,
    num_batches, block_size, num_rows, num_query_rows, num_positions, edge_dim, slope,
    MECHANISM: tl.constexpr, H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    CHANNELS: tl.constexpr, BYTES: tl.constexpr, IS_COMPACT: tl.constexpr,
    EDGES: tl.constexpr, COLUMNS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """d e = W_eᵀ d (W_e e), summed over the batch; `edge_weight` is [R, D, M]"""
    M: tl.constexpr = H if MECHANISM == GAT else H * C
    feature = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    begin = tl.program_id(0) * block_size
    end = tl.minimum(begin + block_size, num_positions)
    row = last_row_at(rowptr, 1, num_rows, begin)
    row_begin = tl.load(rowptr + row)
    while (row < num_rows) & (row_begin < end):
        last = tl.minimum(tl.load(rowptr + row + 1), end)
        for at in range(tl.maximum(row_begin, begin), last, EDGES):
            position = at + tl.arange(0, EDGES)
            live = position < last
            sum_ = tl.zeros((EDGES, FEATURES), tl.float32)
            for batch in range(num_batches):
                here = tl.cast(batch, tl.int64) * num_positions + position
                table = query_table + tl.cast(batch, tl.int64) * num_query_rows * M
                for first in range(0, M, COLUMNS):
                    column = first + tl.arange(0, COLUMNS)
                    gradient = projected_gradient(
                        notes, signs, a_table, table, query_rows, here, live, row, column, slope,
                        MECHANISM, H, C, R, CHANNELS, BYTES, IS_COMPACT,
                    )  # fmt: skip
                    from_ = (row % R * edge_dim + feature)[None] * M + column[:, None]
                    inside = (column < M)[:, None] & (feature < edge_dim)[None]
                    weight = tl.load(edge_weight + from_, mask=inside, other=0.0)
                    sum_ = tl.dot(gradient, weight, sum_, input_precision="ieee")
            edge_id = tl.load(edge_ids + position, mask=live, other=0).to(tl.int64)
            to = dedge + edge_id[:, None] * edge_dim + feature[None]
            tl.store(to, sum_, mask=live[:, None] & (feature < edge_dim)[None])
        row += 1
        row_begin = tl.load(rowptr + tl.minimum(row, num_rows))
