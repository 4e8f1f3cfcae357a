"""The graphs of DictionaryLookup: the released code's numbers, and the split."""

import random
from functools import cache

import numpy as np
import pytest

from dynagat.benchmarks.dictionary_lookup.dictionary import Dictionary, make_dictionary

SIZES = """
  4    24   15  1    18    6
  5   120   23  2    72   48
  6   720   34  2   504  216
  7  5040   47  2  3600 1440
  8 32000   62  2 24494 7506
  9 32000   79  2 25330 6670
 10 32000   97  3 23115 8885
 11 32000  118  3 23896 8104
 12 32000  141  3 24758 7242
 13 32000  166  3 25232 6768
 14 32000  192  4 23843 8157
 15 32000  221  4 24207 7793
 16 32000  252  4 24830 7170
 17 32000  285  4 25082 6918
 18 32000  320  4 25491 6509
 19 32000  356  5 24173 7827
 20 32000  395  5 24868 7132
 30 32000  893  7 25441 6559
 40 32000 1591  9 25584 6416
 50 32000 2488 12 25173 6827
 60 32000 3586 14 25249 6751
 70 32000 4884 16 25407 6593
100 32000 9977 23 25396 6604
"""  # of the released code, seed 11: k, graphs, allowed pairs, held-out pairs, train, test
ROWS = [tuple(map(int, line.split())) for line in SIZES.strip().splitlines()]


@cache
def released(k: int) -> Dictionary:
    """The released code's graphs."""
    return make_dictionary(k, seed=11, valid_share=0.0)


def rows(*parts: np.ndarray) -> list[tuple[int, ...]]:
    """All graphs of the parts, sorted, with duplicates."""
    return sorted(map(tuple, np.concatenate(parts).tolist()))


def has_held_out_pair(data: Dictionary, graphs: np.ndarray) -> np.ndarray:  # [graphs] of booleans
    attribute, value = data.held_out.T
    return (graphs[:, attribute] == value).any(axis=1)


# Numbers of the released code


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"k={row[0]}")
def test_seed_11_gives_the_sizes_of_the_released_code(row) -> None:
    k, num_graphs, num_allowed, num_held_out, num_train, num_test = row
    data = released(k)
    assert len(data.train) + len(data.test) == num_graphs
    assert len(data.held_out) == num_held_out == k * k - num_allowed
    assert (len(data.train), len(data.test)) == (num_train, num_test)


@pytest.mark.parametrize(("k", "distinct"), [(8, 22_043), (9, 30_622), (10, 31_870), (11, 31_993)])
def test_seed_11_draws_as_many_distinct_permutations_as_the_released_code(k, distinct) -> None:
    assert len(set(rows(released(k).train, released(k).test))) == distinct


@pytest.mark.parametrize("k", [12, 20])
def test_permutations_of_many_attributes_are_all_distinct(k) -> None:
    assert len(set(rows(released(k).train, released(k).test))) == 32_000


def test_seed_11_holds_out_the_pairs_of_the_released_code() -> None:
    assert released(10).held_out.tolist() == [[5, 1], [7, 2], [8, 2]]
    assert released(8).held_out.tolist() == [[2, 5], [3, 7]]


def test_the_first_test_graph_of_k_10_is_that_of_the_released_code() -> None:
    assert released(10).test[0].tolist() == [2, 8, 6, 0, 3, 1, 4, 7, 9, 5]


# For any k and seed


@pytest.mark.parametrize("seed", [0, 11])
@pytest.mark.parametrize("k", [3, 5, 8, 12])
def test_a_graph_is_for_training_if_and_only_if_it_has_no_held_out_pair(k, seed) -> None:
    data = make_dictionary(k, seed=seed)
    assert not has_held_out_pair(data, data.train).any()
    assert has_held_out_pair(data, data.valid).all()
    assert has_held_out_pair(data, data.test).all()


@pytest.mark.parametrize("split", ["pairs", "random"])
@pytest.mark.parametrize("k", [4, 9, 30])
def test_every_graph_is_a_permutation(k, split) -> None:
    data = make_dictionary(k, seed=3, num_graphs=500, split=split)
    for part in (data.train, data.valid, data.test):
        assert part.dtype == np.int64
        assert (np.sort(part, axis=1) == np.arange(k)).all()


