"""Memory: what a training step needs at its peak, each contender in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.cases import Case
from bench.contenders import Contender, draw_inputs, start
from bench.graphs import Uniform
from bench.isolation import OutOfTime, in_fresh_process, reason_of, time_limit
from bench.records import Record
from dynagat import Graph

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
TINY = Uniform(100, 1_000)
NUM_STEPS = 2


def measure_memory(case: Case) -> Iterator[Record]:
    for name in case.contenders:
        try:
            peak, kept = in_fresh_process(memory_of_steps, case, name)
        except (Exception, OutOfTime) as error:  # whatever stops one contender, the others go on
            yield Record(name, "memory", reason=reason_of(error))
        else:
            yield Record(name, "memory", (float(peak),))
            yield Record(name, "kept memory", (float(kept),))


def memory_of_steps(case: Case, name: str) -> tuple[int, int]:
    """Bytes resident at the peak of the steps, and after them, over those just before.

    What comes once per process or graph comes before: a step on a tiny graph, our Graph, and the
    step of full size in which a compiled layer compiles. There are two steps, for one that keeps
    memory may take more in the second; what is kept is without output and gradients.
    """
    tiny = replace(case, graph=TINY)
    contender = start(name, tiny, draw_inputs(tiny))
    contender.step(contender.prepare())
    contender = start(name, case, draw_inputs(case))
    edges = contender.prepare()
    if name == "dynagat":
        edges = Graph.from_edge_index(edges, case.graph.num_nodes)
    if name == "compiled":
        with time_limit(case.effort.first_step):
            contender.step(edges)
        _forget_gradients_(contender)
    before = reset_peak()
    for _ in range(NUM_STEPS):
        contender.step(edges)
    peak = peak_bytes()
    _forget_gradients_(contender)
    return peak - before, max(_resident() - before, 0)


def _forget_gradients_(contender: Contender) -> None:
    for parameter in contender.parameters.values():
        parameter.grad = None


def reset_peak() -> int:
    """Begin a new peak; what is resident now. Where the kernel can't begin one, it is the old peak,
    which a step of some size exceeds."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # memory that is free but not given back would hide what the step takes
    if not os.access(RESET, os.W_OK):
        return peak_bytes()
    RESET.write_text("5")
    return _resident()


def peak_bytes() -> int:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return _status("VmHWM")


def _resident() -> int:
    return _status("VmRSS") if STATUS.exists() else 0


def _status(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
