"""Edge noise: the paper's number of pairs, drawn uniformly from free ones, and reproducible."""

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagat.benchmarks.edge_noise.noise import _first_free, _shuffled, add_noise
from dynagat.data.catalog import load
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes


def symmetric_graph(num_nodes, pairs, loops=()):
    """Each pair in both directions, in arbitrary order."""
    ends = [*pairs, *((j, i) for i, j in pairs), *((i, i) for i in loops)]
    ends = np.array(sorted(ends, key=hash), np.int32).reshape(-1, 2)
    about = {"task": {"kind": "classification", "classes": ["a", "b"]}}
    nodes = Nodes(num_nodes, {"x": np.ones((num_nodes, 2), np.float32)})
    edges = Edges(ends[:, 0], ends[:, 1])
    split = {"train": np.array([0]), "test": np.array([1])}
    return GraphData("toy", {NODE: nodes}, {EDGE: edges}, split, about)


def random_graph(num_nodes, num_pairs, seed=0, loops=()):
    pairs = list(itertools.combinations(range(num_nodes), 2))
    picked = np.random.default_rng(seed).choice(len(pairs), num_pairs, replace=False)
    return symmetric_graph(num_nodes, [pairs[each] for each in picked], loops)


def ring(num_nodes):
    return symmetric_graph(num_nodes, [(i, (i + 1) % num_nodes) for i in range(num_nodes)])


def ends_of(data):
    return list(zip(data.sole_edges.key_index, data.sole_edges.query_index, strict=True))


