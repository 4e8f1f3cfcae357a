"""dynagat: graph attention layers with fused kernels, and the means to see how attentive they are.

Shapes are written in five letters: N nodes, E edges, H heads, C channels per head, R relations;
`*` stands for any number of leading batch axes. The query is the node that attends, i; the key is
the neighbour it attends to, j.
"""

from importlib.metadata import PackageNotFoundError, version

from dynagat.analysis.attentive import how_attentive, measure
from dynagat.analysis.capture import capture
from dynagat.graph import Graph
from dynagat.nn import DPGATConv, GATConv, GATv2Conv
from dynagat.nn.accelerate import accelerate
from dynagat.nn.convert import convert

try:
    __version__ = version("dynagat")
except PackageNotFoundError:  # run from the source tree
    __version__ = "0+unknown"

__all__ = ["DPGATConv", "GATConv", "GATv2Conv", "Graph", "accelerate", "capture", "convert"]
__all__ += ["how_attentive", "measure"]
