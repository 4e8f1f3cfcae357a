"""Released: a trained model of the paper's released code, in a network of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from dynagat.prediction.prediction import Prediction


@dataclass(frozen=True, eq=False)
class Released:
    """What a benchmark reads from a checkpoint of the released code."""

    mechanism: str
    heads: int
    network: nn.Module
    prediction: Prediction  # the graphs that the checkpoint was trained and tested on
    settings: Mapping[str, object] = field(default_factory=dict)  # for the title: {"k": 10}
    notes: tuple[str, ...] = ()  # sentences
