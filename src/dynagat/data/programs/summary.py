"""describe_programs: the statistics that the paper gives of VarMisuse, part by part.

The diameter is a mean over a seeded sample of graphs, without regard to the direction of edges, and
without sub-token nodes. Of each graph it is estimated by two sweeps: the node that is farthest from
the slot, and the distance of the node that is farthest from that one.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.arrays import FolderError
from dynagat.data.programs.context import GraphArrays
from dynagat.data.programs.layout import LIST, PARTS, ProgramsInfo, read_info
from dynagat.data.store import store_folder
from dynagat.files import checksum

SAMPLE = 100  # graphs of each part whose diameter is estimated


@dataclass(frozen=True)
class PartFacts:
    part: str
    graphs: int
    mean_nodes: float
    mean_edges: float
    mean_diameter: float | None  # None without graphs
    files: int
    projects: tuple[str, ...]


@dataclass(frozen=True)
class ProgramsDescription:
    name: str
    language: str
    source: str
    parts: tuple[PartFacts, ...]
    skipped: Mapping[str, int]
    sampled: int  # graphs of each part, at most, whose diameter was estimated

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"programs  {self.name}: {self.language}, {self.source}"]
        head = (
            "part",
            "graphs",
            "mean nodes",
            "mean edges",
            "mean diameter",
            "sources",
            "projects",
        )
        rows = [head, *map(_cells, self.parts)]
        widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
        for row in rows:
            cells = [f"{text:>{width}}" for text, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join([f"{row[0]:<{widths[0]}}", *cells]))
        lines.append(f"The diameter is estimated on up to {self.sampled} graphs of each part.")
        for reason, count in self.skipped.items():
            lines.append(f"skipped   {count:,}: {reason}")
        return "\n".join(lines)


def _cells(part: PartFacts) -> tuple[str, ...]:
    diameter = "" if part.mean_diameter is None else f"{part.mean_diameter:.2f}"
    sizes = f"{part.graphs:,}", f"{part.mean_nodes:,.1f}", f"{part.mean_edges:,.1f}", diameter
    return part.part, *sizes, f"{part.files:,}", f"{len(part.projects):,}"


def find_programs(name: Path | str) -> Path | None:
    """The folder of programs, given by its path or by its name in the store; None if it is none."""
    for path in (Path(name), store_folder() / name):
        if (path / LIST).is_file():
            return path
    return None


def stored_programs() -> list[str]:
    """The names of all programs in the store."""
    return sorted(path.parent.name for path in store_folder().glob(f"[!.]*/{LIST}"))


def describe_programs(folder: Path | str) -> ProgramsDescription:
    """Describe a folder of programs; its checksums are compared."""
    folder = Path(folder)
    info = read_info(folder)
    for path, sha256 in info.chunks.items():
        if not (folder / path).is_file() or checksum(folder / path) != sha256:
            raise FolderError(f"{folder / path} is missing, was cut short or altered")
    parts = [_facts(folder, info, part) for part in PARTS if part in info.parts]
    return ProgramsDescription(
        info.name, info.language, info.source, tuple(parts), info.skipped, SAMPLE
    )


def _facts(folder: Path, info: ProgramsInfo, part: str) -> PartFacts:
    counts = info.parts[part]
    diameters = [diameter(record) for record in _sample(folder, info, part)]
    graphs = max(1, counts.graphs)
    return PartFacts(
        part,
        counts.graphs,
        counts.nodes / graphs,
        counts.edges / graphs,
        float(np.mean(diameters)) if diameters else None,
        counts.files,
        counts.projects,
    )


def _sample(folder: Path, info: ProgramsInfo, part: str) -> Iterator[Mapping[str, Any]]:
    """Records of random chunks, which are in random order themselves."""
    paths = [path for path in info.chunks if path.startswith(f"{part}/")]
    random.Random(part).shuffle(paths)
    count = 0
    for path in paths:
        for record in read_chunk(folder / path):
            if count == SAMPLE:
                return
            count += 1
            yield record


def read_chunk(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a chunk, one after the other."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)
    except (EOFError, OSError, zlib.error, ValueError, RecursionError) as error:
        raise FolderError(f"{path} was cut short or altered: {error}") from None


def diameter(record: Mapping[str, Any]) -> int:
    """The largest distance between two nodes, estimated from below by two sweeps."""
    graph = record["ContextGraph"]
    arrays = GraphArrays.of(len(graph["NodeLabels"]), graph["Edges"])
    farthest, _ = _farthest(arrays, record["SlotDummyNode"])
    return _farthest(arrays, farthest)[1]


def _farthest(arrays: GraphArrays, start: int) -> tuple[int, int]:
    """A node at the largest distance from the start, and this distance."""
    levels: Sequence[np.ndarray] = list(arrays.levels(start))
    return int(levels[-1][0]), len(levels) - 1
