"""The split of the nodes into training, validation and test: by a column, or at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynagat.data.store import SPLITS
from dynagat.data.tables.csv_lines import TableError
from dynagat.data.tables.targets import Coded, Target

Split = dict[str, np.ndarray]  # "train", "valid", "test": sorted node indices, int64
WORDS = {"train": 0, "training": 0, "valid": 1, "val": 1, "validation": 1, "test": 2, "testing": 2}


def split_by_column(column: Coded, target: Target) -> Split:
    """The split in a column. Unlabelled nodes and those with an empty cell are in no part."""
    texts = column.texts.to_pylist()
    for text in texts:
        if text.lower() not in WORDS:
            raise column.error(text, "must hold train, valid or test")
    parts = np.array([WORDS[text.lower()] for text in texts], np.int8)
    part = column.expand(parts, -1) if len(parts) else np.full(len(column.codes), -1, np.int8)
    split = parts_of(np.where(target.labelled, part, -1))
    if not len(split["train"]):
        raise TableError(
            f"{column.file.path}: column {column.name!r} must hold train for at least one row "
            "with a target, but does not"
        )
    return split


def split_at_random(target: Target, shares: Sequence[float], seed: int) -> Split:
    """A random split with these fractions, stratified by class.

    Each class has at least one training row. Several labels per node are not stratified, but each
    label has at least one training row.
    """
    labelled = np.flatnonzero(target.labelled)
    group = target.y[labelled] if target.kind == "classification" else np.zeros_like(labelled)
    part = np.full(len(target.y), -1, np.int8)
    part[labelled] = stratified(group, shares, np.random.default_rng(seed))
    if target.kind == "multilabel":
        _train_every_label_(part, target.y)
    split = parts_of(part)
    for name in SPLITS:
        if not len(split[name]):
            raise TableError(
                f"{target.file.path}: {len(labelled)} labelled rows are too few to split: "
                f"none would be left for {name}"
            )
    return split


def check_shares(shares: Sequence[float]) -> None:
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares must be three positive numbers that sum to 1, but are {shares}")


def stratified(
    group: np.ndarray, shares: Sequence[float], generator: np.random.Generator
) -> np.ndarray:
    """The part of each row, 0 to 2, given its group.

    The rows of a group are shuffled and placed at even steps along [0, 1].
    The start of the steps is random, too, so that small groups do not all lack the same part.
    """
    shuffled = generator.permutation(len(group))
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    sizes = np.bincount(group)
    within = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    position = (within + np.repeat(generator.random(len(sizes)), sizes)) / np.repeat(sizes, sizes)
    part = np.searchsorted(np.cumsum(shares)[:2], position, side="right")
    part[within == 0] = 0
    parts = np.empty(len(group), np.int8)
    parts[order] = part
    return parts


def _train_every_label_(part: np.ndarray, y: np.ndarray) -> None:
    for label in range(y.shape[1]):
        has = np.flatnonzero(y[:, label] == 1)
        if len(has) and not (part[has] == 0).any():
            part[has[0]] = 0


def parts_of(part: np.ndarray) -> Split:
    """The rows of each part; those of part -1 are in none."""
    return {name: np.flatnonzero(part == n).astype(np.int64) for n, name in enumerate(SPLITS)}
