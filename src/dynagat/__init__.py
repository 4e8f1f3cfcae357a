"""dynagat: graph attention layers with fused kernels, and tools to measure how attentive they are.

Shapes use five letters: N nodes, E edges, H heads, C channels per head, R relations; `*` stands for
any number of leading batch axes. The query i is the node that attends; the key j is the neighbour
it attends to.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import dynagat.waiting  # noqa: F401  (before torch is imported)
from dynagat.analysis.attentive import how_attentive, measure
from dynagat.analysis.capture import capture
from dynagat.graph import Graph
from dynagat.nn import DPGATConv, GATConv, GATv2Conv
from dynagat.nn.accelerate import accelerate
from dynagat.nn.convert import convert
from dynagat.nn.dropout import Dropout, dropout

if TYPE_CHECKING:
    from dynagat import data
    from dynagat.comparison import compare, load_model

try:
    __version__ = version("dynagat")
except PackageNotFoundError:  # run from the source tree
    __version__ = "0+unknown"

__all__ = ["DPGATConv", "Dropout", "GATConv", "GATv2Conv", "Graph", "accelerate", "capture"]
__all__ += ["compare", "convert", "data", "dropout", "how_attentive", "load_model", "measure"]

# Imported on first use: they are slow to import or need more than torch and numpy.
_LAZY = {"compare": "comparison", "load_model": "comparison", "data": None}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dynagat' has no attribute {name!r}")
    module = _LAZY[name]
    try:
        loaded = import_module(f"dynagat.{module or name}")
    except ModuleNotFoundError as error:
        if (error.name or "dynagat").startswith("dynagat"):
            raise
        message = f"dynagat.{name} needs {error.name}; pip install 'dynagat[suite]' installs it"
        raise ModuleNotFoundError(message, name=error.name) from error
    return getattr(loaded, name) if module else loaded
