"""One ranking of all keys: the native implementation and the one in Python."""

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


def explained_share(rows: Rows, positions: Tensor) -> Tensor:
    comparisons = find_comparisons(rows)
    signs = comparisons.signs(rows)
    return order._is_predicted(rows, comparisons, signs, positions).sum(0) / signs.abs().sum(0)


both_backends = pytest.mark.parametrize(
    "backend", ["python", pytest.param("native", marks=pytest.mark.native)]
)


@both_backends
def test_a_ranking_gives_each_key_a_position(backend) -> None:
    for seed in range(10):
        rows = rows_from(random_scores(seed, 20, 15, heads=2, missing=0.8))
        positions = ranked(rows, backend)
        assert positions.sort(0).values.tolist() == [[position] * 2 for position in range(15)]


@both_backends
@pytest.mark.parametrize("levels", [3, 20, 10**6])
def test_rankings_without_contradictions_are_combined_even_with_ties(backend, levels) -> None:
    """All queries share one order of keys, but each has equal scores below a threshold."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        common = (torch.rand(1, 60, generator=generator, dtype=torch.double) * levels).round()
        threshold = torch.rand(40, 1, generator=generator) * levels / 2
        missing = torch.rand(40, 60, generator=generator) < 0.8
        rows = rows_from(common.maximum(threshold).masked_fill(missing, NAN))
        assert explained_share(rows, ranked(rows, backend)).tolist() == [1]


@pytest.mark.native
def test_the_native_ranking_equals_the_python_ranking() -> None:
    shares = []
    for seed in range(20):
        rows = rows_from(random_scores(seed, 40, 30, missing=0.8).mul(4).round())  # with ties
        positions = ranked(rows, "native")
        assert torch.equal(positions, ranked(rows, "python"))
        shares.append(float(explained_share(rows, positions)))
    assert np.mean(shares) > 0.6  # a random order explains half


@pytest.mark.native
@pytest.mark.parametrize(
    ("rowptr", "key"),
    [([0, 2], [0, 5]), ([0, 2], [0, -1]), ([0, 3], [0, 1]), ([0, 2, 1], [0, 1]), ([-1, 2], [0, 1])],
)
def test_the_native_ranking_rejects_invalid_rows(rowptr, key) -> None:
    arrays = [torch.tensor(rowptr, dtype=torch.int32), torch.tensor(key, dtype=torch.int32)]
    arrays += [torch.zeros(size, dtype=torch.double) for size in (len(key), 2)]
    arrays.append(torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match="holds a value that their sizes do not allow"):
        kernels.rank(
            arrays=[array.data_ptr() for array in arrays],
            queries=len(rowptr) - 1,
            keys=2,
            edges=len(key),
            heads=1,
            threads=1,
        )


@both_backends
def test_no_queries_give_an_empty_ranking(backend) -> None:
    rows = rows_from(torch.full((3, 4), NAN))
    assert ranked(rows, backend).shape == (0, 1)


@pytest.mark.native
def test_the_native_ranking_accepts_nan_scores() -> None:
    rows = rows_from(random_scores(0, 9, 8))
    score = rows.score.clone()
    score[::3] = NAN
    positions = rank_keys(replace(rows, score=score), torch.full((8, 1), NAN))
    assert positions[:, 0].sort().values.tolist() == list(range(8))
