"""Graph: the native sort and torch's give the same result, and no edge is lost."""

import dataclasses

import pytest
import torch

from dynagat import graph as module
from dynagat.graph import Graph
from dynagat.native import kernels


def random_edges(num_queries, num_keys, num_edges, relations, dtype):
    query = torch.randint(0, num_queries, (num_edges,), dtype=dtype)
    key = torch.randint(0, num_keys, (num_edges,), dtype=dtype)
    relation = torch.randint(0, relations, (num_edges,), dtype=dtype) if relations > 1 else None
    return query, key, relation


@pytest.mark.native
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("relations", [1, 3])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("sizes", [(1, 1, 0), (1, 1, 5), (7, 3, 40), (50, 80, 5000), (300, 9, 200)])
def test_native_and_torch_group_edges_identically(sizes, dtype, relations, loops):
    assert kernels is not None
    query, key, relation = random_edges(*sizes, relations, dtype)
    first_loop, loop_relation = (sizes[2], relations - 1) if loops else (-1, 0)
    edges = (query, key, relation, None)
    arrays = module._group(*edges, *sizes[:2], relations, first_loop, loop_relation)
    expected = module._group_in_torch(edges, *sizes[:2], relations, first_loop, loop_relation)
    used = int(arrays[0][-1])
    for n, (array, exact) in enumerate(zip(arrays, expected, strict=True)):
        end = None if n in (0, 3) else used
        assert torch.equal(array[:end], exact[:end])


@pytest.mark.parametrize("relations", [1, 3])
def test_rows_hold_every_edge_once_in_the_callers_order(relations):
    query, key, relation = random_edges(9, 7, 60, relations, torch.int64)
    graph = Graph.from_edges(query, key, 9, 7, relation=relation, num_relations=relations)
    at = graph.edge_id.long()
    assert torch.equal(at.sort().values, torch.arange(60))
    assert torch.equal(query[at], graph.query_index.long())
    assert torch.equal(key[at], graph.key_index.long())
    if relation is not None:
        assert torch.equal(relation[at], graph.relation.long())
    same_row = graph.row_index[1:] == graph.row_index[:-1]
    assert (at[1:] > at[:-1])[same_row].all()


def test_transposed_rows_are_the_same_edges():
    query, key, _ = random_edges(9, 7, 60, 1, torch.int64)
    graph = Graph.from_edges(query, key, 9, 7)
    at = graph.key_position.long()
    assert torch.equal(graph.query_index[at], graph.key_query)
    keys = torch.repeat_interleave(torch.arange(7), graph.key_rowptr.diff())
    assert torch.equal(graph.key_index[at].long(), keys)


def test_self_loops_replace_existing_loops_and_come_last():
    edge_index = torch.tensor([[0, 1, 1, 2, 2], [0, 0, 1, 2, 2]])
    graph = Graph.from_edge_index(edge_index, (4, 3)).with_self_loops()
    pairs = sorted(torch.stack([graph.edge_id, graph.query_index, graph.key_index], 1).tolist())
    assert pairs == [[1, 0, 1], [5, 0, 0], [6, 1, 1], [7, 2, 2]]
    assert graph.num_edges == 8
    direct = Graph.from_edge_index(edge_index, (4, 3), self_loops=True)
    assert all(torch.equal(x, y) for x, y in zip(graph.tensors, direct.tensors, strict=True))


def test_adding_self_loops_twice_changes_nothing():
    graph = Graph.from_edge_index(torch.randint(0, 6, (2, 30)), 6).with_self_loops()
    again = graph.with_self_loops()
    assert torch.equal(graph.rowptr, again.rowptr)
    assert torch.equal(graph.key_index, again.key_index)


def test_self_loops_have_the_requested_relation():
    query, key, relation = random_edges(5, 5, 20, 3, torch.int64)
    graph = Graph.from_edges(query, key, 5, relation=relation, num_relations=3)
    loops = graph.with_self_loops(relation=2)
    is_loop = loops.edge_id >= 20
    assert is_loop.sum() == 5
    assert (loops.relation[is_loop] == 2).all()
    with pytest.raises(ValueError, match=r"relation must lie in \[0, 3\), but is 3"):
        graph.with_self_loops(relation=3)


