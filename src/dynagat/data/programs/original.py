"""import_original: the VarMisuse data of Allamanis et al., 2018, as Microsoft distributes it.

    PROJECT/graphs-train/*.gz    and graphs-valid, graphs-test: gzip'd lists of records

Three projects are for tests only; the tests of the others are on other files of known projects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.programs.chunks import read_text
from dynagat.data.programs.importing import Report, Task, Yield, write_programs
from dynagat.data.programs.layout import PARTS, pack
from dynagat.data.programs.records import ProgramError, read_record
from dynagat.data.programs.stored import SEEN, UNSEEN
from dynagat.data.store import check_name, store_folder

ORIGINAL = "varmisuse"  # its name in the store
UNSEEN_PROJECTS = ("commandline", "humanizer", "lean")
WINDOW = 5_000  # records that are shuffled together, as in the released code
LANGUAGE = "csharp"
SPACE = " \n\r\t"


def import_original(
    folder: Path,
    name: str,
    *,
    replace: bool = False,
    workers: int = 1,
    tell: Callable[[int, int], None] = lambda files, graphs: None,
) -> Report:
    """Store the data set in a folder of projects; bad records and files are skipped and named."""
    files = project_files(folder)
    return write_programs(
        store_folder() / check_name(name),
        (Task(part, path) for part in PARTS for path in files[part]),
        read_list,
        about={
            "name": name,
            "language": LANGUAGE,
            "source": "the original data of VarMisuse",
            "settings": {"window": WINDOW},
        },
        workers=workers,
        replace=replace,
        tell=tell,
        window=WINDOW,
    )


def project_files(folder: Path) -> dict[str, list[Path]]:
    """The files of each part, mixed over the projects; a ProgramError if there are none."""
    files: dict[str, list[Path]] = {part: [] for part in PARTS}
    for path in sorted(folder.glob("*/*/*.gz")):
        project, fold = path.parts[-3], path.parts[-2].removeprefix("graphs-")
        if project in UNSEEN_PROJECTS:
            part = UNSEEN if fold == "test" else ""  # they are never trained on
        else:
            part = SEEN if fold == "test" else fold
        if part in files:
            files[part].append(path)
    empty = [part for part, paths in files.items() if not paths]
    if empty:
        raise ProgramError(
            f"{folder} must have files PROJECT/graphs-train/*.gz, graphs-valid and graphs-test, "
            f"but has none for {', '.join(empty)}"
        )
    generator = np.random.default_rng(0)
    return {part: [paths[n] for n in generator.permutation(len(paths))]
            for part, paths in files.items()}  # fmt: skip


def read_list(path: Path) -> list[Yield]:
    """The good records of a gzip'd JSON list, and what is wrong with each other one.

    One record at a time is decoded: as Python objects, a file is ten times as large as its text.
    """
    project, records, bad = path.parts[-3], [], []
    try:
        for number, record in enumerate(_decode(path), 1):
            try:
                read_record(record, LANGUAGE)
                records.append(pack(record))
            except (ProgramError, RecursionError) as error:
                bad.append(
                    Yield(project, f"{path}, record {number}: {error}", skipped="bad record")
                )
    except ProgramError as error:  # what follows can't be read
        bad.append(Yield(project, str(error), skipped="damaged file"))
    return [*bad, Yield(project, str(path), tuple(records))]


def _decode(path: Path) -> Iterator[Any]:
    text, decoder = read_text(path), json.JSONDecoder()
    place = _skip(text, 0, f"{SPACE}[")
    while place < len(text):
        try:
            record, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", place)) + 1
            reason = getattr(error, "msg", error)
            raise ProgramError(f"{path}, line {line}: must be JSON, but {reason}") from None
        yield record
        place = _skip(text, end, f"{SPACE},]")


def _skip(text: str, place: int, characters: str) -> int:
    """The first place from this one on that has another character."""
    while place < len(text) and text[place] in characters:
        place += 1
    return place
