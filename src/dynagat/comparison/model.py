"""Model: a trained network with everything needed to apply it to other data; saved as a folder of
plain arrays and JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dynagat.comparison.predictions import Predictions
from dynagat.data import arrays as folders
from dynagat.data.store import GraphData
from dynagat.experiment.record import plain
from dynagat.prediction.prediction import MicroscopeInput

KIND = "model"
FILE_NAMES = {"target_mean": "centre", "target_std": "spread"}  # in the folder's JSON


@dataclass(frozen=True, eq=False, kw_only=True)
class Model(ABC):
    """Abstract. predict returns predictions for every node of a graph, or every molecule."""

    network: nn.Module
    mechanism: str
    settings: Any  # of the network
    in_dim: int
    task: Mapping[str, Any]  # GraphData's: kind, target, classes
    target_mean: float = 0.0  # of regression targets
    target_std: float = 1.0
    result: Mapping[str, float | None] | None = None  # its metrics in training

    @abstractmethod
    def predict(self, data: Any, /) -> Predictions:
        """Predict for each row."""

    @abstractmethod
    def outputs(self, data: GraphData) -> Tensor:
        """[rows, out]: output of the network."""

    @abstractmethod
    def microscope_input(self, data: GraphData) -> MicroscopeInput:
        """What the microscope runs the network on, of the data it was trained on."""

    def save(self, folder: Path | str, *, replace: bool = False) -> Path:
        """Write it as a folder, whole or not at all."""
        simple = [each.name for each in fields(self) if each.name not in ("network", "settings")]
        with folders.write_folder(folder, KIND, replace=replace) as writer:
            for name, value in self.network.state_dict().items():
                writer.add(f"weights/{name}", value.numpy())
            writer.about = {FILE_NAMES.get(name, name): plain(getattr(self, name))
                            for name in simple}  # fmt: skip
            writer.about["settings"] = asdict(self.settings)
        return Path(folder)
