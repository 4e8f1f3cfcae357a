"""Goals: what design.md, section 5, asks for, and whether the records reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.records import Entry, Ledger, geometric_mean

Summary = Callable[[Iterable[float]], float]


@dataclass(frozen=True)
class Ratio:
    """The median of one contender over that of another."""

    above: str
    below: str
    quantity: str

    def of(self, entry: Entry) -> float | None:
        return entry.ratio(self.above, self.below, self.quantity)


@dataclass(frozen=True)
class Lowest:
    """The lowest of the ratios of those that took part."""

    ratios: tuple[Ratio, ...]

    def of(self, entry: Entry) -> float | None:
        return min((r for each in self.ratios if (r := each.of(entry)) is not None), default=None)


@dataclass(frozen=True)
class Highest:
    """A quantity as it is, of the contender in whom it is highest."""

    contenders: tuple[str, ...]
    quantity: str

    def of(self, entry: Entry) -> float | None:
        found = [entry.median(name, self.quantity) for name in self.contenders]
        there = [value for value in found if value is not None]
        return max(there) if len(there) == len(found) else None


@dataclass(frozen=True)
class Goal:
    """A ratio or other quantity, summed up over all cases of a group, and the bound to keep."""

    group: str
    what: str
    ratio: Ratio | Lowest | Highest
    summary: Summary
    sense: str  # "≥" or "≤"
    bound: float
    unit: str = "×"

    def measured(self, ledger: Ledger) -> float | None:
        """None unless every case of the group has both contenders: no mean leaves one out."""
        ratios = [self.ratio.of(entry) for entry in ledger.group(self.group)]
        there = [ratio for ratio in ratios if ratio is not None]
        return self.summary(there) if there and len(there) == len(ratios) else None

    def is_met(self, ledger: Ledger) -> bool | None:
        value = self.measured(ledger)
        if value is None:
            return None
        return value >= self.bound if self.sense == "≥" else value <= self.bound


EAGER = Ratio("pyg", "dynagat", "step")
COMPILED = Ratio("compiled", "dynagat", "step")
FLOOR = Ratio("dynagat", "floor", "attention")
EAGER_MEMORY = Ratio("pyg", "dynagat", "memory")
COMPILED_MEMORY = Ratio("compiled", "dynagat", "memory")
DEGREES = Ratio("uneven", "even", "attention")
BUILD = Ratio("graph", "layer", "build")
THREADS = Ratio("1 thread", "2 threads", "attention")
CAPTURE = Ratio("captured", "plain", "forward")
SAMPLING = Lowest(
    (
        Ratio("dgl", "dynagat, layered", "edge"),
        Ratio("pyg-lib", "dynagat, merged", "edge"),
        Ratio("torch-sparse", "dynagat, merged", "edge"),
    )
)
IMPORTERS = ("dynagat", "dynagat, to a folder")
IMPORT_SECONDS = Highest(IMPORTERS, "seconds")
IMPORT_MEMORY = Highest(IMPORTERS, "peak over arrays")
WALKS = Ratio("dgl, walks", "dynagat, walks", "edge")

GOALS = (
    Goal("layers", "PyG eager over dynagat, geometric mean", EAGER, geometric_mean, "≥", 16),
    Goal("layers", "PyG eager over dynagat, lowest", EAGER, min, "≥", 11),
    Goal("layers", "PyG compiled over dynagat, geometric mean", COMPILED, geometric_mean, "≥", 10),
    Goal("layers", "PyG compiled over dynagat, lowest", COMPILED, min, "≥", 8),
    Goal("floor", "attention over the gather floor, highest", FLOOR, max, "≤", 1.5),
    Goal("memory", "PyG eager over dynagat", EAGER_MEMORY, min, "≥", 13),
    Goal("memory", "PyG compiled over dynagat", COMPILED_MEMORY, min, "≥", 3.5),
    Goal("batches", "PyG eager over dynagat, lowest", EAGER, min, "≥", 8),
    Goal("batches", "PyG compiled over dynagat, lowest", COMPILED, min, "≥", 3),
    Goal("degrees", "time per edge over that of the even graph, highest", DEGREES, max, "≤", 1.5),
    Goal("build", "building the graph over one layer's forward pass", BUILD, max, "≤", 1),
    Goal("threads", "one thread over two, lowest", THREADS, min, "≥", 1.7),
    Goal(
        "mechanisms", "PyG compiled over dynagat, geometric mean", COMPILED, geometric_mean, "≥", 4
    ),
    Goal("mechanisms", "PyG compiled over dynagat, lowest", COMPILED, min, "≥", 1),
    Goal("capture", "forward under capture over forward, highest", CAPTURE, max, "≤", 2),
    Goal("sampling", "the best peer's time per edge over ours, lowest", SAMPLING, min, "≥", 1),
    Goal("walks", "DGL's time per edge over ours", WALKS, min, "≥", 1),
    Goal("import", "time, longest", IMPORT_SECONDS, max, "≤", 30, " s"),
    Goal("import", "peak memory over the arrays made, highest", IMPORT_MEMORY, max, "≤", 3),
)
