"""Predictions of a model for every node, with probabilities, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynagat.files import write_through


@dataclass(frozen=True, eq=False)
class Predictions:
    """One row per node.

    Classification: `value` holds class names, `probability` [N, classes] one column for each.
    Multilabel: `value` [N, labels] of booleans, `probability` likewise. Regression: `value` [N].
    """

    id: Any  # one per row
    value: np.ndarray
    probability: np.ndarray | None
    classes: tuple[str, ...]
    target: str
    id_name: str = "id"  # of the column in the table of nodes

    @classmethod
    def of(
        cls,
        out: Tensor,
        task: Mapping[str, Any],
        ids: Any,  # one per row, or None
        mean: float,
        std: float,
        id_name: str = "id",
    ) -> Predictions:
        names = tuple(str(each) for each in task.get("classes") or ())
        ids = range(len(out)) if ids is None else ids
        target = str(task.get("target") or "target")
        if task["kind"] == "regression":
            value = (out[:, 0].double() * std + mean).numpy()
            return cls(ids, value, None, (), target, id_name)
        if task["kind"] == "multilabel":
            probability = torch.sigmoid(out.double()).numpy()
            return cls(ids, probability > 0.5, probability, names, target, id_name)
        probability = torch.softmax(out.double(), dim=-1).numpy()
        value = np.array(names, dtype=object)[probability.argmax(-1)]
        return cls(ids, value, probability, names, target, id_name)

    def __len__(self) -> int:
        return len(self.value)

    def to_pandas(self) -> Any:
        """Columns: the id, named as in the table; the target, or each label; then the probability
        of each class."""
        import pandas

        columns: dict[str, Any] = {self.id_name: list(self.id)}
        probabilities = {}
        if self.probability is not None:
            names = [f"probability of {name}" for name in self.classes]
            probabilities = dict(zip(names, self.probability.T, strict=True))
        many = self.value.ndim == 2
        values = (
            zip(self.classes, self.value.T, strict=True) if many else [(self.target, self.value)]
        )
        for name, value in values:
            is_taken = name in columns or name in probabilities
            columns[f"{name} (predicted)" if is_taken else name] = value
        return pandas.DataFrame(columns | probabilities)

    def save(self, path: Path | str) -> Path:
        """Write Parquet or CSV, by the ending of the path, whole or not at all."""
        return _save(self.to_pandas(), Path(path))


@dataclass(frozen=True, eq=False)
class LinkScores:
    """One row per pair of nodes."""

    ends: tuple[str, str]  # names of the columns of nodes
    first: list[Any]  # ids
    second: list[Any]
    score: np.ndarray  # [P], 0 to 1
    linked: np.ndarray  # [P] bool: whether the link is known already

    def __len__(self) -> int:
        return len(self.score)

    def to_pandas(self) -> Any:
        """Columns: the two nodes, named as in the table of edges; score; linked."""
        import pandas

        ends = dict(zip(self.ends, (self.first, self.second), strict=True))
        return pandas.DataFrame(ends | {"score": self.score, "linked": self.linked})

    def to_dict(self) -> list[dict[str, Any]]:
        """A dictionary for each pair, for JSON."""
        rows = zip(self.first, self.second, self.score.tolist(), self.linked.tolist(), strict=True)
        names = (*self.ends, "score", "linked")
        return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]

    def save(self, path: Path | str) -> Path:
        """Write Parquet or CSV, by the ending of the path, whole or not at all."""
        return _save(self.to_pandas(), Path(path))

    def __str__(self) -> str:
        return self.to_pandas().to_string(index=False)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _save(table: Any, path: Path) -> Path:
    writers = {
        ".parquet": lambda file: table.to_parquet(file, index=False),
        ".csv": lambda file: table.to_csv(file, index=False),
    }
    if path.suffix.lower() not in writers:
        raise ValueError(f"predictions must go to .parquet or .csv, but {path} is neither")
    write_through(path, writers[path.suffix.lower()])
    return path
