"""Read a Python file that defines `model` and `data`, and optional arguments of how_attentive."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from torch import nn

OPTIONAL = ("labels", "noise", "relations", "call", "names")


def read_exposed(path: Path | str) -> dict[str, Any]:
    """`model`, `data`, and those of OPTIONAL that the file defines."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    variables = _run(path)
    for name in ("model", "data"):
        if variables.get(name) is None:
            raise ValueError(f"{path} must define {name}, but does not")
    if not isinstance(variables["model"], nn.Module):
        kind = type(variables["model"]).__name__
        raise ValueError(f"model in {path} must be a torch.nn.Module, but is a {kind}")
    return {name: variables[name] for name in ("model", "data", *OPTIONAL) if name in variables}


def _run(path: Path) -> dict[str, Any]:
    """Run the file like `python path`, but not as __main__; it can import files next to it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name="inspected")
    except Exception as error:  # the file may raise anything
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__)
                 if Path(each.filename) == path]  # fmt: skip
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
