"""Direct calls: a layer on plain tensors, without any option, is one node of autograd.

`call_directly` answers None if anything is unusual; then the layer takes the general way, which
also has the error messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks

from dynagat.graph import INDEX_DTYPES, Graph
from dynagat.nn.cache import latest_graph
from dynagat.nn.edges import EdgeList, GraphEdges
from dynagat.nn.linear import Linear
from dynagat.ops import layer as layer_ops
from dynagat.ops import sparse
from dynagat.ops.eager import PLAIN, SUMMED


@dataclass(frozen=True)
class Direct:
    """What `ops.layer` needs to know of a kind of layer."""

    mechanism: str
    projections: tuple[str, ...]  # names of the modules
    sources: tuple[int, int, int]  # which of them is the query, key and value; -1: none is
    vectors: tuple[str, ...]  # names of the parameters


def call_directly(layer: Any, x: Any, edge_index: Any) -> Tensor | None:
    """The layer's output, or None if it must be computed in the general way."""
    if not layer_ops.is_available() or not _is_matrix(x) or not _is_plain(layer):
        return None
    given = _parameters(layer, x)
    if given is None:
        return None
    graph = _graph(layer, edge_index, x.shape[0])
    if graph is None:
        return None
    bias, weights, parameters, sources = given
    dropout = layer.dropout if layer.training else 0.0
    call = layer_ops.LayerCall(
        layer.direct.mechanism,
        sources,
        graph,
        layer.heads,
        layer.out_channels,
        getattr(layer, "negative_slope", 1.0),
        dropout,
        int(torch.randint(2**63 - 1, ())) if dropout else 0,
        sparse.find(x),
        layer_ops.is_small(x, weights),
    )
    return layer_ops.attend_nodes(call, x, bias, parameters)


def _is_matrix(x: Any) -> bool:
    if type(x) not in PLAIN or x.layout is not torch.strided or x.dtype not in SUMMED:
        return False
    return x.is_cpu and x.dim() == 2 and x.shape[0] > 0


def _is_plain(layer: Any) -> bool:
    """Without relations, edge features, residual and mean over heads."""
    if layer.num_relations is not None or layer.edge_dim is not None or layer.residual:
        return False
    return layer.concat or layer.heads == 1


def _parameters(
    layer: Any, x: Tensor
) -> tuple[Tensor | None, list[Tensor], list[Tensor | None], tuple[int, ...]] | None:
    """The bias, the weights, all other parameters, and the sources; None if one is unusual."""
    modules, own, kind = layer._modules, layer._parameters, layer.direct
    projections, sources = [modules.get(name) for name in kind.projections], kind.sources
    if "share_weights" in layer.__dict__ and layer.share_weights:  # then it is counted once
        distinct = list(dict.fromkeys(projections))
        sources = tuple([n if n < 0 else distinct.index(projections[n]) for n in sources])
        projections = distinct
    shape = (layer.heads, layer.out_channels)
    width = shape[0] * shape[1]
    weights, parameters, dtype, bias = [], [], x.dtype, layer.bias
    read: list[tuple[Tensor, tuple[int, ...]]] = []  # by native code, in any case
    if bias is not None:
        read.append((bias, (width,)))
    for linear in projections:
        if not _is_product(linear):
            return None
        weight, added = linear.weight, linear.bias
        if type(weight) not in PLAIN or weight.dtype is not dtype or not weight.is_cpu:
            return None
        if weight.shape != (width, x.shape[1]):
            return None
        weights.append(weight)
        parameters += (weight, added)
        if added is not None:
            read.append((added, (width,)))
    for name in kind.vectors:
        if name not in own:
            return None
        read.append((own[name], (1, *shape)))
        parameters.append(own[name])
    if any(tensor.shape != expected for tensor, expected in read):
        return None
    is_readable = layer_ops.are_readable([tensor for tensor, _ in read], dtype)
    return (bias, weights, parameters, sources) if is_readable else None


def _is_product(linear: Any) -> bool:
    """Whether a projection is the product with its weight, and nothing else."""
    if type(linear) is not Linear or has_global_hooks():
        return False
    state = linear.__dict__
    return not (
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
        or "forward" in state
    )


def _graph(layer: Any, edge_index: Any, num_nodes: int) -> Graph | None:
    size = (num_nodes, num_nodes)
    if type(edge_index) is not Tensor:
        return _own_graph(layer, edge_index, size) if type(edge_index) is Graph else None
    if edge_index.layout is not torch.strided or not edge_index.is_cpu:
        return None
    variant = (size, layer.add_self_loops, 1, layer.flow)
    graph = latest_graph(edge_index, variant)
    if graph is not None:
        return graph
    if edge_index.dtype not in INDEX_DTYPES:
        return None
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        return None
    return EdgeList(edge_index, layer.flow).graph(size, layer.add_self_loops, None, 1)


def _own_graph(layer: Any, graph: Graph, size: tuple[int, int]) -> Graph | None:
    is_compact = graph.used_key_rows is not None or graph.used_query_rows is not None
    if graph.num_relations > 1 or graph.query_row is not None or is_compact:
        return None
    edges = GraphEdges(graph)
    if edges.size != size or edges.device != layer_ops.CPU:
        return None
    return edges.graph(size, layer.add_self_loops, None, 1)
