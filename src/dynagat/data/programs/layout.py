"""The layout of program graphs on disk: that of the original VarMisuse data after re-chunking.

NAME/PART/chunk-00000.jsonl.gz, ... hold 100 records each, one JSON object per line, with the keys
of the original. Edges are forward only. programs.json describes the whole: the projects of each
part, the counts, and the checksums of the chunks.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dynagat.data.arrays import FolderError
from dynagat.files import new_folder

PARTS = ("train", "valid", "test-seen", "test-unseen")
EDGE_TYPES = ("Child", "NextToken", "LastUse", "LastWrite", "LastLexicalUse", "ComputedFrom")
EDGE_TYPES += ("GuardedBy", "GuardedByNegation", "FormalArgName", "ReturnsTo")
SLOT = "<SLOT>"  # label of the slot's node
MAX_CANDIDATES = 5
LIST = "programs.json"
CHUNK = 100  # records
WINDOW = 2000  # records that are shuffled together; files are in random order already
ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)
LEVEL = 4  # of the compression: 5 % more bytes than 6 in a third of the time


@dataclass(frozen=True)
class Packed:
    """A record as one compressed line, with its numbers of nodes and edges."""

    data: bytes
    nodes: int
    edges: int


def pack(record: Mapping[str, Any]) -> Packed:
    """Files of several compressed lines are valid gzip files, so workers can compress."""
    graph = record["ContextGraph"]
    line = ENCODER.encode(record) + "\n"
    data = gzip.compress(line.encode("utf-8", "replace"), LEVEL, mtime=0)
    return Packed(data, len(graph["NodeLabels"]), sum(map(len, graph["Edges"].values())))


@dataclass(eq=False)
class Part:
    """Writes the records of one part, shuffled within windows."""

    folder: Path
    name: str
    seed: int
    limit: int | None  # of records
    window: int = WINDOW
    graphs: int = 0
    nodes: int = 0
    edges: int = 0
    waiting: list[Packed] = field(default_factory=list)
    chunks: dict[str, str] = field(default_factory=dict)  # checksums by path

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.graphs >= self.limit

    def add(self, record: Packed) -> None:
        if self.is_full:
            return
        self.waiting.append(record)
        self.graphs += 1
        self.nodes += record.nodes
        self.edges += record.edges
        if len(self.waiting) >= self.window:
            self.write()

    def write(self) -> None:
        """Write what is waiting. `window` is a multiple of CHUNK: only the last chunk is short."""
        random.Random(f"{self.seed} {self.name} {self.graphs}").shuffle(self.waiting)
        (self.folder / self.name).mkdir(exist_ok=True)
        for start in range(0, len(self.waiting), CHUNK):
            data = b"".join(each.data for each in self.waiting[start : start + CHUNK])
            path = f"{self.name}/chunk-{len(self.chunks):05}.jsonl.gz"
            (self.folder / path).write_bytes(data)
            self.chunks[path] = hashlib.sha256(data).hexdigest()
        self.waiting = []


@dataclass(frozen=True)
class PartCounts:
    graphs: int
    nodes: int  # of all graphs
    edges: int
    projects: tuple[str, ...]  # from which the records are
    files: int


@dataclass(frozen=True)
class ProgramsInfo:
    """What programs.json says."""

    name: str
    language: str
    source: str
    parts: Mapping[str, PartCounts]
    chunks: Mapping[str, str]
    settings: Mapping[str, Any]
    skipped: Mapping[str, int]  # files, by the reason
    dynagat: str = field(default_factory=lambda: version("dynagat"))

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        (folder / LIST).write_text(text + "\n", encoding="utf-8")


@contextmanager
def new_programs(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends without an error."""
    with new_folder(path, lambda: _check_free(path, replace)) as folder:
        yield folder


def _check_free(path: Path, replace: bool) -> None:
    if not path.exists():
        return
    if not replace:
        raise FolderError(f"{path} exists already; replace=True (--replace) replaces it")
    if not (path / LIST).is_file():
        raise FolderError(f"{path} exists already and holds no programs; it is not replaced")


def read_info(folder: Path) -> ProgramsInfo:
    """programs.json of a folder."""
    try:
        text = (folder / LIST).read_text(encoding="utf-8")
        values = json.loads(text)
        parts = {
            name: PartCounts(**{**counts, "projects": tuple(counts["projects"])})
            for name, counts in values.pop("parts").items()
        }
        return ProgramsInfo(parts=parts, **values)
    except (FileNotFoundError, NotADirectoryError):
        raise FolderError(f"{folder} holds no programs: it has no {LIST}") from None
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise FolderError(f"{folder / LIST} was cut short or altered: it can't be read") from None
