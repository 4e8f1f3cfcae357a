"""The text of a Python file and its program, or the reason why there is none."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynagat.data.programs.python_graph import Program
from dynagat.data.programs.syntax import ProgramError

MAX_BYTES = 500_000  # of a file; larger ones are tables of data or generated
NO_USE = "without a use of a variable that another could replace"
MANY_BRANCHES = "too many branches"
KNOWN = ("nested too deeply", MANY_BRANCHES)  # others are errors of syntax


class SkippedFile(ValueError):
    """A file that has no program; the message is the reason, in a few words."""


def read_bytes(path: Path) -> bytes:
    """The content of a file; it is not read if it is large, or no file at all, such as a pipe."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise SkippedFile("not a file")
    if status.st_size > MAX_BYTES:
        raise SkippedFile(f"larger than {MAX_BYTES:,} bytes")
    return path.read_bytes()


def read_source(path: Path) -> str:
    """The text of a file."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except OSError:
        raise SkippedFile("can't be read") from None
    except UnicodeDecodeError:
        raise SkippedFile("not UTF-8") from None


def program_of(text: str) -> Program:
    """The program of a text."""
    with skipping():
        return Program.of(text)


@contextmanager
def skipping() -> Iterator[None]:
    """A ProgramError inside becomes a SkippedFile error."""
    try:
        yield
    except ProgramError as error:
        known = [each for each in KNOWN if each in str(error)]
        raise SkippedFile(known[0] if known else "not valid Python") from None
