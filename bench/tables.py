"""Tables: the rows and cells of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.goals import CAPTURE, DEGREES, SAMPLING, STREAMED_MEMORY, WALKS, Ratio
from bench.records import Entry, Record

Row = Sequence[str]
NAMES = {"pyg": "PyG eager", "compiled": "PyG compiled", "dgl": "DGL", "dynagat": "dynagat"}
RATIOS = ["eager / ours", "compiled / ours", "DGL / ours"]
NEW_GRAPH, FUNCTIONAL = "dynagat, new graph", "dynagat, F.dropout"
MISSING = "–"


def markdown_table(header: Row, rows: Iterable[Row], words: int = 1) -> str:
    """Align the first `words` columns left and the others, which hold numbers, right."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def layers(entries: list[Entry]) -> str:
    """The step time of each contender, and its ratio to that of dynagat."""
    has_new = any(entry.find(NEW_GRAPH, "step") for entry in entries)
    names = [*NAMES, NEW_GRAPH] if has_new else list(NAMES)
    header = ["", "edges", *(NAMES.get(name, name) for name in names), "compiling, s"]
    header += [*RATIOS, "difference"]
    return markdown_table(header, [_layers_row(entry, names) for entry in entries])


def _layers_row(entry: Entry, names: list[str]) -> Row:
    first, steady = entry.median("compiled", "first step"), entry.median("compiled", "step")
    compiling = MISSING if first is None or steady is None else f"{first - steady:.0f}"
    ratios = [times(entry.ratio(name, "dynagat", "step")) for name in NAMES if name != "dynagat"]
    steps = [_milliseconds(entry.find(name, "step")) for name in names]
    label = entry.name if entry.group == "batches" else f"{entry.case['mechanism']} {entry.shape}"
    return [label, f"{entry.num_edges:,}", *steps, compiling, *ratios, _difference(entry)]


def first_five(entries: list[Entry]) -> str:
    """The time of an epoch of each contender, and its ratio to that of dynagat."""
    names = [*NAMES, FUNCTIONAL]
    header = ["", "nodes", "edges", *(NAMES.get(name, name) for name in names), *RATIOS]
    rows = []
    for entry in entries:
        epochs = [_milliseconds(entry.find(name, "epoch")) for name in names]
        ratios = [entry.ratio(name, "dynagat", "epoch") for name in NAMES if name != "dynagat"]
        rows.append([entry.name, *_sizes(entry), *epochs, *map(times, ratios)])
    return markdown_table(header, rows)


def tiny(entries: list[Entry]) -> str:
    """In microseconds, of a forward pass and of a step."""
    header = ["", "nodes", "edges"]
    for quantity in ("forward", "step"):
        header += [f"{quantity}, PyG eager, µs", f"{quantity}, dynagat, µs", "eager / ours"]
    rows = []
    for entry in entries:
        cells = [*_sizes(entry)]
        for quantity in ("forward", "step"):
            records = [entry.find(name, quantity) for name in ("pyg", "dynagat")]
            cells += [_range(each, lambda seconds: f"{seconds * 1e6:,.0f}") for each in records]
            cells.append(times(entry.ratio("pyg", "dynagat", quantity)))
        rows.append([entry.case["mechanism"], *cells])
    return markdown_table(header, rows)


def pairs(ratio: Ratio, above: str, below: str, result: str) -> Callable[[list[Entry]], str]:
    """A function that writes a table with two contenders per case."""

    def table(entries: list[Entry]) -> str:
        header = ["", "nodes", "edges", above, below, result]
        return markdown_table(header, [_pairs_row(entry, ratio) for entry in entries])

    return table


def _pairs_row(entry: Entry, ratio: Ratio) -> Row:
    steps = [_milliseconds(entry.find(name, ratio.quantity)) for name in (ratio.above, ratio.below)]
    return [entry.name, *_sizes(entry), *steps, times(ratio.of(entry))]


def degrees(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "ns per edge", "ns per edge, even", "ratio"]
    rows = []
    for entry in entries:
        seconds = [entry.median(name, "attention") for name in ("uneven", "even")]
        each = [MISSING if s is None else f"{s / entry.num_edges * 1e9:.1f}" for s in seconds]
        rows.append([entry.name, *_sizes(entry), *each, times(DEGREES.of(entry))])
    return markdown_table(header, rows)


def first_call(entries: list[Entry]) -> str:
    """One row per part, with a column for each contender."""
    header, rows = [""], []
    for entry in entries:
        names = entry.case["contenders"]
        header = ["", *names]
        quantities = dict.fromkeys(r.quantity for r in entry.records if r.values)
        for quantity in quantities:
            if quantity == "fresh memory":
                cells = [megabytes(entry.median(name, quantity)) for name in names]
            else:
                cells = [_milliseconds(entry.find(name, quantity)) for name in names]
            rows.append([quantity, *cells])
    return markdown_table(header, rows)


