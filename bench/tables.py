"""Tables: the cells and rows in which the pages show records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.goals import CAPTURE, DEGREES, SAMPLING, WALKS, Ratio
from bench.records import Entry, Record

Row = Sequence[str]
NAMES = {"pyg": "PyG eager", "compiled": "PyG compiled", "dgl": "DGL", "dynagat": "dynagat"}
NEW_GRAPH = "dynagat, new graph"
NOTHING = "–"


def markdown_table(header: Row, rows: Iterable[Row], words: int = 1) -> str:
    """The first columns, which hold words, to the left, the others to the right."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def contest(entries: list[Entry]) -> str:
    """A step of every contender, and how many times as long as ours the others take."""
    has_new = any(entry.find(NEW_GRAPH, "step") for entry in entries)
    names = [*NAMES, NEW_GRAPH] if has_new else list(NAMES)
    header = ["", "edges", *(NAMES.get(name, name) for name in names), "compiling, s"]
    header += ["eager /", "compiled /", "DGL /", "difference"]
    return markdown_table(header, [_contest_row(entry, names) for entry in entries])


def _contest_row(entry: Entry, names: list[str]) -> Row:
    first, steady = entry.median("compiled", "first step"), entry.median("compiled", "step")
    compiling = NOTHING if first is None or steady is None else f"{first - steady:.0f}"
    ratios = [times(entry.ratio(name, "dynagat", "step")) for name in NAMES if name != "dynagat"]
    steps = [_spread(entry.find(name, "step")) for name in names]
    label = entry.name if entry.group == "batches" else f"{entry.case['mechanism']} {entry.shape}"
    return [label, f"{entry.num_edges:,}", *steps, compiling, *ratios, _difference(entry)]


def duel(ratio: Ratio, above: str, below: str, result: str) -> Callable[[list[Entry]], str]:
    """Of a table with two contenders in each case."""

    def table(entries: list[Entry]) -> str:
        header = ["", "nodes", "edges", above, below, result]
        return markdown_table(header, [_duel_row(entry, ratio) for entry in entries])

    return table


def _duel_row(entry: Entry, ratio: Ratio) -> Row:
    steps = [_spread(entry.find(name, ratio.quantity)) for name in (ratio.above, ratio.below)]
    sizes = [f"{entry.num_nodes:,}", f"{entry.num_edges:,}"]
    return [entry.name, *sizes, *steps, times(ratio.of(entry))]


def degrees(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "ns per edge", "ns per edge, even", "ratio"]
    rows = []
    for entry in entries:
        seconds = [entry.median(name, "attention") for name in ("uneven", "even")]
        each = [NOTHING if s is None else f"{s / entry.num_edges * 1e9:.1f}" for s in seconds]
        sizes = [f"{entry.num_nodes:,}", f"{entry.num_edges:,}"]
        rows.append([entry.name, *sizes, *each, times(DEGREES.of(entry))])
    return markdown_table(header, rows)


def memory(entries: list[Entry]) -> str:
    header = ["", "edges", *(f"{name}, MB" for name in NAMES.values())]
    header += ["eager /", "compiled /", "DGL /"]
    rows = []
    for entry in entries:
        for quantity, what in (("memory", "peak"), ("kept memory", "kept")):
            sizes = [megabytes(entry.median(name, quantity), unit="") for name in NAMES]
            ratios = [entry.ratio(n, "dynagat", "memory") for n in NAMES if n != "dynagat"]
            ratios = map(times, ratios if what == "peak" else [None] * len(ratios))
            rows.append([f"{entry.shape}, {what}", f"{entry.num_edges:,}", *sizes, *ratios])
    return markdown_table(header, rows)


def bfloat16(entries: list[Entry]) -> str:
    header = ["", "float32", "bfloat16", "float32 / bfloat16", "difference, same tables"]
    header += ["output difference, tables rounded"]
    rows = []
    for entry in entries:
        steps = [_spread(entry.find(name, "attention")) for name in ("float32", "bfloat16")]
        quantities = ("difference", "output difference with rounded tables")
        errors = [_small(entry.median("bfloat16", quantity)) for quantity in quantities]
        ratio = times(entry.ratio("float32", "bfloat16", "attention"))
        rows.append([entry.name, *steps, ratio, *errors])
    return markdown_table(header, rows)


