"""Nodes and Edges: the arrays of one type of nodes, and of one relation between two types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from dynagat.data.arrays import Array

NODE = "node"  # type of the nodes of a graph that has only one type
SPLITS = ("train", "valid", "test")

EdgeType = tuple[str, str, str]  # key, relation, query: PyG's source, relation, target
EDGE: EdgeType = (NODE, "to", NODE)  # type of the edges of a graph that has only one type


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of one type. Each array has a row per node: x features, y targets, id names."""

    count: int
    arrays: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of one relation. Each array has a row per edge: attr features, weight, year."""

    key_index: np.ndarray  # [E] int32 or int64: the neighbour attended to, PyG's source
    query_index: np.ndarray  # [E]: the node that attends, PyG's target
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.key_index)


def tensor(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor that shares its memory.

    An array that is read-only or has negative strides is copied, since torch does not support it.
    """
    usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if usable else array.copy())
