"""read_released: a checkpoint of the authors' code in our network, on the graphs of its seed, 11.

The file is a dict with the state dict `model` and the options `args`: an argparse.Namespace that
also holds members of three Enums of a module `common`. Only these and tensors are read from it, so
no code of the file is ever run. Parameters have the names of PyG 1.7 or of later versions.
"""

from __future__ import annotations

import argparse
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from dynagat.experiment.benchmark import Settings
from dynagat.experiment.released import Released
from dynagat.experiment.settings import with_values
from dynagat.nn.convert import convert

NAMES = {
    "layer0_keys.": "attribute.",
    "layer0_values.": "value.",
    "layers.0.": "layer.",
    "out_layer.": "out.",
}
MECHANISMS = {3: "gat", 4: "gatv2"}  # of GNN_TYPE; 1 is GCN and 2 is GIN
UNUSED = ("use_layer_norm", "use_activation", "use_residual")  # off in all released files


class Member:
    """In place of an Enum's member, which is stored as its value."""

    def __init__(self, value: int) -> None:
        self.value = value


class Task(Member):
    pass


class GnnType(Member):
    pass


class Stop(Member):
    pass


SAFE = [
    argparse.Namespace,
    (Task, "common.Task"),
    (GnnType, "common.GNN_TYPE"),
    (Stop, "common.STOP"),
]


def read_released(path: Path, base: Settings) -> Released:
    """The model of the file, without dropout; a ValueError says in a sentence what is wrong.

    `base` has the released code's settings, which the file's options complete.
    """
    saved = _load(path)
    args, state = saved.get("args"), saved.get("model")
    if not isinstance(args, argparse.Namespace) or not _is_state(state):
        raise ValueError(f"{path} must hold a state dict `model` and options `args`, as {_FILES}")
    options = _options(args, path)
    mechanism = MECHANISMS.get(options["type"], "")
    if not mechanism:
        known = " or ".join(f"{number} ({name})" for number, name in MECHANISMS.items())
        raise ValueError(f"{path}: type must be {known}, but is {options['type']}")
    try:
        settings = _settings(base, mechanism, options, "layers.0.bias" in state)
        problem = settings.data.load(0)  # of seed 11, whatever this one is
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    with torch.random.fork_rng(devices=[]):
        network = settings.network.build(problem, mechanism)
    prediction = settings.task.prepare(problem, settings.schedule)
    _load_state(network, state, path)
    parts = {part: prediction.score(network, part) for part in ("train", "test")}
    accuracy = ", ".join(f"{part} {100 * value:.2f}%" for part, value in parts.items())
    note = f"accuracy on the graphs of seed 11, without dropout: {accuracy}"
    sizes = {"k": options["size"]}
    return Released(mechanism, options["num_heads"], network, prediction, sizes, (note,))


_FILES = "the released DictionaryLookup files do"


def _load(path: Path) -> Mapping[str, Any]:
    try:
        with torch.serialization.safe_globals(SAFE):
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror or error}") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        lines = str(error).splitlines() or ["it is truncated"]
        reason = next((line for line in lines if "Unsupported" in line), lines[0]).strip()
        raise ValueError(f"{path} is not a checkpoint as {_FILES}: {reason}") from None
    if not isinstance(saved, Mapping):
        kind = type(saved).__name__
        raise ValueError(f"{path} must hold a dict, as {_FILES}, but holds a {kind}")
    return saved


def _is_state(state: Any) -> TypeGuard[Mapping[str, Tensor]]:
    return isinstance(state, Mapping) and all(isinstance(v, Tensor) for v in state.values())


def _options(args: argparse.Namespace, path: Path) -> dict[str, int]:
    """The options that determine the network."""
    values = vars(args)
    options: dict[str, int] = {}
    for name in ("size", "dim", "num_heads", "num_layers", "type"):
        value = values.get(name)
        value = value.value if isinstance(value, Member) else value
        if type(value) is not int or value < 1:
            raise ValueError(f"{path}: option {name} must be a positive number, but is {value!r}")
        options[name] = value
    if options["num_layers"] != 1:
        raise ValueError(f"{path}: num_layers must be 1, but is {options['num_layers']}")
    for name in UNUSED:
        if values.get(name):
            raise ValueError(f"{path}: {name} must be off, as in the released files, but is on")
    return options


def _settings(
    base: Settings, mechanism: str, options: Mapping[str, int], has_bias: bool
) -> Settings:
    news: dict[str, object] = {
        "data.k": options["size"],
        "network.dim": options["dim"],
        "network.heads": options["num_heads"],
        "network.bias": (mechanism,) if has_bias else (),
        "network.dropout": 0.0,
        "network.always_drop": False,
    }
    return with_values(base, news)


def _load_state(network: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    renamed = {}
    for name, value in state.items():
        start = next((old for old in NAMES if name.startswith(old)), None)
        renamed[name if start is None else NAMES[start] + name[len(start) :]] = value
    try:
        network.load_state_dict(convert(renamed, network))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path} does not fit its own options: {reason}") from None
