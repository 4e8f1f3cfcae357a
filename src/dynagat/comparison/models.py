"""load_model, model_of: the model of a saved folder, or of a run, for nodes or for molecules."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagat.comparison.model import FILE_NAMES, KIND, Model
from dynagat.comparison.molecule_model import MoleculeModel
from dynagat.comparison.node_model import NodeModel
from dynagat.comparison.subject import MOLECULES, NODES, subject_of
from dynagat.data import arrays as folders
from dynagat.data.arrays import FolderError
from dynagat.data.store import GraphData, tensor
from dynagat.experiment import Record
from dynagat.experiment.settings import restored


def load_model(folder: Path | str) -> NodeModel | MoleculeModel:
    """The model that was saved in a folder."""
    arrays, about = folders.read_folder(folder, KIND, verify=True)
    try:
        values = dict(about)
        for name, stored in FILE_NAMES.items():
            values[name] = values.pop(stored)
        subject, kind = (MOLECULES, MoleculeModel) if "smiles" in values else (NODES, NodeModel)
        settings = restored(subject.benchmark.network, values.pop("settings"))
        network = _network(settings, values["mechanism"], values["in_dim"], values["task"])
        weights = {name.removeprefix("weights/"): each for name, each in arrays.items()}
        network.load_state_dict({name: tensor(np.asarray(each)) for name, each in weights.items()})
        return kind(network=network, settings=settings, **values)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"{folder} was altered: it is no model of this dynagat ({error})"
        raise FolderError(message) from None


def model_of(record: Record, weights: bytes, data: GraphData) -> Model:
    """The network of a run on stored data, with the metadata of the data."""
    subject = subject_of(data)
    kind = MoleculeModel if subject is MOLECULES else NodeModel
    settings = subject.benchmark.as_recorded(record).settings
    seen = kind.seen(data, settings.data)
    network = _network(settings.network, record.mechanism, seen["in_dim"], data.task)
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return kind(
        network=network,
        mechanism=record.mechanism,
        settings=settings.network,
        task=dict(data.task),
        result=dict(record.metrics),
        **seen,
    )


def _network(settings: Any, mechanism: str, in_dim: int, task: Mapping[str, Any]) -> nn.Module:
    out_dim = 1 if task["kind"] == "regression" else len(task["classes"])
    return settings.with_widths(mechanism, in_dim, out_dim)
