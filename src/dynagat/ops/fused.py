"""The native twins of `reference`: the same names and signatures, with autograd.

The forward pass saves its inputs and lse [B, N, H], nothing per edge. Compiled and exported programs
see the ops `dynagat::attend` and `dynagat::attend_backward` as single nodes; eager code runs the same
two functions through `torch.autograd.Function`, which costs a fifth of an op's overhead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynagat.graph import Graph
from dynagat.native import kernels

MECHANISMS = {"gat": 0, "gatv2": 1, "dpgat": 2}
STORAGE = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
HUGE = 1 << 22  # bytes; below, huge pages gain nothing


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
    """Flatten the batch axes, settle the dtypes, call the op."""
    query, key, value, a = tables
    wide = key if value is None else value  # [*, N·R, H, C]
    batch, storage = wide.shape[:-3], wide.dtype
    if storage not in STORAGE:
        raise TypeError(f"the tables must hold floats, but hold {storage}")
    compute = torch.promote_types(storage, torch.float32)
    scores = compute if mechanism == "gat" else storage
    axes = 2 if mechanism == "gat" else 3
    size = batch.numel()
    query, key = (t.to(scores).reshape(size, *t.shape[t.dim() - axes :]) for t in (query, key))
    if value is not None:
        value = value.reshape(size, *value.shape[-3:])
    a, edge, edge_weight = (None if t is None else t.to(compute) for t in (a, *edges))
    traced = torch.compiler.is_compiling() or type(query) not in (Tensor, torch.nn.Parameter)
    call = attend if traced else _Attend.apply
    out, _, weights = call(
        mechanism, query, key, value, a, edge, edge_weight, graph.tensors, graph.num_edges,
        graph.num_relations, slope, dropout, seed, return_weights,
    )  # fmt: skip
    out = out.view(*batch, *out.shape[1:])
    return out, weights.view(*batch, *weights.shape[1:]) if return_weights else None


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
    """out [B, N, H, C], lse [B, N, H], weights [B, num_edges, H] (empty if not asked for)"""
    inputs = [None if t is None else t.contiguous() for t in (query, key, value, a, edge, edge_weight)]
    _check(mechanism, inputs, graph, num_edges, relations)
    out, lse, weights = _empty_results(*inputs[:3], graph, num_edges, relations, return_weights)
    weights.zero_()
    problem = _problem(mechanism, inputs, graph, num_edges, relations, slope, dropout, seed)
    for b in range(out.shape[0]):
        _point(problem, b, query=inputs[0], key=inputs[1], value=inputs[2])
        _point(problem, b, out=out, lse=lse, weights=weights if return_weights else None)
        problem.first_count = b * num_edges * out.shape[2]
        kernels.forward(problem)
    return out, lse, weights


attend = torch.library.custom_op(
    "dynagat::attend", _forward, mutates_args=(), device_types="cpu"
)


@attend.register_fake
def _(mechanism, query, key, value, a, edge, edge_weight, graph, num_edges, relations, slope, dropout, seed, return_weights):  # fmt: skip
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
    lse: Tensor,
    graph: list[Tensor],
    num_edges: int,
    relations: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
    wants_dedge: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, a, edge, edge_weight; empty where there is none."""
    inputs = [None if t is None else t.contiguous() for t in (query, key, value, a, edge, edge_weight)]
    _check(mechanism, inputs, graph, num_edges, relations)
    dout, lse = dout.contiguous(), lse.contiguous()
    dweights = None if dweights is None else dweights.contiguous()
    grads = [_empty_like(t) for t in inputs]
    if not wants_dedge:
        grads[4] = lse.new_empty(0)
    problem = _problem(mechanism, inputs, graph, num_edges, relations, slope, dropout, seed)
    parts = [grads[n].new_zeros(grads[n].shape) for n in (3, 4, 5)]  # summed over the batch
    for b in range(dout.shape[0]):
        _point(problem, b, query=inputs[0], key=inputs[1], value=inputs[2])
        _point(problem, b, dout=dout, dweights=dweights, lse=lse)
        _point(problem, b, dquery=grads[0], dkey=grads[1])
        _point(problem, b, dvalue=grads[2] if value is not None else None)
        problem.first_count = b * num_edges * lse.shape[2]
        for name, part in zip(("da", "dedge", "dedge_weight"), parts):
            setattr(problem, name, part.data_ptr() if part.numel() else 0)
        kernels.backward(problem)
        if b == 0:
            grads[3:] = parts
            parts = [p.new_zeros(p.shape) for p in parts] if dout.shape[0] > 1 else parts
        else:
            for total, part in zip(grads[3:], parts):
                total += part
                part.zero_()
    if dout.shape[0] == 0:
        grads[3:] = parts
    return tuple(grads)


attend_backward = torch.library.custom_op(
    "dynagat::attend_backward", _backward, mutates_args=(), device_types="cpu"
)


