"""One ranking of all keys: the native program, and the readable one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from dynagat.analysis import order
from dynagat.analysis.interaction import fit
from dynagat.analysis.order import find_comparisons, rank_keys
from dynagat.analysis.rows import Rows
from dynagat.native import kernels
from tests.scores import NAN, random_scores, rows_from


def ranked(rows: Rows, backend: str) -> Tensor:
    effects = fit(rows, rows.score.double())[1]
    if backend == "native":
        return rank_keys(rows, effects)
    heads = range(rows.num_heads)
    return torch.stack([order._rank_in_python(rows, effects, h) for h in heads], dim=1)


def share_told(rows: Rows, places: Tensor) -> Tensor:
    comparisons = find_comparisons(rows)
    signs = comparisons.signs(rows)
    return order._told(rows, comparisons, signs, places).sum(0) / signs.abs().sum(0)


both_backends = pytest.mark.parametrize(
    "backend", ["python", pytest.param("native", marks=pytest.mark.native)]
)


@both_backends
def test_a_ranking_gives_each_key_a_place(backend) -> None:
    for seed in range(10):
        rows = rows_from(random_scores(seed, 20, 15, heads=2, missing=0.8))
        places = ranked(rows, backend)
        assert places.sort(0).values.tolist() == [[place] * 2 for place in range(15)]


@both_backends
@pytest.mark.parametrize("levels", [3, 20, 10**6])
def test_a_ranking_without_contradictions_is_found_with_ties_too(backend, levels) -> None:
    """Queries see a common order of keys through a staircase of their own."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        common = (torch.rand(1, 60, generator=generator, dtype=torch.double) * levels).round()
        floor = torch.rand(40, 1, generator=generator) * levels / 2  # below, all are equal
        gone = torch.rand(40, 60, generator=generator) < 0.8
        rows = rows_from(common.maximum(floor).masked_fill(gone, NAN))
        assert share_told(rows, ranked(rows, backend)).tolist() == [1]


@pytest.mark.native
def test_the_native_ranking_is_the_readable_one() -> None:
    shares = []
    for seed in range(20):
        rows = rows_from(random_scores(seed, 40, 30, missing=0.8).mul(4).round())  # with ties
        places = ranked(rows, "native")
        assert torch.equal(places, ranked(rows, "python"))
        shares.append(float(share_told(rows, places)))
    assert np.mean(shares) > 0.6  # any order at all tells a half


@pytest.mark.native
@pytest.mark.parametrize(
    ("rowptr", "key"),
    [([0, 2], [0, 5]), ([0, 2], [0, -1]), ([0, 3], [0, 1]), ([0, 2, 1], [0, 1]), ([-1, 2], [0, 1])],
)
def test_the_native_ranking_refuses_rows_that_are_not_sound(rowptr, key) -> None:
    arrays = [torch.tensor(rowptr, dtype=torch.int32), torch.tensor(key, dtype=torch.int32)]
    arrays += [torch.zeros(size, dtype=torch.double) for size in (len(key), 2)]
    arrays.append(torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match="hold a number that their sizes do not allow"):
        kernels.rank(
            arrays=[array.data_ptr() for array in arrays],
            queries=len(rowptr) - 1,
            keys=2,
            edges=len(key),
            heads=1,
            threads=1,
        )


@both_backends
def test_no_queries_make_no_ranking_worse(backend) -> None:
    rows = rows_from(torch.full((3, 4), NAN))
    assert ranked(rows, backend).shape == (0, 1)


@pytest.mark.native
def test_the_native_ranking_survives_scores_that_are_not_numbers() -> None:
    rows = rows_from(random_scores(0, 9, 8))
    score = rows.score.clone()
    score[::3] = NAN
    places = rank_keys(replace(rows, score=score), torch.full((8, 1), NAN))
    assert places[:, 0].sort().values.tolist() == list(range(8))
