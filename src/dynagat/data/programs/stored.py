"""ProgramSet: the chunks of a stored set of programs, by its name in the store or by its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dynagat.data.programs.chunks import ENDING
from dynagat.data.programs.labels import KEYWORDS
from dynagat.data.programs.layout import LIST, read_info
from dynagat.data.programs.records import ProgramError
from dynagat.data.programs.summary import find_programs, stored_programs
from dynagat.data.store import store_folder

SEEN, UNSEEN = "test-seen", "test-unseen"  # other files of training projects; other projects


@dataclass(frozen=True)
class ProgramSet:
    """Programs in a language, in chunks."""

    name: str
    language: str
    folder: Path

    def chunks(self, part: str) -> list[Path]:
        """The chunks of a part, in order; a ProgramError if there are none."""
        paths = sorted((self.folder / part).glob(f"*{ENDING}"))
        if not paths:
            raise ProgramError(f"{self.folder / part} must have chunks *{ENDING}, but has none")
        return paths


def open_programs(name: str) -> ProgramSet:
    """The set in a folder, or with this name in the store."""
    folder = find_programs(name)
    if folder is None:
        known = ", ".join(stored_programs()) or "none"
        raise ProgramError(f"there is no set of programs {name!r}; {store_folder()} has {known}")
    info = read_info(folder)
    if info.language not in KEYWORDS:
        known = " or ".join(KEYWORDS)
        raise ProgramError(f"language in {folder / LIST} must be {known}, not {info.language!r}")
    return ProgramSet(info.name, info.language, folder)
