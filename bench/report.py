"""The report: docs/performance.md and the table of the README, computed from records."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from bench.cases import FULL, LONG, QUICK, make_cases
from bench.goals import (
    BUILD,
    COMPILED,
    COMPILED_EPOCH,
    COMPILED_MEMORY,
    EAGER,
    EAGER_EPOCH,
    EAGER_MEMORY,
    FLOOR,
    GOALS,
    THREADS,
    Goal,
)
from bench.machine import NOT_INSTALLED
from bench.records import Entry, Ledger, geometric_mean
from bench.tables import (
    MISSING,
    NAMES,
    Row,
    bfloat16,
    capture,
    degrees,
    epoch,
    first_call,
    first_five,
    importing,
    larger_than_memory,
    layers,
    links,
    locality,
    markdown_table,
    megabytes,
    memory,
    milliseconds,
    pairs,
    planning,
    programs,
    relational,
    sampling,
    streamed,
    sweep,
    times,
    tiny,
    training,
    walks,
    workers,
)


@dataclass(frozen=True)
class Section:
    """A group of cases: its title, a description, and the function that writes its table."""

    group: str
    title: str
    text: str
    table: Callable[[list[Entry]], str]


def render(ledger: Ledger, figure: str | None = None) -> str:
    """The whole page, with the figure of this file name."""
    parts = ["# Performance", _opening(ledger), _unmeasured(ledger)]
    if figure:
        parts.append(f"![Speed-up over PyG eager, and peak extra memory]({figure})")
    parts += ["## Goals", goals_table(ledger), "## Machine and versions", sessions_table(ledger)]
    for section in SECTIONS:
        entries = ledger.group(section.group)
        if entries:
            parts += [f"## {section.title}", section.text, _goals(ledger, section.group)]
            parts += [section.table(entries), remarks(entries)]
    return "\n\n".join(part for part in parts if part) + "\n"


def render_readme(ledger: Ledger) -> str:
    """Two short tables: epochs on small real graphs; steps and memory on a large graph."""
    parts = [_epochs_table(ledger), _epochs_caption(ledger)]
    parts += [_steps_table(ledger), _caption(ledger)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _epochs_table(ledger: Ledger) -> str:
    """The epochs with dropout, as most people train."""
    rows = []
    for entry in ledger.group("first-five"):
        if "dropout" in entry.case:
            epochs = [milliseconds(entry.median(name, "epoch")) for name in NAMES]
            ratios = [times(EAGER_EPOCH.of(entry)), times(COMPILED_EPOCH.of(entry))]
            rows.append([entry.name.removesuffix("-dropout"), *epochs, *ratios])
    header = ["epoch of a two-layer network", *NAMES.values(), "eager / ours", "compiled / ours"]
    return markdown_table(header, rows) if rows else ""


def _epochs_caption(ledger: Ledger) -> str:
    entries = ledger.group("first-five")
    if not entries:
        return ""
    summary = "; ".join(
        f"{goal.title}: {times(goal.measured(ledger))}"
        for goal in GOALS
        if goal.group == "first-five"
    )
    text = (
        "Training the usual network (8 heads of 8 channels, then the classes), dropout 0.6 of "
        "features and attention, Adam included; ours is PyG's model after `dynagat.accelerate`; "
        f"{_circumstances(ledger, entries)}. Over all {len(entries)} cases, with and without "
        f"dropout: {summary}."
    )
    return textwrap.fill(text, 118)


def _steps_table(ledger: Ledger) -> str:
    rows = []
    for entry in ledger.group("layers"):
        steps = [milliseconds(entry.median(name, "step")) for name in NAMES]
        ratios = [times(EAGER.of(entry)), times(COMPILED.of(entry))]
        rows.append([f"{entry.shape}, time of a step", *steps, *ratios])
    for entry in ledger.group("memory"):
        sizes = [megabytes(entry.median(name, "memory")) for name in NAMES]
        ratios = [times(EAGER_MEMORY.of(entry)), times(COMPILED_MEMORY.of(entry))]
        rows.append([f"{entry.shape}, peak extra memory", *sizes, *ratios])
    header = ["GATv2Conv, H×C", *NAMES.values(), "eager / ours", "compiled / ours"]
    return markdown_table(header, rows)


def goals_table(ledger: Ledger, group: str | None = None) -> str:
    titles = {section.group: section.title for section in SECTIONS}
    goals = [goal for goal in GOALS if group in (None, goal.group)]
    rows = [[titles[goal.group], *_goal_row(goal, ledger)] for goal in goals]
    header = ["", "", "goal", "measured", "met?"]
    if group is None:
        return markdown_table(header, rows, words=2)
    return markdown_table(header[1:], [row[1:] for row in rows])


# Pieces of the page


def _is_quick(ledger: Ledger) -> bool:
    return any("--quick" in session.get("command", "") for session in ledger.sessions)


def _unmeasured(ledger: Ledger) -> str:
    measured = {entry.name for entry in ledger.entries}
    is_quick = _is_quick(ledger)
    cases = make_cases(QUICK if is_quick else FULL)
    if is_quick:
        cases = [case for case in cases if case.group not in LONG]
    names = [case.name for case in cases if case.name not in measured]
    return f"**Not measured yet: {', '.join(names)}.**" if names else ""


def _opening(ledger: Ledger) -> str:
    widths = sorted({entry.case["in_dim"] for entry in ledger.entries})
    quick = "**Quick run on small graphs: the goals apply to the full run.** "
    return (quick if _is_quick(ledger) else "") + (
        "Generated by `python -m bench`; every number comes from the JSON file next to this page. "
        "Unless a column names another unit, times are medians in milliseconds, with the lowest "
        "and highest values in parentheses. Contenders take turns in one process, on the same "
        "graph and with the same weights. A step is the forward and backward pass of a whole "
        f"layer, including the projections; x has {' or '.join(map(str, widths))} columns and no "
        "gradient, the gradient of the output is given, and self-loops are part of the edge list "
        "for all contenders. Before timing, the output and gradients of each contender are "
        "compared with PyG's. The remarks below a table give the reason where a contender is "
        "missing."
    )


def sessions_table(ledger: Ledger) -> str:
    """The machines and versions, one column per session."""
    keys = list(dict.fromkeys(key for session in ledger.sessions for key in session))
    rows = [[key, *(session.get(key, MISSING) for session in ledger.sessions)] for key in keys]
    if len(ledger.sessions) > 1:
        cases = [0] * len(ledger.sessions)
        for entry in ledger.entries:
            cases[entry.session] += 1
        rows.append(["cases", *map(str, cases)])
    header = ["", *(f"session {number}" for number in range(1, len(ledger.sessions) + 1))]
    return markdown_table(header, rows, words=len(header))


def _goals(ledger: Ledger, group: str) -> str:
    return goals_table(ledger, group) if any(goal.group == group for goal in GOALS) else ""


def _goal_row(goal: Goal, ledger: Ledger) -> Row:
    value, is_met = goal.measured(ledger), goal.is_met(ledger)
    verdict = "not measured" if is_met is None else "yes" if is_met else "**no**"
    measured = times(value)
    if goal.unit != "×" and value is not None:
        measured = f"{value:.1f}{goal.unit}"
    return [goal.title, f"{goal.sense} {goal.bound:g}{goal.unit}", measured, verdict]


def remarks(entries: list[Entry]) -> str:
    """Which contender is missing in which cases, grouped by reason."""
    missing: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for record in entry.records:
            if record.reason:
                missing.setdefault((record.contender, record.reason), []).append(entry.name)
    lines = [
        f"- {NAMES.get(contender, contender)} is missing in {', '.join(cases)}: {reason}."
        for (contender, reason), cases in missing.items()
    ]
    return "\n".join(lines)


def _caption(ledger: Ledger) -> str:
    entries = ledger.group("layers")
    if not entries or not ledger.sessions:
        return ""
    means = [
        times(goal.measured(ledger))
        for goal in GOALS
        if goal.group == "layers" and goal.summary is geometric_mean
    ]
    text = (
        f"Forward and backward of a layer; {_size(entries[0])}; "
        f"{_circumstances(ledger, entries)}. "
        f"Geometric means over the shapes: {means[0]} over eager, {means[1]} over compiled."
    )
    return textwrap.fill(text, 118)


def _circumstances(ledger: Ledger, entries: list[Entry]) -> str:
    """The machine, the versions and the commit of the first of these cases."""
    session = ledger.sessions[entries[0].session]
    names = [name for name in ("torch", "PyG", "DGL") if session[name] != NOT_INSTALLED]
    versions = ", ".join(f"{name} {session[name]}" for name in names)
    return f"{session['CPU']}, {session['threads']} threads; {versions}; commit {session['commit']}"


def _size(entry: Entry) -> str:
    return f"{entry.num_nodes:,} nodes, {entry.num_edges:,} edges"


POWER_LAW = (
    "A power-law graph of the size of ogbn-arxiv: both ends of an edge are drawn with weights "
    "(rank + 10)^-0.55; the edge list has both directions of each edge, in the order of PyG's "
    "`ToUndirected`, and one self-loop per node. "
)
SECTIONS = (
    Section(
        "first-five",
        "First five minutes",
        "Whole training epochs on small real graphs: forward pass, loss, backward pass and a step "
        "of Adam, in milliseconds. The network is the usual one: 8 heads of 8 channels, ELU, then "
        "one head with a channel per class; in the cases named *dropout*, 60 % of the features, "
        "of the hidden channels and of the attention weights are dropped. *dynagat* is PyG's "
        "network after `dynagat.accelerate`, which replaces its layers and its `nn.Dropout` "
        "modules; *F.dropout* is a network that calls torch's function instead, which stays. "
        "*qm9-batch* is a batch of 128 molecules whose 13 properties are predicted.",
        first_five,
    ),
    Section(
        "tiny",
        "A tiny graph",
        "One layer (34 columns to 8 heads of 8 channels) on Zachary's karate club: what a call "
        "costs beside its work, in microseconds. The forward pass is that of a training step, "
        "which autograd records; a step is forward and backward.",
        tiny,
    ),
    Section(
        "layers",
        "GATv2Conv",
        POWER_LAW + "The last columns are the ratios of the others' times to dynagat's, and the "
        "largest difference between the results of dynagat and PyG, relative to the largest entry. "
        "DGL's GATv2Conv has no output bias; apart from that, the layers are the same.",
        layers,
    ),
    Section(
        "floor",
        "Attention alone",
        "The op alone, forward and backward, without projections. The gather floor is the time to "
        "read each needed row once: four passes of `out[i] += x[column[e]]` at the same width, "
        "with prefetching and all threads. The tables are plain torch tensors; in the cases named "
        "*huge*, both use huge pages.",
        pairs(FLOOR, "attention", "floor", "attention / floor"),
    ),
    Section(
        "first-call",
        "The first call",
        "Where the time of the first step in a process goes, in fresh processes; the graph is that "
        "of GATv2Conv, at 8×32. Matrix products and threads are started by a first small call, and "
        "counted is what it takes longer than a second one. The later step is the fastest of "
        "three. The difference between the first step and a later one is mostly the time in which "
        "the system hands out memory: the last row is how much a step needs, and the row above is "
        "the time to write to as much fresh memory once. Later steps get the same pages from the "
        "pool. Huge pages make later steps faster, and take longer to hand out on some virtual "
        "machines; a process with *small pages* gets none.",
        first_call,
    ),
    Section(
        "memory",
        "Memory of a training step",
        "Peak resident memory of two consecutive steps, relative to just before them, and the "
        "memory kept after them, when outputs and gradients are freed. Each contender runs in its "
        "own process, after a step on a tiny graph, after compilation, and with dynagat's Graph "
        "built. The peak is counted by the operating system, not sampled.",
        memory,
    ),
    Section(
        "streamed",
        "Memory where there are no kernels",
        "The same, with the implementation for devices that have neither native nor Triton "
        "kernels, and with the definition of the ops; both are run on the CPU here.",
        streamed,
    ),
    Section(
        "batches",
        "Batches of small graphs",
        "Molecules are random trees with ring closures; in a dictionary of size k, k queries "
        "attend to k keys. With *new graph*, the edge list is new in each step, as for "
        "mini-batches, so that the step includes building dynagat's Graph.",
        layers,
    ),
    Section(
        "degrees",
        "Uneven and high degrees",
        "The op alone, forward and backward, compared with an even graph: one with the same number "
        "of edges, whose ends are drawn uniformly from all nodes.",
        degrees,
    ),
    Section(
        "build",
        "From an edge list to a graph",
        "`Graph.from_edge_index` of a new edge list, with rows by query and by key, compared with "
        "the forward pass of a layer whose graph is built.",
        pairs(BUILD, "graph", "forward", "graph / forward"),
    ),
    Section(
        "threads",
        "Threads",
        "The op alone, forward and backward, with one and with two threads "
        "(`torch.set_num_threads`).",
        pairs(THREADS, "one thread", "two threads", "one / two"),
    ),
    Section(
        "mechanisms",
        "GATConv and DPGATConv",
        "On the same graph as GATv2Conv. DPGATConv without bias is compared with PyG's "
        "TransformerConv without root weight, beta and bias: they compute the same function.",
        layers,
    ),
    Section(
        "bfloat16",
        "Tables in bfloat16",
        "The op alone on tables in bfloat16; scores and sums are computed in float32. Two largest "
        "differences, relative to the largest entry: of output and gradients, compared with "
        "float32 tables of the same rounded values; and of the output, compared with tables that "
        "are not rounded.",
        bfloat16,
    ),
    Section(
        "capture",
        "Under the microscope",
        "The forward pass of a GATv2Conv in evaluation mode within `capture`, compared with the "
        "same without it; and a whole call of `how_attentive`: the forward pass, the table, and "
        "all statistics of all heads with their confidence intervals.",
        capture,
    ),
    Section(
        "locality",
        "Order of the nodes",
        "The op alone, forward and backward, on real graphs with both directions of every edge and "
        "self-loops: with the nodes in the order of the files, in a random order, and in that of "
        "`Graph.reordered()`. *Ordering* is the time to compute that order and the graph in it, "
        "once per graph; *moving rows* is the time to permute x and to restore an output of the "
        "same size, once per call of a model. The number of edges is that of the files.",
        locality,
    ),
    Section(
        "sampling",
        "Neighbour sampling",
        "Million sampled edges per second: 10 neighbours in each of 3 hops, without replacement, "
        "with all threads. The number in a case's name is the number of seed nodes per batch. "
        "*Layered* sampling draws neighbours for all nodes of the batch so far in each hop, as DGL "
        "does; *merged* sampling draws them for new nodes only, as pyg-lib and torch-sparse do. "
        "dynagat is measured by the batches of its `NeighborLoader`: graphs with rows by query and "
        "by key, renumbered nodes, and edge ids. DGL is measured by `sample_neighbors` and "
        "`to_block`. An epoch has as many seed nodes as ogbn-products has training nodes.",
        sampling,
    ),
    Section(
        "walks",
        "GraphSAINT walks",
        "Million edges per second of the subgraphs induced by random walks of length 3; the number "
        "in the case's name is the number of roots. DGL is measured by `random_walk` and "
        "`node_subgraph`.",
        walks,
    ),
    Section(
        "import",
        "Importing tables",
        "Seconds to read a CSV file of edges and one of nodes (six numbers, a category, a date and "
        "a label) with `read_tables`, to memory or to a folder of the graph store. Node ids are "
        "numbers in *import-numbers* and strings in *import-names*. The time includes all checks, "
        "both directions of every edge, features and a split; pandas reads the same two files "
        "without building a graph. Each measurement has its own process; its peak resident memory, "
        "relative to just before reading, is compared with the size of the graph's arrays.",
        importing,
    ),
    Section(
        "epoch",
        "An epoch of ogbn-arxiv",
        "Training GATv2 by the code of `dynagat run ogbn-arxiv`: 3 layers of 256 channels and 8 "
        "heads, with ReLU, LayerNorm, dropout and residuals, on 30 samples of 20,000 random walks "
        "per epoch, sampling and optimiser included. The graph is synthetic, as above. The peer "
        "is the same network with PyG's layers (`--set source=pyg`). Each contender has its own "
        "process and takes as many steps as a median needs; the time of an epoch is the median "
        "step times 30. Before the tail of a layer was one pass, an epoch took dynagat 49 s on a "
        "quiet machine. The peak memory is relative to the process with its data.",
        epoch,
    ),
    Section(
        "training",
        "Training at full size",
        "GATv2 with 8 heads, trained by the code of `dynagat run`: the benchmark's own network, "
        "neighbour sampler, task and training loop. The graph is synthetic, with the numbers of "
        "nodes, edges, features and classes of the real dataset and with power-law degrees, so "
        "these are times and memory, not accuracies. A step includes sampling its batch; the time "
        "of an epoch is the median step times the number of steps. The evaluation computes the "
        "outputs of all nodes with all neighbours. Each case has its own process; the peak memory "
        "is that of the whole process, including loading the graph.",
        training,
    ),
    Section(
        "larger-than-memory",
        "A graph larger than memory",
        "Training GATv2 with 8 heads by the code of ogbn-products on a synthetic graph whose "
        "features alone are larger than this machine's memory. The graph is written block by block "
        "by one process; another one sorts its edges on disk and trains for a fixed number of "
        "steps. *Anonymous* is the peak of the memory that can't be given back (RssAnon), and "
        "*before* is what Python and torch take of it before the graph is opened. *Mapped* are "
        "pages of files, which the system drops when memory runs low. Edges per second are those "
        "of whole training steps, sampling, reading and the network included.",
        larger_than_memory,
    ),
    Section(
        "plan",
        "dynagat plan: predicted and measured",
        "The time of an epoch as `dynagat plan` predicts it, from rates that it measures in about "
        "ten seconds, and as it was measured by training a whole epoch without evaluation. The "
        "graph is synthetic, with the shape of ogbn-products at a quarter of its size; network, "
        "sampler and batch size are those of the benchmark with 8 heads. The last columns are the "
        "parts of a predicted step.",
        planning,
    ),
    Section(
        "ddp",
        "One worker and two",
        "Training of ogbn-products on a smaller synthetic graph, by the code of `dynagat run`: by "
        "one process with one thread and with two, and divided among two processes, as with "
        "`--ddp 2`. All have the same batches of 256 nodes. The speed is the number of sampled "
        "edges of all processes per second, sampling and averaging of gradients included, and the "
        "ratio is to one process with one thread. The evaluation computes the outputs of all nodes "
        "with all neighbours.",
        workers,
    ),
    Section(
        "sweep",
        "Runs per hour of a sweep",
        "Short runs of DictionaryLookup with 5 keys, of about half a second each, by the code of "
        "`dynagat run`: one after the other in a process with all cores, in two worker processes, "
        "and as tasks of a Ray cluster with two CPUs on this machine. The start of the workers is "
        "included, that of the cluster is not.",
        sweep,
    ),
    Section(
        "relational",
        "Molecules: relations",
        "A training step of the QM9 network (8 layers, 128 channels, 8 heads, 5 relations) on a "
        "batch of 2,770 made molecules, optimiser included. PyG has no such layer: the peer is "
        "written as PyG's layers are, with PyG's softmax and scatter, and has the same weights. "
        "An epoch is that of 110,462 molecules. The shares of products and attention are the "
        "profiler's; the speed of the products is compared with that of two matrices of "
        "4096 rows in the same run.",
        relational,
    ),
    Section(
        "links",
        "Link prediction at full size",
        "A training step of ogbl-collab with 8 heads, by the code of `dynagat run`: the whole "
        "graph, 65,536 links and as many negatives, 3 layers of 64 channels. The graph is "
        "synthetic, with the numbers of nodes and edges of the real one. The peer has PyG's layers "
        "and a decoder in plain PyTorch. Each contender has its own process; its peak memory is "
        "relative to the process with its data, before the first step.",
        links,
    ),
    Section(
        "sampled links",
        "Link prediction on sampled neighbours",
        "The same for ogbl-citation2: 512 links and as many negatives, 15, 10 and 5 sampled "
        "neighbours, 3 layers of 256 channels. Both contenders get the same batches from dynagat's "
        "sampler. Half of the time is matrix products, which both compute alike.",
        links,
    ),
    Section(
        "programs",
        "Programs: many relations",
        "A training step of the VarMisuse network (character CNN, 8 layers, 96 channels, 8 heads, "
        "23 relations) on a batch of 21 made-up programs of the original's size, optimiser "
        "included. The peer is made as for molecules. Ours computes each layer again in the "
        "backward pass instead of keeping its tables; its time includes that. The peak resident "
        "memory is that of two steps, relative to just before them, with each contender in its own "
        "process.",
        programs,
    ),
)
