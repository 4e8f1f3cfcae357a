"""Memory: the peak of a training step, with each contender in its own process."""

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
        except (Exception, OutOfTime) as error:  # the other contenders still run
            yield Record(name, "memory", reason=reason_of(error))
        else:
            yield Record(name, "memory", (float(peak),))
            yield Record(name, "kept memory", (float(kept),))


def memory_of_steps(case: Case, name: str) -> tuple[int, int]:
    """Resident bytes at the peak of the steps and after them, relative to just before them.

    Costs that occur once per process or graph are paid before: a step on a tiny graph, building
    dynagat's Graph, and the full-size step in which a compiled layer compiles. Two steps are run
    because a contender that keeps memory may need more in the second. Outputs and gradients are
    freed before the second number is taken.
    """
    tiny = replace(case, graph=TINY)
    contender = start(name, tiny, draw_inputs(tiny))
    contender.step(contender.prepare())
    contender = start(name, case, draw_inputs(case))
    edges = contender.prepare()
    if name in ("dynagat", "reference", "streamed"):
        edges = Graph.from_edge_index(edges, case.graph.num_nodes)
    if name == "compiled":
        with time_limit(case.effort.first_step):
            contender.step(edges)
        _free_gradients_(contender)
    before = reset_peak()
    for _ in range(NUM_STEPS):
        contender.step(edges)
    peak = peak_bytes()
    _free_gradients_(contender)
    return peak - before, max(_resident() - before, 0)


def _free_gradients_(contender: Contender) -> None:
    for parameter in contender.parameters.values():
        parameter.grad = None


def reset_peak() -> int:
    """Reset the process's peak memory; return the bytes that are resident now.

    If the kernel cannot reset it, the old peak is returned, which a large step exceeds.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # free memory that is not returned would hide what the step needs
    if not os.access(RESET, os.W_OK):
        return peak_bytes()
    RESET.write_text("5")
    return _resident()


def peak_bytes() -> int:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return status("VmHWM")


def _resident() -> int:
    return status("VmRSS") if STATUS.exists() else 0


def status(name: str) -> int:
    """A size in /proc/self/status, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
