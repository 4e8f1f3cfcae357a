"""A layer as one node of autograd, for eager programs on the CPU: projections, attention and bias.

It computes what the ops compute one after the other, with less work per call: two native calls, one
forward and one backward, and torch's matrix products. Gradients that will be differentiated again
are computed by the ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from dynagat.graph import Graph
from dynagat.native import kernels
from dynagat.ops import devices, fused, observe, sparse
from dynagat.ops.eager import PLAIN
from dynagat.ops.fused import LARGE, MECHANISM_CODES, STORAGE, empty
from dynagat.ops.head_scores import with_scores
from dynagat.ops.project import weight_gradient
from dynagat.ops.sparse import Sparse

CPU = torch.device("cpu")
SMALL = (
    1 << 18
)  # multiplications up to which native code takes less time than the call of a library
Parameters = Sequence[Tensor | None]


class LayerCall(NamedTuple):
    """A call of a layer: all that has no gradient."""

    mechanism: str
    sources: tuple[int, ...]  # which projection is the query, key and value; -1: none is
    graph: Graph  # with one relation, on one set of nodes
    heads: int
    channels: int
    slope: float
    dropout: float
    seed: int
    entries: Sparse | None  # of x, if it is mostly zero
    is_small: bool  # whether native code multiplies x with the weights


@cache
def _roles(sources: tuple[int, ...]) -> list[list[int]]:
    """What each projection is: 0 the query, 1 the key, 2 the value."""
    return [
        [role for role, source in enumerate(sources) if source == n]
        for n in range(max(sources) + 1)
    ]


def is_available() -> bool:
    """Whether `attend_nodes` may be called: not in programs that are traced, compiled or observed,
    and only where the native kernels compute on the CPU."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or observe.has_observers():
        return False
    if forward_ad._current_level >= 0:  # a native call has no tangents
        return False
    if torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack():
        return False
    return devices.choose(CPU) == "fused"


def are_readable(tensors: Sequence[Tensor], dtype: torch.dtype) -> bool:
    """Whether native code can read these tensors as they are."""
    for tensor in tensors:
        if type(tensor) not in PLAIN or tensor.dtype is not dtype or not tensor.is_cpu:
            return False
        if not tensor.is_contiguous() or tensor.is_neg():
            return False
    return True


def is_small(x: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether native code multiplies x with the weights in less time than torch's products."""
    count = x.numel()
    if count * sum([weight.shape[0] for weight in weights]) > SMALL:
        return False
    return are_readable([x, *weights], x.dtype)


def attend_nodes(call: LayerCall, x: Tensor, bias: Tensor | None, parameters: Parameters) -> Tensor:
    """x [N, in] -> [N, H·C]; parameters: weight and bias of each projection, then the vectors a

    The vectors have shape [1, H, C]: `a` for gatv2; for gat, those of the query and of the key.
    """
    if torch.is_grad_enabled():
        return _apply(call, x, bias, *parameters)
    return _forward(call, x, bias, *parameters)[0]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, x, bias, *parameters):  # pyright: ignore[reportIncompatibleMethodOverride]
        out, tables = _forward(call, x, bias, *parameters)
        last = 2 * len(_roles(call.sources))
        # Biases are not needed, and may change; their versions are compared if they are.
        ctx.biases = [(b, 0 if b is None else b._version) for b in (bias, *parameters[1:last:2])]
        ctx.save_for_backward(x, *parameters[:last:2], *parameters[last:], *tables)
        ctx.call, ctx.num_parameters = call, len(parameters) - last // 2
        return out

    @staticmethod
    def backward(ctx, dout):  # pyright: ignore[reportIncompatibleMethodOverride]
        call, (x, *tensors), num_parameters = ctx.call, ctx.saved_tensors, ctx.num_parameters
        parameters, tables = tensors[:num_parameters], tensors[num_parameters:]
        if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return _gradients_by_ops(ctx, x, parameters, dout)
        fused._check_tensor("dout", dout, (x.shape[0], call.heads * call.channels), x.dtype)
        dout = fused._plain(dout)
        return None, *_gradients(call, x, parameters, tables, dout, ctx.needs_input_grad)


# `apply` of Function inspects the signature of `forward` in each call.
_apply: Any = super(torch.autograd.Function, _Layer).apply  # pyright: ignore


