"""What guesses reach that need no network: chance, the name used most, the nearest name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from dynagat.data.programs.records import NOWHERE

Evidence = Mapping[str, np.ndarray]

GUESSES: dict[str, Callable[[Evidence], np.ndarray]] = {
    "chance": lambda evidence: np.zeros(len(evidence["candidates"])),
    "most used name": lambda evidence: evidence["uses"],
    "nearest name": lambda evidence: -_reached(evidence["distance"]),
}


def baselines(evidence: Iterable[Evidence]) -> dict[str, float]:
    """The accuracy of each guess: the candidate with the most in its favour, at random if several.

    The right candidate is the first.
    """
    hits = [[expected_hit(guess(each)) for guess in GUESSES.values()] for each in evidence]
    return dict(zip(GUESSES, np.mean(hits, axis=0).tolist(), strict=True))


def expected_hit(favour: np.ndarray) -> float:
    """Probability that the first is drawn from those with the highest value."""
    best = favour == favour.max()
    return float(best[0] / best.sum())


def _reached(distance: np.ndarray) -> np.ndarray:
    """A name that is nowhere is farther than all others."""
    return np.where(distance == NOWHERE, np.iinfo(np.int64).max, distance)