def memory(entries: list[Entry]) -> str:
    header = ["", "edges", *(f"{name}, MB" for name in NAMES.values())]
    header += RATIOS
    rows = []
    for entry in entries:
        for quantity, title in (("memory", "peak"), ("kept memory", "kept")):
            sizes = [megabytes(entry.median(name, quantity), unit="") for name in NAMES]
            ratios = [entry.ratio(n, "dynagat", "memory") for n in NAMES if n != "dynagat"]
            ratios = map(times, ratios if title == "peak" else [None] * len(ratios))
            rows.append([f"{entry.shape}, {title}", f"{entry.num_edges:,}", *sizes, *ratios])
    return markdown_table(header, rows)


def streamed(entries: list[Entry]) -> str:
    header = ["", "edges", "reference, MB", "streamed, MB", "reference / streamed"]
    rows = []
    for entry in entries:
        sizes = [
            megabytes(entry.median(name, "memory"), unit="") for name in ("reference", "streamed")
        ]
        ratio = times(STREAMED_MEMORY.of(entry))
        rows.append([f"{entry.shape}, peak", f"{entry.num_edges:,}", *sizes, ratio])
    return markdown_table(header, rows)


def bfloat16(entries: list[Entry]) -> str:
    header = ["", "float32", "bfloat16", "float32 / bfloat16", "difference, same tables"]
    header += ["output difference, tables rounded"]
    rows = []
    for entry in entries:
        steps = [_milliseconds(entry.find(name, "attention")) for name in ("float32", "bfloat16")]
        quantities = ("difference", "output difference with rounded tables")
        errors = [_small(entry.median("bfloat16", quantity)) for quantity in quantities]
        ratio = times(entry.ratio("float32", "bfloat16", "attention"))
        rows.append([entry.name, *steps, ratio, *errors])
    return markdown_table(header, rows)


def capture(entries: list[Entry]) -> str:
    header = ["", "edges", "captured", "plain", "captured / plain", "how_attentive, s"]
    rows = []
    for entry in entries:
        steps = [_milliseconds(entry.find(name, "forward")) for name in ("captured", "plain")]
        whole = _fixed(entry.median("microscope", "seconds"))
        rows.append([entry.name, f"{entry.num_edges:,}", *steps, times(CAPTURE.of(entry)), whole])
    return markdown_table(header, rows)


ORDERS = ("given", "random", "reordered")


