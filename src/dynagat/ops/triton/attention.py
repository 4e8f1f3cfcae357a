"""forward and backward of the op: allocates, and launches the kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import triton
from torch import Tensor

from dynagat.ops import observe
from dynagat.ops.inputs import AttentionInputs, State, notify_observers
from dynagat.ops.triton import tiles
from dynagat.ops.triton.backward import by_key_kernel, by_query_kernel
from dynagat.ops.triton.edges import edge_kernel, edge_weight_kernel
from dynagat.ops.triton.forward import attend_kernel, delta_kernel, merge_kernel, weights_kernel
from dynagat.ops.triton.segments import merge_sums
from dynagat.ops.triton.tiles import CUT, Tile

MECHANISMS = ("gat", "gatv2", "dpgat")
EDGE_TILE = {"EDGES": 16, "COLUMNS": 32, "FEATURES": 16}
COLUMNS = 1024  # of a merged row, per program
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


class Call:
    """The sizes and options of one call, as the kernels take them."""

    def __init__(self, inputs: AttentionInputs) -> None:
        values = inputs.value_table
        self.inputs = inputs
        self.num_batches = values.shape[:-3].numel()
        self.heads, self.channels = values.shape[-2:]
        self.num_positions = inputs.graph[1].shape[0]
        self.num_blocks = self.num_positions // CUT  # in which a row can go on
        self.num_slots = 2 * (self.num_blocks + 1)
        self.num_query_rows, self.num_key_rows = inputs.table_rows
        self.edge_dim = 0 if inputs.edge is None else inputs.edge.shape[1]
        self.is_compact = len(inputs.graph) > 6
        self.query_rows, self.key_rows = inputs.graph[6:] or (inputs.graph[0], inputs.graph[0])
        self.architecture = architecture_of(values.device)

    def tile(self, kernel: str) -> Tile:
        dtype = self.inputs.value_table.dtype
        return tiles.tile_for(kernel, self.heads, self.channels, dtype, self.architecture)

    def groups(self, tile: Tile) -> int:
        return -(-self.heads // tile.heads)

    def launch(self, kernel: Any, grid: tuple[int, ...], warps: int, **arguments: Any) -> None:
        options = {"num_warps": warps} | tiles.compiler_options(self.architecture)
        launch(kernel, grid, options, **arguments)

    @property
    def shape(self) -> dict[str, int]:
        return {"H": self.heads, "C": self.channels, "R": self.inputs.num_relations}

    @property
    def mechanism(self) -> dict[str, int]:
        return {"MECHANISM": MECHANISMS.index(self.inputs.mechanism)}

    def options(self) -> dict[str, Any]:
        """What the kernels that compute scores need besides arrays."""
        inputs = self.inputs
        return {
            "num_edges": inputs.num_edges, "num_slots": self.num_slots, "edge_dim": self.edge_dim,
            "slope": inputs.slope, "scale": self.channels**-0.5,
            "threshold": int(inputs.dropout * 2**32),
            "keep_scale": 1 / (1 - inputs.dropout) if inputs.dropout < 1 else 0.0,
            "IS_COMPACT": self.is_compact, "OWN_VALUE": inputs.value is not None,
            "HAS_EDGE": inputs.edge is not None, "HAS_DROPOUT": inputs.dropout > 0,
            **self.shape, **self.mechanism, "CUT": CUT,
        }  # fmt: skip

    def arrays(self) -> dict[str, Any]:
        """What the kernels that compute scores read; other arrays stand in for missing ones."""
        inputs, values = self.inputs, self.inputs.value_table
        edge = values if inputs.edge is None else inputs.edge
        return {
            "rowptr": inputs.graph[0], "key_index": inputs.graph[1], "edge_ids": inputs.graph[2],
            "query_rows": self.query_rows, "key_rows": self.key_rows,
            "query_table": inputs.query, "key_table": inputs.key, "value_table": values,
            "a_table": values if inputs.a is None else inputs.a, "edge": edge,
            "edge_weight": edge if inputs.edge is None else features_first(inputs),
            "seed": inputs.graph[0] if inputs.seed is None else inputs.seed,
            "num_query_rows": self.num_query_rows, "num_key_rows": self.num_key_rows,
        }  # fmt: skip


def architecture_of(device: torch.device) -> str:
    """ "sm_90" and the like; empty for devices without such a name."""
    if device.type != "cuda":
        return ""
    properties = torch.cuda.get_device_properties(device)
    name = getattr(properties, "gcnArchName", "")
    return name if torch.version.hip else f"sm_{properties.major}{properties.minor}"


def features_first(inputs: AttentionInputs) -> Tensor:  # [R, D, H·C], or [R, D, H] for gat
    """The edge weights with neighbouring numbers for neighbouring channels."""
    assert inputs.edge_weight is not None
    return inputs.edge_weight.flatten(1, -2).mT.contiguous()


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Within the block, torch's current device, on which Triton launches, is this one."""
    if device.type == "cpu":  # in the interpreter
        return nullcontext()
    return torch.get_device_module(device).device(device)