@pytest.mark.parametrize("k", [6, 7])
def test_validation_and_test_graphs_are_disjoint_and_are_all_others(k) -> None:
    """Up to k = 7 each permutation occurs once, so graphs can be compared as sets."""
    data = make_dictionary(k, seed=11)
    assert not set(rows(data.valid)) & set(rows(data.test))
    assert rows(data.valid, data.test) == rows(released(k).test)
    assert len(data.valid) == len(released(k).test) // 2


@pytest.mark.parametrize("valid_share", [0.1, 0.5])
def test_the_training_graphs_do_not_depend_on_the_validation_share(valid_share) -> None:
    data = make_dictionary(10, seed=11, valid_share=valid_share)
    assert np.array_equal(data.train, released(10).train)
    distinct = len(set(rows(released(10).test)))
    assert len(set(rows(data.valid))) == int(valid_share * distinct)
    assert rows(data.valid, data.test) == rows(released(10).test)


def test_without_a_validation_share_the_test_graphs_are_the_validation_graphs() -> None:
    assert released(5).valid is released(5).test


def test_a_random_split_is_80_to_20_and_holds_out_no_pair() -> None:
    data = make_dictionary(10, seed=11, split="random")
    distinct = 31_870
    train, valid = (len(set(rows(part))) for part in (data.train, data.valid))
    assert train == int(0.8 * distinct)
    assert valid == (distinct - train) // 2
    assert data.held_out.shape == (0, 2)
    same_graphs = rows(released(10).train, released(10).test)
    assert rows(data.train, data.valid, data.test) == same_graphs


def test_a_random_split_of_all_permutations_has_each_in_one_part() -> None:
    data = make_dictionary(6, seed=0, split="random")
    assert len(set(rows(data.train, data.valid, data.test))) == 720
    assert len(data.train) == 576


@pytest.mark.parametrize("split", ["pairs", "random"])
def test_equal_graphs_are_in_the_same_part(split) -> None:
    """32,000 draws from 40,320 permutations: a third of them occur twice or more."""
    data = make_dictionary(8, seed=0, split=split)
    train, valid, test = (set(rows(part)) for part in (data.train, data.valid, data.test))
    assert len(train | valid | test) == len(train) + len(valid) + len(test)


def test_the_seed_determines_the_graphs() -> None:
    first, again, other = (make_dictionary(9, seed=seed, num_graphs=300) for seed in (1, 1, 2))
    assert np.array_equal(first.test, again.test)
    assert np.array_equal(first.held_out, again.held_out)
    assert not np.array_equal(rows(first.train, first.test), rows(other.train, other.test))


@pytest.mark.parametrize("split", ["pairs", "random"])
def test_making_graphs_does_not_use_the_global_generators(split) -> None:
    legacy, plain = np.random.get_state(), random.getstate()
    make_dictionary(9, seed=11, num_graphs=100, split=split)
    assert np.array_equal(np.random.get_state()[1], legacy[1])
    assert np.random.get_state()[2:] == legacy[2:]
    assert random.getstate() == plain


def test_the_smallest_dictionaries_reuse_graphs_for_several_parts() -> None:
    one, two = make_dictionary(1, seed=0), make_dictionary(2, seed=0)
    assert one.train.tolist() == one.valid.tolist() == one.test.tolist() == [[0]]
    assert two.valid is two.test
    assert sorted(rows(two.train, two.test)) == [(0, 1), (1, 0)]


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^split must be one of pairs, random, but is 'half'$"):
        make_dictionary(4, seed=0, split="half")


def pairs_of(graphs):
    return {(attribute, int(value)) for row in graphs for attribute, value in enumerate(row)}


@pytest.mark.parametrize("k", [3, 4, 5, 7, 10])
@pytest.mark.parametrize("seed", [0, 1, 11])
def test_validation_and_test_graphs_have_held_out_pairs_of_their_own(k, seed):
    data = make_dictionary(k, seed=seed, num_graphs=6000, valid_pairs="own")
    held_out = set(map(tuple, data.held_out.tolist()))
    in_valid, in_test = (pairs_of(part) & held_out for part in (data.valid, data.test))
    assert min(map(len, (data.train, data.valid, data.test))) > 0
    assert not pairs_of(data.train) & held_out
    assert in_valid
    assert in_test
    assert not in_valid & in_test
    assert all(pairs_of([graph]) & in_test for graph in data.test)
    shared = make_dictionary(k, seed=seed, num_graphs=6000)
    if len(shared.held_out) > 1:  # then the same pairs are held out
        assert np.array_equal(shared.train, data.train)
