"""The ops in plain torch on any device, one chunk of edges after the other.

A chunk has the edges of some queries, or some edges of one query that has too many for a chunk.
The softmax of such a query is continued from chunk to chunk. Backward computes each chunk's scores
again, so that only results have an entry per edge, and no array has E·H·C numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dynagat.ops import observe
from dynagat.ops.inputs import AttentionInputs, State, notify_observers
from dynagat.ops.reference import is_kept

CHUNK_NUMBERS = 1 << 22  # of an array [B, edges of a chunk, H, C]


def forward(inputs: AttentionInputs, return_weights: bool) -> tuple[Tensor, Tensor, Tensor]:
    """out [*, N, H, C], the numbers of `State`, weights [*, num_edges, H] if requested"""
    values, observed = inputs.value_table, observe.has_observers()
    size = State.size(inputs, return_weights)
    numbers = values.new_zeros(size, dtype=inputs.compute_dtype)
    state = State.of(numbers, inputs)
    state.top.fill_(-torch.inf)
    num_batches, _, heads, _ = state.out.shape
    num_edges = inputs.num_edges if return_weights or observed else 0
    batch = values.shape[:-3]
    # The results are not views of others, because layers add the bias to them in place.
    out = values.new_empty(*batch, *state.out.shape[1:])
    weights, scores = (state.out.new_zeros(*batch, num_edges, heads) for _ in range(2))
    rows = weights.view(num_batches, num_edges, heads), scores.view(num_batches, num_edges, heads)
    chunks = list(_chunks(inputs))
    for chunk in chunks:
        _continue_softmax_(state, rows[1], Edges(inputs.flat, chunk))
    state.out.div_(state.total.where(state.total != 0, 1)[..., None])
    out.view(state.out.shape).copy_(state.out)
    for chunk in chunks if num_edges else ():
        edges = Edges(inputs, chunk)
        rows[0][:, edges.id] = _weights(rows[1][:, edges.id], state, edges)
    if return_weights:
        state.weights.copy_(rows[0])
    if observed:
        notify_observers(inputs, weights, scores, return_weights)
    return out, numbers, weights if return_weights else weights.new_empty(*batch, 0, heads)


def backward(
    inputs: AttentionInputs,
    numbers: Tensor,
    dout: Tensor,
    dweights: Tensor | None,
    wants_dedge: bool,
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value, a, edge, edge_weight; empty where the input is None."""
    state, flat = State.of(numbers, inputs), inputs.flat
    dout = dout.view(state.out.shape)
    delta = (dout * state.out).sum(-1)  # Σ_j α_ij dα_ij, where dα is without dropped weights
    chunks = list(_chunks(inputs))
    if dweights is not None:
        dweights = dweights.view(state.weights.shape)
        for chunk in chunks:
            edges = Edges(flat, chunk)
            share = state.weights[:, edges.id] * dweights[:, edges.id]
            delta.index_add_(1, edges.query, share)
    tables = (flat.value, flat.a, flat.edge if wants_dedge else None, flat.edge_weight)
    optional = (None if t is None else state.top.new_zeros(t.shape) for t in tables)
    query, key = (state.top.new_zeros(t.shape) for t in (flat.query, flat.key))
    sums = Gradients(query, key, *optional)
    for chunk in chunks:
        _add_gradients_(sums, state, Edges(flat, chunk), dout, delta, dweights)
    return tuple(
        state.top.new_zeros(() if t is None and n >= 3 else 0)
        if total is None or t is None
        else total.view(t.shape).to(t.dtype)
        for n, (total, t) in enumerate(zip(sums, inputs[:6], strict=True))
    )


class Gradients(NamedTuple):
    """Sums over the chunks so far, in the compute dtype."""

    query: Tensor
    key: Tensor
    value: Tensor | None
    a: Tensor | None
    edge: Tensor | None
    edge_weight: Tensor | None