def on_device_of_inputs(
    function: Callable[Concatenate[AttentionInputs, Rest], Result],
) -> Callable[Concatenate[AttentionInputs, Rest], Result]:
    """The function, which then launches kernels where its inputs are."""

    @wraps(function)
    def call(inputs: AttentionInputs, *rest: Rest.args, **more: Rest.kwargs) -> Result:
        with as_current(inputs.value_table.device):
            return function(inputs, *rest, **more)

    return call


@on_device_of_inputs
def forward(inputs: AttentionInputs, return_weights: bool) -> tuple[Tensor, Tensor, Tensor]:
    """out [*, N, H, C], the numbers of `State`, weights [*, num_edges, H] if requested"""
    call, values, observed = Call(inputs), inputs.value_table, observe.has_observers()
    numbers = values.new_empty(State.size(inputs, return_weights), dtype=torch.float32)
    state = State.of(numbers, inputs)
    batch = values.shape[:-3]
    out = values.new_empty(*batch, *state.out.shape[1:])
    num_edges = inputs.num_edges if return_weights or observed else 0
    weights, scores = (state.out.new_zeros(*batch, num_edges, call.heads) for _ in range(2))
    tile = call.tile("forward")
    axes = {"HEADS": tile.heads, "CHANNELS": tile.channels}
    part = state.out.new_empty(
        call.num_batches * call.num_slots * call.heads * (call.channels + 2)
        if call.num_blocks
        else 0
    )
    results = {"out": out, "state_out": state.out, "top": state.top, "total": state.total}
    num_tasks = inputs.num_queries + call.num_blocks
    call.launch(
        attend_kernel, (call.num_batches * num_tasks, call.groups(tile)), tile.warps,
        **call.arrays(), **call.options(), **axes, **results, part=part, scores=scores,
        num_tasks=num_tasks, num_queries=inputs.num_queries, EDGES=tile.edges,
        HAS_SCORES=num_edges > 0,
    )  # fmt: skip
    call.launch(
        merge_kernel, (call.num_batches * call.num_blocks, call.groups(tile)), tile.warps,
        **results, **call.shape, **axes, rowptr=inputs.graph[0], part=part,
        num_queries=inputs.num_queries, num_blocks=call.num_blocks, num_slots=call.num_slots,
        CUT=CUT,
    )  # fmt: skip
    if num_edges:
        of_heads = _per_head(call, num_tasks)
        call.launch(
            weights_kernel, (call.num_batches * num_tasks, -(-call.heads // of_heads["HEADS"])), 1,
            **of_heads, scores=scores, top=state.top, total=state.total, weights=weights,
        )  # fmt: skip
    if return_weights:
        state.weights.copy_(weights.view(state.weights.shape))
    if observed:
        notify_observers(inputs, weights, scores, return_weights)
    return out, numbers, weights if return_weights else weights.new_empty(*batch, 0, call.heads)


def _per_head(call: Call, num_tasks: int) -> dict[str, Any]:
    """Arguments of kernels that read numbers per edge and head."""
    inputs = call.inputs
    heads = min(triton.next_power_of_2(call.heads), 32)
    return {
        "rowptr": inputs.graph[0], "edge_ids": inputs.graph[2], "num_tasks": num_tasks,
        "num_queries": inputs.num_queries, "num_edges": inputs.num_edges,
        "H": call.heads, "R": inputs.num_relations, "HEADS": heads, "EDGES": 32, "CUT": CUT,
    }  # fmt: skip


@on_device_of_inputs
def backward(
    inputs: AttentionInputs,
    numbers: Tensor,
    dout: Tensor,
    dweights: Tensor | None,
    wants_dedge: bool,
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value, a, edge, edge_weight; empty where the input is None."""
    call, state = Call(inputs), State.of(numbers, inputs)
    empty = state.top.new_empty(0)
    delta = empty if dweights is None else _delta_of_weights(call, state, dweights)
    record = _record(call, empty)
    dquery, da = _by_query(call, state, record, dout, dweights, delta)
    dkey, dvalue = _by_key(call, record, dout)
    dedge = dweight = None
    if inputs.edge_weight is not None and inputs.edge is not None:
        dweight = _edge_weight_gradient(call, record)
        dedge = _edge_gradient(call, record) if wants_dedge else empty
    absent = state.top.new_zeros(())
    return (
        dquery,
        dkey,
        empty if dvalue is None else dvalue,
        absent if da is None else da,
        empty if not wants_dedge else absent if dedge is None else dedge,
        absent if dweight is None else dweight,
    )


def _record(call: Call, like: Tensor) -> dict[str, Tensor]:
    """Of each position: α after dropout and d score; the signs of z for gatv2."""
    tile = call.tile("by_query")
    count = call.num_batches * call.num_positions
    is_signed = call.inputs.mechanism == "gatv2"
    num_bytes = count * call.groups(tile) * tile.width // 8 if is_signed else 0
    notes = like.new_empty(count * 2 * call.heads)
    return {"notes": notes, "signs": like.new_empty(num_bytes, dtype=torch.uint8)}


def _delta_of_weights(call: Call, state: State, dweights: Tensor) -> Tensor:  # [B, N, H]
    inputs = call.inputs
    delta, part = torch.empty_like(state.top), _parts(call, call.heads, state.top)
    num_tasks = inputs.num_queries + call.num_blocks
    of_heads = _per_head(call, num_tasks)
    call.launch(
        delta_kernel, (call.num_batches * num_tasks, -(-call.heads // of_heads["HEADS"])), 1,
        **of_heads, weights=state.weights, dweights=dweights, delta=delta, part=part,
        num_slots=call.num_slots,
    )  # fmt: skip
    rowptr, num_queries = inputs.graph[0], inputs.num_queries
    _merge(
        call, part, delta, call.heads, rowptr, None, inputs.num_relations, num_queries, num_queries
    )
    return delta


def _by_query(
    call: Call,
    state: State,
    record: dict[str, Tensor],
    dout: Tensor,
    dweights: Tensor | None,
    delta: Tensor,
) -> tuple[Tensor, Tensor | None]:
    inputs, tile = call.inputs, call.tile("by_query")
    dquery = torch.empty_like(inputs.query)
    width = call.heads * (1 if inputs.mechanism == "gat" else call.channels)
    part = _parts(call, width, state.top)
    relations = inputs.num_relations
    rows = tiles.ROWS if inputs.mechanism == "gatv2" else 1
    num_chunks = -(-inputs.num_queries // rows)
    num_tasks = num_chunks * relations + call.num_blocks
    is_gatv2 = inputs.a is not None
    size = call.num_batches * num_tasks * call.heads * call.channels if is_gatv2 else 0
    da_part = state.top.new_empty(size)
    call.launch(
        by_query_kernel, (call.num_batches * num_tasks, call.groups(tile)), tile.warps,
        **call.arrays(), **call.options(), **record, dout=dout, state_out=state.out,
        top=state.top, total=state.total, dweights=dout if dweights is None else dweights,
        extra_delta=delta, dquery=dquery, part=part, da_part=da_part, num_tasks=num_tasks,
        num_chunks=num_chunks, num_queries=inputs.num_queries, num_positions=call.num_positions,
        HEADS=tile.heads, CHANNELS=tile.channels, EDGES=tile.edges, GROUPS=call.groups(tile),
        ROWS=rows, HAS_DWEIGHTS=dweights is not None,
    )  # fmt: skip
    num_rows = inputs.num_queries * relations
    rows_of = call.query_rows if call.is_compact else None
    _merge(call, part, dquery, width, inputs.graph[0], rows_of, 1, num_rows, call.num_query_rows)
    if not is_gatv2:
        return dquery, None
    parts = da_part.view(call.num_batches, num_tasks, call.heads, call.channels)
    return dquery, _sum_by_relation(call, parts, num_chunks)


def _sum_by_relation(call: Call, parts: Tensor, num_chunks: int) -> Tensor:  # [R, H, C]
    """The partial sums of d a: of chunks under each relation, then of segments that go on."""
    relations = call.inputs.num_relations
    chunks, others = parts.split([num_chunks * relations, call.num_blocks], 1)
    da = chunks.unflatten(1, (num_chunks, relations)).sum((0, 1))
    if call.num_blocks == 0 or relations == 1:
        return da + others.sum((0, 1)) if call.num_blocks else da
    first = torch.arange(1, call.num_blocks + 1, device=parts.device, dtype=torch.int32) * CUT
    row = torch.searchsorted(call.inputs.graph[0], first, right=True) - 1
    for relation in range(relations):
        mine = (row % relations == relation)[:, None, None]
        da[relation] += torch.where(mine, others, 0).sum((0, 1))
    return da


def _by_key(call: Call, record: dict[str, Tensor], dout: Tensor) -> tuple[Tensor, Tensor | None]:
    inputs, tile = call.inputs, call.tile("by_key")
    dkey = torch.empty_like(inputs.key)
    dvalue = None if inputs.value is None else torch.empty_like(inputs.value)
    width = call.heads * (1 if inputs.mechanism == "gat" else call.channels)
    key_part = _parts(call, width, record["notes"])
    has_value = dvalue is not None
    wide = call.heads * call.channels if has_value else 0
    value_part = _parts(call, wide, record["notes"])
    key_rowptr, key_query, key_position = inputs.graph[3:6]
    num_rows = inputs.num_keys * inputs.num_relations
    num_tasks = num_rows + call.num_blocks
    call.launch(
        by_key_kernel, (call.num_batches * num_tasks, call.groups(tile)), tile.warps,
        **record, key_rowptr=key_rowptr, key_query=key_query, key_position=key_position,
        query_rows=call.query_rows, key_rows=call.key_rows, query_table=inputs.query,
        a_table=dout if inputs.a is None else inputs.a, dout=dout, dkey=dkey,
        dvalue=dkey if dvalue is None else dvalue, key_part=key_part, value_part=value_part,
        num_tasks=num_tasks, num_queries=inputs.num_queries, num_keys=inputs.num_keys,
        num_query_rows=call.num_query_rows, num_key_rows=call.num_key_rows,
        num_positions=call.num_positions, num_slots=call.num_slots, slope=inputs.slope,
        **call.shape, **call.mechanism, HEADS=tile.heads, CHANNELS=tile.channels,
        EDGES=tile.edges, GROUPS=call.groups(tile), CUT=CUT, IS_COMPACT=call.is_compact,
        OWN_VALUE=has_value,
    )  # fmt: skip
    rows_of = call.key_rows if call.is_compact else None
    _merge(call, key_part, dkey, width, key_rowptr, rows_of, 1, num_rows, call.num_key_rows)
    if dvalue is not None:
        _merge(call, value_part, dvalue, wide, key_rowptr, rows_of, 1, num_rows, call.num_key_rows)
    return dkey, dvalue


def _parts(call: Call, width: int, like: Tensor) -> Tensor:
    """Partial results of rows that are split."""
    return like.new_empty(call.num_batches * call.num_slots * width if call.num_blocks else 0)


def _merge(
    call: Call,
    part: Tensor,
    out: Tensor,
    width: int,
    rowptr: Tensor,
    rows: Tensor | None,
    stride: int,
    num_rows: int,
    num_table_rows: int,
) -> None:
    """Write the rows of `out` that are split: the sums of their partial results."""
    call.launch(
        merge_sums, (call.num_batches * call.num_blocks, -(-width // COLUMNS)), 4,
        part=part, out=out, rowptr=rowptr, rows=rowptr if rows is None else rows, stride=stride,
        num_rows=num_rows, num_table_rows=num_table_rows, num_blocks=call.num_blocks,
        num_slots=call.num_slots, WIDTH=width, CUT=CUT, BLOCK=COLUMNS,
        IS_COMPACT=rows is not None,
    )  # fmt: skip


def _of_edges(call: Call, record: dict[str, Tensor]) -> dict[str, Any]:
    """Arguments of both kernels of edge features."""
    inputs, tile = call.inputs, call.tile("by_query")
    return {
        "rowptr": inputs.graph[0], "edge_ids": inputs.graph[2], "query_rows": call.query_rows,
        "query_table": inputs.query, "a_table": inputs.query if inputs.a is None else inputs.a,
        **record, "num_rows": inputs.num_queries * inputs.num_relations,
        "num_query_rows": call.num_query_rows, "num_positions": call.num_positions,
        "edge_dim": call.edge_dim, "slope": inputs.slope, **call.shape, **call.mechanism,
        "CHANNELS": tile.channels, "BYTES": call.groups(tile) * tile.width // 8,
        "IS_COMPACT": call.is_compact, **EDGE_TILE,
    }  # fmt: skip


def _edge_weight_gradient(call: Call, record: dict[str, Tensor]) -> Tensor:
    inputs = call.inputs
    assert inputs.edge is not None
    assert inputs.edge_weight is not None
    block_size = max(-(-call.num_positions // tiles.EDGE_BLOCKS), CUT)
    num_blocks = -(-call.num_positions // block_size)
    columns = inputs.edge_weight[0, ..., 0].numel()
    part = record["notes"].new_empty(call.num_batches * num_blocks, *inputs.edge_weight.shape)
    num_tiles = -(-columns // EDGE_TILE["COLUMNS"]) * -(-call.edge_dim // EDGE_TILE["FEATURES"])
    grid = (call.num_batches * num_blocks, inputs.num_relations, num_tiles)
    call.launch(
        edge_weight_kernel, grid, 4, **_of_edges(call, record), edge=inputs.edge, part=part,
        num_blocks=num_blocks, block_size=block_size,
    )  # fmt: skip
    return part.sum(0)


def _edge_gradient(call: Call, record: dict[str, Tensor]) -> Tensor:
    inputs = call.inputs
    assert inputs.edge is not None
    dedge = torch.zeros_like(inputs.edge)  # replaced self-loops leave ids without an edge
    grid = (-(-call.num_positions // CUT), -(-call.edge_dim // EDGE_TILE["FEATURES"]))
    call.launch(
        edge_kernel, grid, 4, **_of_edges(call, record), edge_weight=features_first(inputs),
        dedge=dedge, num_batches=call.num_batches, block_size=CUT,
    )  # fmt: skip
    return dedge


def launch(kernel: Any, grid: tuple[int, ...], options: dict[str, int], **arguments: Any) -> None:
    """Run a kernel, unless its grid is empty."""
    if 0 not in grid:
        kernel[grid](**arguments, **options)
