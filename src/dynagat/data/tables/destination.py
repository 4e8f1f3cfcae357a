"""The destination of the arrays of a graph that is read: memory, or a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dynagat.data.arrays import Array
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes

NODE_BASE, EDGE_BASE, SPLIT_BASE = f"nodes/{NODE}", f"edges/{'__'.join(EDGE)}", "split"


class Rows(Protocol):
    """An array to which rows can be appended, in a file or in memory."""

    def append(self, rows: np.ndarray, /) -> None: ...


class Destination(Protocol):
    """Takes arrays by the names under which they are stored: arrays.Writer or Memory."""

    def add(self, name: str, array: Array) -> None: ...

    def grow(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> Rows: ...


@dataclass(eq=False)
class GrowingArray:
    """An array in memory that grows, without a copy where the system can move its pages."""

    array: np.ndarray

    @classmethod
    def empty(cls, dtype: Any, row_shape: tuple[int, ...] = ()) -> GrowingArray:
        return cls(np.empty((0, *row_shape), dtype))

    def append(self, rows: np.ndarray) -> None:
        count = len(self.array)
        self.array.resize((count + len(rows), *self.array.shape[1:]), refcheck=False)
        self.array[count:] = rows


@dataclass
class Memory:
    """Arrays in memory, by the names under which they would be stored."""

    growing: dict[str, GrowingArray] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)

    def grow(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> GrowingArray:
        self.growing[name] = GrowingArray.empty(dtype, row_shape)
        return self.growing[name]

    def add(self, name: str, array: Array) -> None:
        self.arrays[name] = array

    def graph(self, name: str, num_nodes: int, about: dict[str, Any]) -> GraphData:
        nodes, edges, split = map(self._below, (NODE_BASE, EDGE_BASE, SPLIT_BASE))
        ends = edges.pop("key_index"), edges.pop("query_index")
        kinds = {NODE: Nodes(num_nodes, nodes)}, {EDGE: Edges(*ends, edges)}
        return GraphData(name, *kinds, split, about)

    def _below(self, base: str) -> dict[str, Any]:
        arrays = self.arrays | {name: each.array for name, each in self.growing.items()}
        start = f"{base}/"
        return {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}
