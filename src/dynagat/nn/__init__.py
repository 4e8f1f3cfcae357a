"""The layers GATConv, GATv2Conv and DPGATConv, drop-in for PyG's."""

from dynagat.nn.core import GraphAttention
from dynagat.nn.dpgat import DPGATConv
from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv

__all__ = ["DPGATConv", "GATConv", "GATv2Conv", "GraphAttention"]
