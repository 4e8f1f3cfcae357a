"""The first call: where the time of the first step in a process goes.

Run as a program in a fresh process, it prints the seconds of each part as JSON. Nothing is imported
before the clock starts.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.cases import Case
    from bench.records import Record

LATER = 3  # steps after the first one
SMALL_PAGES = "dynagat, small pages"  # the contender whose process gets no huge pages
PR_SET_THP_DISABLE = 41  # of prctl, on Linux


def measure_first_call(case: Case) -> Iterator[Record]:
    """Each part in as many fresh processes as the effort's `fewest`."""
    from bench.isolation import reason_of
    from bench.machine import ROOT
    from bench.records import Record

    sizes = case.graph.num_nodes, case.graph.num_edges, case.in_dim, case.heads, case.channels
    for name in case.contenders:
        command = [sys.executable, "-m", "bench.first_call", name, *map(str, sizes)]
        outputs = []
        try:
            for _ in range(case.effort.fewest):
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
                outputs.append(json.loads(done.stdout))
        except (OSError, subprocess.CalledProcessError) as error:
            text = getattr(error, "stderr", "").strip().splitlines()
            yield Record(name, "first step", reason=text[-1] if text else reason_of(error))
            continue
        for quantity in outputs[0]:
            yield Record.rounded(name, quantity, [output[quantity] for output in outputs])


def main(
    contender: str, num_nodes: int, num_edges: int, in_dim: int, heads: int, channels: int
) -> None:
    if contender == SMALL_PAGES and ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
        sys.exit("this system can't do without huge pages")
    parts = {"importing torch": seconds_of(lambda: __import__("torch"))}
    parts["importing dynagat"] = seconds_of(lambda: __import__("dynagat"))
    import torch

    from bench.graphs import PowerLaw
    from bench.memory import peak_bytes, reset_peak
    from dynagat import GATv2Conv, Graph
    from dynagat.ops.fused import empty

    edges = PowerLaw(num_nodes, num_edges).edge_index()
    x, dout = torch.randn(num_nodes, in_dim), torch.randn(num_nodes, heads * channels)
    layer = GATv2Conv(in_dim, channels, heads=heads, add_self_loops=False)
    tiny = torch.randn(50, in_dim), torch.randint(50, (2, 200))
    parts["starting matrix products"] = excess_of_first(lambda: dout[:64] @ dout[:64].T)
    parts["starting threads, checks"] = excess_of_first(lambda: layer(*tiny).sum().backward())
    layer.zero_grad()
    graphs: list[Graph] = []
    parts["building the graph"] = seconds_of(
        lambda: graphs.append(Graph.from_edge_index(edges, num_nodes))
    )
    before = reset_peak()
    parts["first step"] = seconds_of(lambda: layer(x, graphs[0]).backward(dout))
    fresh_bytes = max(peak_bytes() - before, 1)
    parts["later step"] = min(
        seconds_of(lambda: layer(x, graphs[0]).backward(dout)) for _ in range(LATER)
    )
    parts["writing to fresh memory"] = seconds_of(
        lambda: empty((fresh_bytes // 4,), torch.float32).fill_(1)
    )
    parts["fresh memory"] = float(fresh_bytes)
    print(json.dumps(parts))


def excess_of_first(call: Callable[[], Any]) -> float:
    """How much longer the first of two calls takes."""
    return max(seconds_of(call) - seconds_of(call), 0.0)


def seconds_of(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
