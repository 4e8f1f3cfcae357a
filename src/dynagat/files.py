"""Files and folders that are written as a whole or not at all; checksums and locks.

Writers fill a temporary file or folder next to the final path, flush it to disk and rename it.
Readers see the old content or the new one, never a part of it, even if a writer is killed. What a
killed writer leaves is removed by the next writer of the same path, whatever the clock says: a
temporary path is abandoned if nobody holds its lock. Links are followed.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

BLOCK = 1 << 22  # bytes read at a time
WRITING = ".writing"  # file in a temporary folder, locked by its writer
TEMPORARY = ".dynagat"  # ending of temporary paths


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_through(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file next to `path`, then rename it to `path`."""
    path = Path(os.path.realpath(path))
    with _rename_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            _remove_abandoned(path)
            handle, name = tempfile.mkstemp(TEMPORARY, _prefix(path), path.parent)
            lock(handle)
    temporary = Path(name)
    try:
        with _rename_errors(path, temporary):
            write(temporary)
            os.chmod(temporary, 0o644)  # mkstemp creates files that only the owner can read
            flush(temporary)
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()
        os.close(handle)


@contextmanager
def new_folder(path: Path, check: Callable[[], object] = lambda: None) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `path` when the block ends without an error.

    A folder that has this name already is replaced, in one step where the system supports it.
    `check` can refuse by raising an error. It is called at the start and again right before the
    renaming, while no other process can write a folder next to `path`.
    """
    path = Path(os.path.realpath(path))
    with _rename_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        check()
        with locked(path.parent):
            _remove_abandoned(path)
            folder = _temporary_folder(path)
            writing = open(folder / WRITING, "w")  # noqa: SIM115  (locked until the end)
            lock(writing)
    try:
        with _rename_errors(path, folder):
            yield folder
            os.chmod(folder, 0o755)  # mkdtemp creates folders that only the owner can read
            for each in folder.rglob("*"):
                flush(each)
            with locked(path.parent):
                check()
                (folder / WRITING).unlink()
                flush(folder)
                _rename(folder, path)
            flush(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        writing.close()


def remove_folder(path: Path) -> None:
    """Remove a folder under another name, so that nobody sees a part of it; of a link, the link."""
    with _rename_errors(path):
        if path.is_symlink():
            path.unlink()
            return
        with locked(path.parent):
            aside = _temporary_folder(path)
            os.rename(path, aside)  # replaces the empty folder
            shutil.rmtree(aside)


def is_being_written(path: Path) -> bool:
    """Whether a temporary file or folder for this path exists."""
    return any(_temporary_paths(Path(os.path.realpath(path))))


def flush(path: Path) -> None:
    """Wait until a file or folder is on disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Create a file, hold its lock, and remove it; BlockingIOError if another process holds it."""
    file = _claim(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock is released, so that it is still ours
        file.close()


def _claim(path: Path) -> IO[str]:
    """Try again if another process removes the file, or its empty folder, before it is locked."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError), ExitStack() as stack:
            file = stack.enter_context(open(path, "w"))
            lock(file, wait=False)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                stack.pop_all()
                return file


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders in one step; False if the system can't."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    here, flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename(here, os.fsencode(one), here, os.fsencode(other), flag) == 0


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _temporary_folder(path: Path) -> Path:
    return Path(tempfile.mkdtemp(TEMPORARY, _prefix(path), path.parent))


def _temporary_paths(path: Path) -> Iterator[Path]:
    return path.parent.glob(f"{glob.escape(_prefix(path))}*{TEMPORARY}")


def _rename(folder: Path, path: Path) -> None:
    """Rename the folder to `path`; a folder that was there gets the temporary name."""
    if not path.exists():
        os.rename(folder, path)
    elif not exchange(folder, path):
        aside = _temporary_folder(path)
        os.rename(path, aside)  # replaces the empty folder
        os.rename(folder, path)
        os.rename(aside, folder)


def _remove_abandoned(path: Path) -> None:
    """Remove what killed writers left; the caller holds the lock of the parent folder.

    Running writers hold the lock of their temporary file, or of the file WRITING in their temporary
    folder, which exists whenever the lock of the parent folder is free.
    """
    for temporary in _temporary_paths(path):
        marker = temporary / WRITING if temporary.is_dir() else temporary
        with suppress(BlockingIOError), ExitStack() as held:
            if marker.exists():
                lock(held.enter_context(open(marker)), wait=False)
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)


@contextmanager
def _rename_errors(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let system errors name `path` instead of the temporary one, which the user does not know."""
    try:
        yield
    except OSError as error:
        named = Path(str(error.filename)) if error.filename else None
        is_ours = named is None or temporary is None or temporary in (named, *named.parents)
        if error.errno is None or not is_ours:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
