"""Goals: the speed and memory that dynagat should reach, and whether the records reach them.

The bounds are the project's own. Those of the layers were set before the kernels were written,
above what a prototype of plain C++ loops reached (12 times as fast as PyG eager, 8 times as fast as
compiled PyG). The samplers should be at least as fast as the best peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.records import Entry, Ledger, geometric_mean

Summary = Callable[[Iterable[float]], float]
SUMMARIES: dict[Summary, str] = {geometric_mean: "geometric mean", min: "lowest", max: "highest"}


@dataclass(frozen=True)
class Ratio:
    """The median of one contender divided by that of another."""

    title: str
    above: str
    below: str
    quantity: str

    def of(self, entry: Entry) -> float | None:
        return entry.ratio(self.above, self.below, self.quantity)


@dataclass(frozen=True)
class Lowest:
    """The lowest of several ratios; ratios that were not measured are left out."""

    title: str
    ratios: tuple[Ratio, ...]

    def of(self, entry: Entry) -> float | None:
        values = (ratio.of(entry) for ratio in self.ratios)
        return min((value for value in values if value is not None), default=None)


@dataclass(frozen=True)
class Highest:
    """The highest median of a quantity over several contenders; None if one is missing."""

    title: str
    contenders: tuple[str, ...]
    quantity: str
    per_unit: float = 1.0  # in which the goal is stated, such as 1e6 µs per second

    def of(self, entry: Entry) -> float | None:
        medians = [entry.median(name, self.quantity) for name in self.contenders]
        highest = _summarise(max, medians)
        return None if highest is None else self.per_unit * highest


@dataclass(frozen=True)
class Goal:
    """A bound on a ratio or quantity, summarised over all cases of a group."""

    group: str
    ratio: Ratio | Lowest | Highest
    summary: Summary
    sense: str  # "≥" or "≤"
    bound: float
    unit: str = "×"
    shape: str = ""  # only the cases of this shape, such as "8×8"

    @property
    def title(self) -> str:
        where = f" at {self.shape}" if self.shape else ""
        return f"{self.ratio.title}{where}, {SUMMARIES[self.summary]}"

    def measured(self, ledger: Ledger) -> float | None:
        """None unless every case of the group has a value: a summary leaves no case out."""
        entries = [e for e in ledger.group(self.group) if self.shape in ("", e.shape)]
        return _summarise(self.summary, [self.ratio.of(each) for each in entries])

    def is_met(self, ledger: Ledger) -> bool | None:
        value = self.measured(ledger)
        if value is None:
            return None
        return value >= self.bound if self.sense == "≥" else value <= self.bound


def _summarise(summary: Summary, values: list[float | None]) -> float | None:
    """None if there are no values or one is missing."""
    known = [value for value in values if value is not None]
    return summary(known) if known and len(known) == len(values) else None


EAGER = Ratio("PyG eager / dynagat", "pyg", "dynagat", "step")
COMPILED = Ratio("PyG compiled / dynagat", "compiled", "dynagat", "step")
EAGER_EPOCH = Ratio("PyG eager / dynagat", "pyg", "dynagat", "epoch")
COMPILED_EPOCH = Ratio("PyG compiled / dynagat", "compiled", "dynagat", "epoch")
FLOOR = Ratio("attention / gather floor", "dynagat", "floor", "attention")
EAGER_MEMORY = Ratio("PyG eager / dynagat", "pyg", "dynagat", "memory")
COMPILED_MEMORY = Ratio("PyG compiled / dynagat", "compiled", "dynagat", "memory")
STREAMED_MEMORY = Ratio("reference / streamed", "reference", "streamed", "memory")
DEGREES = Ratio("time per edge / that of the even graph", "uneven", "even", "attention")
BUILD = Ratio("building the graph / forward pass of a layer", "graph", "layer", "build")
THREADS = Ratio("one thread / two threads", "1 thread", "2 threads", "attention")
BFLOAT16 = Ratio("float32 / bfloat16", "float32", "bfloat16", "attention")
CAPTURE = Ratio("forward pass with capture / without", "captured", "plain", "forward")
WALKS = Ratio("time per edge, DGL / dynagat", "dgl, walks", "dynagat, walks", "edge")
SAMPLING = Lowest(
    "time per edge, best peer / dynagat",
    (
        Ratio("DGL / dynagat", "dgl", "dynagat, layered", "edge"),
        Ratio("pyg-lib / dynagat", "pyg-lib", "dynagat, merged", "edge"),
        Ratio("torch-sparse / dynagat", "torch-sparse", "dynagat, merged", "edge"),
    ),
)
IMPORTERS = ("dynagat", "dynagat, to a folder")
IMPORT_SECONDS = Highest("time", IMPORTERS, "seconds")
IMPORT_MEMORY = Highest("peak memory / size of the arrays", IMPORTERS, "peak over arrays")
PLAN = Ratio("predicted / measured epoch", "plan", "dynagat", "epoch")
GEMM = Ratio("products / product of large matrices", "dynagat", "machine", "flops")
TIME = Ratio("time, PyG eager / dynagat", "pyg", "dynagat", "step")
PEAK_MEMORY = Ratio("peak memory, PyG eager / dynagat", "pyg", "dynagat", "memory")
FORWARD = Highest("forward pass", ("dynagat",), "forward", 1e6)
STEP = Highest("step", ("dynagat",), "step", 1e6)
EPOCH = Highest("epoch of QM9", ("dynagat",), "epoch")

GOALS = (
    Goal("first-five", EAGER_EPOCH, geometric_mean, "≥", 5),
    Goal("first-five", EAGER_EPOCH, min, "≥", 2.5),
    Goal("first-five", COMPILED_EPOCH, geometric_mean, "≥", 3),
    Goal("first-five", COMPILED_EPOCH, min, "≥", 1.5),
    Goal("tiny", FORWARD, max, "≤", 120, " µs"),
    Goal("tiny", STEP, max, "≤", 400, " µs"),
    Goal("layers", EAGER, geometric_mean, "≥", 16),
    Goal("layers", EAGER, min, "≥", 11),
    Goal("layers", COMPILED, geometric_mean, "≥", 10),
    Goal("layers", COMPILED, min, "≥", 8),
    Goal("floor", FLOOR, max, "≤", 1.5),
    Goal("floor", FLOOR, max, "≤", 1.4, shape="8×8"),
    Goal("memory", EAGER_MEMORY, min, "≥", 13),
    Goal("memory", COMPILED_MEMORY, min, "≥", 3.5),
    Goal("streamed", STREAMED_MEMORY, min, "≥", 5),
    Goal("batches", EAGER, min, "≥", 8),
    Goal("batches", COMPILED, min, "≥", 3),
    Goal("degrees", DEGREES, max, "≤", 1.5),
    Goal("build", BUILD, max, "≤", 1),
    Goal("threads", THREADS, min, "≥", 1.7),
    Goal("mechanisms", COMPILED, geometric_mean, "≥", 4),
    Goal("mechanisms", COMPILED, min, "≥", 1),
    Goal("bfloat16", BFLOAT16, min, "≥", 1.5),
    Goal("capture", CAPTURE, max, "≤", 2),
    Goal("sampling", SAMPLING, min, "≥", 1),
    Goal("walks", WALKS, min, "≥", 1),
    Goal("epoch", EAGER_EPOCH, min, "≥", 13),
    Goal("import", IMPORT_SECONDS, max, "≤", 30, " s"),
    Goal("import", IMPORT_MEMORY, max, "≤", 3),
    Goal("plan", PLAN, max, "≤", 1.5),
    Goal("plan", PLAN, min, "≥", 0.67),
    Goal("relational", EAGER, min, "≥", 4),
    Goal("relational", EPOCH, max, "≤", 90, " s"),
    Goal("relational", GEMM, min, "≥", 0.8),
    Goal("links", TIME, min, "≥", 5),
    Goal("links", PEAK_MEMORY, min, "≥", 5),
    Goal("programs", TIME, min, "≥", 4),
    Goal("programs", PEAK_MEMORY, min, "≥", 4),
)
