"""Checks of a layer's arguments and inputs, with clear error messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynagat.graph import Graph
from dynagat.nn.edges import Edges, Size
from dynagat.nn.linear import Linear
from dynagat.nn.loops import REDUCTIONS
from dynagat.ops.sparse import LAYOUTS

FLOWS = ("source_to_target", "target_to_source")
Reader = tuple[str, Linear, Tensor]  # an argument's name, the projection that reads it, its value


def check_sizes(
    in_channels: Any, out_channels: Any, heads: Any, edge_dim: Any, num_relations: Any
) -> None:
    """Counts must be positive; widths may also be -1, to be taken from the first x."""
    for name, count in (("out_channels", out_channels), ("heads", heads)):
        _check_count(name, count)
    if num_relations is not None:
        _check_count("num_relations", num_relations)
    widths = in_channels if isinstance(in_channels, (tuple, list)) else (in_channels,)
    if len(widths) != (1 if isinstance(in_channels, int) else 2):
        raise ValueError(f"in_channels must be one width or a pair, but is {in_channels}")
    for width in widths:
        _check_width("in_channels", width)
    if edge_dim is not None:
        _check_width("edge_dim", edge_dim)


def check_options(dropout: Any, fill_value: Any, aggr: Any, flow: Any) -> None:
    if not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability, but is {dropout}")
    if isinstance(fill_value, str) and fill_value not in REDUCTIONS:
        names = ", ".join(map(repr, REDUCTIONS))
        raise ValueError(
            f"fill_value must be a number, a tensor or one of {names}, but is {fill_value!r}"
        )
    if not isinstance(fill_value, (int, float, str, Tensor)):
        kind = type(fill_value).__name__
        raise TypeError(
            f"fill_value must be a number, a tensor or the name of a reduction, but is a {kind}"
        )
    if aggr not in ("add", "sum"):
        raise ValueError(
            f"aggr must be 'add' or 'sum', because attention is a weighted sum, but is {aggr!r}"
        )
    if flow not in FLOWS:
        raise ValueError(f"flow must be one of {', '.join(FLOWS)}, but is {flow!r}")


def check_loops(add_self_loops: bool | None, num_relations: int | None) -> None:
    if add_self_loops and num_relations is not None:
        raise ValueError(
            f"add_self_loops must be False or None with num_relations={num_relations}, because a "
            "self-loop would have no relation; pass graph.with_self_loops(relation) instead"
        )


def read_nodes(x: Any, needs_query: bool) -> tuple[Tensor, Tensor | None]:
    """x, or a pair of tensors, as (x_key, x_query)."""
    if not isinstance(x, (tuple, list)):
        x = _features("x", x)
        return x, x
    if len(x) != 2:
        raise ValueError(f"x must be a tensor or a pair (x_key, x_query), but has {len(x)} entries")
    key = _features("x[0]", x[0])
    if x[1] is None and not needs_query:
        return key, None
    query = _features("x[1]", x[1])
    if query.shape[:-2] != key.shape[:-2]:
        axes = f"{list(key.shape[:-2])} and {list(query.shape[:-2])}"
        raise ValueError(f"x[0] and x[1] must have the same leading axes, but have {axes}")
    return key, query


def check_fill(fill: Any, edge: Tensor | None, num_loops: int) -> None:
    """A fill_value tensor must be broadcastable to the edge features of all self-loops."""
    if edge is None or not isinstance(fill, Tensor) or not num_loops:
        return
    shape = (num_loops, edge.shape[1])
    sizes = zip(fill.shape[::-1], shape[::-1], strict=False)
    fits = all(size in (1, expected) for size, expected in sizes)
    if fill.dim() > 2 or not fits:
        raise ValueError(f"fill_value must broadcast to {list(shape)}, but has {list(fill.shape)}")


def check_devices(
    x_key: Tensor, x_query: Tensor | None, edges: Edges, edge_attr: Tensor | None
) -> None:
    inputs = {"edge_index": edges, "x[1]": x_query, "edge_attr": edge_attr}
    for name, given in inputs.items():
        if given is not None and given.device != x_key.device:
            raise ValueError(f"{name} must be on {x_key.device} like x, but is on {given.device}")


def check_graph(graph: Graph, x: Tensor) -> None:
    """For layers that take a Graph only."""
    if graph.device != x.device:
        raise ValueError(f"graph must be on {x.device} like x, but is on {graph.device}")


def fit_sizes(x_key: Tensor, x_query: Tensor | None, edges: Edges, size: Any) -> Size:
    """(num_keys, num_queries), on which x, size and the edges must agree."""
    if size is not None and (not isinstance(size, (tuple, list)) or len(size) != 2):
        raise ValueError(f"size must be a pair (num_keys, num_queries), but is {size}")
    sizes = {"size": size, "edge_index": edges.size}
    rows = [x_key.shape[-2], None if x_query is None else x_query.shape[-2]]
    for name, counts in sizes.items():
        for side, count in enumerate(counts or ()):
            if rows[side] is None:
                rows[side] = count
            elif count is not None and count != rows[side]:
                what = ("keys", "queries")[side]
                raise ValueError(f"{name} implies {count} {what}, but x has {rows[side]}")
    num_keys, num_queries = rows
    assert num_keys is not None
    return num_keys, num_keys if num_queries is None else num_queries


def check_relation(relation: Any, edges: Edges, num_relations: int | None) -> None:
    if relation is not None and num_relations is None:
        raise ValueError("relation was given, but the layer was created without num_relations")
    if relation is None and (num_relations or 1) > 1 and edges.takes_relation:
        raise ValueError(f"relation is missing, but the layer has num_relations={num_relations}")


def read_edge_features(
    edge_attr: Any, edges: Edges, edge_dim: int | None
) -> Tensor | None:  # [E, D]
    """edge_attr or a sparse adjacency's values; required if and only if the layer has edge_dim."""
    edge = edges.values if edge_attr is None else edge_attr
    if edge is None:
        if edge_dim is not None:
            raise ValueError(f"edge_attr is missing, but the layer has edge_dim={edge_dim}")
        return None
    if edge_dim is None:
        raise ValueError("edge_attr was given, but the layer was created without edge_dim")
    if not isinstance(edge, Tensor) or not edge.is_floating_point():
        kind = edge.dtype if isinstance(edge, Tensor) else type(edge).__name__
        raise TypeError(f"edge_attr must be a floating-point tensor, but is {kind}")
    if edge.dim() not in (1, 2) or edge.shape[0] != edges.num_edges:
        raise ValueError(
            f"edge_attr must have one row for each of the {edges.num_edges} edges, "
            f"but has shape {list(edge.shape)}"
        )
    return edge[:, None] if edge.dim() == 1 else edge


