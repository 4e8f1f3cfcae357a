"""The ops of `reference` on native kernels, with the same names and signatures, and autograd.

The forward pass saves its inputs and top [*, N, H], each query's largest score, but nothing per
edge. On devices without native kernels, the ops call `streamed` or `triton`, which save a `State`.
Compiled and exported programs see the ops `dynagat::attend` and `dynagat::attend_backward` as
single nodes. Eager code calls the same two functions through `torch.autograd.Function`, which is
faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynagat.graph import MAX_ROWS, Graph
from dynagat.native import kernels
from dynagat.ops import devices, observe
from dynagat.ops.eager import PLAIN, Function
from dynagat.ops.inputs import (
    NUM_DIFFERENTIABLE,
    NUM_TENSORS,
    AttentionInputs,
    State,
    notify_observers,
    schema_of_inputs,
)

MECHANISM_CODES = {"gat": 0, "gatv2": 1, "dpgat": 2}
STORAGE = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
ARRAYS = ("rowptr", "key_index", "edge_id", "key_rowptr", "key_query", "key_position")
USED_ROWS = ("query_rows", "key_rows")  # arrays of a compact graph, after the others
SHARED = ("da", "dedge", "dedge_weight")  # gradients summed over the batch
LARGE = 1 << 22  # bytes; memory of this size or more is kept for the next call


def gat(
    query_score: Tensor,
    key_score: Tensor,
    value: Tensor,
    graph: Graph,
    *,
    slope: float = 0.2,
    edge: Tensor | None = None,
    edge_weight: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """score_ij = LeakyReLU(query_score_i + key_score_j + W_e e_ij)"""
    tables, edges = (query_score, key_score, value, None), (edge, edge_weight)
    return _attend("gat", tables, edges, seed, graph, slope, dropout, return_weights)


def gatv2(
    query: Tensor,
    key: Tensor,
    a: Tensor,
    graph: Graph,
    *,
    value: Tensor | None = None,
    slope: float = 0.2,
    edge: Tensor | None = None,
    edge_weight: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """score_ij = aᵀ LeakyReLU(query_i + key_j + W_e e_ij)"""
    tables, edges = (query, key, value, a), (edge, edge_weight)
    return _attend("gatv2", tables, edges, seed, graph, slope, dropout, return_weights)


def dpgat(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Graph,
    *,
    edge: Tensor | None = None,
    edge_weight: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """score_ij = ⟨query_i, key_j + W_e e_ij⟩ / √C"""
    tables, edges = (query, key, value, None), (edge, edge_weight)
    return _attend("dpgat", tables, edges, seed, graph, 1.0, dropout, return_weights)


def _attend(
    mechanism: str,
    tables: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    edges: tuple[Tensor | None, Tensor | None],
    seed: Tensor | None,
    graph: Graph,
    slope: float,
    dropout: float,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Convert the dtypes and call the op."""
    query, key, value, a = tables
    storage = (key if value is None else value).dtype
    if storage not in STORAGE:
        raise TypeError(f"query, key and value must hold floats, but hold {storage}")
    compute = torch.promote_types(storage, torch.float32)
    scores = compute if mechanism == "gat" else storage
    query, key = query.to(scores), key.to(scores)
    a, edge, edge_weight = (None if t is None else t.to(compute) for t in (a, *edges))
    inputs = AttentionInputs(
        query, key, value, a, edge, edge_weight, seed, graph.tensors,
        mechanism, graph.num_edges, graph.num_relations, slope, dropout,
    )  # fmt: skip
    traced = torch.compiler.is_compiling() or type(query) not in PLAIN
    call = attend if traced else _Attend.apply
    out, _, weights = call(*inputs, return_weights)
    return out, weights if return_weights else None


