"""Edges in each form a caller may pass: a [2, E] tensor, a sparse adjacency or a Graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from dynagat.graph import Graph, check_edge_index
from dynagat.nn.cache import cached_graph, cached_self_loops

SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
Size = tuple[int, int]  # (num_keys, num_queries), PyG's order


class Edges(ABC):
    """Abstract. E edges in the caller's order, each from a query to a key."""

    size: Size | None = None  # if the caller's form implies it
    values: Tensor | None = None  # [E, D], features stored with the edges
    takes_relation: bool = True  # False if the edges already have relations

    @property
    @abstractmethod
    def num_edges(self) -> int: ...

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def ends(self) -> tuple[Tensor, Tensor]:
        """The query and the key of each edge: [E] and [E]."""

    def target(self) -> Tensor:
        """The node whose self-loop an edge's features are reduced into, [E]."""
        return self.ends()[0]

    @abstractmethod
    def graph(
        self, size: Size, loops: bool, relation: Tensor | None, num_relations: int
    ) -> Graph: ...

    @abstractmethod
    def pack(self, query: Tensor, key: Tensor, weights: Tensor) -> Any:
        """Edges and their weights [*, E, H], in the caller's form."""

    def with_weights(self, graph: Graph, weights: Tensor, num_loops: int) -> Any:
        """The caller's edges without replaced self-loops, then the added ones; and all weights."""
        query, key = self.ends()
        if num_loops:
            loop = torch.arange(num_loops, dtype=query.dtype, device=query.device)
            query, key = torch.cat([query, loop]), torch.cat([key, loop])
        if graph.key_index.shape[0] < graph.num_edges:
            is_kept = torch.zeros(graph.num_edges, dtype=torch.bool, device=graph.device)
            is_kept[graph.edge_id.long()] = True
            query, key, weights = query[is_kept], key[is_kept], weights[..., is_kept, :]
        return self.pack(query, key, weights)


def read_edges(edge_index: Any, flow: str) -> Edges:
    """Wrap `edge_index` in the class for its form; raise an error if it has none of them."""
    if isinstance(edge_index, Graph):
        return GraphEdges(edge_index)
    is_sparse = isinstance(edge_index, Tensor) and edge_index.layout in SPARSE_LAYOUTS
    if is_sparse or _is_sparse_tensor(edge_index):
        if flow == "target_to_source":
            raise ValueError(
                "flow='target_to_source' needs edge_index as a [2, E] tensor; "
                "transpose the sparse adjacency instead"
            )
        return _read_torch_sparse(edge_index) if is_sparse else _read_sparse_tensor(edge_index)
    if hasattr(edge_index, "as_tensor"):  # PyG's EdgeIndex, which is indexed in another way
        edge_index = getattr(edge_index, "as_tensor")()  # noqa: B009  (for the type checker)
    check_edge_index(edge_index)
    return EdgeList(edge_index, flow)


