"""The layers GATConv, GATv2Conv and DPGATConv, drop-in for PyG's, and Tail, what follows them."""

from dynagat.nn.core import GraphAttention
from dynagat.nn.dpgat import DPGATConv
from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv
from dynagat.nn.tail import Tail

__all__ = ["DPGATConv", "GATConv", "GATv2Conv", "GraphAttention", "Tail"]
