"""Training on programs: a step of the VarMisuse network, beside the same network on PyG's parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch.nn.functional import cross_entropy

from bench.cases import Case
from bench.isolation import OutOfTime, in_fresh_process, reason_of
from bench.memory import NUM_STEPS, peak_bytes, reset_peak
from bench.records import Record
from bench.relational import Workload, compare_steps
from bench.synthetic_programs import Programs
from dynagat.benchmarks.varmisuse import VARMISUSE
from dynagat.benchmarks.varmisuse.stream import join

TINY = Programs(num_graphs=2, tokens=12, inner=10, names=8)


def measure_programs(case: Case) -> Iterator[Record]:
    """Times in one process; the peak memory of each contender in its own."""
    yield from in_fresh_process(_times, case)
    for name in case.contenders:
        try:
            yield Record(name, "memory", (float(in_fresh_process(memory_of_steps, case, name)),))
        except (Exception, OutOfTime) as error:  # the other contenders still run
            yield Record(name, "memory", reason=reason_of(error))


def _times(case: Case) -> list[Record]:
    return list(compare_steps(case, programs(case)))


def memory_of_steps(case: Case, name: str) -> int:
    """Resident bytes at the peak of two steps, relative to just before; see bench/memory.py."""
    programs(replace(case, graph=TINY)).step(name)()
    step = programs(case).step(name)
    before = reset_peak()
    for _ in range(NUM_STEPS):
        step()
    return peak_bytes() - before


def programs(case: Case) -> Workload:
    assert isinstance(case.graph, Programs)
    batch = join(case.graph.graphs())
    stack = replace(VARMISUSE.network, heads=case.heads, dim=case.heads * case.channels)
    return Workload(
        make=lambda: stack.build(None, case.mechanism),
        run=batch.run,
        loss=lambda network: cross_entropy(batch.run(network), batch.y),
        mechanism=case.mechanism,
    )