def _forward(call: LayerCall, x: Tensor, bias: Tensor | None, *parameters: Any):
    """The output, and the tables: those of the projections, then top and, for gat, the scores; if
    the products are small, they are parts of one tensor."""
    last = 2 * len(_roles(call.sources))
    weights, biases = parameters[:last:2], parameters[1:last:2]
    num_nodes, width = x.shape[0], call.heads * call.channels
    num_scores = num_nodes * call.heads * (3 if call.mechanism == "gat" else 1)
    if call.is_small:
        tables = [x.new_empty(len(weights) * num_nodes * width + num_scores)]
    else:
        tables = [_project(call, x, *each) for each in zip(weights, biases, strict=True)]
        tables.append(x.new_empty(num_scores))
    out = _empty(num_nodes, width, x)
    projected, places, top = _places(call, x, tables)
    kernels.forward_layer(
        *_arguments(call, x), (*places, *_addresses(*parameters[last:], None, None))[:5],
        0 if bias is None else bias.data_ptr(), (top, out.data_ptr()),
        [(*_addresses(w, b), at) for w, b, at in zip(weights, biases, projected, strict=True)],
        x.data_ptr() if call.is_small else 0, torch.get_num_threads(),
    )  # fmt: skip
    return out, tables


def _places(call: LayerCall, x: Tensor, tables: Sequence[Tensor]):
    """Addresses of the projections; of query, key and value; of top."""
    num_nodes, item = x.shape[0], x.itemsize
    top = tables[-1].data_ptr()
    if call.is_small:
        first, step = top, num_nodes * call.heads * call.channels * item
        num_projections = len(_roles(call.sources))
        projected = [first + n * step for n in range(num_projections)]
        top = first + num_projections * step
    else:
        projected = [table.data_ptr() for table in tables[:-1]]
    if call.mechanism == "gat":
        step = num_nodes * call.heads * item
        return projected, (top + step, top + 2 * step, projected[0]), top
    return projected, [0 if n < 0 else projected[n] for n in call.sources], top


def _gradients(
    call: LayerCall,
    x: Tensor,
    parameters: Sequence[Tensor],
    tables: Sequence[Tensor],
    dout: Tensor,
    wanted: Sequence[bool],  # for the arguments of `_Layer.forward`
) -> list[Tensor | None]:
    roles, width = _roles(call.sources), dout.shape[1]
    weights, vectors = parameters[: len(roles)], parameters[len(roles) :]
    dtables, places = _empty_gradients(call, x)
    dbias = x.new_empty(width) if wanted[2] else None
    dx = torch.empty_like(x) if call.is_small and wanted[1] else None
    dvectors = [torch.empty_like(vector) for vector in vectors]
    products, grads = [], []
    for n, (weight, (role, *other)) in enumerate(zip(weights, roles, strict=True)):
        dweight = torch.empty_like(weight) if call.is_small and wanted[3 + 2 * n] else None
        db = x.new_empty(width) if wanted[4 + 2 * n] else None
        at = (weight.data_ptr(), places[role], places[other[0]] if other else 0)
        products.append((*at, *_addresses(dweight, db)))
        grads += (dweight, db)
    _, at, top = _places(call, x, tables)
    kernels.backward_layer(
        *_arguments(call, x), (*at, *_addresses(*vectors, None, None))[:5],
        (top, dout.data_ptr()),
        (*places, *_addresses(*dvectors, None, None)[:2], *_addresses(dbias, dx)), products,
        x.data_ptr() if call.is_small else 0, torch.get_num_threads(),
    )  # fmt: skip
    if not call.is_small:
        for n, (weight, (role, *_)) in enumerate(zip(weights, roles, strict=True)):
            dtable = dtables[role]
            if wanted[1]:
                dx = _add_product(dx, dtable, weight)
            if wanted[3 + 2 * n]:
                grads[2 * n] = _weight_gradient(call, x, dtable)
    return [dx, dbias, *grads, *dvectors]


def _empty_gradients(call: LayerCall, x: Tensor) -> tuple[list[Any], list[int]]:
    """Memory for the gradients of query, key and value, and its addresses."""
    num_nodes, heads, width = x.shape[0], call.heads, call.heads * call.channels
    columns = [0 if n < 0 else width for n in call.sources]
    if call.mechanism == "gat":
        columns = [heads, heads, width]
    if not call.is_small:
        dtables = [_empty(num_nodes, c, x) if c else None for c in columns]
        return dtables, list(_addresses(*dtables))
    memory, step = x.new_empty(num_nodes * sum(columns)), num_nodes * x.itemsize
    first = memory.data_ptr()
    places = [first, first + columns[0] * step, first + (columns[0] + columns[1]) * step]
    return [memory], [at if c else 0 for at, c in zip(places, columns, strict=True)]


