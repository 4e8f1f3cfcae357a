"""GraphAttention: what the three layers share, from checking the input to adding the bias."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from dynagat.graph import Graph
from dynagat.nn import checks
from dynagat.nn.direct import Direct, call_directly
from dynagat.nn.edges import Edges, read_edges
from dynagat.nn.linear import Linear
from dynagat.nn.loops import FillValue, keep_real_loops, loop_features, warn_about_pair_loops
from dynagat.ops.project import project, project_rows, take_rows
from dynagat.ops.sparse import to_dense
from dynagat.used_rows import UsedRows

Channels = int | tuple[int, int]


class GraphAttention(nn.Module, ABC):
    """Abstract. out_i = Σ_j α_ij value_j,  α_i = softmax of score_ij over the keys j of query i

    The arguments are PyG's, with three differences: returned attention weights are taken before
    dropout; edges and features are checked; on a pair of node sets, real edges (i, i) keep their
    features.

    Args:
        in_channels: width of x, or the widths of (x_key, x_query); -1 takes it from the first x.
        out_channels: C, the width of each head's output.
        heads: H, the number of heads.
        concat: whether the heads' outputs are concatenated, [N, H·C], or averaged, [N, C].
        dropout: probability of dropping an attention weight in training.
        add_self_loops: whether each node also attends to itself; existing self-loops are replaced.
            The default None means True, or False with `num_relations`, because an added self-loop
            has no relation.
        edge_dim: D, the width of the edge features, or None; they only affect the score.
        fill_value: edge features of self-loops: a number, a tensor, or a reduction ("add", "sum",
            "mean", "min", "max", "mul") of the features of the node's edges.
        bias: whether a bias is added to the output.
        residual: whether a projection of x_query is added to the output.
        aggr, flow: as in PyG; the only aggregation is "add", and "target_to_source" swaps query
            and key.
        num_relations: R; each relation has its own weights, and one softmax runs over all edges.
    """

    attention_halves: ClassVar[int] = 1  # length of the paper's attention vector, in units of C
    needs_query: ClassVar[bool] = True  # whether x[1] is required
    direct: ClassVar[Direct]

    lin_edge: Linear | None
    res: Linear | None
    bias: Parameter | None

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        *,
        heads: int,
        concat: bool,
        dropout: float,
        add_self_loops: bool | None,
        edge_dim: int | None,
        fill_value: FillValue,
        residual: bool,
        aggr: str,
        flow: str,
        num_relations: int | None,
    ) -> None:
        super().__init__()
        checks.check_sizes(in_channels, out_channels, heads, edge_dim, num_relations)
        checks.check_options(dropout, fill_value, aggr, flow)
        checks.check_loops(add_self_loops, num_relations)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.add_self_loops = num_relations is None if add_self_loops is None else add_self_loops
        self.edge_dim = edge_dim
        self.fill_value = fill_value
        self.residual = residual
        self.flow = flow
        self.num_relations = num_relations

    # Implemented by each mechanism

    @abstractmethod
    def attend(
        self, x_key: Tensor, x_query: Tensor | None, graph: Graph, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Project x and call the op: out [*, num_queries, H, C] and, if requested, the weights."""

    @abstractmethod
    def edge_weight(self, lin_edge: Linear) -> Tensor:
        """The matrix that the op multiplies e_ij with: [R, H, D] or [R, H, C, D]."""

    @abstractmethod
    def projections(self) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
        """The projections of the keys' x, and those of the queries' x."""

    @abstractmethod
    def attention_vectors(self) -> tuple[Parameter, ...]:
        """The attention vectors, in the order in which PyG initialises them."""

    # Parameters

    @property
    def channel_pair(self) -> tuple[int, int]:
        """The widths of x_key and x_query."""
        widths = self.in_channels
        return (widths, widths) if isinstance(widths, int) else (widths[0], widths[1])

    def linear(self, in_channels: int, bias: bool = False) -> Linear:
        """A projection to the channels of all heads, with one matrix per relation."""
        blocks = self.num_relations or 1
        width = blocks * self.heads * self.out_channels
        return Linear(in_channels, width, bias, blocks=blocks)

    def vector(self) -> Parameter:  # [R, H, C]
        return Parameter(torch.empty(self.num_relations or 1, self.heads, self.out_channels))

    def complete(self, bias: bool) -> None:
        """Create the parameters that come last in PyG's order, then initialise all of them."""
        width = self.out_channels * (self.heads if self.concat else 1)
        self.lin_edge = None if self.edge_dim is None else self.linear(self.edge_dim)
        self.res = Linear(self.channel_pair[1], width, bias=False) if self.residual else None
        self.bias = Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise all parameters; the same seed gives the same values as in PyG."""
        # A shared Linear is initialised twice, to match PyG's random stream.
        for linear in self._modules.values():
            if isinstance(linear, Linear):
                linear.reset_parameters()
        limit = self._vector_limit()
        for vector in self.attention_vectors():
            nn.init.uniform_(vector, -limit, limit)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _vector_limit(self) -> float:
        if self.num_relations is None:
            return math.sqrt(6 / (self.heads + self.out_channels))  # PyG's glorot of [1, H, C]
        length = self.attention_halves * self.heads * self.out_channels
        return math.sqrt(3 / length)  # TF's glorot of a 1-D variable

    # Forward pass

    def table(self, linear: Linear, x: Tensor, rows: UsedRows | None = None) -> Tensor:
        """The projection of x under every relation, [*, N, in] -> [*, N·R, H, C]; with used rows,
        that of rows which were taken from x, [*, U, in] -> [*, U, H, C]."""
        if rows is None:
            out = linear(x)
        else:
            weight = linear.weight.view(len(rows.offset) - 1, -1, x.shape[-1])
            out = project_rows(x, weight, linear.bias, rows)
        return out.reshape(*x.shape[:-2], -1, self.heads, self.out_channels)

    def run(
        self, x: Any, edge_index: Any, edge_attr: Any, size: Any, relation: Any, weights: Any
    ) -> Any:
        """The forward pass; the layers' `forward` methods differ only in the order of arguments.

        Args:
            x: [*, N, in_channels], or a pair (x_key, x_query) of those. [N, in_channels] may be a
                sparse tensor (COO or CSR); zeros are also skipped in a dense one that has many.
            edge_index: PyG's [2, E] of (key, query) pairs, int32 or int64; or the transposed sparse
                adjacency [num_queries, num_keys]; or a `Graph`, which is used as it is. A graph
                built from a tensor is cached until the tensor changes or is deleted.
            edge_attr: [E, edge_dim], in the order of the edges; required if the layer has edge_dim.
            size: (num_keys, num_queries), if x does not imply it.
            relation: [E], the relation index of each edge, if the layer has num_relations.
            weights: whether to return (out, (edges, α)) instead of out. α [*, E, H] is taken before
                dropout. The edges are the caller's without replaced self-loops, followed by the
                added self-loops. Under torch.compile, where shapes must not depend on data,
                replaced self-loops stay in the list with α = 0.
        """
        if edge_attr is None and size is None and relation is None and not weights:
            out = call_directly(self, x, edge_index)
            if out is not None:
                return out
        x_key, x_query = checks.read_nodes(x, self.needs_query)
        edges = read_edges(edge_index, self.flow)
        sizes = checks.fit_sizes(x_key, x_query, edges, size)
        num_loops = min(sizes) if self.add_self_loops else 0
        checks.check_relation(relation, edges, self.num_relations)
        edge = checks.read_edge_features(edge_attr, edges, self.edge_dim)
        checks.check_fill(self.fill_value, edge, num_loops)
        checks.check_devices(x_key, x_query, edges, edge)
        readers = list(self._readers(x_key, x_query, edge))
        checks.check_readers(readers)
        graph = edges.graph(sizes, self.add_self_loops, relation, self.num_relations or 1)
        if graph.num_relations > 1 and not torch.compiler.is_compiling():
            graph = graph.compact
        for _, linear, features in readers:  # after all checks, so a failed call changes nothing
            linear.initialize(features.shape[-1])

        is_pair = x_query is not x_key
        if self.add_self_loops and is_pair:
            warn_about_pair_loops()
        options = self._edge_options(edge, edges, num_loops, is_pair)
        options |= self._dropout_options(x_key.device)
        keys, queries = _rows_of(x_key, x_query, graph)
        out, alpha = self.attend(keys, queries, graph, return_weights=bool(weights), **options)
        out = self._finish(out, x_query, graph)
        return out if alpha is None else (out, edges.with_weights(graph, alpha, num_loops))

    def _readers(
        self, x_key: Tensor, x_query: Tensor | None, edge: Tensor | None
    ) -> Iterator[checks.Reader]:
        """Each projection with its input, in the order in which PyG initialises lazy ones."""
        key_name, query_name = ("x", "x") if x_query is x_key else ("x[0]", "x[1]")
        by_key, by_query = self.projections()
        if self.res is not None and x_query is not None:
            yield query_name, self.res, x_query
        yield from ((key_name, linear, x_key) for linear in by_key)
        if x_query is not None:
            yield from ((query_name, linear, x_query) for linear in by_query)
        if self.lin_edge is not None and edge is not None:
            yield "edge_attr", self.lin_edge, edge

    def _edge_options(
        self, edge: Tensor | None, edges: Edges, num_loops: int, is_pair: bool
    ) -> dict[str, Any]:
        if edge is None or self.lin_edge is None:
            return {}
        if self.add_self_loops:
            ends = edges.ends()
            loop = loop_features(edge, ends, edges.target(), num_loops, self.fill_value)
            edge = torch.cat([edge, keep_real_loops(edge, ends, loop) if is_pair else loop])
        return {"edge": edge, "edge_weight": self.edge_weight(self.lin_edge)}

    def _dropout_options(self, device: torch.device) -> dict[str, Any]:
        if not self.training or self.dropout == 0:
            return {}
        return {"dropout": self.dropout, "seed": torch.randint(2**63 - 1, (), device=device)}

    def _finish(self, out: Tensor, x_query: Tensor | None, graph: Graph) -> Tensor:
        """[*, N, H, C] -> [*, N, H·C], or the mean over heads [*, N, C]; plus residual and bias."""
        out = out if self.concat else out.mean(-2, keepdim=True)
        # In place, because neither the op nor the mean saves its result for the backward pass; and
        # before flattening, because an in-place change through a view costs a copy.
        if self.res is not None and x_query is not None:
            residual = project(x_query, self.res.weight, self.bias)
            out = _add_(out, graph.rows_of_queries(residual, -2).view(out.shape))
        elif self.bias is not None:
            out = _add_(out, self.bias.view(out.shape[-2:]))
        return out.flatten(-2)

    def __repr__(self) -> str:
        relations = "" if self.num_relations is None else f", relations={self.num_relations}"
        sizes = f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
        return f"{type(self).__name__}({sizes}{relations})"


def _add_(out: Tensor, x: Tensor) -> Tensor:
    """out + x, in place; but under torch.func.vmap x may have an axis that out lacks."""
    return out + x if torch._C._are_functorch_transforms_active() else out.add_(x)


def _rows_of(x_key: Tensor, x_query: Tensor | None, graph: Graph) -> tuple[Tensor, Tensor | None]:
    """x of keys and queries; of a compact graph, the rows that its edges use."""
    if graph.used_key_rows is None or graph.used_query_rows is None:
        return x_key, x_query
    is_same, x_key = x_query is x_key, to_dense(x_key)
    keys = take_rows(x_key, graph.used_key_rows)
    if is_same and graph.used_query_rows is graph.used_key_rows:
        return keys, keys
    return keys, None if x_query is None else take_rows(to_dense(x_query), graph.used_query_rows)


def used_rows(graph: Graph | None) -> tuple[UsedRows | None, UsedRows | None]:
    """The rows of queries and of keys that the tables have; None: all."""
    return (None, None) if graph is None else (graph.used_query_rows, graph.used_key_rows)