@final
@dataclass(frozen=True, eq=False)
class EdgeList(Edges):
    """PyG's [2, E] tensor of (key, query) pairs, or (query, key) if the flow is reversed."""

    edge_index: Tensor
    flow: str

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def device(self) -> torch.device:
        return self.edge_index.device

    def ends(self) -> tuple[Tensor, Tensor]:
        first, second = self.edge_index[0], self.edge_index[1]
        return (second, first) if self.flow == "source_to_target" else (first, second)

    def target(self) -> Tensor:
        return self.edge_index[1]  # as in PyG, also when the flow is reversed

    def graph(self, size: Size, loops: bool, relation: Tensor | None, num_relations: int) -> Graph:
        def build() -> Graph:
            return _build(self.ends(), size, loops, relation, num_relations)

        variant = (size, loops, num_relations, self.flow)
        return cached_graph(self.edge_index, (self.edge_index,), relation, variant, build)

    def with_weights(self, graph: Graph, weights: Tensor, num_loops: int) -> tuple[Tensor, Tensor]:
        if not num_loops:
            return self.edge_index, weights
        return super().with_weights(graph, weights, num_loops)

    def pack(self, query: Tensor, key: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        pair = (key, query) if self.flow == "source_to_target" else (query, key)
        return torch.stack(pair), weights


@final
@dataclass(frozen=True, eq=False)
class GraphEdges(Edges):
    """A Graph; the caller's order of its edges is that of the edge ids."""

    given: Graph
    takes_relation = False

    @property
    def size(self) -> Size:  # pyright: ignore[reportIncompatibleVariableOverride]
        rows = self.given.num_query_rows
        return self.given.num_keys, self.given.num_queries if rows is None else rows

    @property
    def num_edges(self) -> int:
        return self.given.num_edges

    @property
    def device(self) -> torch.device:
        return self.given.device

    def ends(self) -> tuple[Tensor, Tensor]:
        # Unused edge ids get ends past the last node, so that they never match a self-loop.
        no_node = max(self.given.num_keys, self.given.num_queries)
        ends = torch.full((2, self.num_edges), no_node, device=self.device)
        ends[:, self.given.edge_id.long()] = torch.stack(
            [self.given.query_index, self.given.key_index]
        ).long()
        return ends[0], ends[1]

    def graph(self, size: Size, loops: bool, relation: Tensor | None, num_relations: int) -> Graph:
        if self.given.num_relations != num_relations:
            raise ValueError(
                f"edge_index is a Graph with num_relations={self.given.num_relations}, "
                f"but the layer has num_relations={num_relations}"
            )
        if relation is not None:
            raise ValueError("relation must be None if edge_index is a Graph, which has its own")
        return cached_self_loops(self.given) if loops else self.given

    def pack(self, query: Tensor, key: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return torch.stack([key, query]), weights


@final
@dataclass(frozen=True, eq=False)
class Adjacency(Edges):
    """A sparse [num_queries, num_keys] matrix, PyG's `adj_t`; edges in the order of its entries."""

    given: Any
    arrays: tuple[Tensor, ...]  # the index arrays inside `given`
    row: Tensor  # [E], the query
    column: Tensor  # [E], the key
    values: Tensor | None  # pyright: ignore[reportIncompatibleVariableOverride]
    size: Size  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def num_edges(self) -> int:
        return self.row.shape[0]

    @property
    def device(self) -> torch.device:
        return self.row.device

    def ends(self) -> tuple[Tensor, Tensor]:
        return self.row, self.column

    def graph(self, size: Size, loops: bool, relation: Tensor | None, num_relations: int) -> Graph:
        build = partial(_build, self.ends(), size, loops, relation, num_relations)
        if not isinstance(self.given, Tensor):
            return build()
        variant = (size, loops, num_relations)
        return cached_graph(self.given, self.arrays, relation, variant, build)

    def pack(self, query: Tensor, key: Tensor, weights: Tensor) -> Any:
        by_column = isinstance(self.given, Tensor) and self.given.layout == torch.sparse_csc
        num_keys, num_queries = self.size
        rank = key * num_queries + query if by_column else query * num_keys + key
        order = rank.argsort()
        query, key, weights = query[order], key[order], weights[..., order, :]
        entries = weights.movedim(-2, 0)
        if not isinstance(self.given, Tensor):
            sizes = (num_queries, num_keys)
            return type(self.given)(row=query, col=key, value=entries, sparse_sizes=sizes)
        return _sparse(self.given.layout, query, key, entries, self.size), weights


def _build(
    ends: tuple[Tensor, Tensor],
    size: Size,
    loops: bool,
    relation: Tensor | None,
    num_relations: int,
) -> Graph:
    num_keys, num_queries = size
    options = {"relation": relation, "num_relations": num_relations, "self_loops": loops}
    return Graph.from_edges(*ends, num_queries, num_keys, **options)


def _is_sparse_tensor(edges: Any) -> bool:
    """Is it a torch_sparse.SparseTensor? Checked by its methods: the package is optional."""
    methods = ("coo", "sparse_sizes", "set_value")
    return not isinstance(edges, Tensor) and all(hasattr(edges, name) for name in methods)


def _read_sparse_tensor(adjacency: Any) -> Adjacency:
    row, column, values = adjacency.coo()
    num_queries, num_keys = adjacency.sparse_sizes()
    return Adjacency(adjacency, (), row, column, _features(values), (num_keys, num_queries))


def _read_torch_sparse(adjacency: Tensor) -> Adjacency:
    if adjacency.layout == torch.sparse_coo:
        arrays = (adjacency._indices(),)
        entries = adjacency.coalesce()  # duplicate entries are one edge, as in any matrix
        row, column = entries.indices()
        values = entries.values()
    elif adjacency.layout == torch.sparse_csr:
        arrays = (adjacency.crow_indices(), adjacency.col_indices())
        row, column, values = _entry_rows(arrays[0], arrays[1]), arrays[1], adjacency.values()
    else:
        arrays = (adjacency.ccol_indices(), adjacency.row_indices())
        row, column, values = arrays[1], _entry_rows(arrays[0], arrays[1]), adjacency.values()
    size = (adjacency.shape[1], adjacency.shape[0])
    return Adjacency(adjacency, arrays, row, column, _features(values), size)


def _features(values: Tensor | None) -> Tensor | None:
    """PyG treats 1-D values as edge weights, not as features."""
    return None if values is None or values.dim() == 1 else values


def _entry_rows(offsets: Tensor, index: Tensor) -> Tensor:
    """[rows + 1] offsets -> the row of each entry."""
    rows = torch.arange(offsets.shape[0] - 1, dtype=index.dtype, device=index.device)
    return torch.repeat_interleave(rows, offsets.diff(), output_size=index.shape[0])


def _sparse(
    layout: torch.layout, row: Tensor, column: Tensor, values: Tensor, size: Size
) -> Tensor:
    num_keys, num_queries = size
    shape = (num_queries, num_keys, *values.shape[1:])
    # The indices are known to be valid; without check_invariants=False, torch warns.
    if layout == torch.sparse_coo:
        indices = torch.stack([row, column])
        return torch.sparse_coo_tensor(
            indices, values, shape, is_coalesced=True, check_invariants=False
        )
    if layout == torch.sparse_csr:
        offsets = _offsets(row, num_queries)
        return torch.sparse_csr_tensor(offsets, column, values, shape, check_invariants=False)
    offsets = _offsets(column, num_keys)
    return torch.sparse_csc_tensor(offsets, row, values, shape, check_invariants=False)


def _offsets(index: Tensor, size: int) -> Tensor:
    offsets = torch.bincount(index, minlength=size).cumsum(0)
    return torch.nn.functional.pad(offsets, (1, 0)).to(index.dtype)
