"""The definition of the ops, in plain torch: out_i = Σ_j α_ij value_j, α_i = softmax_j score_ij.

Every table may have leading batch axes `*`. It has one row per node and relation: row i·R + r is
node i under relation r. P stands for the edges in the graph's own order; i, j, r are the query, key
and relation of an edge.

    gat     score_ij = LeakyReLU(query_score_i + key_score_j [+ W_e e_ij])
    gatv2   score_ij = aᵀ LeakyReLU(query_i + key_j [+ W_e e_ij])
    dpgat   score_ij = ⟨query_i, key_j [+ W_e e_ij]⟩ / √C

The returned weights are those before dropout, in the caller's edge order.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dynagat.graph import Graph
from dynagat.ops import observe


def gat(
    query_score: Tensor,  # [*, num_queries·R, H]
    key_score: Tensor,  # [*, num_keys·R, H]
    value: Tensor,  # [*, num_keys·R, H, C]
    graph: Graph,
    *,
    slope: float = 0.2,
    edge: Tensor | None = None,  # [num_edges, D], in the caller's order
    edge_weight: Tensor | None = None,  # [R, H, D]
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:  # out [*, num_queries, H, C], weights [*, num_edges, H]
    """score_ij = LeakyReLU(query_score_i + key_score_j + W_e e_ij)"""
    query_row, key_row = _rows(graph)
    pair = query_score[..., query_row, :] + key_score[..., key_row, :]
    if edge is not None:
        pair = pair + _project(edge, edge_weight, graph)
    score = F.leaky_relu(pair, slope)
    return _attend(score, value[..., key_row, :, :], graph, dropout, seed, return_weights)


def gatv2(
    query: Tensor,  # [*, num_queries·R, H, C]
    key: Tensor,  # [*, num_keys·R, H, C]
    a: Tensor,  # [R, H, C]
    graph: Graph,
    *,
    value: Tensor | None = None,  # [*, num_keys·R, H, C]; default: the keys
    slope: float = 0.2,
    edge: Tensor | None = None,  # [num_edges, D]
    edge_weight: Tensor | None = None,  # [R, H, C, D]
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """score_ij = aᵀ LeakyReLU(query_i + key_j + W_e e_ij)"""
    query_row, key_row = _rows(graph)
    pair = query[..., query_row, :, :] + key[..., key_row, :, :]  # [*, P, H, C]
    if edge is not None:
        pair = pair + _project(edge, edge_weight, graph)
    a = a[graph.relation.long()] if graph.num_relations > 1 else a
    score = (F.leaky_relu(pair, slope) * a).sum(-1)
    value = key if value is None else value
    return _attend(score, value[..., key_row, :, :], graph, dropout, seed, return_weights)


def dpgat(
    query: Tensor,  # [*, num_queries·R, H, C]
    key: Tensor,  # [*, num_keys·R, H, C]
    value: Tensor,  # [*, num_keys·R, H, C]
    graph: Graph,
    *,
    edge: Tensor | None = None,  # [num_edges, D]
    edge_weight: Tensor | None = None,  # [R, H, C, D]
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """score_ij = ⟨query_i, key_j + W_e e_ij⟩ / √C"""
    query_row, key_row = _rows(graph)
    keys = key[..., key_row, :, :]  # [*, P, H, C]
    if edge is not None:
        keys = keys + _project(edge, edge_weight, graph)
    score = (query[..., query_row, :, :] * keys).sum(-1) / query.shape[-1] ** 0.5
    return _attend(score, value[..., key_row, :, :], graph, dropout, seed, return_weights)


def pair_linear(
    x: Tensor,  # [N, C]
    pairs: Tensor,  # [P, 2] of integers
    weight: Tensor,  # [D, C]
    bias: Tensor | None = None,  # [D]
) -> Tensor:  # [P, D]
    """out_p = W (x_i ∘ x_j) + b for each pair p = (i, j)"""
    check_pairs(x, pairs)
    i, j = pairs[:, 0], pairs[:, 1]
    return F.linear(x[i] * x[j], weight, bias)


ACTIVATIONS = {"none": lambda z: z, "relu": F.relu, "elu": F.elu}
NORMS = ("none", "layer", "batch")


def tail(
    x: Tensor,  # [*, C]
    *,
    residual: Tensor | None = None,  # [*, C]
    gain: float = 1.0,
    inner: str = "none",
    norm: str = "none",
    weight: Tensor | None = None,  # [C]
    bias: Tensor | None = None,  # [C]
    mean: Tensor | None = None,  # [C]: of batch norm in evaluation, with `variance`
    variance: Tensor | None = None,
    eps: float = 1e-5,
    outer: str = "none",
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # out [*, C]; mean and variance of the rows, or the columns
    """out = mask ∘ outer(weight ∘ n + bias),  n = (h - mean) / √(variance + ε),
    h = residual + g inner(x)

    With norm="layer", the mean and the variance are those of each row [*]; with "batch", those of
    each column [C]; with "none", n = h. The mask is that of `keep_mask`, scaled by 1 / (1 - p).
    """
    h = gain * ACTIVATIONS[inner](x.to(torch.promote_types(x.dtype, torch.float32)))
    h = h if residual is None else residual + h
    axes = {"none": None, "layer": (-1,), "batch": tuple(range(x.dim() - 1))}[norm]
    given, kept = mean is not None, norm == "layer"
    if axes is not None and not given:
        variance, mean = torch.var_mean(h, axes, correction=0, keepdim=kept)
    y = h if mean is None or variance is None else (h - mean) / (variance + eps).sqrt()
    y = y if weight is None else y * weight
    y = ACTIVATIONS[outer](y if bias is None else y + bias)
    if dropout > 0:
        if seed is None:
            raise ValueError(f"seed is missing, but dropout is {dropout}")
        keep = keep_mask(seed, 1, 1, x.numel(), dropout).view(x.shape).to(y.dtype)
        y = y * (keep / (1 - dropout) if dropout < 1 else keep)
    statistics = [h.new_empty(0) if t is None or given else t.detach() for t in (mean, variance)]
    mean, variance = (t.squeeze(-1) if kept else t for t in statistics)
    return y.to(x.dtype), mean, variance


def check_pairs(x: Tensor, pairs: Tensor) -> None:
    """Raise an error unless pairs is [P, 2] and holds rows of x."""
    if pairs.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"pairs must hold int32 or int64, but holds {pairs.dtype}")
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must have shape [P, 2], but has {list(pairs.shape)}")
    if torch.compiler.is_compiling() or pairs.device.type != "cpu" or not pairs.numel():
        return  # compiled programs and other devices check their indices themselves
    low, high = map(int, pairs.aminmax())
    if low < 0 or high >= len(x):
        bad = low if low < 0 else high
        raise ValueError(f"pairs must lie in [0, {len(x)}), but holds {bad}")


def keep_mask(seed: Tensor, batch: int, num_edges: int, heads: int, dropout: float) -> Tensor:
    """Boolean [batch, num_edges, heads]: the kernels' hash of (seed, edge, head)."""
    count = torch.arange(batch * num_edges * heads, device=seed.device)
    return is_kept(seed, count, dropout).view(batch, num_edges, heads)


