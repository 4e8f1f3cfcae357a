"""Segments: the edges of a row, cut where a multiple of CUT lies inside it.

Positions are cut into blocks of CUT edges. Every row has one task, for its edges up to the end of
the block in which it begins. A row that goes on has one further task in each later block, so there
are at most num_positions // CUT of those. A block has two slots for partial results: 2·b for the
row that goes on at its begin, and 2·b + 1 for a row that begins in it and goes on after it.
"""

import triton
import triton.language as tl


@triton.jit
def last_row_at(rowptr, stride, num_rows, position):
    """The last row that begins at or before the position; rowptr[stride · row] is its begin."""
    low, high = num_rows * 0, num_rows
    while low < high:
        middle = (low + high + 1) // 2
        is_before = tl.load(rowptr + middle * stride) <= position
        low = tl.where(is_before, middle, low)
        high = tl.where(is_before, high, middle - 1)
    return low


@triton.jit
def segment_of(row, block, is_first, rowptr, stride, num_rows, CUT: tl.constexpr):
    """begin, end, whether the segment exists, whether its row has others, its slot

    It is the first segment of the row, or the one that goes on at the begin of the block.
    """
    exists = row < num_rows
    row_begin = tl.load(rowptr + row * stride, mask=exists, other=0)
    row_end = tl.load(rowptr + (row + 1) * stride, mask=exists, other=0)
    begin = tl.where(is_first, row_begin, block * CUT)
    exists = exists & (is_first | (row_begin < begin))
    end = tl.minimum(row_end, (begin // CUT + 1) * CUT)
    end = tl.where(exists, end, begin)
    is_split = exists & (row_begin < row_end) & (row_begin // CUT != (row_end - 1) // CUT)
    slot = 2 * (begin // CUT) + is_first.to(tl.int32)
    return begin, end, exists, is_split, slot


@triton.jit
def task_of(task, rowptr, stride, num_rows, CUT: tl.constexpr):
    """The row of a task, and its segment: tasks 0 .. num_rows - 1 are first segments."""
    is_first = task < num_rows
    block = task - num_rows + 1
    row = task
    if task >= num_rows:
        row = last_row_at(rowptr, stride, num_rows, block * CUT)
    begin, end, exists, is_split, slot = segment_of(
        row, block, is_first, rowptr, stride, num_rows, CUT
    )
    return row, begin, end, exists, is_split, slot


@triton.jit
def split_row_of(block, rowptr, stride, num_rows, CUT: tl.constexpr):
    """The row whose second segment is in this block, whether there is one, and its last block."""
    row = last_row_at(rowptr, stride, num_rows, block * CUT)
    exists = row < num_rows
    row_begin = tl.load(rowptr + row * stride, mask=exists, other=0)
    row_end = tl.load(rowptr + (row + 1) * stride, mask=exists, other=0)
    exists = exists & (row_begin < block * CUT) & (row_begin >= (block - 1) * CUT)
    return row, exists, (row_end - 1) // CUT


@triton.jit
def merge_sums(
    part, out, rowptr, rows, stride, num_rows, num_table_rows, num_blocks, num_slots,
    WIDTH: tl.constexpr, CUT: tl.constexpr, BLOCK: tl.constexpr, IS_COMPACT: tl.constexpr,
):  # fmt: skip
    """out[row] = Σ of the row's partial results, in the order of its segments"""
    batch, block = tl.program_id(0) // num_blocks, tl.program_id(0) % num_blocks + 1
    row, exists, last = split_row_of(block, rowptr, stride, num_rows, CUT)
    if exists:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = column < WIDTH
        first_slot = batch.to(tl.int64) * num_slots
        first = part + (first_slot + 2 * block - 1) * WIDTH + column
        total = tl.load(first, mask=inside, other=0.0)
        for at in range(block, last + 1):
            more = part + (first_slot + 2 * at) * WIDTH + column
            total += tl.load(more, mask=inside, other=0.0)
        if IS_COMPACT:
            row = tl.load(rows + row)
        to = out + (batch.to(tl.int64) * num_table_rows + row) * WIDTH + column
        tl.store(to, total.to(out.dtype.element_ty), mask=inside)
