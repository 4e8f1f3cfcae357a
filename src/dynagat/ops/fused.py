"""The native twins of `reference`: the same names and signatures, with autograd.

The forward pass saves its inputs and top [*, N, H], each query's largest score; nothing per edge.
Compiled and exported programs see the ops `dynagat::attend` and `dynagat::attend_backward` as
single nodes; eager code runs the same two functions through `torch.autograd.Function`, which costs
less to call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynagat.graph import Graph
from dynagat.native import kernels
from dynagat.ops import observe

MECHANISMS = {"gat": 0, "gatv2": 1, "dpgat": 2}
STORAGE = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
ARRAYS = ("rowptr", "key_index", "edge_id", "key_rowptr", "key_query", "key_position")
SHARED = ("da", "dedge", "dedge_weight")  # gradients summed over the batch
LARGE = 1 << 22  # bytes from which memory is worth keeping for the next call


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
    tables = (query_score, key_score, value, None)
    edges = (edge, edge_weight)
    return _attend("gat", tables, edges, graph, slope, dropout, seed, return_weights)


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
    tables = (query, key, value, a)
    edges = (edge, edge_weight)
    return _attend("gatv2", tables, edges, graph, slope, dropout, seed, return_weights)


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
    tables = (query, key, value, None)
    edges = (edge, edge_weight)
    return _attend("dpgat", tables, edges, graph, 1.0, dropout, seed, return_weights)


def _attend(
    mechanism: str,
    tables: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    edges: tuple[Tensor | None, Tensor | None],
    graph: Graph,
    slope: float,
    dropout: float,
    seed: Tensor | None,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Settle the dtypes, call the op."""
    query, key, value, a = tables
    storage = (key if value is None else value).dtype
    if storage not in STORAGE:
        raise TypeError(f"the tables must hold floats, but hold {storage}")
    compute = torch.promote_types(storage, torch.float32)
    scores = compute if mechanism == "gat" else storage
    query, key = query.to(scores), key.to(scores)
    a, edge, edge_weight = (None if t is None else t.to(compute) for t in (a, *edges))
    traced = torch.compiler.is_compiling() or type(query) not in (Tensor, torch.nn.Parameter)
    call = attend if traced else _Attend.apply
    out, _, weights = call(
        mechanism, query, key, value, a, edge, edge_weight, graph.tensors, graph.num_edges,
        graph.num_relations, slope, dropout, seed, return_weights,
    )  # fmt: skip
    return out, weights if return_weights else None


