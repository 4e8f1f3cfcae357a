"""sampling: parts of a graph, drawn at random or taken in turn, the same for any thread count."""

from dynagat.sampling.batch import Batch
from dynagat.sampling.inference import infer
from dynagat.sampling.neighbours import NeighborLoader
from dynagat.sampling.rows import Neighbours
from dynagat.sampling.saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
)

__all__ = ["Batch", "GraphSAINTEdgeSampler", "GraphSAINTNodeSampler"]
__all__ += ["GraphSAINTRandomWalkSampler", "NeighborLoader", "Neighbours", "infer"]
