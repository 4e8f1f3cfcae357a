"""infer: the exact output of a network for all nodes, layer by layer, in the memory of a batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dynagat.files import write_through
from dynagat.graph import Graph
from dynagat.group import ALONE, Group
from dynagat.sampling.ahead import work_ahead
from dynagat.sampling.batch import make_graph
from dynagat.sampling.draw import check_count, sample, take_rows
from dynagat.sampling.rows import Neighbours

Layer = Callable[[Tensor, Graph], Tensor]
Rows = Tensor | np.ndarray


@torch.no_grad()
def infer(
    layers: Sequence[Layer],
    x: Rows,
    graph: Graph | Neighbours,
    *,
    batch_size: int = 4096,
    out: Rows | Path | str | None = None,
    prefetch: int = 1,
    group: Group = ALONE,
) -> Rows:
    """The output of the last layer for all nodes, [N, ...], computed with all neighbours.

    Args:
        layers: each takes the rows of a graph's keys and the graph, and returns a row for each
            query. The queries are the first keys. Layers should be in evaluation mode.
        x: [N, features]; a tensor, or an array that may be mapped from a file.
        graph: of N nodes. The keys of a batch are its queries, followed by their neighbours.
        batch_size: the number of queries that go through a layer at once.
        out: a tensor or array for the result, or the path of an npy file, which is mapped. With a
            file, the outputs of inner layers are also kept in files next to it, so that nothing of
            N rows is in memory.
        prefetch: the number of batches that are prepared in advance.
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
    if len(x) != rows.num_nodes:
        raise ValueError(f"x must have a row for each of {rows.num_nodes} nodes, but has {len(x)}")
    if group.size > 1 and out is not None:
        raise ValueError(f"out must be None in a group of {group.size} processes, but is given")
    if isinstance(out, (str, Path)):
        return _infer_to_file(layers, x, rows, batch_size, Path(out), prefetch)
    _check_out(out, x)
    group = group if group.size <= rows.num_nodes else ALONE
    own = group.part(rows.num_nodes)
    for n, layer in enumerate(layers, 1):
        parts = _outputs(layer, x, rows, batch_size, prefetch, own)
        x = _collect(parts, rows.num_nodes, out if n == len(layers) else None, own.start)
        group.exchange(x)
    return x


def _check_out(out: Rows | None, x: Rows) -> None:
    """Writing to an array that is mapped read-only would kill the process."""
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError("out must be a writeable array, but is read-only")
    if out is not None and np.may_share_memory(_as_array(out), _as_array(x)):
        raise ValueError("out must not share memory with x, whose rows later batches still need")


def _as_array(rows: Rows) -> np.ndarray:
    return rows.detach().cpu().numpy() if isinstance(rows, Tensor) else rows


def _outputs(
    layer: Layer, x: Rows, rows: Neighbours, batch_size: int, prefetch: int, nodes: slice
) -> Iterator[Tensor]:
    """The output of one layer for a range of nodes, batch by batch."""
    start, stop = nodes.start, nodes.stop

    def make(n: int, threads: int) -> tuple[Tensor, Graph]:
        first = start + n * batch_size
        queries = np.arange(first, min(first + batch_size, stop))
        block = sample(rows, queries, [-1], threads=threads)
        graph = make_graph(block.layers[0], len(block.node), threads)
        return take_rows(x, block.node, threads), graph

    first = None
    for table, graph in work_ahead(make, -(-(stop - start) // batch_size), prefetch):
        part = layer(table, graph)
        if len(part) != graph.num_queries:
            raise ValueError(
                f"layers must return a row for each of {graph.num_queries} queries, "
                f"but one returned {len(part)}"
            )
        first = part if first is None else first
        if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
            kinds = " and ".join(f"{each.dtype} {list(each.shape[1:])}" for each in (first, part))
            raise ValueError(
                f"layers must return rows of one type and shape, but one returned {kinds}"
            )
        yield part


def _collect(parts: Iterator[Tensor], num_rows: int, out: Rows | None, first: int = 0) -> Rows:
    """Copy all parts into one table, which is `out` or a new one, from its row `first` on."""
    for part in parts:
        out = part.new_empty(num_rows, *part.shape[1:]) if out is None else out
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


def _infer_to_file(
    layers: Sequence[Layer], x: Rows, rows: Neighbours, batch_size: int, path: Path, prefetch: int
) -> np.ndarray:
    """Keep the outputs of inner layers in a temporary folder next to the file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out is {path}, but the folder {path.parent} does not exist")

    every = slice(0, rows.num_nodes)

    def write(file: Path) -> None:
        _write(_outputs(layers[-1], x, rows, batch_size, prefetch, every), rows.num_nodes, file)

    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        previous = None
        for n, layer in enumerate(layers[:-1]):
            file = Path(folder) / f"{n}.npy"
            _write(_outputs(layer, x, rows, batch_size, prefetch, every), rows.num_nodes, file)
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
            array = part.contiguous().numpy()
            if n == 0:
                kind = np.lib.format.dtype_to_descr(array.dtype)
                shape = (num_rows, *array.shape[1:])
                header = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)
