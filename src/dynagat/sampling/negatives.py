"""Negatives: random pairs of nodes that a loader adds to the links of a batch, as in PyG.

A random pair may be a link by chance; PyG does not exclude those either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagat.sampling.draw import random_nodes

MODES = ("binary", "triplet")
FIELDS = ("mode", "amount", "src_weight", "dst_weight")  # of PyG's NegativeSampling, in its order


@dataclass(frozen=True)
class Negatives:
    """⌈amount · links⌉ pairs of nodes.

    Both nodes are random if binary. If triplet, each link gets `amount` random second nodes.
    """

    mode: str = "binary"
    amount: float = 1

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(
                f"neg_sampling must have the mode 'binary' or 'triplet', but has {self.mode!r}"
            )
        _check_amount(self.amount, "amount of neg_sampling")
        if self.is_triplet and self.amount != math.ceil(self.amount):
            raise ValueError(
                f"amount of neg_sampling must be an integer for triplets, but is {self.amount}"
            )

    @property
    def is_triplet(self) -> bool:
        return self.mode == "triplet"

    def draw(self, links: np.ndarray, num_nodes: int, seed: int) -> np.ndarray:
        """[2, negatives] for links [2, n]; those of one link follow each other if triplet."""
        count = math.ceil(links.shape[1] * self.amount)
        second = random_nodes(count, num_nodes, seed, 1)
        if self.is_triplet:
            return np.stack([np.repeat(links[0], int(self.amount)), second])
        return np.stack([random_nodes(count, num_nodes, seed, 0), second])


def read_negatives(neg_sampling: Any, ratio: float | None) -> Negatives | None:
    """From PyG's two arguments; as in PyG, a ratio of 0 means no negatives."""
    if ratio is not None and ratio != 0:
        if neg_sampling is not None:
            raise ValueError("neg_sampling and neg_sampling_ratio must not both be given, but are")
        _check_amount(ratio, "neg_sampling_ratio")
        return Negatives("binary", ratio)
    if neg_sampling is None:
        return None
    fields = _read_fields(neg_sampling)
    for name in ("src_weight", "dst_weight"):
        if fields.pop(name, None) is not None:
            raise ValueError(f"{name} of neg_sampling must be None: negatives are drawn uniformly")
    fields["mode"] = getattr(fields.get("mode"), "value", fields.get("mode"))  # PyG's enumeration
    return Negatives(**fields)


def _read_fields(neg_sampling: Any) -> dict[str, Any]:
    """By name, from a mode, a tuple, a mapping or PyG's NegativeSampling."""
    if isinstance(neg_sampling, Mapping):
        unknown = [name for name in neg_sampling if name not in FIELDS]
        if unknown:
            raise ValueError(
                f"neg_sampling must only have {', '.join(FIELDS)}, but has {unknown[0]!r}"
            )
        return dict(neg_sampling)
    if isinstance(neg_sampling, tuple):
        return dict(zip(FIELDS, neg_sampling, strict=False))
    if hasattr(neg_sampling, "amount"):
        return {name: getattr(neg_sampling, name) for name in FIELDS}
    return {"mode": neg_sampling}


def _check_amount(amount: Any, name: str) -> None:
    is_number = isinstance(amount, int | float | np.number) and not isinstance(amount, bool)
    if not is_number or not 0 < amount < math.inf:
        raise ValueError(f"{name} must be a number above 0, but is {amount!r}")
