"""Graph: edges grouped by query and, transposed, by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dynagat.locality import Reordered, breadth_first_order
from dynagat.native import kernels
from dynagat.used_rows import UsedRows

INDEX_DTYPES = (torch.int32, torch.int64)
MAX_ROWS = 2**31 - 1  # positions and rows are stored as int32
Edges = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # query, key, relation, edge id


@dataclass(frozen=True, eq=False)
class Graph:
    """Query i attends to key_index[p] for every position p of its rows i·R .. i·R + R - 1.

    Row i·R + r holds the edges of query i under relation r, in the caller's order; R = 1 without
    relations. `edge_id[p]` is the caller's index of the edge at position p. The transposed rows
    list, for key j, the queries that attend to it and the positions of those edges.

    Create a graph with `Graph.from_edges` or `Graph.from_edge_index`. It is immutable.
    """

    rowptr: Tensor  # [num_queries · R + 1] int32
    key_index: Tensor  # [E] int32
    edge_id: Tensor  # [E] int32
    key_rowptr: Tensor  # [num_keys · R + 1] int32
    key_query: Tensor  # [E] int32: the query of each transposed edge
    key_position: Tensor  # [E] int32: its position in `key_index`
    num_queries: int
    num_keys: int
    num_edges: int  # edge ids lie in [0, num_edges); replaced self-loops leave unused ids
    num_relations: int = 1
    query_row: Tensor | None = None  # [num_queries] int32: see `with_query_rows`
    num_query_rows: int | None = None
    used_query_rows: UsedRows | None = None  # see `compact`
    used_key_rows: UsedRows | None = None

    def __post_init__(self) -> None:
        if not torch.compiler.is_compiling():  # then the counts are symbols
            _check_sizes(self.num_queries, self.num_keys, self.num_relations)
            _check_lengths(self)

    @classmethod
    def from_edges(
        cls,
        query_index: Tensor,
        key_index: Tensor,
        num_queries: int,
        num_keys: int | None = None,
        *,
        relation: Tensor | None = None,
        num_relations: int = 1,
        self_loops: bool = False,
    ) -> Graph:
        """Group the edges (query_index[e], key_index[e]), in any order; duplicates are kept.

        `self_loops=True` is a faster way to call `with_self_loops` on the result.
        """
        num_keys = num_queries if num_keys is None else num_keys
        _check_sizes(num_queries, num_keys, num_relations)
        _check_edges(query_index, key_index, relation, num_relations)
        if self_loops and num_relations > 1:
            raise ValueError(
                f"self_loops needs num_relations=1, but it is {num_relations}; "
                "call with_self_loops(relation) on the graph"
            )
        edges = (query_index, key_index, relation, None)
        first_loop = query_index.shape[0] if self_loops else None
        return _build(edges, num_queries, num_keys, num_relations, first_loop, 0)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        size: int | tuple[int, int],
        *,
        relation: Tensor | None = None,
        num_relations: int = 1,
        self_loops: bool = False,
    ) -> Graph:
        """From PyG's [2, E] array of (key, query) pairs; `size` is N or (num_keys, num_queries)."""
        check_edge_index(edge_index)
        num_keys, num_queries = size if isinstance(size, tuple) else (size, size)
        return cls.from_edges(
            edge_index[1],
            edge_index[0],
            num_queries,
            num_keys,
            relation=relation,
            num_relations=num_relations,
            self_loops=self_loops,
        )

    def with_self_loops(self, relation: int = 0) -> Graph:
        """The graph with one self-loop at each of the first min(num_queries, num_keys) nodes.

        Existing loops are replaced. The loop of node i has edge id num_edges + i, after all of the
        caller's edges, and belongs to the given relation.
        """
        if not 0 <= relation < self.num_relations:
            raise ValueError(f"relation must lie in [0, {self.num_relations}), but is {relation}")
        if self.query_row is not None:
            raise ValueError("with_self_loops must be called before with_query_rows")
        relations = self.relation if self.num_relations > 1 else None
        edges = (self.query_index, self.key_index, relations, self.edge_id)
        return _build(
            edges, self.num_queries, self.num_keys, self.num_relations, self.num_edges, relation
        )

    def with_query_rows(self, query_row: Tensor, num_rows: int) -> Graph:
        """The graph in which query i reads row query_row[i] of a table with `num_rows` rows.

        Queries can share a row, so that each distinct row is projected only once.
        """
        if self.num_relations > 1:
            raise ValueError(
                f"query_row needs a graph with one relation, but it has {self.num_relations}"
            )
        if query_row.shape != (self.num_queries,) or query_row.dtype not in INDEX_DTYPES:
            raise ValueError(
                f"query_row must have shape [{self.num_queries}] and hold int32 or int64, "
                f"but has shape {list(query_row.shape)} and holds {query_row.dtype}"
            )
        _check_range(query_row, num_rows, "query_row")
        row = query_row.to(torch.int32)
        return replace(self, query_row=row, num_query_rows=num_rows)

    def rows_of_queries(self, table: Tensor, axis: int) -> Tensor:
        """The row of each query, from a table that has its rows on this axis."""
        if self.query_row is None:
            return table
        return select_rows(table, axis, self.query_row)

    @cached_property
    @torch.inference_mode(False)  # later calls may need gradients
    def compact(self) -> Graph:
        """The graph for tables that have only the rows that edges use, as `used_query_rows` and
        `used_key_rows` say. If queries and keys are as many, they have the same rows."""
        if self.used_key_rows is not None:
            return self
        is_used = [
            (rowptr.diff() > 0).view(-1, self.num_relations)
            for rowptr in (self.rowptr, self.key_rowptr)
        ]
        if self.num_queries == self.num_keys:
            both = UsedRows.where(is_used[0] | is_used[1])
            return replace(self, used_query_rows=both, used_key_rows=both)
        by_query, by_key = map(UsedRows.where, is_used)
        return replace(self, used_query_rows=by_query, used_key_rows=by_key)

    def reordered(self) -> Reordered[Graph]:
        """The graph with its nodes renumbered, so that neighbours are close in memory.

        Tables of rows that don't fit into the processor's cache are read faster in this order.
        Queries and keys must be the same nodes. Permute x once, not in every call, run the whole
        model, and restore its output: `ordered.restore(model(permuted, ordered.graph))`, where
        `permuted = ordered.permute(x)`. The results are the same up to rounding, except that
        attention dropout draws other masks for the self-loops that a layer adds. The order is
        computed once per graph, on the CPU.
        """
        return self._reordered

    @cached_property
    @torch.inference_mode(False)
    def _reordered(self) -> Reordered[Graph]:
        num_nodes, num_relations = self.num_queries, self.num_relations
        if self.query_row is not None:
            raise ValueError("reordered must be called before with_query_rows")
        if self.num_keys != num_nodes:
            raise ValueError(
                "reordered needs a graph whose queries and keys are the same nodes, "
                f"but it has {num_nodes} queries and {self.num_keys} keys"
            )
        by_query, by_key = (
            (rowptr[::num_relations].long().cpu().numpy(), index.cpu().numpy())
            for rowptr, index in ((self.rowptr, self.key_index), (self.key_rowptr, self.key_query))
        )
        order = torch.from_numpy(breadth_first_order(by_query, by_key))
        place = torch.empty_like(order)
        place[order] = torch.arange(num_nodes)
        order, place = order.to(self.device), place.to(self.device)
        query, key = place[self.query_index.long()], place[self.key_index.long()]
        relation = self.relation if num_relations > 1 else None
        edges = (query, key, relation, self.edge_id)
        graph = _build(edges, num_nodes, num_nodes, num_relations, None, 0)
        return Reordered(replace(graph, num_edges=self.num_edges), order, place)

    @property
    def row_index(self) -> Tensor:  # [E]
        """The row i·R + r of each position."""
        num_rows, num_positions = self.rowptr.shape[0] - 1, self.key_index.shape[0]
        replaced = self.is_replaced
        if replaced is not None:
            position = torch.arange(num_positions, dtype=torch.int32, device=self.device)
            row = torch.searchsorted(self.rowptr, position, right=True, out_int32=True) - 1
            return torch.where(replaced, self.key_index * self.num_relations, row)
        rows = torch.arange(num_rows, dtype=torch.int32, device=self.device)
        return torch.repeat_interleave(rows, self.rowptr.diff(), output_size=num_positions)

    @property
    def is_replaced(self) -> Tensor | None:  # [E]
        """Which positions hold self-loops that were replaced; None if there are no such positions.

        They are the last positions and belong to no row. They exist only in compiled code, where
        the number of positions must not depend on data.
        """
        if not torch.compiler.is_compiling():
            return None
        return torch.arange(self.key_index.shape[0], device=self.device) >= self.rowptr[-1]

    @property
    def query_index(self) -> Tensor:  # [E]
        """The query i of each position."""
        return self.row_index // self.num_relations if self.num_relations > 1 else self.row_index

    @property
    def relation(self) -> Tensor:  # [E]
        """The relation r of each position."""
        return self.row_index % self.num_relations

    @property
    def device(self) -> torch.device:
        return self.rowptr.device

    @property
    def tensors(self) -> list[Tensor]:
        """The six arrays, in the order of the fields; then the numbers of the used rows, if any."""
        used = (self.used_query_rows, self.used_key_rows)
        return [
            self.rowptr,
            self.key_index,
            self.edge_id,
            self.key_rowptr,
            self.key_query,
            self.key_position,
            *(rows.number for rows in used if rows is not None),
        ]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Graph:
        """The graph on a device; itself if it is there."""
        return self.with_arrays(lambda array: array.to(device, non_blocking=non_blocking))

    def with_arrays(self, copy: Callable[[Tensor], Tensor]) -> Graph:
        """The graph with copies of its arrays, as `Tensor.pin_memory` makes them; itself if all of
        them are the same."""
        arrays = {name: t for name, t in vars(self).items() if isinstance(t, Tensor)}
        copies = {name: copy(t) for name, t in arrays.items()}
        if all(copies[name] is t for name, t in arrays.items()):
            return self
        return replace(self, **copies, used_query_rows=None, used_key_rows=None)

    def __repr__(self) -> str:
        relations = f", relations={self.num_relations}" if self.num_relations > 1 else ""
        return (
            f"Graph(queries={self.num_queries}, keys={self.num_keys}, "
            f"edges={len(self.key_index)}{relations})"
        )


