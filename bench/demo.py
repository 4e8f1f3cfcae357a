"""The demo: dynagat's GATv2Conv compared with PyG's on a graph of real size, in a minute."""

from __future__ import annotations

from bench.cases import Case, Effort
from bench.contenders import PEAK
from bench.graphs import PowerLaw
from bench.isolation import CannotRun, in_fresh_process
from bench.machine import available_bytes, describe_session
from bench.measure import measure
from bench.records import Entry
from bench.run import log

GRAPH = PowerLaw()
HEADS, CHANNELS = 8, 8
CONTENDERS = ("pyg", "dynagat")
SPARE = 1.5  # available memory that is required, relative to the estimate for PyG's step


def run_demo(graph: PowerLaw = GRAPH) -> str:
    """Measure and return the table to print."""
    fitting = fit_to_memory(graph, available_bytes())
    settings = {"heads": HEADS, "channels": CHANNELS, "contenders": CONTENDERS}
    effort = Effort(seconds=6, fewest=2, most=9)
    entries = {}
    for group, title in GROUPS.items():
        log(f"measuring {title} ...")
        case = Case(f"demo-{group}", group, fitting, **settings, effort=effort)
        entries[group] = measure(case) if group == "memory" else in_fresh_process(measure, case)
    remark = "" if fitting == graph else " (reduced to fit into this machine's memory)"
    return render_demo(entries["layers"], entries["memory"], entries["build"], remark)


GROUPS = {
    "layers": "a training step",
    "memory": "its memory",
    "build": "the time to build the graph",
}


def fit_to_memory(graph: PowerLaw, free: float) -> PowerLaw:
    """The graph, or a smaller one with which PyG's step fits into the free memory."""
    needed = SPARE * PEAK["pyg"] * graph.num_edges * HEADS * CHANNELS * 4
    if needed <= free:
        return graph
    num_nodes = int(graph.num_nodes * free / needed)
    num_pairs = int((graph.num_edges - graph.num_nodes) * free / needed) // 2
    return PowerLaw(num_nodes, num_nodes + 2 * num_pairs)


def render_demo(layers: Entry, memory: Entry, build: Entry, remark: str = "") -> str:
    session = describe_session("--demo")
    step = [_median(layers, name, "step") * 1e3 for name in CONTENDERS]
    peak = [_median(memory, name, "memory") / 1e6 for name in CONTENDERS]
    graph = _median(build, "graph", "build") * 1e3
    out = _median(layers, "dynagat", "output against pyg")
    grads = _median(layers, "dynagat", "gradients against pyg")
    backend = session["instruction set"]
    return "\n".join(
        [
            "dynagat and PyTorch Geometric: one GATv2Conv layer, forward + backward",
            "",
            f"graph     {layers.num_nodes:,} nodes, {layers.num_edges:,} edges{remark}",
            f"layer     {layers.case['in_dim']} features -> {HEADS} heads of {CHANNELS} channels",
            f"machine   {session['CPU']}, {session['threads']} threads, {backend}",
            "",
            f"{'':26}{'PyG':>12}{'dynagat':>12}{'ratio':>10}",
            _line("training step, ms", *step),
            _line("peak extra memory, MB", *peak),
            f"{'building the graph, ms':26}{'–':>12}{graph:>12,.0f}{'once':>10}",
            "",
            f"largest difference, relative to the largest entry: output {out:.1e}, "
            f"gradients {grads:.1e}",
        ]
    )


def _line(label: str, theirs: float, ours: float) -> str:
    return f"{label:26}{theirs:>12,.0f}{ours:>12,.0f}{theirs / ours:>9.1f}×"


def _median(entry: Entry, contender: str, quantity: str) -> float:
    value = entry.median(contender, quantity)
    if value is None:
        reasons = [f"{r.contender}: {r.reason}" for r in entry.records if r.reason]
        raise CannotRun(
            f"{quantity!r} of {contender} is missing ({'; '.join(reasons) or 'it did not run'})"
        )
    return value
