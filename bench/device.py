"""A layer on a GPU, compared with others: `python -m bench --device cuda`.

Steps are timed between events of the device, after a first step that compiles. Memory is what torch
allocates there. It was written without a GPU: the tests run it on the CPU, with a clock of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from bench.agreement import TOLERANCE, differences, results_of
from bench.cases import FULL, Case, Effort
from bench.contenders import Contender, Inputs, draw_inputs, start
from bench.graphs import Hubs, PowerLaw, Recipe
from bench.isolation import OutOfTime, reason_of, time_limit
from bench.records import Record
from bench.trials import Trial, time_trials
from dynagat.placement import find_device, module_of, moved

CONTENDERS = ("pyg", "compiled", "dgl", "turbo-gnn", "dynagat")
EFFORT = Effort(seconds=4.0, fewest=10, most=100)


def make_cases(device: str) -> list[Case]:
    """GATv2 in all shapes, and the other mechanisms in the widest, on two graphs."""
    graphs: dict[str, Recipe] = {"gpu": PowerLaw(), "gpu hubs": Hubs()}
    kinds = [("gatv2", shape) for shape in FULL.shapes]
    kinds += [(mechanism, FULL.shapes[0]) for mechanism in ("gat", "dpgat")]
    return [
        Case(
            name=f"{group.replace(' ', '-')}-{mechanism}-{heads}x{channels}",
            group=group,
            graph=graph,
            mechanism=mechanism,
            heads=heads,
            channels=channels,
            contenders=CONTENDERS,
            effort=EFFORT,
            device=device,
        )
        for group, graph in graphs.items()
        for mechanism, (heads, channels) in kinds
    ]


@dataclass(frozen=True)
class DeviceClock:
    """Measures work on a device, which goes on after its calls have returned."""

    device: torch.device

    def seconds(self, run: Callable[[], Any]) -> float:
        """Between two events on the device's stream."""
        there: Any = module_of(self.device.type)
        begin, end = (there.Event(enable_timing=True) for _ in range(2))
        there.synchronize(self.device)
        begin.record()
        run()
        end.record()
        there.synchronize(self.device)
        return begin.elapsed_time(end) / 1e3

    def peak_bytes(self, run: Callable[[], Any]) -> int:
        """That torch allocates while it runs, above what it holds before."""
        there: Any = module_of(self.device.type)
        there.synchronize(self.device)
        there.reset_peak_memory_stats(self.device)
        before = there.memory_allocated(self.device)
        run()
        there.synchronize(self.device)
        return there.max_memory_allocated(self.device) - before


def measure_on_device(case: Case) -> Iterator[Record]:
    device = find_device(case.device)
    with torch.get_device_module(device).device(device):
        yield from measure_with(case, device, DeviceClock(device))


def measure_with(case: Case, device: torch.device, clock: Any) -> Iterator[Record]:
    """First step, differences from PyG and memory of each contender; then steps in turns."""
    drawn = draw_inputs(case)
    x, edges, gradient = moved((drawn.x.detach(), drawn.edge_index, drawn.gradient), device)
    inputs = Inputs(x.requires_grad_(case.input_grad), edges, gradient)
    trials, durations, expected = {}, {}, None
    for name in case.contenders:
        try:
            with time_limit(case.effort.first_step):
                contender = start(name, case, inputs)
                edges = contender.prepare()
                first = clock.seconds(lambda c=contender, e=edges: c.step(e))
            peak = clock.peak_bytes(lambda c=contender, e=edges: c.step(e))
            result = results_of(contender, contender.step(edges))
        except (Exception, OutOfTime) as error:  # the other contenders still run
            yield Record(name, "step", reason=reason_of(error))
            continue
        expected = expected or (name, result)
        records = list(differences(name, result, *expected))
        yield from (Record.rounded(name, "first step", [first]), *records)
        if not all(record.values[0] <= TOLERANCE for record in records):  # also true for NaN
            yield Record(name, "step", reason=f"its results differ from {expected[0]}")
            continue
        yield Record(name, "memory", (float(peak),))
        trials[name] = _trial(contender)
        durations[name] = clock.seconds(lambda c=contender, e=edges: c.step(e))
    seconds = clock.seconds
    yield from time_trials(
        "step", trials, durations, case.effort, lambda each: seconds(lambda: _run(each))
    )


def _trial(contender: Contender) -> Trial:
    edges = contender.prepare()
    return Trial(contender.step, lambda: edges)


def _run(trial: Trial) -> None:
    trial.run(trial.prepare())