def select_rows(table: Tensor, axis: int, index: Tensor) -> Tensor:
    """The rows with these numbers, on a negative axis; the sum of gradients has a fixed order."""
    if table.device.type == "cpu":
        return table.index_select(axis, index)
    return table[(..., index.long(), *[slice(None)] * (-axis - 1))]  # index_select adds atomically


def check_edge_index(edge_index: Tensor, name: str = "edge_index") -> None:
    """Raise an error unless `edge_index` is an integer tensor of shape [2, E]."""
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"{name} must be a tensor, but is a {type(edge_index).__name__}")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"{name} must have shape [2, E], but has {list(edge_index.shape)}")
    _check_index_dtype(edge_index, name)


def _check_index_dtype(index: Tensor, name: str) -> None:
    if index.dtype not in INDEX_DTYPES:
        first = f" and starts with {index.flatten()[0].item()}" if index.numel() else ""
        raise TypeError(f"{name} must hold int32 or int64, but holds {index.dtype}{first}")


def _check_edges(
    query_index: Tensor,
    key_index: Tensor,
    relation: Tensor | None,
    num_relations: int,
    edge_id: Tensor | None = None,
) -> None:
    arguments = {"query_index": query_index, "key_index": key_index}
    arguments |= {"relation": relation, "edge_id": edge_id}
    if relation is None and num_relations > 1:
        raise ValueError(f"relation is missing, but num_relations is {num_relations}")
    for name, index in arguments.items():
        if index is None and name in ("relation", "edge_id"):
            continue
        if not isinstance(index, Tensor):
            raise TypeError(f"{name} must be a tensor, but is a {type(index).__name__}")
        _check_index_dtype(index, name)
        if index.dim() != 1 or index.shape != query_index.shape:
            raise ValueError(
                f"{name} must have one entry per edge, shape {list(query_index.shape)[:1]}, "
                f"but has shape {list(index.shape)}"
            )
        if index.device != query_index.device:
            raise ValueError(
                f"{name} must be on {query_index.device}, as query_index is, "
                f"but is on {index.device}"
            )


