"""Sources: the Python files of projects, without copies, each assigned to one part.

Folders in which a project keeps copies of other projects are left out: such a file differs from the
original in little more than its imports, and one of them may be for training, the other for tests.
Whole projects form test-unseen; of the others, some files form valid and test-seen, and the rest
is train. The assignment depends on the seed and on names only, not on the order of the folders.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynagat.data.programs.python_source import SkippedFile, read_bytes

UNSEEN = 0.2  # at most this fraction of the files is in projects held out
HELD_OUT = {"valid": 0.1, "test-seen": 0.1}  # of the files of the other projects
COPIES = re.compile(r"_*(vendor(s|ed)?|extern(al)?s?|third_?party(_files)?)", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    project: str
    name: str  # path inside the project's parent folder
    path: Path


def python_projects(paths: Sequence[Path]) -> dict[str, Path]:
    """Projects by name: each path is one. Without paths, those of this Python installation."""
    if not paths:
        return _installed()
    for path in paths:
        if not path.exists():
            raise ValueError(f"PATH must be a Python file or a folder, but {path} does not exist")
    projects = {path.resolve().name.removesuffix(".py"): path.resolve() for path in paths}
    if len(projects) < len(set(paths)):
        raise ValueError("each PATH is a project, and their names must differ")
    return projects


def _installed() -> dict[str, Path]:
    """The standard library is one project, and so is each top-level package that is installed."""
    places = sysconfig.get_paths()
    projects = {"python": Path(places["stdlib"])}
    for folder in sorted({places["purelib"], places["platlib"]}):
        for path in sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []:
            if path.is_dir() or path.suffix == ".py":
                projects.setdefault(path.name.removesuffix(".py"), path)
    return projects


def find_sources(projects: Mapping[str, Path]) -> Iterator[Source]:
    """All Python files, in order, without those of other projects and other installations."""
    for project, root in sorted(projects.items()):
        for path in python_files(root, without=COPIES):
            yield Source(project, path.relative_to(root.parent).as_posix(), path)


def python_files(root: Path, without: re.Pattern[str] | None = None) -> Iterator[Path]:
    """The file itself, or all Python files in a folder, in order.

    Left out are hidden folders, other installations, and folders with a name like `without`.
    """
    if not root.is_dir():
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if not _is_left_out(each, without))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _is_left_out(name: str, without: re.Pattern[str] | None) -> bool:
    if name.startswith(".") or name in ("__pycache__", "site-packages", "node_modules"):
        return True
    return without is not None and without.fullmatch(name) is not None


def without_duplicates(sources: Iterable[Source]) -> tuple[list[Source], int]:
    """The sources of different content, and the number of the others; the first one stays."""
    first: dict[bytes, Source] = {}
    count = 0
    for source in sources:
        count += 1
        try:
            digest = hashlib.sha256(read_bytes(source.path)).digest()
        except (OSError, SkippedFile):
            digest = os.fsencode(source.path)  # the reader says what is wrong with it
        first.setdefault(digest, source)
    return list(first.values()), count - len(first)


def parts_of(sources: Sequence[Source], seed: int, unseen: Sequence[str]) -> dict[Source, str]:
    """The part of each source; `unseen` names the projects of test-unseen, else they are drawn."""
    held_out = set(unseen) or _drawn(sources, seed)
    unknown = sorted(held_out - {source.project for source in sources})
    if unknown:
        known = sorted({source.project for source in sources})
        raise ValueError(f"there is no project {unknown[0]!r}; the projects are {', '.join(known)}")
    return {
        source: "test-unseen" if source.project in held_out else _part(source, seed)
        for source in sources
    }


def _drawn(sources: Sequence[Source], seed: int) -> set[str]:
    """Projects in random order, while they fit into the fraction; of several, at least one."""
    sizes: dict[str, int] = {}
    for source in sources:
        sizes[source.project] = sizes.get(source.project, 0) + 1
    order = sorted(sizes)
    random.Random(f"{seed} projects").shuffle(order)
    drawn: set[str] = set()
    room = UNSEEN * len(sources)
    for project in order:
        if sizes[project] <= room:
            drawn.add(project)
            room -= sizes[project]
    smallest = min(order, key=lambda each: (sizes[each], each), default=None)
    return drawn or ({smallest} if smallest is not None and len(order) > 1 else set())


def _part(source: Source, seed: int) -> str:
    draw = random.Random(f"{seed} {source.project} {source.name}").random()
    for part, fraction in HELD_OUT.items():
        if draw < fraction:
            return part
        draw -= fraction
    return "train"
