"""Samples: real edges with the right probabilities, the same for any number of threads."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from dynagat.graph import Graph
from dynagat.native import kernels
from dynagat.sampling import Neighbours, draw, reference
from dynagat.sampling.batch import make_graph

NUM_NODES, ISOLATED, HUB = 600, 40, 7


def edges_with_a_hub(num_edges=9000):
    """Queries and keys: a hub with a ninth of the edges, isolated nodes, duplicates, self-loops."""
    generator = np.random.default_rng(0)
    query = generator.integers(0, NUM_NODES - ISOLATED, num_edges)
    key = generator.integers(0, NUM_NODES, num_edges)
    query[:1000] = HUB
    query[1000:1010], key[1000:1010] = 3, 5
    key[1010:1020] = query[1010:1020]
    order = generator.permutation(num_edges)
    return query[order], key[order]


QUERY, KEY = edges_with_a_hub()
ROWS = Neighbours.from_edges(QUERY, KEY, NUM_NODES)
DEGREE = np.diff(ROWS.rowptr)
FANOUTS = [[3, 4, 2], [-1, 2], [60, 3], [500], [1, 1, 1, 1]]


def flat(value):
    """All arrays and numbers of a sample."""
    if isinstance(value, list | tuple):
        return [each for part in value for each in flat(part)]
    return [value]


def assert_same(found, expected):
    assert len(flat(found)) == len(flat(expected))
    for x, y in zip(flat(found), flat(expected), strict=True):
        assert np.array_equal(x, y)
        assert getattr(x, "dtype", None) == getattr(y, "dtype", None)


def assert_real_edges(picks, queries, keys):
    """The edges have these queries and keys in the caller's list as well."""
    query = np.repeat(queries, np.diff(picks.rowptr))
    assert np.array_equal(QUERY[picks.edge], query)
    assert np.array_equal(KEY[picks.edge], keys)


# Rows


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rows_of_an_edge_list_equal_those_of_its_graph(dtype):
    rows = Neighbours.from_edges(QUERY.astype(dtype), KEY.astype(dtype), NUM_NODES)
    graph = Graph.from_edges(torch.from_numpy(QUERY), torch.from_numpy(KEY), NUM_NODES)
    assert_same(rows.arrays, [array.numpy() for array in (graph.rowptr, graph.key_index,
                                                          graph.edge_id)])  # fmt: skip
    assert_same(rows.arrays, Neighbours.from_graph(graph).arrays)
    assert_same(tuple(rows.arrays), reference.group_rows(QUERY, KEY, NUM_NODES))


def test_mapped_arrays_are_not_copied(tmp_path):
    for name, array in zip("abc", ROWS.arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array.astype(np.int64))
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "abc"]
    rows = Neighbours.from_arrays(*mapped)
    for array, file in zip(rows.arrays, mapped, strict=True):
        assert np.shares_memory(array, file)
    seeds = np.arange(50)
    assert_same(draw.sample(rows, seeds, [3, 3]), draw.sample(ROWS, seeds, [3, 3]))


def test_without_edge_ids_edges_are_identified_by_position():
    rows = Neighbours.from_arrays(ROWS.rowptr, ROWS.key_index)
    found, numbered = (draw.sample(each, np.arange(9), [4, 4]) for each in (rows, ROWS))
    assert np.array_equal(ROWS.edge_id[found.layers[0].edge], numbered.layers[0].edge)


# One hop


@pytest.mark.parametrize("fanout", [1, 5, 47, 60, 999, 1000, -1])
def test_without_replacement_no_edge_repeats(fanout):
    queries = np.arange(NUM_NODES)
    picks = draw.sample_neighbours(ROWS, queries, fanout, seed=3)
    expected = DEGREE if fanout < 0 else np.minimum(DEGREE, fanout)
    assert np.array_equal(np.diff(picks.rowptr), expected)
    assert len(np.unique(picks.edge)) == len(picks.edge)
    assert_real_edges(picks, queries, picks.key)


@pytest.mark.parametrize("fanout", [1, 5, 100])
def test_with_replacement_each_query_with_keys_has_as_many_as_the_fan_out(fanout):
    queries = np.arange(NUM_NODES)
    picks = draw.sample_neighbours(ROWS, queries, fanout, replace=True, seed=3)
    assert np.array_equal(np.diff(picks.rowptr), np.where(DEGREE > 0, fanout, 0))
    assert_real_edges(picks, queries, picks.key)


