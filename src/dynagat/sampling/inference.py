"""infer: the exact output of a network for all nodes, layer by layer, in the memory of a batch.

Outputs of a layer that are larger than DYNAGAT_MEMORY are kept in unnamed files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dynagat.data.scratch import new_table
from dynagat.files import write_through
from dynagat.graph import Graph
from dynagat.group import ALONE, Group
from dynagat.placement import CPU, copied_ahead
from dynagat.sampling.ahead import work_ahead
from dynagat.sampling.batch import make_graph
from dynagat.sampling.draw import check_count, sample, take_rows
from dynagat.sampling.rows import Neighbours

Layer = Callable[[Tensor, Graph], Tensor]
Rows = Tensor | np.ndarray
RowsOf = Callable[[np.ndarray, int], Tensor]


@torch.no_grad()
def infer(
    layers: Sequence[Layer],
    x: Rows | RowsOf,
    graph: Graph | Neighbours,
    *,
    batch_size: int = 4096,
    out: Rows | Path | str | None = None,
    prefetch: int = 1,
    device: torch.device | None = None,
    group: Group = ALONE,
) -> Rows:
    """The output of the last layer for all nodes, [N, ...], computed with all neighbours.

    Args:
        layers: each takes the rows of a graph's keys and the graph, and returns a row for each
            query. The queries are the first keys. Layers should be in evaluation mode.
        x: [N, features]; a tensor, or an array that may be mapped from a file. Or a function that
            returns the rows of an array of nodes; it is called as x(nodes, threads) in background
            threads.
        graph: of N nodes. The keys of a batch are its queries, followed by their neighbours.
        batch_size: the number of queries that go through a layer at once.
        out: a tensor or array for the result, or the path of an npy file, which is mapped. With a
            file, the outputs of inner layers are also kept in files next to it, so that nothing of
            N rows is in memory. By default a new tensor, mapped from an unnamed file in the cache
            folder if it is larger than DYNAGAT_MEMORY.
        prefetch: the number of batches that are prepared in advance.
        device: where layers compute. Default: that of x, if it is a tensor, or the CPU.
        group: the processes that call this together. Each computes a part of the rows of every
            layer, and all get all rows.
    """
    rows = graph if isinstance(graph, Neighbours) else Neighbours.from_graph(graph)
    check_count("batch_size", batch_size)
    check_count("prefetch", prefetch, 0)
    if not layers:
        raise ValueError("layers must hold at least one layer, but are empty")
    if rows.num_nodes == 0:
        raise ValueError("graph must have at least one node, but has none")
    if not callable(x) and len(x) != rows.num_nodes:
        raise ValueError(f"x must have a row for each of {rows.num_nodes} nodes, but has {len(x)}")
    if group.size > 1 and out is not None:
        raise ValueError(f"out must be None in a group of {group.size} processes, but is given")
    if device is None:
        device = x.device if isinstance(x, Tensor) else CPU
    group = group if group.size <= rows.num_nodes else ALONE
    through = Pass(rows, batch_size, prefetch, device, group)
    if isinstance(out, (str, Path)):
        return _infer_to_file(layers, x, through, Path(out))
    _check_out(out, x)
    for layer in layers[:-1]:
        x = through.table(layer, x)
    return through.table(layers[-1], x, out)


def _check_out(out: Rows | None, x: Rows | RowsOf) -> None:
    """Writing to an array that is mapped read-only would kill the process."""
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError("out must be a writeable array, but is read-only")
    if out is None or callable(x):
        return
    if np.may_share_memory(_as_array(out), _as_array(x)):
        raise ValueError("out must not share memory with x, whose rows later batches still need")


def _as_array(rows: Rows) -> np.ndarray:
    return rows.detach().cpu().numpy() if isinstance(rows, Tensor) else rows


@dataclass(frozen=True)
class Pass:
    """How a layer goes through all nodes."""

    rows: Neighbours
    batch_size: int
    prefetch: int
    device: torch.device  # where layers compute
    group: Group  # of at most as many processes as there are nodes

    @property
    def own(self) -> range:
        """The nodes for which this process computes."""
        return range(self.rows.num_nodes)[self.group.part(self.rows.num_nodes)]

    def table(self, layer: Layer, x: Rows | RowsOf, out: Rows | None = None) -> Rows:
        """The output of one layer for all nodes, in `out` or a new table."""
        out = collect(self.outputs(layer, x), self.rows.num_nodes, out, self.own.start)
        self.group.exchange(out)
        return out

    def outputs(self, layer: Layer, x: Rows | RowsOf) -> Iterator[Tensor]:
        """The output of one layer for the own nodes, batch by batch."""
        first = None
        for table, graph in self._batches(x):
            part = layer(table, graph)
            if len(part) != graph.num_queries:
                raise ValueError(
                    f"layers must return a row for each of {graph.num_queries} queries, "
                    f"but one returned {len(part)}"
                )
            first = part if first is None else first
            if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
                kinds = (f"{each.dtype} {list(each.shape[1:])}" for each in (first, part))
                raise ValueError(
                    "layers must return rows of one type and shape, but one returned "
                    + " and ".join(kinds)
                )
            yield part

    def _batches(self, x: Rows | RowsOf) -> Iterator[tuple[Tensor, Graph]]:
        """The rows of the keys of each batch of queries, and its graph, on the device."""
        on_device = x if isinstance(x, Tensor) and x.device.type != "cpu" else None
        rows_of = x if callable(x) else partial(take_rows, x)
        size, own = self.batch_size, self.own

        def make(n: int, threads: int) -> tuple[Tensor, Graph]:
            part = own[n * size : (n + 1) * size]
            queries = np.arange(part.start, part.stop)
            block = sample(self.rows, queries, [-1], threads=threads)
            graph = make_graph(block.layers[0], len(block.node), threads)
            if on_device is not None:
                return torch.from_numpy(block.node), graph
            return rows_of(block.node, threads), graph

        batches = work_ahead(make, -(-len(own) // size), self.prefetch)
        for table, graph in copied_ahead(batches, self.device):
            yield table if on_device is None else on_device[table], graph


def collect(
    parts: Iterable[Tensor], num_rows: int, out: Rows | None = None, first: int = 0
) -> Rows:
    """Copy all parts into one table, which is `out` or a new one, from its row `first` on."""
    for part in parts:
        out = _new_table(part, num_rows) if out is None else out
        if tuple(out.shape) != (num_rows, *part.shape[1:]):
            expected = [num_rows, *part.shape[1:]]
            raise ValueError(f"out must have shape {expected}, but has {list(out.shape)}")
        table = out if isinstance(out, Tensor) else torch.from_numpy(out)
        if not torch.can_cast(part.dtype, table.dtype):
            raise TypeError(f"out must hold {part.dtype}, but holds {table.dtype}")
        table[first : first + len(part)] = part
        first += len(part)
    assert out is not None
    return out


def _new_table(part: Tensor, num_rows: int) -> Tensor:
    shape = (num_rows, *part.shape[1:])
    return new_table(shape, part.dtype) if part.device.type == "cpu" else part.new_empty(shape)


def _infer_to_file(
    layers: Sequence[Layer], x: Rows | RowsOf, through: Pass, path: Path
) -> np.ndarray:
    """Keep the outputs of inner layers in a temporary folder next to the file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out is {path}, but the folder {path.parent} does not exist")
    num_rows = through.rows.num_nodes

    def write(file: Path) -> None:
        _write(through.outputs(layers[-1], x), num_rows, file)

    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        previous = None
        for n, layer in enumerate(layers[:-1]):
            file = Path(folder) / f"{n}.npy"
            _write(through.outputs(layer, x), num_rows, file)
            x = np.load(file, mmap_mode="r")
            if previous is not None:
                previous.unlink()
            previous = file
        write_through(path, write)
    return np.load(path, mmap_mode="r")


def _write(parts: Iterator[Tensor], num_rows: int, path: Path) -> None:
    """Write an npy file sequentially, so that a full disk is an error and not a crash."""
    with path.open("wb") as file:
        for n, part in enumerate(parts):
            array = part.contiguous().cpu().numpy()
            if n == 0:
                kind = np.lib.format.dtype_to_descr(array.dtype)
                shape = (num_rows, *array.shape[1:])
                header = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)