def check_readers(readers: Sequence[Reader]) -> None:
    """Each argument must have the device, width and dtype of the projection that reads it."""
    for name, linear, x in readers:
        if x.device != linear.weight.device:
            raise ValueError(
                f"{name} must be on {linear.weight.device} like the layer, but is on {x.device}"
            )
        # A lazy projection takes the width of its first input, also if it is shared.
        first = next(other for _, same, other in readers if same is linear)
        width = first.shape[-1] if linear.is_lazy else linear.in_channels
        if x.shape[-1] != width:
            what = "edge_dim" if name == "edge_attr" else "in_channels"
            raise ValueError(
                f"{name} must have {width} features, the layer's {what}, but has {x.shape[-1]}"
            )
        if x.dtype != linear.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(
                f"{name} must have dtype {linear.weight.dtype} like the layer, but has {x.dtype}"
            )


def _features(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, but is a {type(x).__name__}")
    if x.dim() < 2:
        raise ValueError(f"{name} must have shape [*, N, in_channels], but has {list(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, but has {x.dtype}")
    if x.layout != torch.strided and (x.layout not in LAYOUTS or x.dim() != 2):
        raise ValueError(
            f"{name} must be dense, or a sparse matrix in the layout COO or CSR, "
            f"but has the layout {x.layout} and shape {list(x.shape)}"
        )
    if x.layout == torch.sparse_coo and x.dense_dim():
        raise ValueError(f"{name} must have single numbers as its entries, but has whole rows")
    return x


def _check_count(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{name} must be a positive integer, but is {count}")


def _check_width(name: str, width: Any) -> None:
    if not isinstance(width, int) or isinstance(width, bool) or (width < 1 and width != -1):
        raise ValueError(
            f"{name} must be positive, or -1 to be taken from the first input, but is {width}"
        )
