"""DictionaryLookup (section 4.1): in each graph k queries look up the values that k keys hold.

A graph is a bijection from attributes to values, so a data set is an array of permutations: key j
of a graph holds the value permutation[j], and query i must predict permutation[i].
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import numpy as np

SPLITS = ("pairs", "random")


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Graphs of k queries and k keys, for training, validation and test."""

    k: int
    train: np.ndarray  # [graphs, k] int64: the value of each key
    valid: np.ndarray
    test: np.ndarray
    held_out: np.ndarray  # [pairs, 2]: (attribute, value) pairs that no training graph has


def make_dictionary(
    k: int,
    *,
    seed: int,
    num_graphs: int = 32_000,
    split: str = "pairs",
    train_share: float = 0.8,
    valid_share: float = 0.5,
    valid_pairs: str = "shared",
) -> Dictionary:
    """All k! permutations, or `num_graphs` random ones if there are more than that.

    Args:
        k: number of attributes, and of values.
        seed: of both random generators; 11 gives the released code's graphs and pairs.
        num_graphs: maximum number of graphs.
        split: "pairs": a graph is a training graph if all its (attribute, value) pairs are among
            the ⌊train_share^(1/k) k²⌋ allowed ones, so every other graph has a pair never seen in
            training. "random": training graphs are drawn at random.
        train_share: expected fraction of training graphs.
        valid_share: fraction of the other graphs that are for validation; the rest are for test.
            At 0 the test graphs are also the validation graphs, as in the released code and where
            there is only one other graph (k = 2). At k = 1 the only graph is in all parts.
        valid_pairs: "own": of the pairs that no training graph has, and which are at least two,
            `valid_share` are for validation graphs and the others for test graphs; graphs with
            pairs of both kinds are left out. "shared", and always at k = 2: the other graphs are
            divided at random.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, but is {split!r}")
    graphs = _permutations(k, num_graphs, np.random.RandomState(seed))
    if split == "pairs" and valid_pairs == "own" and valid_share and k > 2:
        return _with_own_pairs(graphs, k, seed, train_share, valid_share)
    if split == "pairs":
        allowed = _allowed_pairs(k, train_share, random.Random(seed))  # [k, k]
        is_train = allowed[np.arange(k), graphs].all(axis=1)
    else:
        allowed = np.ones((k, k), dtype=bool)
        is_train = _pick_share(graphs, train_share, seed)
    if k == 1:
        return Dictionary(k, graphs, graphs, graphs, np.argwhere(~allowed))
    others = graphs[~is_train]
    if valid_share == 0 or len(others) < 2:
        valid = test = others
    else:
        is_valid = _pick_share(others, valid_share, seed)
        valid, test = others[is_valid], others[~is_valid]
    return Dictionary(k, graphs[is_train], valid, test, np.argwhere(~allowed))


def _with_own_pairs(
    graphs: np.ndarray, k: int, seed: int, train_share: float, valid_share: float
) -> Dictionary:
    pick = random.Random(seed)
    held_out = np.argwhere(~_allowed_pairs(k, train_share, pick, most=k * k - 2))
    pick.shuffle(order := list(range(len(held_out))))
    num_valid = min(max(1, int(valid_share * len(held_out))), len(held_out) - 1)
    has_valid, has_test = (
        (graphs[:, held_out[some, 0]] == held_out[some, 1]).any(axis=1)
        for some in (order[:num_valid], order[num_valid:])
    )
    parts = ~has_valid & ~has_test, has_valid & ~has_test, has_test & ~has_valid
    train, valid, test = (graphs[part] for part in parts)
    return Dictionary(k, train, valid, test, held_out)


def _pick_share(graphs: np.ndarray, share: float, seed: int) -> np.ndarray:
    """[graphs] of booleans. Equal graphs stay together, so that none is on both sides."""
    rows = list(map(tuple, graphs.tolist()))
    distinct = list(dict.fromkeys(rows))
    order = np.random.RandomState(seed).permutation(len(distinct))
    picked = {distinct[index] for index in order[: int(share * len(distinct))]}
    return np.array([row in picked for row in rows], dtype=bool)


def _permutations(k: int, num_graphs: int, generator: np.random.RandomState) -> np.ndarray:
    if math.factorial(k) <= num_graphs:
        return np.array(list(itertools.permutations(range(k))), dtype=np.int64)
    return np.stack([generator.permutation(k) for _ in range(num_graphs)])


def _allowed_pairs(
    k: int, train_share: float, pick: random.Random, most: int | None = None
) -> np.ndarray:
    """[k, k] of booleans: about `train_share` of all permutations use only these pairs."""
    num_allowed = int(train_share ** (1 / k) * k * k)
    num_allowed = num_allowed if most is None else min(num_allowed, most)
    allowed = np.zeros((k, k), dtype=bool)
    for attribute, value in pick.sample(list(itertools.product(range(k), repeat=2)), num_allowed):
        allowed[attribute, value] = True
    return allowed
