"""Files that are written as a whole or not at all, and their checksums and locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BLOCK = 1 << 22  # bytes read at a time


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_through(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    Readers see the old file or the new one, never a part. If `write` fails, `path` stays as it was
    and nothing is left behind.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        os.chmod(temporary, 0o644)  # mkstemp makes files that only the owner can read
        os.replace(temporary, path)
    except OSError as error:  # name the file that the caller asked for
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def checksum(path: Path | str) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    digest, block = hashlib.sha256(), bytearray(BLOCK)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.hexdigest()


def lock(file: Any, *, wait: bool = True) -> None:
    """Lock an open file or descriptor until it is closed; BlockingIOError if others hold it.

    The system releases the lock when the process ends, however it ends.
    """
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder that exists; waits for another process that holds it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        lock(handle)
        yield
    finally:
        os.close(handle)
