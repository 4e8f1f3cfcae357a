"""Model: a trained network with everything needed to apply it to other data; saved as a folder of
plain arrays and JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from dynagat.data import arrays as folders
from dynagat.data.store import GraphData
from dynagat.experiment.record import plain
from dynagat.placement import device_of
from dynagat.prediction.prediction import MicroscopeInput

M = TypeVar("M", bound="Model")
KIND = "model"
FILE_NAMES = {"target_mean": "centre", "target_std": "spread"}  # in the folder's JSON


@dataclass(frozen=True, eq=False, kw_only=True)
class Model(ABC):
    """Abstract. predict returns predictions for nodes, molecules or links."""

    network: nn.Module
    mechanism: str
    settings: Any  # of the network
    in_dim: int
    task: Mapping[str, Any]  # GraphData's: kind, target, classes
    target_mean: float = 0.0  # of regression targets
    target_std: float = 1.0
    result: Mapping[str, float | None] | None = None  # its metrics in training

    def to(self: M, device: torch.device | str) -> M:
        """The same model, whose network computes on a device from now on; moved in place."""
        self.network.to(device)
        return self

    @property
    def device(self) -> torch.device:
        return device_of(self.network)

    @abstractmethod
    def predict(self, data: Any, /) -> Any:
        """Predict for each row."""

    @abstractmethod
    def microscope_input(self, data: GraphData) -> MicroscopeInput:
        """What the microscope runs the network on, of the data it was trained on."""

    @classmethod
    def make_network(cls, settings: Any, mechanism: str, values: Mapping[str, Any]) -> nn.Module:
        """A network with new weights, for a model with these other values."""
        task = values["task"]
        out_dim = 1 if task["kind"] == "regression" else len(task["classes"])
        return settings.with_widths(mechanism, values["in_dim"], out_dim)

    @property
    def arrays(self) -> dict[str, Any]:
        """Fields that are stored as arrays."""
        return {}

    def save(self, folder: Path | str, *, replace: bool = False) -> Path:
        """Write it as a folder, whole or not at all."""
        arrays, names = self.arrays, [each.name for each in fields(self)]
        odd = {"network", "settings", "ids", "x", "links"}
        simple = [name for name in names if name not in odd]
        with folders.write_folder(folder, KIND, replace=replace) as writer:
            for name, value in self.network.state_dict().items():
                writer.add(f"weights/{name}", value.cpu().numpy())
            for name, value in arrays.items():
                writer.add(f"graph/{name}", value)
            writer.about = {FILE_NAMES.get(name, name): plain(getattr(self, name))
                            for name in simple}  # fmt: skip
            writer.about["settings"] = asdict(self.settings)
        return Path(folder)