def is_kept(seed: Tensor, count: Tensor, dropout: float) -> Tensor:
    """Whether the weight with this number, (batch · num_edges + edge) · H + head, is kept."""
    low, high = count & 0xFFFFFFFF, count >> 32
    first = _mix((seed & 0xFFFFFFFF) ^ 0x9E3779B9)
    second = _mix(((seed >> 32) & 0xFFFFFFFF) ^ first)
    drawn = _mix((_mix(low ^ first) + (high ^ second)) & 0xFFFFFFFF)
    return drawn >= int(dropout * 2**32)


def drop(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """x · keep / (1 - p), where keep is 0 with probability p: the kernels' hash of (seed, place)"""
    keep = is_kept(seed, torch.arange(x.numel(), device=seed.device), p).view(x.shape)
    # A product, as in torch's dropout: an entry that is NaN stays NaN also if it is dropped.
    return (x * (keep * (1 / (1 - p) if p < 1 else 0.0))).to(x.dtype)


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit words, stored as int64; consecutive inputs look unrelated after it."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0xD35A2D97) & 0xFFFFFFFF
    return x ^ (x >> 15)


def _rows(graph: Graph) -> tuple[Tensor, Tensor]:
    """The table rows of the query and the key of each edge."""
    key = graph.key_index
    key_row = key * graph.num_relations + graph.relation if graph.num_relations > 1 else key
    rows = [graph.row_index.long(), key_row.long()]
    for side, used in enumerate((graph.used_query_rows, graph.used_key_rows)):
        rows[side] = rows[side] if used is None else used.number[rows[side]].long()
    return rows[0], rows[1]


def _project(edge: Tensor, edge_weight: Tensor | None, graph: Graph) -> Tensor:
    """W_e e of each edge, where W_e is that of its relation: [P, H] or [P, H, C]"""
    if edge_weight is None:
        raise ValueError("edge_weight is missing, but edge was given")
    e = edge[graph.edge_id.long()]
    if graph.num_relations == 1:
        return torch.einsum("pd,...d->p...", e, edge_weight[0])
    return torch.einsum("pd,p...d->p...", e, edge_weight[graph.relation.long()])


def _attend(
    score: Tensor,
    values: Tensor,
    graph: Graph,
    dropout: float,
    seed: Tensor | None,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """score [*, P, H] and values [*, P, H, C] -> out and, if requested, the weights"""
    query, edge_id = graph.query_index.long(), graph.edge_id.long()
    wide = score.to(torch.promote_types(score.dtype, torch.float32))
    if graph.is_replaced is not None:
        wide = wide.masked_fill(graph.is_replaced[:, None], -torch.inf)
    weight = _segment_softmax(wide, query, graph.num_queries)  # [*, P, H]
    batch, heads = weight.shape[:-2], weight.shape[-1]
    returned = _by_edge_id(weight, graph) if return_weights else None
    if observe.has_observers():
        arrays = [_by_edge_id(values.detach(), graph) for values in (weight, wide)]
        rows = graph.rowptr, graph.key_index, graph.edge_id
        observe.notify(observe.Observation(*rows, graph.num_relations, *arrays))
    if dropout > 0:
        if seed is None:
            raise ValueError(f"seed is missing, but dropout is {dropout}")
        keep = keep_mask(seed, batch.numel(), graph.num_edges, heads, dropout)
        keep = keep.view(*batch, graph.num_edges, heads)[..., edge_id, :]
        # A product, as in torch's dropout: a weight that is NaN stays NaN also if it is dropped.
        weight = weight * keep.to(weight.dtype)
        weight = weight / (1 - dropout) if dropout < 1 else weight
    message = weight[..., None] * values  # [*, P, H, C]
    out = message.new_zeros(*message.shape[:-3], graph.num_queries, *message.shape[-2:])
    return out.index_add(-3, query, message).to(values.dtype), returned


def _by_edge_id(values: Tensor, graph: Graph) -> Tensor:
    """[*, P, H] in the graph's order -> [*, num_edges, H] by edge id; unused ids hold zeros."""
    zeros = values.new_zeros(*values.shape[:-2], graph.num_edges, values.shape[-1])
    return zeros.index_copy(-2, graph.edge_id.long(), values)


def _segment_softmax(score: Tensor, index: Tensor, size: int) -> Tensor:
    """[*, P, H] -> [*, P, H], summing to one over the edges that share an index."""
    at = index[:, None].expand_as(score)
    empty = score.new_full((*score.shape[:-2], size, score.shape[-1]), -torch.inf)
    top = empty.scatter_reduce(-2, at, score.detach(), "amax")
    weight = (score - top[..., index, :]).exp()
    total = torch.zeros_like(empty).index_add(-2, index, weight)
    return weight / total[..., index, :]
