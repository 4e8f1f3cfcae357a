"""Scores of links without a network, from the training links alone. N(i) are neighbours of node i:

common neighbours          |N(i) ∩ N(j)|
Adamic-Adar                Σ 1 / log |N(k)| over the common neighbours k
preferential attachment    |N(i)| · |N(j)|
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynagat.comparison.baselines import PARTS, Baseline
from dynagat.prediction.links import LinkPrediction, LinkProblem

PAIRS = 1 << 16  # scored at once

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]


def link_baselines(prediction: LinkPrediction, seeds: Sequence[int]) -> list[Baseline]:
    """All of them; none if each link has negatives of its own. They need no seed."""
    problem = prediction.problem
    if problem.per_source:
        return []
    results = []
    for name, score in _scores(problem).items():
        values = {part: _value(problem, part, score) for part in PARTS}
        by_seed = {part: dict.fromkeys(seeds, value) for part, value in values.items()}
        results.append(Baseline(name, "edges", problem.metric, by_seed))
    return results


def _value(problem: LinkProblem, part: str, score: Score) -> float:
    links = problem.links[part]
    pairs = torch.cat([links, problem.non_links.get(part, problem.non_links["valid"])])
    target = (torch.arange(len(pairs)) < len(links)).float()
    return problem.metric.function(_score(pairs, score), target)


def _score(pairs: Tensor, score: Score) -> Tensor:
    """[P]"""
    parts = [score(*some.numpy().T) for some in pairs.split(PAIRS)]
    return torch.from_numpy(np.concatenate(parts).astype(np.float64))


def _scores(problem: LinkProblem) -> dict[str, Score]:
    adjacency = _adjacency(problem)
    degree = np.asarray(adjacency.sum(1)).ravel()
    weighted = adjacency.copy()
    weighted.data = (1 / np.log(np.maximum(degree, 2)))[adjacency.indices]

    def shared(matrix: Any) -> Score:
        return lambda i, j: np.asarray(matrix[i].multiply(adjacency[j]).sum(1)).ravel()

    return {
        "common neighbours": shared(adjacency),
        "Adamic-Adar": shared(weighted),
        "preferential attachment": lambda i, j: degree[i] * degree[j],
    }


def _adjacency(problem: LinkProblem) -> Any:
    """[N, N] of the training links, in both directions."""
    from scipy import sparse

    query, key = problem.edges.query_index.numpy(), problem.edges.key_index.numpy()
    shape = (len(problem.x), len(problem.x))
    is_link = query != key
    query, key = query[is_link], key[is_link]
    ends = np.concatenate([query, key]), np.concatenate([key, query])
    matrix = sparse.csr_array((np.ones(len(ends[0])), ends), shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