def chi_square(counts):
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2).sum() / expected)


def limit(freedom):
    """The chi-square limit at a probability of about 1e-4, by Wilson and Hilferty."""
    return freedom * (1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5) ** 3


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("degree", "fanout"), [(7, 3), (50, 10), (64, 60), (1000, 10), (300, 200)])
def test_every_key_is_equally_likely(degree, fanout, replace):
    rows = Neighbours.from_arrays(np.array([0, degree] + [degree] * (degree - 1)),
                                  np.arange(degree))  # fmt: skip
    queries = np.zeros(200_000 // fanout, np.int64)
    picks = draw.sample_neighbours(rows, queries, fanout, replace=replace, seed=1)
    counts = np.bincount(picks.key, minlength=degree)
    assert chi_square(counts) < limit(degree - 1)


def test_every_pair_is_equally_likely_without_replacement():
    rows = Neighbours.from_arrays(np.array([0] + [6] * 6), np.arange(6))
    picks = draw.sample_neighbours(rows, np.zeros(30_000, np.int64), 2, seed=5)
    low, high = np.sort(picks.key.reshape(-1, 2), 1).T
    counts = np.bincount(low * 6 + high, minlength=36)
    pairs = counts[counts > 0]
    assert len(pairs) == 15
    assert chi_square(pairs) < limit(14)


def test_seeds_hops_and_positions_give_different_samples():
    queries = np.full(2, HUB)
    one = draw.sample_neighbours(ROWS, queries, 10, seed=1)
    assert not np.array_equal(one.edge[:10], one.edge[10:])
    for other in ({"seed": 2}, {"seed": 1, "hop": 1}):
        assert not np.array_equal(draw.sample_neighbours(ROWS, queries, 10, **other).edge, one.edge)


# Whole batches


@pytest.mark.native
@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", FANOUTS, ids=str)
def test_native_samples_equal_the_reference_on_any_number_of_threads(fanouts, replace, layered):
    seeds = np.random.default_rng(1).permutation(NUM_NODES)[:550]
    given = (ROWS.arrays, seeds, fanouts, replace, layered, 11)
    expected = reference.sample(*given)
    for threads in (1, 2, 3):
        assert_same(kernels.sample(*given, threads), expected)


@pytest.mark.native
@pytest.mark.parametrize("kind", [draw.WALKS, draw.NODES, draw.EDGES])
def test_native_subgraphs_equal_the_reference_on_any_number_of_threads(kind):
    live = np.flatnonzero(DEGREE)
    nodes = reference.visit(ROWS.arrays, kind, 400, 3, live, 5)
    induced = reference.induce(ROWS.arrays, nodes)
    sides = reference.transpose(induced.rowptr, induced.key, len(nodes))
    for threads in (1, 2, 3):
        assert_same(kernels.visit(ROWS.arrays, kind, 400, 3, live, 5, threads), nodes)
        assert_same(kernels.induce(ROWS.arrays, nodes, threads), tuple(induced))
        found = kernels.transpose(induced.rowptr, induced.key, len(nodes), threads)
        assert_same(found, sides)


@pytest.mark.parametrize("layered", [False, True])
def test_seeds_come_first_and_then_nodes_in_order_of_discovery(layered):
    seeds = np.array([9, HUB, 590, 2])
    found = draw.sample(ROWS, seeds, [3, 3], layered=layered)
    assert found.node[:4].tolist() == seeds.tolist()
    assert len(np.unique(found.node)) == len(found.node) == sum(found.new_nodes)
    met = np.concatenate([picks.key for picks in found.layers])
    first = [key for key in dict.fromkeys(met.tolist()) if key >= 4]
    assert first == list(range(4, len(found.node)))


@pytest.mark.parametrize("replace", [False, True])
def test_every_sampled_edge_is_in_the_graph(replace):
    seeds = np.arange(100)
    merged = draw.sample(ROWS, seeds, [4, 3, 2], replace=replace)
    picks = merged.layers[0]
    assert_real_edges(picks, merged.node[: len(picks.rowptr) - 1], merged.node[picks.key])
    layered = draw.sample(ROWS, seeds, [4, 3, 2], replace=replace, layered=True)
    for hop, picks in enumerate(layered.layers):
        queries = layered.node[: sum(layered.new_nodes[: hop + 1])]
        assert_real_edges(picks, queries, layered.node[picks.key])


def test_nodes_are_expanded_once_or_in_every_layer_if_layered():
    seeds = np.arange(30)
    merged = draw.sample(ROWS, seeds, [3, 3, 3])
    assert len(merged.layers[0].rowptr) - 1 == sum(merged.new_nodes[:-1])
    layered = draw.sample(ROWS, seeds, [3, 3, 3], layered=True)
    lengths = [len(picks.rowptr) - 1 for picks in layered.layers]
    assert lengths == np.cumsum(layered.new_nodes)[:-1].tolist()
    again = layered.layers[1].edge[layered.layers[1].rowptr[HUB] :][:3]
    assert set(again) != set(layered.layers[0].edge[layered.layers[0].rowptr[HUB] :][:3])


def test_sampling_all_neighbours_gives_the_k_hop_subgraph():
    from torch_geometric.utils import k_hop_subgraph

    edge_index = torch.from_numpy(np.stack([KEY, QUERY]))
    seeds = np.array([5, 100, 599])
    for hops in (1, 2):
        found = draw.sample(ROWS, seeds, [-1] * hops)
        subset, _, _, mask = k_hop_subgraph(
            torch.from_numpy(seeds), hops, edge_index, num_nodes=NUM_NODES, directed=True
        )
        assert np.array_equal(np.sort(found.node), subset.numpy())
        inner = k_hop_subgraph(torch.from_numpy(seeds), hops - 1, edge_index,
                               num_nodes=NUM_NODES)[0].numpy()  # fmt: skip
        into_inner = np.flatnonzero(np.isin(QUERY, inner))
        assert np.array_equal(np.sort(found.layers[0].edge), into_inner)
        assert mask.numpy()[found.layers[0].edge].all()


# Subgraphs


def test_an_induced_subgraph_has_exactly_the_edges_among_its_nodes():
    nodes = np.random.default_rng(2).permutation(NUM_NODES)[:200]
    picks = draw.induce(ROWS, nodes)
    inside = np.flatnonzero(np.isin(QUERY, nodes) & np.isin(KEY, nodes))
    assert np.array_equal(np.sort(picks.edge), inside)
    assert_real_edges(picks, nodes, nodes[picks.key])


def test_a_walk_follows_edges_and_stays_at_nodes_without_keys():
    line = Neighbours.from_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 5)
    for seed in range(20):
        visited = draw.visit(line, draw.WALKS, 1, length=2, seed=seed).tolist()
        start = visited[0]
        assert visited == ([4] if start == 4 else list(range(start, min(start + 2, 3) + 1)))