def locality(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", *ORDERS, "given / reordered", "random / reordered"]
    header += ["ordering", "moving rows"]
    rows = []
    for entry in entries:
        steps = [_milliseconds(entry.find(name, "attention")) for name in ORDERS]
        ratios = [times(entry.ratio(name, "reordered", "attention")) for name in ORDERS[:2]]
        quantities = ("seconds of ordering", "seconds of moving")
        once = [_milliseconds(entry.find("reordered", each)) for each in quantities]
        rows.append([entry.name, *_sizes(entry), *steps, *ratios, *once])
    return markdown_table(header, rows)


SAMPLERS = ("dgl", "dynagat, layered", "pyg-lib", "torch-sparse", "dynagat, merged")
IMPORTERS = {"pandas": "pandas", "dynagat": "to memory", "dynagat, to a folder": "to a folder"}
WALKERS = ("dgl, walks", "dynagat, walks")


def sampling(entries: list[Entry]) -> str:
    header = ["", "edges of the graph", *(NAMES.get(name, name) for name in SAMPLERS)]
    header += ["best peer / ours", "an epoch, s"]
    rows = []
    for entry in entries:
        speeds = [_speed(entry.median(name, "edge")) for name in SAMPLERS]
        whole = _fixed(entry.median("dynagat, layered", "pass"))
        ratio = times(SAMPLING.of(entry))
        rows.append([entry.name, f"{entry.num_edges:,}", *speeds, ratio, whole])
    return markdown_table(header, rows)


def walks(entries: list[Entry]) -> str:
    header = ["", "edges of the graph", "DGL", "dynagat", "DGL / ours"]
    rows = []
    for entry in entries:
        speeds = [_speed(entry.median(name, "edge")) for name in WALKERS]
        rows.append([entry.name, f"{entry.num_edges:,}", *speeds, times(WALKS.of(entry))])
    return markdown_table(header, rows)


def importing(entries: list[Entry]) -> str:
    """One row per reader of a case."""
    header = ["", "nodes", "edges", "seconds", "arrays, MB", "peak, MB", "peak / arrays"]
    rows = []
    for entry in entries:
        for name, title in IMPORTERS.items():
            seconds = _range(entry.find(name, "seconds"), _fixed)
            bytes_ = [megabytes(entry.median(name, each), unit="") for each in ("arrays", "memory")]
            ratio = times(entry.median(name, "peak over arrays"))
            rows.append([f"{entry.name}, {title}", *_sizes(entry), seconds, *bytes_, ratio])
    return markdown_table(header, rows)


def training(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "step, ms", "steps per epoch", "epoch, s", "evaluation, s"]
    rows = []
    for entry in entries:
        quantities = ("steps per epoch", "epoch", "evaluation", "process memory")
        steps, epoch, evaluation, peak = (entry.median("dynagat", each) for each in quantities)
        cells = [_milliseconds(entry.find("dynagat", "step")), _fixed(steps, 0)]
        cells += [_fixed(epoch, 0), _fixed(evaluation), megabytes(peak, unit="")]
        rows.append([entry.case["benchmark"], *_sizes(entry), *cells])
    return markdown_table([*header, "peak memory, MB"], rows)


def epoch(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "step, PyG eager", "step, dynagat", "steps per epoch"]
    header += ["epoch, PyG eager, s", "epoch, dynagat, s", "eager / ours", "PyG, MB", "dynagat, MB"]
    rows = []
    for entry in entries:
        both = ("pyg", "dynagat")
        steps = [_milliseconds(entry.find(name, "step")) for name in both]
        epochs = [_fixed(entry.median(name, "epoch")) for name in both]
        sizes = [megabytes(entry.median(name, "memory"), unit="") for name in both]
        count = _fixed(entry.median("dynagat", "steps per epoch"), 0)
        ratio = times(entry.ratio("pyg", "dynagat", "epoch"))
        cells = [*_sizes(entry), *steps, count, *epochs, ratio, *sizes]
        rows.append([entry.case["benchmark"], *cells])
    return markdown_table(header, rows)


def larger_than_memory(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "store, MB", "anonymous, MB", "before, MB", "mapped, MB"]
    header += ["sorting, s", "step, ms", "million edges/s", "epoch, s"]
    rows = []
    for entry in entries:
        sizes = ("store", "anonymous memory", "anonymous memory before", "mapped memory")
        cells = [megabytes(entry.median("dynagat", each), unit="") for each in sizes]
        cells += [_fixed(entry.median("dynagat", "sorting"))]
        cells += [_milliseconds(entry.find("dynagat", "step"))]
        speed = entry.median("dynagat", "edges per second")
        cells += [MISSING if speed is None else f"{speed / 1e6:.3g}"]
        cells += [_fixed(entry.median("dynagat", "epoch"), 0)]
        rows.append([f"{entry.case['graph']['features']} features", *_sizes(entry), *cells])
    return markdown_table(header, rows)


PARTS = ("sampling", "gathering", "products", "attention", "activations", "overhead")


def planning(entries: list[Entry]) -> str:
    """The time of an epoch, and the parts of a predicted step."""
    header = [
        "",
        "nodes",
        "edges",
        "predicted epoch, s",
        "measured epoch, s",
        "predicted / measured",
    ]
    header += [f"{part}, ms" for part in PARTS]
    rows = []
    for entry in entries:
        cells = [_fixed(entry.median(name, "epoch")) for name in ("plan", "dynagat")]
        cells += [times(entry.median("plan", "over measured"))]
        for part in PARTS:
            seconds = entry.median("plan", part)
            cells += [MISSING if seconds is None else _in_milliseconds(seconds)]
        rows.append([entry.case["mechanism"], *_sizes(entry), *cells])
    return markdown_table(header, rows)


def workers(entries: list[Entry]) -> str:
    """One row per setup; ratios are to the first one."""
    header = ["", "nodes", "edges", "million edges per s", "times one", "evaluation, s"]
    rows = []
    for entry in entries:
        first, *_ = names = entry.case["contenders"]
        for name in names:
            cells = [_speed(entry.median(name, "edge")), times(entry.ratio(first, name, "edge"))]
            cells.append(_fixed(entry.median(name, "evaluation")))
            rows.append([f"{entry.case['benchmark']}, {name}", *_sizes(entry), *cells])
    return markdown_table(header, rows)


def sweep(entries: list[Entry]) -> str:
    """One row per setup; ratios are to the first one."""
    header = ["", "runs", "runs per hour", "times --workers 1"]
    rows = []
    for entry in entries:
        first, *_ = names = entry.case["contenders"]
        for name in names:
            seconds = entry.median(name, "run")
            speed = MISSING if seconds is None else f"{3600 / seconds:,.0f}"
            cells = [f"{entry.case['num_runs']}", speed, times(entry.ratio(first, name, "run"))]
            rows.append([name, *cells])
    return markdown_table(header, rows)


def relational(entries: list[Entry]) -> str:
    header = ["", "PyG eager", "dynagat", "eager / ours", "epoch, s", "molecules per s"]
    header += ["edges per s", "products", "attention", "products, GFLOP/s", "large product"]
    rows = []
    for entry in entries:
        steps = [_milliseconds(entry.find(name, "step")) for name in ("pyg", "dynagat")]
        speed, peak = (entry.median(name, "flops") for name in ("dynagat", "machine"))
        cells = [times(entry.ratio("pyg", "dynagat", "step"))]
        cells += [_fixed(entry.median("dynagat", "epoch"), 0), *_speeds(entry, 0), *_shares(entry)]
        cells += [MISSING if each is None else f"{each / 1e9:.0f}" for each in (speed, peak)]
        rows.append([entry.name, *steps, *cells])
    return markdown_table(header, rows)


def links(entries: list[Entry]) -> str:
    """Two rows per case: the time of a step and the peak memory."""
    header = ["", "nodes", "edges", "PyG eager", "dynagat", "eager / ours"]
    header += ["steps per epoch", "epoch, PyG eager, s", "epoch, dynagat, s"]
    rows = []
    for entry in entries:
        steps = [_milliseconds(entry.find(name, "step")) for name in ("pyg", "dynagat")]
        sizes = [megabytes(entry.median(name, "memory")) for name in ("pyg", "dynagat")]
        epochs = [_fixed(entry.median(name, "epoch"), 0) for name in ("pyg", "dynagat")]
        ratios = [times(entry.ratio("pyg", "dynagat", each)) for each in ("step", "memory")]
        count = _fixed(entry.median("dynagat", "steps per epoch"), 0)
        rows.append([f"{entry.name}, step", *_sizes(entry), *steps, ratios[0], count, *epochs])
        rows.append([f"{entry.name}, peak memory", *_sizes(entry), *sizes, ratios[1], "", "", ""])
    return markdown_table(header, rows)


def programs(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "PyG eager", "dynagat", "eager / ours", "graphs per s"]
    header += ["edges per s", "products", "attention", "PyG, MB", "dynagat, MB", "eager / ours"]
    rows = []
    for entry in entries:
        steps = [_milliseconds(entry.find(name, "step")) for name in ("pyg", "dynagat")]
        memory = [megabytes(entry.median(name, "memory"), "") for name in ("pyg", "dynagat")]
        row = [entry.name, *_sizes(entry), *steps, times(entry.ratio("pyg", "dynagat", "step"))]
        row += [*_speeds(entry, 1), *_shares(entry), *memory]
        rows.append([*row, times(entry.ratio("pyg", "dynagat", "memory"))])
    return markdown_table(header, rows)


# Cells


def _speeds(entry: Entry, digits: int) -> Row:
    """Graphs and edges per second of a training step of ours."""
    step = entry.median("dynagat", "step")
    if not step:
        return [MISSING] * 2
    return [
        f"{entry.case['graph']['num_graphs'] / step:,.{digits}f}",
        f"{entry.num_edges / step:,.0f}",
    ]


def _shares(entry: Entry) -> Row:
    """Of products and attention in the time of a step."""
    shares = (entry.median("dynagat", f"share of {each}") for each in ("products", "attention"))
    return [MISSING if share is None else f"{share:.0%}" for share in shares]


def _sizes(entry: Entry) -> Row:
    return [f"{entry.num_nodes:,}", f"{entry.num_edges:,}"]


def _fixed(value: float | None, digits: int = 1) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"


def _speed(seconds: float | None) -> str:
    """Seconds per edge -> million edges per second"""
    return MISSING if not seconds else f"{1e-6 / seconds:.3g}"


def _range(record: Record | None, text: Callable[[float], str]) -> str:
    """median (lowest–highest), each formatted by `text`"""
    if record is None or not record.values:
        return MISSING
    low, high = min(record.values), max(record.values)
    return f"{text(record.median)} ({text(low)}–{text(high)})"


def _milliseconds(record: Record | None) -> str:
    """median (lowest–highest)"""
    return _range(record, _in_milliseconds)


def _in_milliseconds(seconds: float) -> str:
    """With at least three digits."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{_in_milliseconds(seconds)} ms"


def megabytes(value: float | None, unit: str = " MB") -> str:
    return MISSING if value is None else f"{value / 1e6:,.0f}{unit}"


def times(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×"


def _small(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1e}"


def _difference(entry: Entry) -> str:
    """The largest relative difference from PyG, over the output and all gradients."""
    differences = (
        r.values[0] for r in entry.records if r.contender == "dynagat" and "against" in r.quantity
    )
    return _small(max(differences, default=None))
