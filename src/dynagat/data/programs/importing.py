"""write_programs: records from many sources to a folder, by worker processes, in a fixed order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from dynagat.data.programs.layout import (
    PARTS,
    WINDOW,
    Packed,
    Part,
    PartCounts,
    ProgramsInfo,
    new_programs,
)

NAMED = 5  # skipped files that a report names for each reason
AHEAD = 4  # tasks per worker that are computed before their results are written


@dataclass(frozen=True)
class Task:
    """Sources of one part, read by one call of a worker."""

    part: str
    work: Any  # what the worker reads


@dataclass(frozen=True)
class Yield:
    """What one source gave: records, or the reason why there are none."""

    project: str
    name: str
    records: tuple[Packed, ...] = ()
    skipped: str | None = None


@dataclass
class Report:
    """What an import did: programs.json, and the names of some skipped files by reason."""

    info: ProgramsInfo
    named: dict[str, list[str]] = field(default_factory=dict)


def write_programs(
    folder: Path,
    tasks: Iterable[Task],
    read: Callable[[Any], list[Yield]],
    *,
    about: Mapping[str, Any],
    seed: int = 0,
    limits: Mapping[str, int] | None = None,
    workers: int = 1,
    replace: bool = False,
    tell: Callable[[int, int], None] = lambda files, graphs: None,
    window: int = WINDOW,
) -> Report:
    """Write the records of all tasks; the result does not depend on the number of workers.

    `limits` are numbers of records by part; tasks of a part that is full are not read.
    `window` records of a part are shuffled together.
    """
    skipped: Counter[str] = Counter()
    named: dict[str, list[str]] = {}
    counted: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    with ExitStack() as stack:
        place = stack.enter_context(new_programs(folder, replace=replace))
        parts = {each: Part(place, each, seed, (limits or {}).get(each), window) for each in PARTS}
        done = 0
        for task, results in _results(_open(tasks, parts), read, workers):
            part = parts[task.part]
            for result in results:
                if part.is_full:  # how many tasks are ahead must not change the counts
                    break
                done += 1
                if result.skipped is not None:
                    skipped[result.skipped] += 1
                    names = named.setdefault(result.skipped, [])
                    names += [result.name] if len(names) < NAMED else []
                else:
                    counted[task.part][result.project] += 1
                    for record in result.records:
                        part.add(record)
            tell(done, sum(part.graphs for part in parts.values()))
        if not any(part.graphs for part in parts.values()):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.most_common())
            raise ValueError(f"no program graph could be made from {done:,} files: {reasons}")
        for part in parts.values():
            part.write()
        info = ProgramsInfo(
            parts={name: _counts(part, counted[name]) for name, part in parts.items()},
            chunks={path: s for part in parts.values() for path, s in part.chunks.items()},
            skipped=dict(sorted(skipped.items())),
            **about,
        )
        info.write(place)
    return Report(info, named)


def _counts(part: Part, projects: Counter[str]) -> PartCounts:
    files = sum(projects.values())
    return PartCounts(part.graphs, part.nodes, part.edges, tuple(sorted(projects)), files)


def _open(tasks: Iterable[Task], parts: Mapping[str, Part]) -> Iterable[Task]:
    for task in tasks:
        if all(part.is_full for part in parts.values()):
            return
        if not parts[task.part].is_full:
            yield task


def _results(
    tasks: Iterable[Task], read: Callable[[Any], list[Yield]], workers: int
) -> Iterable[tuple[Task, list[Yield]]]:
    """The results in the order of the tasks; only some tasks are ahead of the writer."""
    if workers == 1:
        for task in tasks:
            yield task, read(task.work)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    try:
        waiting = [(task, pool.submit(read, task.work)) for task in islice(tasks, AHEAD * workers)]
        while waiting:
            task, future = waiting.pop(0)
            yield task, future.result()
            waiting += [(each, pool.submit(read, each.work)) for each in islice(tasks, 1)]
    except BrokenProcessPool:
        raise ValueError("a worker process was killed, perhaps for lack of memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """A parent that is killed can't stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