@attend_backward.register_fake
def _(dout, dweights, mechanism, query, key, value, a, edge, edge_weight, lse, graph, num_edges, relations, slope, dropout, seed, wants_dedge):  # fmt: skip
    inputs = (query, key, value, a, edge, edge_weight)
    grads = [lse.new_empty(0) if t is None else t.new_empty(t.shape) for t in inputs]
    if not wants_dedge:
        grads[4] = lse.new_empty(0)
    return tuple(grads)


def _save(ctx, inputs, output):
    (mechanism, query, key, value, a, edge, edge_weight, graph, num_edges, relations, slope,
     dropout, seed, _) = inputs  # fmt: skip
    ctx.save_for_backward(query, key, value, a, edge, edge_weight, output[1], seed, *graph)
    ctx.options = mechanism, num_edges, relations, slope, dropout
    ctx.set_materialize_grads(False)


def _pull_back(ctx, dout, _, dweights, call=attend_backward):
    query, key, value, a, edge, edge_weight, lse, seed, *graph = ctx.saved_tensors
    mechanism, num_edges, relations, slope, dropout = ctx.options
    if dout is None and dweights is None:
        return *[None] * 7, [None] * len(graph), *[None] * 6
    if dout is None:
        wide = key if value is None else value
        dout = wide.new_zeros(*lse.shape, wide.shape[-1])
    grads = call(
        dout, dweights, mechanism, query, key, value, a, edge, edge_weight, lse, graph, num_edges,
        relations, slope, dropout, seed, ctx.needs_input_grad[5],
    )  # fmt: skip
    inputs = (query, key, value, a, edge, edge_weight)
    wanted = ctx.needs_input_grad[1:7]
    grads = [g if t is not None and w else None for g, t, w in zip(grads, inputs, wanted)]
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
    def forward(ctx, *inputs):
        output = _forward(*inputs)
        _save(ctx, inputs, output)
        ctx.mark_non_differentiable(output[1])
        return output

    @staticmethod
    def backward(ctx, *grads):
        grads = _pull_back(ctx, *grads, call=_AttendBackward.apply)
        return *grads[:7], None, *grads[8:]  # a Function's lists have no gradients of their own


class _AttendBackward(torch.autograd.Function):
    """`attend_backward` for eager code."""

    @staticmethod
    def forward(ctx, *inputs):
        return _backward(*inputs)

    @staticmethod
    def backward(ctx, *grads):
        _no_second_derivative(ctx, *grads)


def _empty_results(query, key, value, graph, num_edges, relations, return_weights):
    wide = key if value is None else value
    compute = torch.promote_types(wide.dtype, torch.float32)
    num_queries = (graph[0].shape[0] - 1) // relations
    batch, heads, channels = wide.shape[0], wide.shape[2], wide.shape[3]
    out = _empty_like(wide.new_empty(0), (batch, num_queries, heads, channels))
    lse = wide.new_empty(batch, num_queries, heads, dtype=compute)
    edges = num_edges if return_weights else 0
    return out, lse, wide.new_empty(batch, edges, heads, dtype=compute)


def _empty_like(tensor: Tensor | None, shape=None) -> Tensor:
    """Uninitialised, on huge pages where large; empty for None."""
    if tensor is None:
        return torch.empty(0)
    new = tensor.new_empty(tensor.shape if shape is None else shape)
    if not torch.compiler.is_compiling() and type(new) is Tensor:
        num_bytes = new.numel() * new.element_size()
        if num_bytes >= HUGE:
            kernels.advise_huge(new.data_ptr(), num_bytes)
    return new


def _problem(mechanism, inputs, graph, num_edges, relations, slope, dropout, seed):
    """Everything of a native call that is the same for every batch."""
    _, key, value, a, edge, edge_weight = inputs
    wide = key if value is None else value
    problem = kernels.Problem()
    problem.mechanism = MECHANISMS[mechanism]
    problem.storage = STORAGE[wide.dtype]
    problem.threads = torch.get_num_threads()
    names = ("rowptr", "key_index", "edge_id", "key_rowptr", "key_query", "key_position")
    for name, tensor in zip(names, graph):
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
    problem.seed = 0 if seed is None else int(seed) & (2**64 - 1)
    return problem


def _point(problem, batch: int, **tensors: Tensor | None) -> None:
    """Point fields of the problem at one batch of the given tensors."""
    for name, tensor in tensors.items():
        at = 0
        if tensor is not None:
            at = tensor.data_ptr() + batch * tensor.stride(0) * tensor.element_size()
        setattr(problem, name, at)


def _check(mechanism, inputs, graph, num_edges, relations) -> None:
    """The lengths the kernels rely on; what is inside the graph's arrays they check themselves."""
    query, key, value, a, edge, edge_weight = inputs
    wide = key if value is None else value
    batch, _, heads, channels = wide.shape
    num_queries, num_keys = ((len(graph[n]) - 1) // relations for n in (0, 3))
    row = (heads,) if mechanism == "gat" else (heads, channels)
    shapes = {
        "query": (query, (batch, num_queries * relations, *row)),
        "key": (key, (batch, num_keys * relations, *row)),
        "value": (value, (batch, num_keys * relations, heads, channels)),
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
