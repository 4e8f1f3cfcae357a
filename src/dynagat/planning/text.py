"""A plan as lines of text: tables of sizes and times, then one line for each assumption."""

from __future__ import annotations

from collections.abc import Iterator

from dynagat.planning.plan import Plan


def lines(plan: Plan) -> Iterator[str]:
    """What the command prints."""
    sizes, hosts = plan.sizes, plan.hosts
    yield f"{sizes.name}: {sizes.nodes:,} nodes, {sizes.edges:,} edges in both directions"
    yield ""
    yield "On disk"
    yield from _rows({
        "graph store": _bytes(plan.store),
        "of it features": f"{_bytes(plan.features)} ({sizes.features} per node)",
        "rows to sample from": _bytes(plan.rows),
    })  # fmt: skip
    yield ""
    yield f"Each of {hosts.count} hosts" if hosts.count > 1 else "The host"
    yield from _rows({
        "memory of the process": _bytes(plan.memory),
        "mapped files": f"{_bytes(plan.mapped)}, as far as there is room",
        "gradients sent": f"{_bytes(plan.gradients)} per step",
        "features received": f"{_bytes(plan.remote)} per step",
    })  # fmt: skip
    yield ""
    yield "A training step"
    for number, layer in enumerate(plan.step.layers, 1):
        sampled = f"{layer.queries:,.0f} queries, {layer.keys:,.0f} keys, {layer.edges:,.0f} edges"
        yield from _rows({f"layer {number}": sampled})
    yield from _rows({name: _seconds(value) for name, value in plan.seconds.items()})
    yield from _rows({"in total": _seconds(plan.step_seconds)})
    yield ""
    steps = "1 step" if plan.steps == 1 else f"{plan.steps:,} steps"
    yield f"An epoch: {steps}, {_seconds(plan.epoch_seconds)}"
    yield ""
    yield "Assumptions"
    yield from (f"  - {line}" for line in plan.assumptions)


def _rows(cells: dict[str, str]) -> Iterator[str]:
    return (f"  {name:<22} {value}" for name, value in cells.items())


def _bytes(value: float) -> str:
    if value == 0:
        return "none"
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value / 1e3:,.1f} kB"


def _seconds(value: float) -> str:
    if value >= 7200:
        return f"{value / 3600:,.1f} h"
    if value >= 120:
        return f"{value / 60:,.1f} min"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.3g} ms"
