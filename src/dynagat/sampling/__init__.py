"""Loaders of sampled subgraphs and layer-wise inference; results don't depend on threads."""

from dynagat.group import Group
from dynagat.sampling.batch import Batch
from dynagat.sampling.inference import infer
from dynagat.sampling.links import LinkNeighborLoader
from dynagat.sampling.neighbours import NeighborLoader
from dynagat.sampling.rows import Neighbours
from dynagat.sampling.saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
)

__all__ = ["Batch", "GraphSAINTEdgeSampler", "GraphSAINTNodeSampler"]
__all__ += ["GraphSAINTRandomWalkSampler", "Group", "LinkNeighborLoader", "NeighborLoader"]
__all__ += ["Neighbours", "infer"]
