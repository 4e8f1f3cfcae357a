"""How much of the scores' variance is explained neither by the query nor by the key alone?

score_ij = query_i + key_j + rest_ij by least squares; interaction = Σ rest² / Σ (score - mean)².
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from dynagat.analysis.resample import Estimate, Resampling
from dynagat.analysis.rows import Rows

MAX_STEPS = 100  # of conjugate gradients
MAX_DOUBLE = 4_000_000  # with more scores, fit in their own precision: it takes half the time
PRECISION = 1e-6  # norm of the residual of the normal equations, relative to the initial one


def interaction(rows: Rows, resampling: Resampling) -> tuple[list[Estimate], Tensor]:
    """The interaction of each head, and the effects of keys, [K, H]. Resamples share one fit."""
    score = rows.score
    query, key = fit(rows, score if score.numel() > MAX_DOUBLE else score.double())
    rest = score - rows.to_edges(query.to(score.dtype))
    rest = rest.sub_(key.to(score.dtype).index_select(0, rows.key)).square_()
    mean = score.mean(0, dtype=torch.double).to(score.dtype)
    squares = (score - mean).square_()
    totals = [each.sum(0, dtype=torch.double) for each in (squares, score.square())]
    is_constant = totals[0] <= torch.finfo(score.dtype).eps ** 2 * totals[1]
    variance = rows.sum(squares).where(~is_constant, torch.nan)
    return resampling.ratio(rows.sum(rest), variance), key


def fit(rows: Rows, score: Tensor) -> tuple[Tensor, Tensor]:
    """The least-squares effects [Q, H] and [K, H], by conjugate gradients on those of the keys.

    A query's best effect is the mean of its scores minus its keys' effects. Inserting it leaves
    equations for the keys alone, which are unique up to a constant per connected component.
    """
    incidence, transposed = _incidence(rows, score.dtype)
    degree = rows.degree.clamp_min(1).to(score.dtype)[:, None]
    key_degree = torch.bincount(rows.key, minlength=rows.num_keys).to(score.dtype)[:, None]

    def remainder(key: Tensor) -> Tensor:
        """(D_K - Aᵀ D_Q⁻¹ A) key"""
        return key_degree * key - transposed @ ((incidence @ key) / degree)

    total = rows.sum(score)
    mean = total / degree
    by_key = score.new_zeros(rows.num_keys, rows.num_heads)
    target = by_key.index_add(0, rows.key, score - rows.to_edges(mean))
    key = _solve(remainder, target, 1 / key_degree.clamp_min(1))
    return (total - incidence @ key) / degree, key


def _incidence(rows: Rows, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The sparse matrix of ones where a query has a key, [Q, K], and its transpose."""
    ones = torch.ones(len(rows.key), dtype=dtype)
    order = torch.sort(rows.key, stable=True).indices
    key_degree = torch.bincount(rows.key, minlength=rows.num_keys)
    begin = torch.nn.functional.pad(key_degree.cumsum(0), (1, 0))
    size = (rows.num_queries, rows.num_keys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the format beta
        forward = torch.sparse_csr_tensor(rows.rowptr, rows.key, ones, size, check_invariants=False)
        transposed = torch.sparse_csr_tensor(
            begin, rows.query[order], ones, size[::-1], check_invariants=False
        )
    return forward, transposed


def _solve(matrix, target: Tensor, scale: Tensor) -> Tensor:
    """Conjugate gradients with a diagonal preconditioner, separately for each head."""
    solution, residual = torch.zeros_like(target), target.clone()
    scaled = scale * residual
    direction, norm = scaled.clone(), (residual * scaled).sum(0)
    tolerance = PRECISION**2 * norm
    for _ in range(MAX_STEPS):
        if bool((norm <= tolerance).all()):
            break
        image = matrix(direction)
        step = torch.where(norm > tolerance, norm / (direction * image).sum(0), 0)
        solution += step * direction
        residual -= step * image
        scaled = scale * residual
        norm, previous = (residual * scaled).sum(0), norm
        direction = scaled + torch.where(previous > 0, norm / previous, 0) * direction
    return solution