def _check_sizes(num_queries: int, num_keys: int, num_relations: int) -> None:
    arguments = {"num_queries": num_queries, "num_keys": num_keys, "num_relations": num_relations}
    for name, size in arguments.items():
        smallest = 1 if name == "num_relations" else 0
        if isinstance(size, (bool, float)) or size < smallest:
            raise ValueError(f"{name} must be an integer of at least {smallest}, but is {size}")


def _check_lengths(graph: Graph) -> None:
    """The arrays must have the lengths that the counts imply."""
    num_positions = graph.key_index.shape[0]
    lengths = [num_positions] * 6
    lengths[0] = graph.num_queries * graph.num_relations + 1
    lengths[3] = graph.num_keys * graph.num_relations + 1
    for field, array, length in zip(fields(graph)[:6], graph.tensors, lengths, strict=False):
        if array.shape != (length,) or array.dtype != torch.int32:
            raise ValueError(
                f"{field.name} must have shape [{length}] and hold torch.int32, "
                f"but has shape {list(array.shape)} and holds {array.dtype}"
            )
    # Replaced self-loops leave unused edge ids, but the last id is always in use.
    is_readable = type(graph.edge_id) is Tensor and graph.device.type == "cpu"
    if graph.num_edges > num_positions and is_readable:
        used = int(graph.edge_id.max()) + 1 if num_positions else 0
        if graph.num_edges > used:
            raise ValueError(
                f"num_edges must be at most {max(used, num_positions)}, because there are "
                f"{num_positions} edges with ids below {used}, but it is {graph.num_edges}"
            )