class Chunk(NamedTuple):
    """Edges at the positions begin .. end - 1, of the queries first .. last - 1."""

    begin: int
    end: int
    first: int
    last: int


def _chunks(inputs: AttentionInputs) -> Iterator[Chunk]:
    num_batches = inputs.value_table.shape[:-3].numel()
    *_, heads, channels = inputs.value_table.shape
    size = max(CHUNK_NUMBERS // max(num_batches * heads * channels, 1), 1)
    start = inputs.graph[0][:: inputs.num_relations].cpu().numpy()  # of each query's edges
    first, num_queries = 0, len(start) - 1
    while first < num_queries:
        begin = int(start[first])
        last = int(start.searchsorted(begin + size, side="right")) - 1
        last = max(min(last, num_queries), first + 1)
        for at in range(begin, int(start[last]), size):  # once, or for parts of one query
            yield Chunk(at, min(at + size, int(start[last])), first, last)
        first = last


class Edges:
    """The edges of a chunk: their ids, and the rows that they read."""

    def __init__(self, inputs: AttentionInputs, chunk: Chunk) -> None:
        rowptr, key_index, edge_id = inputs.graph[:3]
        relations = inputs.num_relations
        self.inputs, self.queries = inputs, slice(chunk.first, chunk.last)
        self.id = edge_id[chunk.begin : chunk.end].long()
        position = torch.arange(chunk.begin, chunk.end, dtype=torch.int32, device=rowptr.device)
        ends = rowptr[chunk.first * relations + 1 : chunk.last * relations + 1]
        row = torch.searchsorted(ends, position, right=True) + chunk.first * relations
        self.query, self.relation = row // relations, row % relations
        key_row = key_index[chunk.begin : chunk.end].long() * relations + self.relation
        used = inputs.graph[6:]
        self.query_row = used[0][row].long() if used else row
        self.key_row = used[1][key_row].long() if used else key_row

    def rows(self, table: Tensor, index: Tensor) -> Tensor:  # [B, rows, ...] -> [B, K, ...]
        return table[:, index].to(self.inputs.compute_dtype)

    @property
    def a(self) -> Tensor:  # [K, H, C], or [1, H, C] without relations
        a = self.inputs.a
        assert a is not None
        return a if self.inputs.num_relations == 1 else a[self.relation]

    @property
    def features(self) -> Tensor:  # [K, R, D]: e under the edge's relation, 0 under the others
        edge, relations = self.inputs.edge, self.inputs.num_relations
        assert edge is not None
        e = edge[self.id]
        if relations == 1:
            return e[:, None]
        return e.new_zeros(len(e), relations, e.shape[1]).scatter_(
            1, self.relation[:, None, None].expand(-1, 1, e.shape[1]), e[:, None]
        )

    def pairs(self) -> tuple[Tensor, Tensor]:
        """query_i and key_j + W_e e_ij of each edge: [B, K, H, C], or [B, K, H] for gat"""
        inputs = self.inputs
        query, key = self.rows(inputs.query, self.query_row), self.rows(inputs.key, self.key_row)
        if inputs.edge is not None and inputs.edge_weight is not None:
            projected = torch.einsum("krd,r...d->k...", self.features, inputs.edge_weight)
            key = key + projected
        return query, key

    def keep_factor(self) -> Tensor | float:  # [B, K, H]
        """1 / (1 - p) or 0, as dropout decides."""
        seed, dropout = self.inputs.seed, self.inputs.dropout
        if seed is None or dropout == 0:
            return 1.0
        values = self.inputs.value_table
        num_batches, heads = values.shape[0], values.shape[-2]
        batch = torch.arange(num_batches, device=self.id.device)[:, None]
        first = (batch * self.inputs.num_edges + self.id)[..., None] * heads
        kept = is_kept(seed, first + torch.arange(heads, device=first.device), dropout)
        kept = kept.to(self.inputs.compute_dtype)
        return kept / (1 - dropout) if dropout < 1 else kept


def _scores(edges: Edges, query: Tensor, key: Tensor) -> Tensor:  # [B, K, H]
    inputs = edges.inputs
    if inputs.mechanism == "dpgat":
        return (query * key).sum(-1) * key.shape[-1] ** -0.5
    activated = torch.nn.functional.leaky_relu(query + key, inputs.slope)
    return activated if inputs.mechanism == "gat" else (activated * edges.a).sum(-1)


def _continue_softmax_(state: State, scores: Tensor, edges: Edges) -> None:
    """Add the edges to top, total and out, which is relative to top until the last chunk."""
    score = _scores(edges, *edges.pairs())
    if scores.numel():
        scores[:, edges.id] = score
    top, total, out = (t[:, edges.queries] for t in (state.top, state.total, state.out))
    query = edges.query - edges.queries.start
    new = top.scatter_reduce(1, query[:, None].expand_as(score), score, "amax")
    shrink = (top - new).exp().where(top != new, 1)  # queries without edges have -inf twice
    weight = (score - new[:, query]).exp()
    total.mul_(shrink).index_add_(1, query, weight)
    value = edges.rows(edges.inputs.value_table, edges.key_row)
    message = (weight * edges.keep_factor())[..., None] * value
    out.mul_(shrink[..., None]).index_add_(1, query, message)
    top.copy_(new)


def _weights(score: Tensor, state: State, edges: Edges) -> Tensor:  # [B, K, H]
    return (score - state.top[:, edges.query]).exp() / state.total[:, edges.query]


def _add_gradients_(
    sums: Gradients,
    state: State,
    edges: Edges,
    dout: Tensor,
    delta: Tensor,
    dweights: Tensor | None,
) -> None:
    inputs, keep = edges.inputs, edges.keep_factor()
    query, key = edges.pairs()
    weight = _weights(_scores(edges, query, key), state, edges)
    upstream = edges.rows(dout, edges.query)
    value = edges.rows(inputs.value_table, edges.key_row)
    dweight = (upstream * value).sum(-1) * keep
    if dweights is not None:
        dweight = dweight + dweights[:, edges.id]
    dscore = weight * (dweight - delta[:, edges.query])
    dvalue = sums.key if sums.value is None else sums.value
    dvalue.index_add_(1, edges.key_row, (weight * keep)[..., None] * upstream)
    dquery, dkey = _gradients_of_pairs(sums, edges, query, key, dscore)
    sums.query.index_add_(1, edges.query_row, dquery)
    sums.key.index_add_(1, edges.key_row, dkey)
    if sums.edge_weight is not None and inputs.edge_weight is not None:
        projected = dkey.sum(0)  # [K, H, C], or [K, H] for gat
        sums.edge_weight.add_(torch.einsum("krd,k...->r...d", edges.features, projected))
        if sums.edge is not None:
            dedge = torch.einsum("k...,r...d->krd", projected, inputs.edge_weight)
            at = edges.relation[:, None, None].expand(-1, 1, dedge.shape[-1])
            sums.edge[edges.id] = dedge.gather(1, at)[:, 0]


def _gradients_of_pairs(
    sums: Gradients, edges: Edges, query: Tensor, key: Tensor, dscore: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of `Edges.pairs`; that of `a` is added to the sums."""
    inputs = edges.inputs
    if inputs.mechanism == "dpgat":
        dscore = dscore[..., None] * key.shape[-1] ** -0.5
        return dscore * key, dscore * query
    pair = query + key
    factor = torch.ones_like(pair).masked_fill_(pair <= 0, inputs.slope)  # LeakyReLU'
    if inputs.mechanism == "gat":
        dpair = dscore * factor
        return dpair, dpair
    dactivated = dscore[..., None] * factor
    if sums.a is not None:
        share = (dactivated * pair).sum(0)
        if inputs.num_relations == 1:
            sums.a.add_(share.sum(0))
        else:
            sums.a.index_add_(0, edges.relation, share)
    dpair = dactivated * edges.a
    return dpair, dpair
