"""write_whole: a file as a whole, or as it was before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_whole(path: Path, text: str) -> None:
    """Written under another name and then renamed, so that no half of a file is ever seen."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _renamed_to(path) as file:
            file.write(text)
    except OSError as error:  # it may name the other name, or none
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _renamed_to(path: Path) -> Iterator[IO[str]]:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            yield file
        os.chmod(temporary, 0o644)  # mkstemp's files are the owner's alone
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