def _project(call: LayerCall, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if call.entries is not None:
        return sparse.multiply(call.entries, weight, bias)
    if x.shape[0] * weight.shape[0] * x.itemsize < LARGE:
        return F.linear(x, weight, bias)
    out = _empty(x.shape[0], weight.shape[0], x)
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def _weight_gradient(call: LayerCall, x: Tensor, dtable: Tensor) -> Tensor:
    if call.entries is not None:
        return sparse.weight_gradient(call.entries, dtable)
    return weight_gradient(x, dtable)


def _add_product(total: Tensor | None, x: Tensor, weight: Tensor) -> Tensor:
    if total is not None:
        return total.addmm_(x, weight)
    return torch.mm(x, weight, out=_empty(x.shape[0], weight.shape[1], x))


def _empty(rows: int, columns: int, like: Tensor) -> Tensor:
    if rows * columns * like.itemsize < LARGE:
        return like.new_empty(rows, columns)
    return empty((rows, columns), like.dtype)


def _addresses(*tensors: Tensor | None) -> tuple[int, ...]:
    return tuple([0 if tensor is None else tensor.data_ptr() for tensor in tensors])


def _arguments(call: LayerCall, x: Tensor):
    """The graph's arrays, sizes and options, as the native functions take them."""
    global _checked
    graph = call.graph
    arrays = (graph.rowptr, graph.key_index, graph.edge_id)
    arrays += (graph.key_rowptr, graph.key_query, graph.key_position)
    addresses, lengths = [t.data_ptr() for t in arrays], [t.numel() for t in arrays]
    state = (graph.num_queries, addresses, lengths)
    if _checked != state:  # arrays could have been resized
        fused._check_graph([*arrays], 1)
        if not lengths[0] == lengths[3] == graph.num_queries + 1:
            raise ValueError(
                f"the graph's rowptr and key_rowptr must have {graph.num_queries + 1} entries, but "
                f"have {lengths[0]} and {lengths[3]}"
            )
        _checked = state
    sizes = (x.shape[0], lengths[1], graph.num_edges, call.heads, call.channels, x.shape[1])
    mechanism, storage = MECHANISM_CODES[call.mechanism], STORAGE[x.dtype]
    return addresses, sizes, (mechanism, storage, call.slope, call.dropout, call.seed)


# The arrays that were checked last: the number of nodes, their addresses and their lengths.
_checked: tuple[int, list[int], list[int]] | None = None


# Gradients that will be differentiated again


def _gradients_by_ops(ctx, x: Tensor, parameters: Sequence[Tensor], dout: Tensor):
    """The gradients of the same layer as a chain of ops."""
    call, num_projections = ctx.call, len(ctx.biases) - 1
    if any(bias is not None and bias._version != version for bias, version in ctx.biases):
        raise RuntimeError(
            "a bias of the layer was modified in place between the forward pass and this backward "
            "pass, whose gradients will be differentiated again"
        )
    bias, *biases = (bias for bias, _ in ctx.biases)
    weights, vectors = parameters[:num_projections], parameters[num_projections:]
    products = list(zip(weights, biases, strict=True))
    inputs = [x, bias, *(t for product in products for t in product), *vectors]
    with torch.enable_grad():
        out = _compute_by_ops(call, x, bias, products, vectors)
    wanted = [n for n, is_wanted in enumerate(ctx.needs_input_grad[1:]) if is_wanted]
    is_differentiable = torch.is_grad_enabled()
    grads = torch.autograd.grad(
        out, [inputs[n] for n in wanted], dout, create_graph=is_differentiable
    )
    by_input = dict(zip(wanted, grads, strict=True))
    return None, *(by_input.get(n) for n in range(len(inputs)))


def _compute_by_ops(call: LayerCall, x, bias, products, vectors: Any) -> Tensor:
    shape, graph = (x.shape[0], call.heads, call.channels), call.graph
    tables: Any = [F.linear(x, weight, b).view(shape) for weight, b in products]
    query, key, value = (tables[n] for n in call.sources)  # -1: not read
    seed = torch.tensor(call.seed) if call.dropout else None
    options: Any = {"dropout": call.dropout, "seed": seed}
    if call.mechanism == "gat":
        out, _ = fused.gat(*with_scores(value, *vectors), graph, slope=call.slope, **options)
    elif call.mechanism == "gatv2":
        out, _ = fused.gatv2(query, key, vectors[0], graph, slope=call.slope, **options)
    else:
        out, _ = fused.dpgat(query, key, value, graph, **options)
    out = out.flatten(1)
    return out if bias is None else out + bias