@contextmanager
def _outside_of_transforms(edges: Edges) -> Iterator[Edges]:
    """A Graph holds ordinary tensors, also if it is made under torch.func.grad: integers have no
    gradients, and the cache keeps the graph for later calls."""
    if not torch._C._are_functorch_transforms_active():
        yield edges
        return
    # Private, so it is imported only where it is needed.
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        yield tuple(map(_unwrapped, edges))  # pyright: ignore[reportReturnType]


def _unwrapped(tensor: Tensor | None) -> Tensor | None:
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    while tensor is not None and functorch.is_gradtrackingtensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def _build(
    edges: Edges,
    num_queries: int,
    num_keys: int,
    num_relations: int,
    first_loop: int | None,
    loop_relation: int,
) -> Graph:
    """The Graph of edges (query, key, relation, edge_id); loops get ids from first_loop on."""
    num_edges = edges[0].shape[0] if first_loop is None else first_loop
    num_edges += 0 if first_loop is None else min(num_queries, num_keys)
    traced = torch.compiler.is_compiling()
    largest = 0 if traced else max(num_edges, num_queries * num_relations, num_keys * num_relations)
    if largest > MAX_ROWS:  # not compared when traced, because it would become a guard
        raise ValueError(
            f"a Graph can have at most {MAX_ROWS} edges and rows, but has {num_edges} edges, "
            f"{num_queries} queries and {num_keys} keys with {num_relations} relations"
        )
    loop = -1 if first_loop is None else first_loop
    options = num_queries, num_keys, num_relations, loop, loop_relation
    if traced:
        arrays = _group_op(*edges, *options)
    else:  # the edges are checked, and calling the op is slower
        with _outside_of_transforms(edges) as edges:
            arrays = _group(*edges, *options)
            if loop >= 0:  # fewer are used than allocated if existing loops were replaced
                used = int(arrays[0][-1])
                arrays = [a if n in (0, 3) else a[:used] for n, a in enumerate(arrays)]
    return Graph(
        *arrays,
        num_queries=num_queries,
        num_keys=num_keys,
        num_edges=num_edges,
        num_relations=num_relations,
    )


def _group(
    query_index: Tensor,
    key_index: Tensor,
    relation: Tensor | None,
    edge_id: Tensor | None,
    num_queries: int,
    num_keys: int,
    num_relations: int,
    first_loop: int,
    loop_relation: int,
) -> list[Tensor]:
    """The six arrays of a Graph. If first_loop >= 0, existing loops are replaced by one per node;
    the arrays then have positions for all edges and loops, of which those up to rowptr[-1] are
    used."""
    loops = min(num_queries, num_keys) if first_loop >= 0 else 0
    if kernels is None or query_index.device.type != "cpu":
        edges = query_index, key_index, relation, edge_id
        return _group_in_torch(
            edges, num_queries, num_keys, num_relations, first_loop, loop_relation
        )
    arrays = _empty_arrays(query_index, num_queries, num_keys, num_relations, loops)
    inputs = [
        None if t is None else t.contiguous() for t in (query_index, key_index, relation, edge_id)
    ]
    kernels.group(
        edges=[(0, 0) if t is None else (t.data_ptr(), t.element_size()) for t in inputs],
        num_edges=query_index.shape[0],
        sizes=(num_queries, num_keys, num_relations),
        loops=(first_loop, loop_relation),
        arrays=[array.data_ptr() for array in arrays],
        threads=torch.get_num_threads(),
    )
    return arrays