def _forward(*arguments) -> tuple[Tensor, Tensor, Tensor]:
    """out [*, N, H, C], top [*, N, H], weights [*, num_edges, H] (empty unless requested)"""
    *fields, return_weights = arguments
    inputs = _checked(fields)
    other = devices.implementation(inputs)
    if other is not None:
        return other.forward(inputs, return_weights)
    observed = observe.has_observers()
    wants_weights = return_weights or observed
    out, top, weights = _empty_results(inputs, wants_weights)
    scores = _empty_like(weights) if observed else None
    for array in (weights, scores):
        if array is not None and array.numel():
            _clear_unused(array, inputs.graph)
    problem = _problem(inputs)
    batch = out.shape[:-3].numel()
    for b in range(batch):
        _set_addresses(
            problem, b, batch,
            query=inputs.query, key=inputs.key, value=inputs.value, out=out, top=top,
            weights=weights if wants_weights else None, scores=scores,
        )  # fmt: skip
        problem.first_count = b * inputs.num_edges * out.shape[-2]
        kernels.forward(problem)
    if scores is not None:
        notify_observers(inputs, weights, scores, return_weights)
    if wants_weights and not return_weights:
        weights = weights.new_empty(*weights.shape[:-2], 0, weights.shape[-1])
    return out, top, weights


attend = torch.library.custom_op(
    "dynagat::attend",
    _forward,
    mutates_args=(),
    schema=f"({schema_of_inputs()}, bool return_weights) -> (Tensor, Tensor, Tensor)",
)


@attend.register_fake
def _(*arguments):
    *fields, return_weights = arguments
    inputs = AttentionInputs._make(fields)
    _check_one_device(inputs, ())
    out, top, weights = _empty_results(inputs, return_weights)
    if devices.implementation(inputs) is not None:
        top = top.new_empty(State.size(inputs, return_weights))
    return out, top, weights