def test_every_node_is_equally_likely_as_a_root():
    alone = Neighbours.from_arrays(np.zeros(21, np.int64), np.zeros(0, np.int32))
    seeds = range(4000)
    visited = [draw.visit(alone, draw.WALKS, 1, length=1, seed=seed)[0] for seed in seeds]
    assert chi_square(np.bincount(visited, minlength=20)) < limit(19)


def test_nodes_are_drawn_by_degree_and_edges_by_its_inverse():
    """On a star of 10 leaves: a leaf has degree 1, the centre 10."""
    leaf = np.arange(1, 11)
    query = np.concatenate([leaf, np.zeros(10, np.int64)])
    star = Neighbours.from_edges(query, np.concatenate([np.zeros(10, np.int64), leaf]), 11)
    drawn = [draw.visit(star, draw.NODES, 1, seed=seed) for seed in range(2000)]
    assert sum(nodes[0] == 0 for nodes in drawn) / 2000 == pytest.approx(1 / 2, abs=0.05)
    # A triangle 0-1-2 and an edge 0-3: pairs weigh 1/3 + 1/2, 1/3 + 1/2, 1/2 + 1/2, 1/3 + 1.
    pairs = np.array([[0, 1], [0, 2], [1, 2], [0, 3]])
    both = np.concatenate([pairs, pairs[:, ::-1]])
    kite = Neighbours.from_edges(both[:, 0], both[:, 1], 4)
    live = np.arange(4)
    drawn = [tuple(draw.visit(kite, draw.EDGES, 1, live=live, seed=n)) for n in range(6000)]
    shares = [drawn.count(tuple(pair)) / 6000 for pair in pairs]
    assert shares == pytest.approx([5 / 24, 5 / 24, 6 / 24, 8 / 24], abs=0.025)


# Special cases and wrong arguments