def _forward(
    mechanism: str,
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    a: Tensor | None,
    edge: Tensor | None,
    edge_weight: Tensor | None,
    graph: list[Tensor],
    num_edges: int,
    relations: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
    return_weights: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """out [*, N, H, C], top [*, N, H], weights [*, num_edges, H] (empty if not asked for)"""
    inputs = _contiguous(query, key, value, a, edge, edge_weight)
    _check(mechanism, inputs, graph, num_edges, relations)
    observed = observe.are_there()
    wants_weights = return_weights or observed
    out, top, weights = _empty_results(
        query, key, value, graph, num_edges, relations, wants_weights
    )
    scores = _empty_like(weights) if observed else None
    if int(graph[0][-1]) < num_edges:  # there are numbers that no edge bears
        weights.zero_()
        if scores is not None:
            scores.zero_()
    problem = _problem(mechanism, inputs, graph, num_edges, relations, slope, dropout, seed)
    batch = out.shape[:-3].numel()
    for b in range(batch):
        _point(problem, b, batch, query=inputs[0], key=inputs[1], value=inputs[2])
        _point(problem, b, batch, out=out, top=top, scores=scores)
        _point(problem, b, batch, weights=weights if wants_weights else None)
        problem.first_count = b * num_edges * out.shape[-2]
        kernels.forward(problem)
    if scores is not None:
        rowptr, key_index, edge_id = graph[:3]
        numbers = (weights.clone() if return_weights else weights, scores)  # the caller's own
        observe.tell(observe.Sight(rowptr, key_index, edge_id, relations, *numbers))
    if wants_weights and not return_weights:
        weights = weights.new_empty(*weights.shape[:-2], 0, weights.shape[-1])
    return out, top, weights


attend = torch.library.custom_op("dynagat::attend", _forward, mutates_args=(), device_types="cpu")


@attend.register_fake
def _(mechanism, query, key, value, a, edge, edge_weight, graph, num_edges, relations, slope,
      dropout, seed, return_weights):  # fmt: skip
    return _empty_results(query, key, value, graph, num_edges, relations, return_weights)


def _backward(
    dout: Tensor,
    dweights: Tensor | None,
    mechanism: str,
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    a: Tensor | None,
    edge: Tensor | None,
    edge_weight: Tensor | None,
    top: Tensor,
    graph: list[Tensor],
    num_edges: int,
    relations: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
    wants_dedge: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, a, edge, edge_weight; empty where there is none."""
    inputs = _contiguous(query, key, value, a, edge, edge_weight)
    _check(mechanism, inputs, graph, num_edges, relations)
    wide, num_queries = key if value is None else value, (len(graph[0]) - 1) // relations
    expected = (*wide.shape[:-3], num_queries, *wide.shape[-2:])
    if tuple(dout.shape) != expected or tuple(top.shape) != expected[:-1]:
        shapes = f"{list(dout.shape)} and {list(top.shape)}"
        raise ValueError(f"dout must have shape {list(expected)} and top fit it, but are {shapes}")
    dout, top = dout.contiguous(), top.contiguous()
    dweights = None if dweights is None else dweights.contiguous()
    tables = [_empty_like(t) for t in inputs[:3]]
    shared = [top.new_zeros(() if t is None else t.shape) for t in inputs[3:]]  # by the batch
    if not wants_dedge:
        shared[1] = top.new_zeros(0)
    problem = _problem(mechanism, inputs, graph, num_edges, relations, slope, dropout, seed)
    batch = top.shape[:-2].numel()
    for b in range(batch):
        _point(problem, b, batch, query=inputs[0], key=inputs[1], value=inputs[2])
        _point(problem, b, batch, dout=dout, dweights=dweights, top=top)
        _point(problem, b, batch, dquery=tables[0], dkey=tables[1])
        _point(problem, b, batch, dvalue=None if value is None else tables[2])
        problem.first_count = b * num_edges * top.shape[-1]
        parts = shared if b == 0 else [torch.zeros_like(total) for total in shared]
        for name, part, given in zip(SHARED, parts, inputs[3:], strict=True):
            setattr(problem, name, part.data_ptr() if given is not None and part.numel() else 0)
        kernels.backward(problem)
        if b > 0:
            for total, part in zip(shared, parts, strict=True):
                total += part
    return tables[0], tables[1], tables[2], shared[0], shared[1], shared[2]


attend_backward = torch.library.custom_op(
    "dynagat::attend_backward", _backward, mutates_args=(), device_types="cpu"
)


@attend_backward.register_fake
def _(dout, dweights, mechanism, query, key, value, a, edge, edge_weight, top, graph, num_edges,
      relations, slope, dropout, seed, wants_dedge):  # fmt: skip
    tables = [top.new_empty(0) if t is None else torch.empty_like(t) for t in (query, key, value)]
    shared = [top.new_empty(() if t is None else t.shape) for t in (a, edge, edge_weight)]
    if not wants_dedge:
        shared[1] = top.new_empty(0)
    return *tables, *shared


def _save(ctx, inputs, output):
    (mechanism, query, key, value, a, edge, edge_weight, graph, num_edges, relations, slope,
     dropout, seed, _) = inputs  # fmt: skip
    ctx.save_for_backward(query, key, value, a, edge, edge_weight, output[1], seed, *graph)
    ctx.options = mechanism, num_edges, relations, slope, dropout
    ctx.set_materialize_grads(False)


def _pull_back(ctx, dout, _, dweights, call: Any = attend_backward):
    query, key, value, a, edge, edge_weight, top, seed, *graph = ctx.saved_tensors
    mechanism, num_edges, relations, slope, dropout = ctx.options
    if dout is None and dweights is None:
        return *[None] * 7, [None] * len(graph), *[None] * 6
    if dout is None:
        wide = key if value is None else value
        dout = wide.new_zeros(*top.shape, wide.shape[-1])
    grads = call(
        dout, dweights, mechanism, query, key, value, a, edge, edge_weight, top, graph, num_edges,
        relations, slope, dropout, seed, ctx.needs_input_grad[5],
    )  # fmt: skip
    inputs = (query, key, value, a, edge, edge_weight)
    wanted = ctx.needs_input_grad[1:7]
    grads = [
        g if t is not None and w else None for g, t, w in zip(grads, inputs, wanted, strict=True)
    ]
    return None, *grads, [None] * len(graph), *[None] * 6


attend.register_autograd(_pull_back, setup_context=_save)


def _no_second_derivative(ctx, *grads):
    raise NotImplementedError(
        "dynagat's fused attention has no second derivative; set DYNAGAT_BACKEND=reference, "
        "whose plain torch operations have one"
    )


attend_backward.register_autograd(_no_second_derivative)


class _Attend(torch.autograd.Function):
    """`attend` for eager code."""

    @staticmethod
    def forward(*inputs):
        return _forward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _save(ctx, inputs, output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, *grads):
        grads = _pull_back(ctx, *grads, call=_AttendBackward.apply)
        return *grads[:7], None, *grads[8:]  # a Function's lists have no gradients of their own


class _AttendBackward(torch.autograd.Function):
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


def _empty_results(query, key, value, graph, num_edges, relations, return_weights):
    wide = key if value is None else value
    compute = torch.promote_types(wide.dtype, torch.float32)
    num_queries = (graph[0].shape[0] - 1) // relations
    batch, (heads, channels) = wide.shape[:-3], wide.shape[-2:]
    out = _empty_like(wide, (*batch, num_queries, heads, channels))
    top = wide.new_empty(*batch, num_queries, heads, dtype=compute)
    edges = num_edges if return_weights else 0
    return out, top, _empty_like(top, (*batch, edges, heads))


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Uninitialised memory for a result; where large, from the pool of earlier results."""
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
    if torch.compiler.is_compiling() or type(tensor) not in (Tensor, torch.nn.Parameter):
        return tensor.new_empty(shape)
    return empty(shape, tensor.dtype)


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _problem(mechanism, inputs, graph, num_edges, relations, slope, dropout, seed):
    """Everything of a native call that is the same for every batch."""
    _, key, value, a, edge, edge_weight = inputs
    wide = key if value is None else value
    problem = kernels.Problem()
    problem.mechanism = MECHANISMS[mechanism]
    problem.storage = STORAGE[wide.dtype]
    problem.threads = torch.get_num_threads()
    for name, tensor in zip(ARRAYS, graph, strict=True):
        setattr(problem, name, tensor.data_ptr())
    problem.num_queries = (len(graph[0]) - 1) // relations
    problem.num_keys = (len(graph[3]) - 1) // relations
    problem.num_positions = len(graph[1])
    problem.num_edges, problem.relations = num_edges, relations
    problem.heads, problem.channels = wide.shape[-2:]
    problem.edge_dim = 0 if edge is None else edge.shape[1]
    for name, tensor in (("a", a), ("edge", edge), ("edge_weight", edge_weight)):
        setattr(problem, name, 0 if tensor is None else tensor.data_ptr())
    problem.slope, problem.dropout = slope, dropout
    if dropout > 0 and seed is None:
        raise ValueError(f"seed is missing, but dropout is {dropout}")
    problem.seed = 0 if seed is None else int(seed) & (2**64 - 1)
    return problem


def _point(problem, b: int, batch: int, **tensors: Tensor | None) -> None:
    """Point fields of the problem at the part of each tensor that belongs to batch b."""
    for name, tensor in tensors.items():
        at = 0
        if tensor is not None:
            at = tensor.data_ptr() + b * (tensor.numel() // batch) * tensor.element_size()
        setattr(problem, name, at)


def _check(mechanism, inputs, graph, num_edges, relations) -> None:
    """The lengths the kernels rely on; what is inside the graph's arrays they check themselves."""
    query, key, value, a, edge, edge_weight = inputs
    wide = key if value is None else value
    batch, (heads, channels) = wide.shape[:-3], wide.shape[-2:]
    num_queries, num_keys = ((len(graph[n]) - 1) // relations for n in (0, 3))
    row = (heads,) if mechanism == "gat" else (heads, channels)
    needed = {"a": a} if mechanism == "gatv2" else {"value": value}
    if edge is not None:
        needed["edge_weight"] = edge_weight
    for name, tensor in needed.items():
        if tensor is None:
            given = "edge was given" if name == "edge_weight" else f"{mechanism} needs it"
            raise ValueError(f"{name} is missing, but {given}")
    shapes = {
        "query": (query, (*batch, num_queries * relations, *row)),
        "key": (key, (*batch, num_keys * relations, *row)),
        "value": (value, (*batch, num_keys * relations, heads, channels)),
        "a": (a, (relations, heads, channels)),
    }
    if edge is not None:
        shapes["edge"] = (edge, (num_edges, edge.shape[-1]))
        shapes["edge_weight"] = (edge_weight, (relations, *row, edge.shape[-1]))
    for name, (tensor, shape) in shapes.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {list(shape)}, but has {list(tensor.shape)}")
    if len(graph) != 6 or any(t.dtype != torch.int32 or not t.is_contiguous() for t in graph):
        raise TypeError("graph must be the six int32 arrays of a Graph")
    if len({len(graph[n]) for n in (1, 2, 4, 5)}) != 1:
        raise ValueError("the graph's key_index, edge_id, key_query, key_position differ in length")