def capture(entries: list[Entry]) -> str:
    header = ["", "edges", "captured", "plain", "captured / plain", "how_attentive, s"]
    rows = []
    for entry in entries:
        steps = [_spread(entry.find(name, "forward")) for name in ("captured", "plain")]
        whole = _fixed(entry.median("microscope", "seconds"))
        rows.append([entry.name, f"{entry.num_edges:,}", *steps, times(CAPTURE.of(entry)), whole])
    return markdown_table(header, rows)


SAMPLERS = ("dgl", "dynagat, layered", "pyg-lib", "torch-sparse", "dynagat, merged")
IMPORTERS = {"pandas": "pandas", "dynagat": "to memory", "dynagat, to a folder": "to a folder"}
WALKERS = ("dgl, walks", "dynagat, walks")


def sampling(entries: list[Entry]) -> str:
    header = ["", "edges of the graph", *(NAMES.get(name, name) for name in SAMPLERS)]
    header += ["best peer / ours", "a pass, s"]
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
    """A row for each reader of a case."""
    header = ["", "nodes", "edges", "seconds", "arrays, MB", "peak, MB", "peak / arrays"]
    rows = []
    for entry in entries:
        sizes = [f"{entry.num_nodes:,}", f"{entry.num_edges:,}"]
        for name, what in IMPORTERS.items():
            record = entry.find(name, "seconds")
            peak, arrays = (entry.median(name, kind) for kind in ("memory", "arrays"))
            cells = [_seconds(record), megabytes(arrays, unit=""), megabytes(peak, unit="")]
            share = times(entry.median(name, "peak over arrays"))
            rows.append([f"{entry.name}, {what}", *sizes, *cells, share])
    return markdown_table(header, rows)


def training(entries: list[Entry]) -> str:
    header = ["", "nodes", "edges", "step, ms", "steps per epoch", "epoch, s", "evaluation, s"]
    rows = []
    for entry in entries:
        sizes = [f"{entry.num_nodes:,}", f"{entry.num_edges:,}"]
        quantities = ("steps per epoch", "epoch", "evaluation", "process memory")
        steps, epoch, evaluation, peak = (entry.median("dynagat", each) for each in quantities)
        cells = [_spread(entry.find("dynagat", "step")), _fixed(steps, 0)]
        cells += [_fixed(epoch, 0), _fixed(evaluation), megabytes(peak, unit="")]
        rows.append([entry.case["benchmark"], *sizes, *cells])
    return markdown_table([*header, "peak memory, MB"], rows)


# Cells


def _fixed(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def _seconds(record: Record | None) -> str:
    """median (lowest–highest)"""
    if record is None or not record.values:
        return NOTHING
    return f"{record.median:.1f} ({min(record.values):.1f}–{max(record.values):.1f})"


def _speed(seconds: float | None) -> str:
    """Of one edge -> million edges per second"""
    return NOTHING if not seconds else f"{1e-6 / seconds:.3g}"


def _spread(record: Record | None) -> str:
    """median (lowest–highest), in milliseconds"""
    if record is None or not record.values:
        return NOTHING
    low, high = min(record.values), max(record.values)
    return f"{_number(record.median)} ({_number(low)}–{_number(high)})"


def milliseconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{_number(seconds)} ms"


def _number(seconds: float) -> str:
    """In milliseconds, with three digits or more."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def megabytes(value: float | None, unit: str = " MB") -> str:
    return NOTHING if value is None else f"{value / 1e6:,.0f}{unit}"


def times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×"


def _small(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1e}"


def _difference(entry: Entry) -> str:
    """The largest relative one between ours and PyG's, of the output and all gradients."""
    found = [
        r.values[0] for r in entry.records if r.contender == "dynagat" and "against" in r.quantity
    ]
    return _small(max(found, default=None))