def test_the_graph_of_a_sample_equals_one_made_of_its_edges():
    found = draw.sample(ROWS, np.arange(64), [5])
    graph = make_graph(found.layers[0], len(found.node), 1)
    other = Graph.from_edges(graph.query_index, graph.key_index, 64, len(found.node))
    for x, y in zip(graph.tensors, other.tensors, strict=True):
        assert torch.equal(x, y)


def test_graphs_without_edges_or_nodes_can_be_sampled():
    alone = Neighbours.from_arrays(np.zeros(4, np.int32), np.zeros(0, np.int32))
    found = draw.sample(alone, np.array([2, 0]), [3, -1])
    assert found.node.tolist() == [2, 0]
    assert found.layers[0].rowptr.tolist() == [0, 0, 0]
    nobody = Neighbours.from_edges(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    assert len(draw.sample(nobody, np.zeros(0, np.int64), [2]).node) == 0
    assert len(draw.induce(nobody, np.zeros(0, np.int64)).edge) == 0


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ((np.array([0, 2, 1]), np.zeros(1, int)), "rowptr must rise from 0 to the 1 edges"),
        ((np.array([0, 2]), np.zeros(3, int)), "rowptr must rise from 0 to the 3 edges"),
        ((np.array([1, 1]), np.zeros(1, int)), "rowptr must rise"),
        ((np.array([0, 1]), np.zeros(1, int), np.zeros(2, int)), "edge_id must have 1 entries"),
        ((np.array([0, 1]), np.zeros(1, int), np.array([-2])), "edge_id must not be negative"),
        ((np.zeros((2, 2), int), np.zeros(1, int)), "rowptr must have one dimension"),
    ],
)
def test_wrong_rows_are_refused(arrays, text):
    with pytest.raises(ValueError, match=text):
        Neighbours.from_arrays(*arrays)


def test_wrong_edges_and_nodes_are_refused():
    with pytest.raises(ValueError, match=r"key_index must lie in \[0, 3\), but holds 3"):
        Neighbours.from_edges(np.array([0, 1]), np.array([2, 3]), 3)
    with pytest.raises(ValueError, match=r"query_index must lie in \[0, 3\), but holds -1"):
        Neighbours.from_edges(np.array([0, -1]), np.array([2, 2]), 3)
    with pytest.raises(TypeError, match="key_index must hold int32 or int64, but holds float64"):
        Neighbours.from_edges(np.array([0]), np.array([0.5]), 3)
    with pytest.raises(ValueError, match="must have the same length"):
        Neighbours.from_edges(np.array([0]), np.array([0, 1]), 3)
    with pytest.raises(ValueError, match=r"seeds must lie in \[0, 600\), but hold 600"):
        draw.sample(ROWS, np.array([600]), [2])
    with pytest.raises(ValueError, match=r"nodes must lie in \[0, 600\), but hold -1"):
        draw.induce(ROWS, np.array([-1]))


def test_graphs_that_cannot_be_sampled_from_are_refused():
    ends = torch.tensor([0, 1]), torch.tensor([2, 1])
    with pytest.raises(ValueError, match="2 queries and 3 keys"):
        Neighbours.from_graph(Graph.from_edges(*ends, 2, 3))
    with pytest.raises(ValueError, match="no relations"):
        Neighbours.from_graph(
            Graph.from_edges(*ends, 3, relation=torch.tensor([0, 1]), num_relations=2)
        )


