"""How much of the scores is neither the query's nor the key's alone?

score_ij = query_i + key_j + rest_ij by least squares; interaction = Σ rest² / Σ (score - mean)².
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows

STEPS = 100
MANY = 4_000_000  # scores beyond which their own precision will do: it saves half the time
PRECISION = 1e-6  # of the residual of the normal equations, beside that of no fit


def interaction(rows: Rows, draws: Resampling) -> tuple[list[Estimate], Tensor]:
    """Per head, with the effects fitted once for all resamples; and the effects of keys, [K, H]."""
    score = rows.score
    query, key = fit(rows, score if score.numel() > MANY else score.double())
    rest = score - rows.spread(query.to(score.dtype))
    rest = rest.sub_(key.to(score.dtype).index_select(0, rows.key)).square_()
    middle = score.mean(0, dtype=torch.double).to(score.dtype)
    spread = (score - middle).square_()
    sizes = [each.sum(0, dtype=torch.double) for each in (spread, score.square())]
    is_flat = sizes[0] <= torch.finfo(score.dtype).eps ** 2 * sizes[1]
    spread = rows.sum(spread).where(~is_flat, torch.nan)
    return draws.ratio(rows.sum(rest), spread), key


def fit(rows: Rows, score: Tensor) -> tuple[Tensor, Tensor]:
    """The effects [Q, H] and [K, H] that fit best: conjugate gradients on those of the keys.

    A query's best effect is the mean of its scores less its keys' effects; putting that in leaves
    equations for the keys alone, with as many solutions as there are ways to shift a component.
    """
    incidence, transposed = _incidence(rows, score.dtype)
    degree = rows.degree.clamp_min(1).to(score.dtype)[:, None]
    fan = torch.bincount(rows.key, minlength=rows.num_keys).to(score.dtype)[:, None]

    def remainder(key: Tensor) -> Tensor:
        """(D_K - Aᵀ D_Q⁻¹ A) key"""
        return fan * key - transposed @ ((incidence @ key) / degree)

    total = rows.sum(score)
    mean = total / degree
    by_key = score.new_zeros(rows.num_keys, rows.num_heads)
    target = by_key.index_add(0, rows.key, score - rows.spread(mean))
    key = _solve(remainder, target, 1 / fan.clamp_min(1))
    return (total - incidence @ key) / degree, key


def _incidence(rows: Rows, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Which query has which key, [Q, K] and [K, Q]."""
    ones = torch.ones(len(rows.key), dtype=dtype)
    order = torch.sort(rows.key, stable=True).indices
    fan = torch.bincount(rows.key, minlength=rows.num_keys)
    begin = torch.nn.functional.pad(fan.cumsum(0), (1, 0))
    size = (rows.num_queries, rows.num_keys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the format is young
        forth = torch.sparse_csr_tensor(rows.rowptr, rows.key, ones, size, check_invariants=False)
        back = torch.sparse_csr_tensor(
            begin, rows.query[order], ones, size[::-1], check_invariants=False
        )
    return forth, back


def _solve(matrix, target: Tensor, scale: Tensor) -> Tensor:
    """Conjugate gradients with a diagonal preconditioner, each head's by itself."""
    found, rest = torch.zeros_like(target), target.clone()
    near = scale * rest
    way, size = near.clone(), (rest * near).sum(0)
    enough = PRECISION**2 * size
    for _ in range(STEPS):
        if bool((size <= enough).all()):
            break
        image = matrix(way)
        step = torch.where(size > enough, size / (way * image).sum(0), 0)
        found += step * way
        rest -= step * image
        near = scale * rest
        size, before = (rest * near).sum(0), size
        way = near + torch.where(before > 0, size / before, 0) * way
    return found