def test_a_graph_is_immutable():
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.num_keys = 5  # pyright: ignore


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
INVALID = [
    (lambda: Graph.from_edge_index(EDGES, 2), ValueError, r"must lie in \[0, 2\), but holds 2"),
    (lambda: Graph.from_edge_index(EDGES - 1, 3), ValueError, r"in \[0, 3\), but holds -1"),
    (lambda: Graph.from_edge_index(EDGES.float() * torch.nan, 3), TypeError, "torch.float32.*nan"),
    (
        lambda: Graph.from_edge_index(EDGES > 0, 3),
        TypeError,
        "int32 or int64, but holds torch.bool",
    ),
    (lambda: Graph.from_edge_index(EDGES.T, 3), ValueError, r"shape \[2, E\], but has \[3, 2\]"),
    (lambda: Graph.from_edge_index([[0], [1]], 3), TypeError, "must be a tensor, but is a list"),
    (
        lambda: Graph.from_edge_index(EDGES, -3),
        ValueError,
        "num_queries must be an integer of at least 0, but is -3",
    ),
    (lambda: Graph.from_edge_index(EDGES, (2, 3)), ValueError, r"key_index must lie in \[0, 2\)"),
    (lambda: Graph.from_edges(EDGES[0], EDGES[1, :2], 3), ValueError, "one entry per edge"),
    (
        lambda: Graph.from_edge_index(EDGES, 3, relation=EDGES[0], num_relations=2),
        ValueError,
        r"relation must lie in \[0, 2\), but holds 2",
    ),
    (lambda: Graph.from_edge_index(EDGES, 3, num_relations=2), ValueError, "relation is missing"),
    (
        lambda: Graph.from_edge_index(EDGES, 3, num_relations=0),
        ValueError,
        "num_relations must be an integer of at least 1, but is 0",
    ),
    (
        lambda: Graph.from_edge_index(EDGES[:, :0], 2**30, num_relations=4, relation=EDGES[0, :0]),
        ValueError,
        "at most 2147483647",
    ),
]


@pytest.mark.parametrize("case", range(len(INVALID)))
def test_invalid_edges_raise_an_error(case):
    create, error, message = INVALID[case]
    with pytest.raises(error, match=message):
        create()


COUNTS = [
    ({"num_relations": 0}, "num_relations must be an integer of at least 1, but is 0"),
    ({"num_relations": 2}, r"rowptr must have shape \[7\].* but has shape \[4\]"),
    ({"num_queries": 10**9}, r"rowptr must have shape \[1000000001\]"),
    ({"num_keys": 2}, r"key_rowptr must have shape \[3\]"),
    ({"num_edges": 10**9}, "num_edges must be at most 3, because .* but it is 1000000000"),
    ({"edge_id": torch.zeros(2, dtype=torch.int32)}, r"edge_id must have shape \[3\]"),
    ({"key_index": torch.zeros(3)}, "key_index must have .* hold torch.int32, .* torch.float32"),
]


@pytest.mark.parametrize("case", range(len(COUNTS)))
def test_counts_that_do_not_fit_the_arrays_raise_an_error(case):
    changes, message = COUNTS[case]
    graph = Graph.from_edge_index(EDGES, 3)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(graph, **changes)


def test_replaced_self_loops_leave_unused_edge_ids():
    loops = torch.zeros(2, 50, dtype=torch.int64)
    graph = Graph.from_edge_index(loops, 3, self_loops=True).with_self_loops()
    assert (graph.num_edges, len(graph.key_index)) == (56, 3)


@pytest.mark.parametrize("relations", [1, 3])
def test_a_graph_is_built_on_its_device_without_reading_a_number(relations):
    """Tensors on the meta device have no numbers, so that reading one would be an error."""
    index = torch.empty(30, dtype=torch.int64, device="meta")
    relation = index if relations > 1 else None
    graph = Graph.from_edges(index, index, 7, 9, relation=relation, num_relations=relations)
    assert {array.device.type for array in graph.tensors} == {"meta"}
    assert [len(array) for array in graph.tensors] == [
        7 * relations + 1, 30, 30, 9 * relations + 1, 30, 30,
    ]  # fmt: skip
    shared = graph.with_query_rows(index[:7], 4) if relations == 1 else graph
    assert shared.device.type == "meta"


@pytest.mark.parametrize("axis", [-2, -3])
def test_rows_are_selected_alike_on_every_device(axis):
    table, index = torch.randn(2, 5, 4, 3), torch.tensor([3, 0, 3], dtype=torch.int32)
    expected = table.index_select(axis, index)
    assert torch.equal(module.select_rows(table, axis, index), expected)
    selected = module.select_rows(table.to("meta"), axis, index.to("meta"))
    assert selected.shape == expected.shape
