"""A Python file that exposes `model` and `data`, and may expose more that how_attentive takes."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from torch import nn

OPTIONAL = ("labels", "noise", "call", "names")


def read_exposed(path: Path | str) -> dict[str, Any]:
    """model, data, and of labels, noise, call and names what the file has."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    found = _run(path)
    for name in ("model", "data"):
        if found.get(name) is None:
            raise ValueError(f"{path} must expose {name}, what is to be inspected, but has none")
    if not isinstance(found["model"], nn.Module):
        kind = type(found["model"]).__name__
        raise ValueError(f"{path} must expose a torch.nn.Module as model, but it is a {kind}")
    return {name: found[name] for name in ("model", "data", *OPTIONAL) if name in found}


def _run(path: Path) -> dict[str, Any]:
    """As `python path` would, but not as the main program; its neighbours can be imported."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name="inspected")
    except Exception as error:  # whatever the file may raise
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__)
                 if Path(each.filename) == path]  # fmt: skip
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
