"""load_model, model_of: the model of a saved folder, or of a run, for nodes, links or molecules."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dynagat.comparison.link_model import LinkModel
from dynagat.comparison.model import FILE_NAMES, KIND, Model
from dynagat.comparison.molecule_model import MoleculeModel
from dynagat.comparison.node_model import NodeModel
from dynagat.comparison.subject import LINKS, MOLECULES, NODES, Subject, subject_of
from dynagat.data import arrays as folders
from dynagat.data.arrays import FolderError
from dynagat.data.store import GraphData, tensor
from dynagat.experiment import Record
from dynagat.experiment.settings import restored

KINDS: dict[Subject, Any] = {NODES: NodeModel, MOLECULES: MoleculeModel, LINKS: LinkModel}


def load_model(folder: Path | str) -> NodeModel | MoleculeModel | LinkModel:
    """The model that was saved in a folder."""
    arrays, about = folders.read_folder(folder, KIND, verify=True)
    try:
        values = dict(about)
        for name, stored in FILE_NAMES.items():
            values[name] = values.pop(stored)
        subject, kind = _subject(values)
        values |= _below(arrays, "graph/")
        if kind is LinkModel:
            values |= {"x": values.get("x"), "ends": tuple(values["ends"])}
        settings = restored(subject.benchmark.network, values.pop("settings"))
        network = kind.make_network(settings, values["mechanism"], values)
        weights = _below(arrays, "weights/")
        network.load_state_dict({name: tensor(np.asarray(each)) for name, each in weights.items()})
        return kind(network=network, settings=settings, **values)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"{folder} was altered: it is no model of this dynagat ({error})"
        raise FolderError(message) from None


def model_of(record: Record, weights: bytes, data: GraphData) -> Model:
    """The network of a run on stored data, with the metadata of the data."""
    subject = subject_of(data)
    kind = KINDS[subject]
    settings = subject.benchmark.as_recorded(record).settings
    seen = kind.seen(data, settings.data)
    network = kind.make_network(settings.network, record.mechanism, {**seen, "task": data.task})
    network.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    return kind(
        network=network,
        mechanism=record.mechanism,
        settings=settings.network,
        task=dict(data.task),
        result=dict(record.metrics),
        **seen,
    )


def _subject(values: Mapping[str, Any]) -> tuple[Subject, Any]:
    """What a stored model is about, by what only such a model has."""
    subject = LINKS if "ends" in values else MOLECULES if "smiles" in values else NODES
    return subject, KINDS[subject]


def _below(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names start with a prefix, without it."""
    return {n.removeprefix(prefix): each for n, each in arrays.items() if n.startswith(prefix)}