@torch.library.custom_op(
    "dynagat::group",
    mutates_args=(),
    schema="(Tensor query_index, Tensor key_index, Tensor? relation, Tensor? edge_id, "
    "SymInt num_queries, SymInt num_keys, SymInt num_relations, "
    "SymInt first_loop, SymInt loop_relation) -> Tensor[]",  # torch 2.6 can't infer it
)
def _group_op(
    query_index: Tensor,
    key_index: Tensor,
    relation: Tensor | None,
    edge_id: Tensor | None,
    num_queries: int,
    num_keys: int,
    num_relations: int,
    first_loop: int,
    loop_relation: int,
) -> list[Tensor]:
    """`_group` for compiled code, which can also be called directly."""
    _check_sizes(num_queries, num_keys, num_relations)
    _check_edges(query_index, key_index, relation, num_relations, edge_id=edge_id)
    sizes = num_queries, num_keys, num_relations
    return _group(query_index, key_index, relation, edge_id, *sizes, first_loop, loop_relation)


@_group_op.register_fake
def _(query_index, key_index, relation, edge_id, num_queries, num_keys, num_relations,
      first_loop, loop_relation):  # fmt: skip
    loops = min(num_queries, num_keys) if first_loop >= 0 else 0
    return _empty_arrays(query_index, num_queries, num_keys, num_relations, loops)


def _empty_arrays(
    like: Tensor, num_queries: int, num_keys: int, num_relations: int, loops: int
) -> list[Tensor]:
    num_edges = like.shape[0] + loops
    lengths = (num_queries * num_relations + 1, num_edges, num_edges)
    lengths += (num_keys * num_relations + 1, num_edges, num_edges)
    return [like.new_empty(length, dtype=torch.int32) for length in lengths]


def _group_in_torch(edges, num_queries, num_keys, num_relations, first_loop, loop_relation):
    """The same result as the native counting sort, with torch's stable sort."""
    query, key, relation, ids = edges
    _check_range(query, num_queries, "query_index")
    _check_range(key, num_keys, "key_index")
    relation = torch.zeros_like(query) if relation is None else relation
    _check_range(relation, num_relations, "relation")
    ids = torch.arange(len(query), device=query.device) if ids is None else ids
    num_rows, num_key_rows = num_queries * num_relations, num_keys * num_relations
    row, key_row = query * num_relations + relation, key * num_relations + relation
    if first_loop >= 0:
        is_replaced = query == key
        row = row.masked_fill(is_replaced, num_rows)  # after all rows
        key_row = key_row.masked_fill(is_replaced, num_key_rows)
        loop = torch.arange(min(num_queries, num_keys), device=query.device)
        query, key = torch.cat([query, loop]), torch.cat([key, loop])
        loop_row = loop * num_relations + loop_relation
        row, key_row = torch.cat([row, loop_row]), torch.cat([key_row, loop_row])
        ids = torch.cat([ids, first_loop + loop])
    row, order = torch.sort(row, stable=True)
    key_row, transposed = torch.sort(key_row[order], stable=True)
    arrays = [
        _offsets(row, num_rows),
        key[order],
        ids[order],
        _offsets(key_row, num_key_rows),
        query[order][transposed],
        transposed,
    ]
    return [array.to(torch.int32) for array in arrays]


def _offsets(row: Tensor, num_rows: int) -> Tensor:
    """Where each row begins, and where the last one ends, in a sorted list of row numbers."""
    return torch.searchsorted(row, torch.arange(num_rows + 1, device=row.device, dtype=row.dtype))


def _check_range(index: Tensor, size: int, name: str) -> None:
    if index.device.type != "cpu":  # its numbers can't be read without waiting for the device
        is_inside = ((index >= 0) & (index < size)).all()
        message = f"{name} must lie in [0, {size})"
        torch._assert_async(is_inside, message)  # pyright: ignore[reportPrivateImportUsage]
        return
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < size:
        bad = index[(index < 0) | (index >= size)][0]
        raise ValueError(f"{name} must lie in [0, {size}), but holds {int(bad)}")