def _backward(*arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, a, edge, edge_weight; empty where the input is None."""
    dout, dweights, top, *fields, wants_dedge = arguments
    inputs = _checked(fields)
    _check_one_device(inputs, (dout, dweights, top))
    if dweights is not None and dweights.numel() == 0:  # compiled programs pass such gradients
        dweights = None
    *batch_shape, _, heads, channels = inputs.value_table.shape
    compute = inputs.compute_dtype
    shape = (*batch_shape, inputs.num_queries, heads, channels)
    _check_tensor("dout", dout, shape, inputs.value_table.dtype)
    other = devices.implementation(inputs)
    _check_tensor("top", top, _state_shape(inputs, top, dweights), compute)
    dout, top = _plain(dout), _plain(top)
    if dweights is not None:
        _check_tensor("dweights", dweights, (*batch_shape, inputs.num_edges, heads), compute)
        dweights = _plain(dweights)
    if other is not None:
        return other.backward(inputs, top, dout, dweights, wants_dedge)
    tables = [_empty_like(t) for t in inputs[:3]]
    shared = [top.new_zeros(() if t is None else t.shape) for t in inputs[3:NUM_DIFFERENTIABLE]]
    if not wants_dedge:
        shared[1] = top.new_zeros(0)
    problem = _problem(inputs)
    batch = top.shape[:-2].numel()
    for b in range(batch):
        _set_addresses(
            problem, b, batch,
            query=inputs.query, key=inputs.key, value=inputs.value, top=top,
            dout=dout, dweights=dweights, dquery=tables[0], dkey=tables[1],
            dvalue=None if inputs.value is None else tables[2],
        )  # fmt: skip
        problem.first_count = b * inputs.num_edges * top.shape[-1]
        parts = shared if b == 0 else [torch.zeros_like(total) for total in shared]
        for name, part, given in zip(SHARED, parts, inputs[3:NUM_DIFFERENTIABLE], strict=True):
            setattr(problem, name, part.data_ptr() if given is not None and part.numel() else 0)
        kernels.backward(problem)
        if b > 0:
            for total, part in zip(shared, parts, strict=True):
                total += part
    return tables[0], tables[1], tables[2], shared[0], shared[1], shared[2]


def _state_shape(inputs: AttentionInputs, top: Tensor, dweights: Tensor | None) -> tuple[int, ...]:
    """The shape that the saved array must have: `top`, or `State` with or without weights."""
    if devices.implementation(inputs) is None:
        *batch, _, heads, _ = inputs.value_table.shape
        return *batch, inputs.num_queries, heads
    has_weights = dweights is not None or top.numel() > State.size(inputs, False)
    return (State.size(inputs, has_weights),)


attend_backward = torch.library.custom_op(
    "dynagat::attend_backward",
    _backward,
    mutates_args=(),
    schema=f"(Tensor dout, Tensor? dweights, Tensor top, {schema_of_inputs()}, bool wants_dedge)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@attend_backward.register_fake
def _(dout, dweights, top, *arguments):
    *fields, wants_dedge = arguments
    inputs = AttentionInputs._make(fields)
    _check_one_device(inputs, (dout, dweights, top))
    tables = [top.new_empty(0) if t is None else torch.empty_like(t) for t in inputs[:3]]
    shared = [top.new_empty(() if t is None else t.shape) for t in inputs[3:NUM_DIFFERENTIABLE]]
    if not wants_dedge:
        shared[1] = top.new_empty(0)
    return *tables, *shared


def _save_inputs(ctx, inputs, output):
    tensors, graph, options = inputs[:NUM_TENSORS], inputs[NUM_TENSORS], inputs[NUM_TENSORS + 1 :]
    ctx.save_for_backward(output[1], *tensors, *graph)
    ctx.options = options[:-1]  # without return_weights
    ctx.set_materialize_grads(False)


def _differentiate(ctx, dout, _, dweights, call: Any = attend_backward):
    top, *tensors = ctx.saved_tensors
    graph = tensors[NUM_TENSORS:]
    inputs = AttentionInputs._make((*tensors[:NUM_TENSORS], graph, *ctx.options))
    grads = [None] * NUM_DIFFERENTIABLE
    if dout is not None or dweights is not None:
        if dout is None:
            values = inputs.value_table
            shape = (*values.shape[:-3], inputs.num_queries, *values.shape[-2:])
            dout = values.new_zeros(shape)
        wanted = ctx.needs_input_grad[:NUM_DIFFERENTIABLE]
        grads = call(dout, dweights, top, *inputs, wanted[4])
        grads = [
            grad if tensor is not None and is_wanted else None
            for grad, tensor, is_wanted in zip(grads, inputs, wanted, strict=False)
        ]
    return *grads, None, [None] * len(graph), *[None] * 6


attend.register_autograd(_differentiate, setup_context=_save_inputs)


def _no_second_derivative(ctx, *grads):
    raise NotImplementedError(
        "dynagat's fused attention has no second derivative; set DYNAGAT_BACKEND=reference "
        "to compute one"
    )


attend_backward.register_autograd(_no_second_derivative)


class _Attend(Function):
    """`attend` for eager code."""

    @staticmethod
    def forward(*inputs):
        return _forward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _save_inputs(ctx, inputs, output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, *grads):
        # _AttendBackward is needed only if the gradients will be differentiated again.
        call = _AttendBackward.apply if torch.is_grad_enabled() else _backward
        grads = _differentiate(ctx, *grads, call=call)
        # A Function expects one gradient for the graph's list, an op one per array in it.
        return *grads[:NUM_TENSORS], None, *grads[NUM_TENSORS + 1 :]


class _AttendBackward(Function):
    """`attend_backward` for eager code."""

    @staticmethod
    def forward(*inputs):
        return _backward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        _no_second_derivative(ctx, *grads)


def _empty_results(inputs: AttentionInputs, return_weights: bool):
    values, num_queries = inputs.value_table, inputs.num_queries
    compute = torch.promote_types(values.dtype, torch.float32)
    *batch, _, heads, channels = values.shape
    out = _empty_like(values, (*batch, num_queries, heads, channels))
    top = values.new_empty(*batch, num_queries, heads, dtype=compute)
    edges = inputs.num_edges if return_weights else 0
    return out, top, _empty_like(top, (*batch, edges, heads))


def _clear_unused(numbers: Tensor, graph: list[Tensor]) -> None:
    """Set the rows [*, num_edges, H] of unused edge ids to 0: those of replaced self-loops."""
    rowptr, edge_id, num_edges = graph[0], graph[2], numbers.shape[-2]
    if int(rowptr[-1]) == num_edges:
        return
    is_used = torch.zeros(num_edges, dtype=torch.bool)
    is_used[edge_id[: int(rowptr[-1])].clamp(0, num_edges - 1).long()] = True  # of any caller
    numbers.index_fill_(-2, (~is_used).nonzero()[:, 0], 0)


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor; if it is large, its memory comes from the pool."""
    count = 1
    for length in shape:
        count *= length
    if count * dtype.itemsize < LARGE:
        return torch.empty(shape, dtype=dtype)
    return kernels.allocate(shape, STORAGE[dtype])


def _empty_like(tensor: Tensor | None, shape=None) -> Tensor:
    if tensor is None:
        return torch.empty(0)
    shape = tensor.shape if shape is None else shape
    if torch.compiler.is_compiling() or type(tensor) not in PLAIN:
        return tensor.new_empty(shape)
    return empty(shape, tensor.dtype)


def _problem(inputs: AttentionInputs):
    """The arguments of the native call, except the pointers that differ between batches."""
    values, edge, graph = inputs.value_table, inputs.edge, inputs.graph
    problem = kernels.Problem()
    problem.mechanism = MECHANISM_CODES[inputs.mechanism]
    problem.storage = STORAGE[values.dtype]
    problem.threads = torch.get_num_threads()
    for name, tensor in zip((*ARRAYS, *USED_ROWS), graph, strict=False):
        setattr(problem, name, tensor.data_ptr())
    problem.num_query_rows, problem.num_key_rows = inputs.table_rows
    problem.num_queries, problem.num_keys = inputs.num_queries, inputs.num_keys
    problem.num_positions = graph[1].shape[0]
    problem.num_edges, problem.relations = inputs.num_edges, inputs.num_relations
    problem.heads, problem.channels = values.shape[-2:]
    problem.edge_dim = 0 if edge is None else edge.shape[1]
    for name, tensor in zip(("a", "edge", "edge_weight"), inputs[3:6], strict=True):
        setattr(problem, name, 0 if tensor is None else tensor.data_ptr())
    problem.slope, problem.dropout = inputs.slope, inputs.dropout
    problem.seed = 0 if inputs.seed is None else int(inputs.seed) & (2**64 - 1)
    return problem


def _set_addresses(problem, b: int, batch: int, **tensors: Tensor | None) -> None:
    """Set fields of the problem to the address of batch b in each tensor."""
    for name, tensor in tensors.items():
        address = 0 if tensor is None else tensor.data_ptr()
        if tensor is not None and b > 0:
            address += b * (tensor.numel() // batch) * tensor.element_size()
        setattr(problem, name, address)


def _plain(tensor: Tensor) -> Tensor:
    """The tensor's numbers one after the other in memory."""
    return tensor.resolve_neg().contiguous()


def _checked(fields: list[Any]) -> AttentionInputs:
    """Inputs that the kernels can read: of the right types and sizes, and contiguous."""
    _check(AttentionInputs._make(fields))
    tensors = [None if t is None else _plain(t) for t in fields[:NUM_DIFFERENTIABLE]]
    return AttentionInputs._make((*tensors, *fields[NUM_DIFFERENTIABLE:]))


def _check(inputs: AttentionInputs) -> None:
    """Check everything that the kernels rely on; they check the graph's entries themselves."""
    query, key, value, a, edge, edge_weight = inputs[:NUM_DIFFERENTIABLE]
    mechanism, relations = inputs.mechanism, inputs.num_relations
    _check_missing(inputs)
    _check_one_device(inputs, ())
    _check_numbers(inputs)
    _check_graph(inputs.graph, relations)
    *batch, _, heads, channels = inputs.value_table.shape
    storage, compute = inputs.value_table.dtype, inputs.compute_dtype
    row, scores = ((heads,), compute) if mechanism == "gat" else ((heads, channels), storage)
    num_query_rows, num_key_rows = inputs.num_queries * relations, inputs.num_keys * relations
    if len(inputs.graph) > len(ARRAYS):  # any number of rows: the kernels check where they are
        num_query_rows, num_key_rows = inputs.table_rows
    _check_tensor("query", query, (*batch, num_query_rows, *row), scores)
    _check_tensor("key", key, (*batch, num_key_rows, *row), scores)
    if value is not None:
        _check_tensor("value", value, (*batch, num_key_rows, heads, channels), storage)
    if a is not None:
        _check_tensor("a", a, (relations, heads, channels), compute)
    if edge is not None:
        _check_tensor("edge", edge, (inputs.num_edges, *edge.shape[-1:]), compute)
        _check_tensor("edge_weight", edge_weight, (relations, *row, *edge.shape[-1:]), compute)


def _check_numbers(inputs: AttentionInputs) -> None:
    values = inputs.value_table
    if inputs.mechanism not in MECHANISM_CODES:
        names = ", ".join(MECHANISM_CODES)
        raise ValueError(f"mechanism must be one of {names}, but is {inputs.mechanism!r}")
    if values.dtype not in STORAGE:
        raise TypeError(f"query, key and value must hold floats, but hold {values.dtype}")
    if values.dim() < 3 or not 0 < values.shape[-2] * values.shape[-1] <= MAX_ROWS:
        raise ValueError(
            "key and value must have shape [*, N, H, C], where H·C lies in [1, 2^31), "
            f"but have {list(values.shape)}"
        )
    if inputs.num_relations < 1 or not 0 <= inputs.num_edges <= MAX_ROWS:
        raise ValueError(
            "num_relations must be at least 1 and num_edges lie in [0, 2^31), "
            f"but they are {inputs.num_relations} and {inputs.num_edges}"
        )
    if not 0 <= inputs.dropout <= 1:
        raise ValueError(f"dropout must be a probability, but is {inputs.dropout}")


def _check_missing(inputs: AttentionInputs) -> None:
    needed = ["query", "key", "a" if inputs.mechanism == "gatv2" else "value"]
    needed += ["edge_weight"] if inputs.edge is not None else []
    needed += ["seed"] if inputs.dropout > 0 else []
    for name in needed:
        if getattr(inputs, name) is None:
            reasons = {"edge_weight": "edge was given", "seed": f"dropout is {inputs.dropout}"}
            reason = reasons.get(name, f"{inputs.mechanism} needs it")
            raise ValueError(f"{name} is missing, but {reason}")


def _check_graph(graph: list[Tensor], relations: int) -> None:
    if len(graph) not in (len(ARRAYS), len(ARRAYS) + len(USED_ROWS)):
        raise ValueError(f"graph must be the arrays of a Graph, but has {len(graph)} arrays")
    for array in graph:
        if not (array.dtype == torch.int32 and array.is_contiguous()):
            raise TypeError(
                "the graph's arrays must be contiguous and hold torch.int32, but one "
                f"holds {array.dtype} with strides {list(array.stride())}"
            )
    shapes = [array.shape for array in graph]
    pointers = (shapes[0], shapes[3])
    is_row = [len(shape) == 1 and shape[0] % relations == 1 % relations for shape in pointers]
    if not all(is_row) or 0 in (*shapes[0], *shapes[3]):
        raise ValueError(
            f"the graph's rowptr and key_rowptr must have N·R + 1 entries, where R is {relations}, "
            f"but have shapes {list(shapes[0])} and {list(shapes[3])}"
        )
    if len(shapes[1]) != 1 or not shapes[1] == shapes[2] == shapes[4] == shapes[5]:
        raise ValueError(
            "the graph's key_index, edge_id, key_query and key_position must be vectors of equal "
            f"length, but have shapes {[list(shapes[n]) for n in (1, 2, 4, 5)]}"
        )
    for name, shape, pointer in zip(USED_ROWS, shapes[len(ARRAYS) :], pointers, strict=False):
        if shape != (pointer[0] - 1,):
            raise ValueError(
                f"the graph's {name} must have shape {[pointer[0] - 1]}, but has {list(shape)}"
            )


def _check_one_device(inputs: AttentionInputs, others: tuple[Tensor | None, ...]) -> None:
    """If some tensors are on the meta device, torch calls no kernel and computes only shapes."""
    tensors = (*inputs[:NUM_TENSORS], *inputs.graph, *others)
    devices = {tensor.device for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"all tensors must be on one device, but they are on {names}")


def _check_tensor(
    name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    if tensor is None:
        raise TypeError(f"{name} must be a tensor, but is None")
    if tensor.shape == shape and tensor.dtype == dtype and tensor.layout == torch.strided:
        return
    raise (ValueError if tensor.dtype == dtype else TypeError)(
        f"{name} must have shape {list(shape)} and hold {dtype}, "
        f"but has shape {list(tensor.shape)} and holds {tensor.dtype}"
    )
