"""Run a model on PyG's Data, tensors, a tuple, a dict, or a loader that yields these."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from dynagat.analysis import pyg


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode within the block; afterwards every module has its old mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def parts(data: Any) -> Iterator[Any]:
    """The batches of a loader; anything else is a single batch."""
    is_list = isinstance(data, (tuple, list)) and not any(map(pyg.is_data, data))
    is_batch = is_list or isinstance(data, (Tensor, dict)) or pyg.is_data(data)
    if is_batch or not hasattr(data, "__iter__"):
        yield data
    else:
        yield from data


def has_ids(part: Any) -> bool:
    """Is it a sampled batch with the global ids of its nodes and edges?"""
    return pyg.is_data(part) and "n_id" in part and "e_id" in part


def run(model: nn.Module, data: Any) -> Any:
    """Call the model with the arguments that `data` provides."""
    if isinstance(data, (tuple, list)):
        return model(*data)
    if isinstance(data, dict):
        return model(**data)
    if not pyg.is_data(data):
        return model(data)
    parameters = inspect.signature(model.forward).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD
              and p.kind is not p.VAR_POSITIONAL]  # fmt: skip
    if len(needed) == 1 and (needed[0] in ("data", "batch") or not hasattr(data, needed[0])):
        return model(data)
    missing = [name for name in needed if _look_up(data, name) is None]
    if missing:
        raise ValueError(
            f"data has no {missing[0]!r}, which the model's forward requires; pass "
            "call=lambda model, data: model(...) to run it in another way"
        )
    optional = [p.name for p in parameters if p.name in ("edge_attr", "edge_attr_dict")]
    if any(getattr(module, "edge_dim", None) for module in model.modules()):
        extra = [name for name in optional if name not in needed]
        needed += [name for name in extra if _look_up(data, name) is not None]
    return model(**{name: getattr(data, name) for name in needed})


def _look_up(data: Any, name: str) -> Any:
    """An attribute of the data, or None."""
    try:
        return getattr(data, name, None)
    except KeyError:  # raised by HeteroData if no type has it
        return None


def labels_of(data: Any) -> Tensor | None:
    """`data.y` if it holds one class per node, else None."""
    if not pyg.is_data(data) or hasattr(data, "node_types"):
        return None
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor) or y.dim() != 1 or y.is_floating_point():
        return None
    return y if len(y) == data.num_nodes else None