def added(data, ratio, seed):
    """The new pairs {i, j}, in the order in which they were drawn."""
    noisy, marks = add_noise(data, ratio, seed)
    ends = np.stack([noisy.sole_edges.key_index, noisy.sole_edges.query_index], 1)[marks]
    return [tuple(sorted(map(int, pair))) for pair in ends[: len(ends) // 2]]


@st.composite
def graphs(draw):
    num_nodes = draw(st.integers(2, 14))
    num_pairs = draw(st.integers(0, num_nodes * (num_nodes - 1) // 2))
    loops = range(draw(st.integers(0, num_nodes)))
    return random_graph(num_nodes, num_pairs, draw(st.integers(0, 9)), loops)


@settings(max_examples=200, deadline=None)
@given(graphs(), st.floats(0, 1), st.integers(0, 2**64))
def test_noise_adds_the_papers_number_of_new_pairs_in_both_directions(data, ratio, seed):
    before = ends_of(data)
    count = int(math.floor(len(before) / 2) * ratio)
    joined = {frozenset(pair) for pair in before if pair[0] != pair[1]}
    free = math.comb(data.num_nodes, 2) - len(joined)
    if count > free:
        with pytest.raises(
            ValueError, match=rf"needs {count} new pairs.*only {free} pairs are free"
        ):
            add_noise(data, ratio, seed)
        return
    noisy, marks = add_noise(data, ratio, seed)
    after = ends_of(noisy)
    new = after[len(before) :]
    assert after[: len(before)] == before
    assert marks.dtype == bool
    assert marks.tolist() == [False] * len(before) + [True] * 2 * count
    assert len(new) == 2 * count == len(set(new))
    assert new[count:] == [(j, i) for i, j in new[:count]]
    assert all(i != j for i, j in new)
    assert not set(new) & set(before)


def test_all_free_pairs_are_drawn_if_that_many_are_needed():
    data = random_graph(8, 14)
    noisy, marks = add_noise(data, 1.0, 0)
    assert set(ends_of(noisy)) == set(itertools.permutations(range(8), 2))
    assert marks.sum() == 28


def test_nodes_split_and_order_stay_and_the_noise_is_described():
    data = replace(ring(40), folder="somewhere")
    noisy, _ = add_noise(data, 0.25, 3)
    assert (noisy.nodes, noisy.split, noisy.task) == (data.nodes, data.split, data.task)
    assert noisy.about["noise"] == {"ratio": 0.25, "seed": 3, "pairs": 10}
    assert "noise" not in data.about
    assert noisy.folder is None
    assert noisy.sole_edges.key_index.dtype == data.sole_edges.key_index.dtype


def test_a_ratio_of_zero_returns_the_same_graph():
    data = ring(5)
    noisy, marks = add_noise(data, 0.0, 1)
    assert noisy is data
    assert marks.tolist() == [False] * 10


def drawn_one_by_one(data, count, seed):
    """The definition of the draw for graphs with many free pairs."""
    stream, N = np.random.PCG64(seed), data.num_nodes
    ordered = list(itertools.permutations(range(N), 2))
    taken, pairs = {tuple(sorted(map(int, pair))) for pair in ends_of(data)}, []
    while len(pairs) < count:
        number = int(stream.random_raw())
        pair = tuple(sorted(ordered[number % len(ordered)]))
        if number < 2**64 - 2**64 % len(ordered) and pair not in taken and pair not in pairs:
            pairs.append(pair)
    return pairs


@pytest.mark.parametrize("seed", range(5))
def test_the_pairs_are_the_first_of_the_stream_that_are_free_and_new(seed):
    assert added(ring(60), 1.0, seed) == drawn_one_by_one(ring(60), 60, seed)


def test_the_draw_never_changes():
    """For graphs with many and with few free pairs. Recorded runs depend on it."""
    assert added(ring(20), 0.2, 7) == [(10, 14), (1, 16), (3, 10), (3, 18)]
    assert added(ring(6), 0.5, 7) == [(2, 4), (1, 3), (1, 4)]


@pytest.mark.parametrize("num_nodes", [6, 7, 50])
def test_a_larger_ratio_adds_to_the_noise_of_a_smaller_one(num_nodes):
    pairs = added(ring(num_nodes), 1.0, 5)
    for ratio in (0.2, 0.5, 0.9):
        few = added(ring(num_nodes), ratio, 5)
        assert few == pairs[: len(few)]


def test_the_draw_does_not_depend_on_the_order_of_the_edges():
    data = random_graph(30, 40)
    edges = data.sole_edges
    mixed = replace(data, edges={EDGE: Edges(edges.key_index[::-1], edges.query_index[::-1])})
    assert added(data, 0.5, 2) == added(mixed, 0.5, 2)


def test_different_seeds_draw_different_pairs():
    assert len({tuple(added(ring(50), 0.2, seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize("num_nodes", [6, 12], ids=["listed", "drawn"])
def test_all_sets_of_two_free_pairs_are_equally_likely(num_nodes):
    """Chi-square over all sets of two pairs; its expectation is the number of sets minus one."""
    data, draws = ring(num_nodes), 5000
    ratio = 2 / num_nodes
    every = {tuple(sorted(pair)) for pair in itertools.combinations(range(num_nodes), 2)}
    free = sorted(every - {tuple(sorted(map(int, pair))) for pair in ends_of(data)})
    counts = dict.fromkeys(itertools.combinations(free, 2), 0)
    for seed in range(draws):
        counts[tuple(sorted(added(data, ratio, seed)))] += 1
    expected = draws / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    degrees = len(counts) - 1
    assert abs(chi_square - degrees) < 3 * math.sqrt(2 * degrees)


class Numbers:
    """A random stream with given numbers."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def random_raw(self, count):
        taken, self.numbers = self.numbers[:count], self.numbers[count:]
        return np.array(taken, np.uint64)


def test_numbers_that_would_bias_the_draw_are_skipped():
    largest = 2**64 - 1  # 2⁶⁴ mod 6 = 4: the last four numbers would favour four remainders
    stream = Numbers([largest, largest - 3, 1, *range(40)])
    assert _first_free(np.empty(0, np.int64), 3, 1, stream).tolist() == [2]


def test_equal_numbers_are_drawn_again():
    stream = Numbers([5, 5, 9, 3, 1, 2])
    assert _shuffled(np.array([10, 20, 30]), stream).tolist() == [20, 30, 10]


@pytest.mark.parametrize("ratio", [-0.1, 1.01, math.nan, math.inf])
def test_a_ratio_outside_of_0_to_1_is_refused(ratio):
    with pytest.raises(
        ValueError, match=rf"^the noise ratio must lie in \[0, 1\], but is {ratio}$"
    ):
        add_noise(ring(5), ratio, 0)


@pytest.mark.parametrize("seed", [-1, 0.5, True, None])
def test_a_seed_that_is_not_a_whole_number_is_refused(seed):
    with pytest.raises(
        ValueError, match=f"seed must be a whole number of 0 or more, but is {seed}"
    ):
        add_noise(ring(5), 0.5, seed)


@pytest.mark.parametrize(
    ("key", "query", "message"),
    [
        ([0, 1, 2], [1, 0, 3], "in both directions, but has not that of nodes 2 and 3"),
        ([0, 1, 3], [1, 0, 2], "in both directions, but has not that of nodes 2 and 3"),
        ([0, 1, 1], [1, 0, 0], "in both directions, but has not that of nodes 0 and 1"),
        ([1, 2, 1, 2], [2, 1, 2, 1], "once, but has not that of nodes 1 and 2"),
    ],
)
def test_a_graph_that_is_not_symmetric_is_refused(key, query, message):
    data = replace(ring(4), edges={EDGE: Edges(np.array(key), np.array(query))})
    for ratio in (0.0, 0.5):
        with pytest.raises(ValueError, match=rf"{message}; symmetrise first: data.symmetric\(\)"):
            add_noise(data, ratio, 0)
    add_noise(data.symmetric(), 0.5, 0)


def test_edges_with_arrays_are_refused():
    edges = replace(ring(4).sole_edges, arrays={"weight": np.ones(8), "year": np.ones(8)})
    message = "^the edges of toy have weight, year, which noise edges lack; leave them out first"
    with pytest.raises(ValueError, match=message):
        add_noise(replace(ring(4), edges={EDGE: edges}), 0.5, 0)


def test_edges_of_several_types_are_refused():
    other = (NODE, "from", NODE)
    data = replace(ring(4), edges={EDGE: ring(4).sole_edges, other: ring(4).sole_edges})
    with pytest.raises(ValueError, match=r"has edges of several types: .*pick with only\(\)"):
        add_noise(data, 0.5, 0)


@pytest.fixture(scope="module")
def arxiv(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNAGAT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield load("ogbn-arxiv").symmetric()


@pytest.mark.data
@pytest.mark.parametrize(("ratio", "pairs"), [(0.05, 57_889), (0.5, 578_899)])
def test_ogbn_arxiv_gets_the_papers_number_of_pairs_within_two_seconds(arxiv, ratio, pairs):
    start = time.process_time()  # of this process alone
    noisy, marks = add_noise(arxiv, ratio, 0)
    seconds = time.process_time() - start
    assert noisy.num_edges - arxiv.num_edges == marks.sum() == 2 * pairs
    assert noisy.symmetric().num_edges == noisy.num_edges  # no duplicates
    assert seconds < 2
