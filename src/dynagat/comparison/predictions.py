"""Predictions: what a model says of every node, with probabilities, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


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

    @classmethod
    def of(
        cls,
        out: Tensor,
        task: Mapping[str, Any],
        ids: Any,  # one per row, or None
        centre: float,
        spread: float,
    ) -> Predictions:
        names = tuple(str(each) for each in task.get("classes") or ())
        ids = range(len(out)) if ids is None else ids
        target = str(task.get("target") or "target")
        if task["kind"] == "regression":
            value = (out[:, 0].double() * spread + centre).numpy()
            return cls(ids, value, None, (), target)
        if task["kind"] == "multilabel":
            likely = torch.sigmoid(out.double()).numpy()
            return cls(ids, likely > 0.5, likely, names, target)
        likely = torch.softmax(out.double(), dim=-1).numpy()
        return cls(ids, np.array(names, dtype=object)[likely.argmax(-1)], likely, names, target)

    def __len__(self) -> int:
        return len(self.value)

    def to_pandas(self) -> Any:
        """id; the target, or a column of each label; then a probability of each class."""
        import pandas

        columns: dict[str, Any] = {"id": list(self.id)}
        likely = {}
        if self.probability is not None:
            names = [f"probability of {name}" for name in self.classes]
            likely = dict(zip(names, self.probability.T, strict=True))
        many = self.value.ndim == 2
        values = (
            zip(self.classes, self.value.T, strict=True) if many else [(self.target, self.value)]
        )
        for name, value in values:
            is_taken = name in columns or name in likely
            columns[f"{name} (predicted)" if is_taken else name] = value
        return pandas.DataFrame(columns | likely)

    def save(self, path: Path | str) -> Path:
        """As Parquet or CSV, by the path's ending; whole or not at all."""
        from dynagat.files import write_through

        path = Path(path)
        table = self.to_pandas()
        writers = {
            ".parquet": lambda file: table.to_parquet(file, index=False),
            ".csv": lambda file: table.to_csv(file, index=False),
        }
        if path.suffix.lower() not in writers:
            raise ValueError(f"predictions must go to .parquet or .csv, but {path} is neither")
        write_through(path, writers[path.suffix.lower()])
        return path
