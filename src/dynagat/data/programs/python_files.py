"""import_python: Python files as program graphs, in the layout of the VarMisuse data."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynagat.data.programs.cutting import DISTANCE
from dynagat.data.programs.importing import Report, Task, Yield, write_programs
from dynagat.data.programs.layout import PARTS, Packed, pack
from dynagat.data.programs.python_graph import uncollected
from dynagat.data.programs.python_source import (
    NO_USE,
    SkippedFile,
    program_of,
    read_source,
    skipping,
)
from dynagat.data.programs.sources import (
    Source,
    find_sources,
    parts_of,
    python_projects,
    without_duplicates,
)
from dynagat.data.store import check_name, store_folder

SLOTS_PER_FILE = 5
FILES = 8  # read by a worker at a time
DUPLICATE = "same content as another file"


@dataclass(frozen=True)
class Batch:
    """Files that a worker reads at a time."""

    sources: tuple[Source, ...]
    slots_per_file: int
    distance: int
    seed: int


def import_python(
    paths: Sequence[Path | str] = (),
    name: str = "python",
    *,
    folder: Path | str | None = None,
    slots_per_file: int = SLOTS_PER_FILE,
    max_graphs: int | None = None,
    distance: int = DISTANCE,
    unseen: Sequence[str] = (),
    seed: int = 0,
    workers: int | None = None,
    replace: bool = False,
    tell: Callable[[int, int], None] = lambda files, graphs: None,
) -> Report:
    """Turn Python files into program graphs and store them; the files are never executed.

    Args:
        paths: files or folders, each a project. Default: the standard library of this Python, and
            each package that is installed.
        name: of the programs in the graph store.
        folder: where to write them instead of the graph store.
        slots_per_file: at most this many uses of variables of a file become slots.
        max_graphs: at most this many graphs for training, and a fifth of it in each other part.
        distance: number of edges from the slot within which nodes are kept.
        unseen: names of the projects that form test-unseen; drawn at random if there are none.
        seed: of the choice of slots, the split and the order.
        workers: number of processes, by default that of the cores. It does not change the result.
        replace: whether to replace stored programs of this name.
        tell: called with the number of files that were read and of graphs.
    """
    for option, value in (("slots_per_file", slots_per_file), ("distance", distance)):
        if value < 1:
            raise ValueError(f"{option} must be at least 1, but is {value}")
    if max_graphs is not None and max_graphs < 1:
        raise ValueError(f"max_graphs must be at least 1, but is {max_graphs}")
    place = Path(folder) if folder is not None else store_folder() / check_name(name)
    projects = python_projects([Path(path) for path in paths])
    sources, duplicates = without_duplicates(find_sources(projects))
    if not sources:
        where = ", ".join(map(str, paths)) or "the installed packages"
        raise ValueError(f"PATH must hold Python files (*.py), but there are none in {where}")
    parts = parts_of(sources, seed, unseen)
    settings = {"slots_per_file": slots_per_file, "distance": distance, "seed": seed}
    report = write_programs(
        place,
        _tasks(parts, slots_per_file, distance, seed),
        read_files,
        about={
            "name": place.name,
            "language": "python",
            "source": f"{len(projects):,} projects of Python files",
            "settings": {**settings, "max_graphs": max_graphs, "duplicates": duplicates},
        },
        seed=seed,
        limits=None if max_graphs is None else limits_of(max_graphs),
        workers=workers or len(os.sched_getaffinity(0)),
        replace=replace,
        tell=tell,
    )
    return report


def limits_of(max_graphs: int) -> dict[str, int]:
    """Numbers of graphs by part."""
    return {part: max_graphs if part == "train" else -(-max_graphs // 5) for part in PARTS}


def _tasks(
    parts: dict[Source, str], slots_per_file: int, distance: int, seed: int
) -> Iterator[Task]:
    """Batches of files of one part, in random order."""
    batches = []
    for part in PARTS:
        sources = [source for source, each in parts.items() if each == part]
        random.Random(f"{seed} files of {part}").shuffle(sources)
        for start in range(0, len(sources), FILES):
            chosen = tuple(sources[start : start + FILES])
            batches.append(Task(part, Batch(chosen, slots_per_file, distance, seed)))
    random.Random(f"{seed} batches").shuffle(batches)
    yield from batches


def read_files(batch: Batch) -> list[Yield]:
    """What each file of a batch gives. It runs in a worker process."""
    with _collected_once():
        return [_read(source, batch) for source in batch.sources]


@contextmanager
def _collected_once() -> Iterator[None]:
    """Collect garbage at the end only, and only what is new: syntax trees have many objects."""
    with uncollected():
        gc.freeze()
        try:
            yield
        finally:
            gc.collect()
            gc.unfreeze()


def _read(source: Source, batch: Batch) -> Yield:
    packed: list[Packed] = []
    reason = NO_USE
    try:
        for record in _records(source, batch):
            packed.append(pack(record))
            if len(packed) == batch.slots_per_file:
                break
    except SkippedFile as skipped:
        reason = str(skipped)
    return Yield(source.project, source.name, tuple(packed), None if packed else reason)


def _records(source: Source, batch: Batch) -> Iterator[dict[str, Any]]:
    """Of the uses in random order; a SkippedFile error if the file can't be used."""
    program = program_of(read_source(source.path))
    uses = list(program.uses)
    random.Random(f"{batch.seed} {source.project} {source.name}").shuffle(uses)
    for use in uses:
        with skipping():
            record = program.record(use, source.name, batch.distance)
        if record is not None:
            yield record