@pytest.mark.native
def test_the_native_code_never_reads_outside_its_arrays():
    """Unchecked rows give an error, not a crash."""
    good, nodes = [np.array([0, 2, 3]), np.array([1, 0, 1])], np.array([0, 1])
    wrong_rows = [np.array([0, 9, 3]), np.array([-5, 2, 3]), np.array([2, 1, 3]),
                  np.array([0, 2, 2**40])]  # fmt: skip
    cases = [([rowptr, good[1]], "rowptr must rise") for rowptr in wrong_rows]
    cases += [([good[0], np.array([1, 0, key])], "key_index holds") for key in (2, -1, 2**40)]
    for rows, text in cases:
        for call in (
            lambda rows: kernels.sample(rows, nodes, [-1, 2], False, True, 0, 2),
            lambda rows: kernels.sample(rows, nodes, [3, 3, 3], True, False, 0, 2),
            lambda rows: kernels.pick(rows, nodes, -1, False, 0, 0, 1),
            lambda rows: kernels.induce(rows, nodes, 2),
            lambda rows: kernels.visit(rows, 0, 50, 9, nodes, 0, 2),
            lambda rows: kernels.visit(rows, 2, 50, 9, nodes, 0, 2),
        ):
            with pytest.raises(ValueError, match=text):
                call(rows)
        assert 0 <= kernels.visit(rows, 1, 50, 0, nodes, 0, 1).max() < 2
    for wrong, text in (([2], "no node"), ([-1], "no node"), ([1, 1], "twice")):
        for call in (
            lambda seeds: kernels.sample(good, seeds, [2], False, True, 0, 1),
            lambda seeds: kernels.induce(good, seeds, 1),
        ):
            with pytest.raises(ValueError, match=text):
                call(np.array(wrong))
    with pytest.raises(ValueError, match="no node"):
        kernels.pick(good, np.array([5]), 2, False, 0, 0, 1)
    with pytest.raises(ValueError, match="sizes do not allow"):
        kernels.transpose(np.array([0, 2], np.int32), np.array([0, 4], np.int32), 4, 1)
    with pytest.raises(ValueError, match="sizes do not allow"):
        kernels.transpose(np.array([0, 9], np.int32), np.array([0, 1], np.int32), 4, 1)
    with pytest.raises(ValueError, match="out of the table"):
        kernels.gather(good[0].ctypes.data, 3, 8, np.array([3]), good[0].ctypes.data, 1)
    with pytest.raises(ValueError, match="one number at least"):
        kernels.sample([np.zeros(0, int), good[1]], nodes, [2], False, True, 0, 1)
    with pytest.raises(TypeError, match="rowptr must hold int32 or int64"):
        kernels.sample([good[0].astype(float), good[1]], nodes, [2], False, True, 0, 1)


@pytest.mark.parametrize("shape", [(50,), (50, 3), (50, 2, 5), (50, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_take_rows_equals_indexing(shape, dtype, threads):
    table, index = (
        torch.randint(0, 2, shape).to(dtype),
        np.random.default_rng(0).integers(0, 50, 99),
    )
    expected = table[torch.from_numpy(index)]
    for count in (1, 2):
        for given in (table, table.numpy(), table.flip(0).flip(0), table.expand_as(table)):
            found = draw.take_rows(given, index, count)
            assert found.dtype == dtype
            assert torch.equal(found, expected)
    turned = torch.randn(3, 50).T
    assert torch.equal(draw.take_rows(turned, index), turned[torch.from_numpy(index)])


def test_shuffle_permutes_and_derived_seeds_differ():
    items = np.arange(1000)
    assert np.array_equal(np.sort(draw.shuffle(items, 5)), items)
    assert not np.array_equal(draw.shuffle(items, 5), draw.shuffle(items, 6))
    seeds = {draw.derive_seed(seed, a, b) for seed in range(4) for a in range(9) for b in range(9)}
    assert len(seeds) == 4 * 81


def test_without_the_native_module_samples_are_the_same():
    script = """
import numpy as np, torch
from dynagat.native import kernels
from dynagat.sampling import NeighborLoader, GraphSAINTRandomWalkSampler
from dynagat.graph import Graph
torch.manual_seed(0)
graph = Graph.from_edge_index(torch.randint(0, 90, (2, 700)), 90, self_loops=True)
total = [kernels is None]
loaders = [NeighborLoader(graph, [3, 2], batch_size=20, shuffle=True, layered=layered)
           for layered in (False, True)]
for loader in [*loaders, GraphSAINTRandomWalkSampler(graph, 9, 3, 4, sample_coverage=2)]:
    for batch in loader:
        arrays = [batch.node_id, *batch.edge_id, *(a for g in batch.graphs for a in g.tensors)]
        total.append([a.tolist() for a in arrays])
        total.append(None if batch.node_norm is None else batch.node_norm.tolist())
print(repr(total[0])); print(repr(total[1:]))
"""
    outputs = {}
    for backend in ("reference", "fused"):
        environment = {**os.environ, "DYNAGAT_BACKEND": backend if kernels else "reference"}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        outputs[backend] = done.stdout.splitlines()
    assert outputs["reference"][0] == "True"
    assert outputs["reference"][1] == outputs["fused"][1]


@pytest.mark.native
@pytest.mark.parametrize("keys", [-1, 2**31, 2**45, 2**62, 2**63 - 1])
def test_an_impossible_number_of_keys_is_refused(keys):
    assert kernels is not None
    with pytest.raises(ValueError, match="keys must lie in"):
        kernels.transpose(np.zeros(1, np.int32), np.zeros(0, np.int32), keys, 1)
