"""A folder of plain arrays: .npy files, and arrays.json, which lists them and tells what they are.

A folder is written under another name, flushed to the disk and then renamed: it is there as a whole
or not at all, however the writer ends. Readers map the files into memory, so that many processes
share one copy, and a folder may be larger than memory. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from dynagat.data.texts import Texts

LIST, LOCK = "arrays.json", ".writing"
VERSION = 1
KINDS = "biuf"  # booleans, integers, floats
VERIFIED_BYTES = 1 << 30  # up to which a folder's checksums are looked at whenever it is opened
BLOCK = 1 << 22


class FolderError(ValueError):
    """A folder that can't be read or written, in a sentence."""


Array = np.ndarray | Texts


@dataclass(eq=False)
class Growing:
    """A file of rows that come bit by bit; how many, is known at the end."""

    path: Path
    dtype: np.dtype
    row_shape: tuple[int, ...]
    file: IO[bytes]
    rows: int = 0

    def append(self, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        if rows.shape[1:] != self.row_shape:
            raise ValueError(f"rows must be of shape {self.row_shape}, but are {rows.shape[1:]}")
        self.file.write(rows.data if rows.size else b"")
        self.rows += len(rows)

    def finish(self) -> None:
        self.file.seek(0)
        _write_header(self.file, self.dtype, (self.rows, *self.row_shape))
        self.file.close()


@dataclass(eq=False)
class Writer:
    """What a folder that is being written takes."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)  # what JSON can hold
    _growing: list[Growing] = field(default_factory=list)

    def add(self, name: str, array: Array) -> None:
        """A whole array; texts become two arrays, of bytes and of offsets."""
        if isinstance(array, Texts):
            for part, values in array.arrays.items():
                self.add(f"{name}.{part}", values)
            return
        array = np.asarray(array)
        if array.ndim == 0:
            self.make(name, array.dtype, ())[...] = array
            return
        growing = self.grow(name, array.dtype, array.shape[1:])
        rows = max(1, BLOCK // max(1, array[:1].nbytes))
        for start in range(0, len(array), rows):
            growing.append(array[start : start + rows])

    def grow(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> Growing:
        """An array to which rows are appended."""
        path, dtype = self._path(name, np.dtype(dtype)), np.dtype(dtype)
        file = open(path, "w+b")  # noqa: SIM115  (closed by finish, or with the folder)
        self._growing.append(Growing(path, dtype, tuple(row_shape), file))
        _write_header(file, dtype, (0, *row_shape))
        return self._growing[-1]

    def make(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """An array to be filled in, mapped from its file; the disk's room is taken at once."""
        path, dtype = self._path(name, np.dtype(dtype)), np.dtype(dtype)
        with open(path, "w+b") as file:
            _write_header(file, dtype, shape)
            size = int(np.prod(shape)) * dtype.itemsize
            if size:  # a page of a mapped file that finds no room would kill the process
                os.posix_fallocate(file.fileno(), file.tell(), size)
        return np.load(path, mmap_mode="r+") if size else np.empty(shape, dtype)

    def finish(self, kind: str) -> None:
        for growing in self._growing:
            growing.finish()
        files = sorted(self.folder.rglob("*.npy"))
        listed = {str(path.relative_to(self.folder)): _entry(path) for path in files}
        told = {"kind": kind, "version": VERSION, "arrays": listed, "about": self.about}
        text = json.dumps(told, indent=1, allow_nan=False)
        (self.folder / LIST).write_text(text, encoding="utf-8")
        for path in [*files, self.folder / LIST, self.folder]:
            _flush(path)

    def close(self) -> None:
        for growing in self._growing:
            with suppress(OSError):
                growing.file.close()

    def _path(self, name: str, dtype: np.dtype) -> Path:
        if dtype.kind not in KINDS:
            raise ValueError(f"{name} must hold numbers or booleans, but holds {dtype}")
        path = self.folder / f"{name}.npy"
        if not path.resolve().is_relative_to(self.folder.resolve()) or path.exists():
            raise ValueError(f"{name!r} is no name for a new array")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@contextmanager
def write_folder(path: Path | str, kind: str, *, replace: bool = False) -> Iterator[Writer]:
    """A folder that is there when the block ends, and is not if it fails.

    Args:
        path: where; the folders above are made.
        kind: what the arrays are, which a reader asks for: "graph".
        replace: whether a folder of this kind may be there already; it goes when the new one comes.
    """
    path = Path(os.path.abspath(path))
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_free(path, kind, replace)
        _clear_remains(path)
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        lock = open(folder / LOCK, "w")  # noqa: SIM115  (held until the folder has its name)
        fcntl.flock(lock, fcntl.LOCK_EX)
    writer = Writer(folder)
    try:
        with _told(path, folder):
            yield writer
            writer.finish(kind)
            os.chmod(folder, 0o755)  # mkdtemp's are the owner's alone
            (folder / LOCK).unlink()
            _rename(folder, path, kind, replace)
    finally:
        writer.close()
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)


def read_folder(
    path: Path | str, kind: str, *, verify: bool | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays by name, mapped from their files, and what is told about them.

    Changes that are made to the arrays stay in this process. `verify` looks at the checksums; if
    None, those of folders of less than 1 GiB. Sizes are always looked at.
    """
    path = Path(path)
    told = _read_list(path, kind)
    if verify or (verify is None and _bytes(told) <= VERIFIED_BYTES):
        check_folder(path, kind)
    arrays: dict[str, Array] = {}
    for name, entry in told["arrays"].items():
        arrays[name.removesuffix(".npy")] = _map(path, name, entry)
    return Texts.gathered(arrays), told["about"]


def check_folder(path: Path | str, kind: str) -> None:
    """Compare every file with its checksum."""
    path = Path(path)
    for name, entry in _read_list(path, kind)["arrays"].items():
        _map(path, name, entry)  # first, for it tells more
        if _sum(path / name) != entry["sha256"]:
            raise FolderError(f"{path / name} was altered: its checksum is not the one of {LIST}")


def fingerprint(path: Path | str) -> str:
    """A short name of a folder's content: the same for equal arrays, wherever they lie."""
    told = _read_list(Path(path), None)
    sums = {name: entry["sha256"] for name, entry in sorted(told["arrays"].items())}
    text = json.dumps([sums, told["about"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_list(path: Path, kind: str | None) -> dict[str, Any]:
    try:
        told = json.loads((path / LIST).read_text(encoding="utf-8"))
        found, version = told["kind"], told["version"]
        sums = [(told["about"], each["sha256"], each["shape"]) for each in told["arrays"].values()]
        del sums
    except (FileNotFoundError, NotADirectoryError):
        raise FolderError(f"{path} is no folder of arrays: it has no {LIST}") from None
    except (ValueError, KeyError, TypeError, AttributeError):  # of JSON, or of another shape
        raise FolderError(f"{path / LIST} was cut short or altered: it can't be read") from None
    if kind is not None and found != kind:
        raise FolderError(f"{path} must be a {kind} folder, but is a {found} folder")
    if version != VERSION:
        raise FolderError(
            f"{path} is of version {version}, but this dynagat reads {VERSION}; import it again"
        )
    return told


def _map(path: Path, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    at, shape = path / name, tuple(entry["shape"])
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise FolderError(f"{path / LIST} was altered: it names {name!r}")
    if not at.is_file():
        raise FolderError(f"{path} was altered: {name} is missing")
    if at.stat().st_size != entry["bytes"]:
        size = f"{at.stat().st_size} of {entry['bytes']} bytes"
        raise FolderError(f"{at} was cut short or altered: it has {size}")
    try:
        mode = "c" if np.prod(shape) else None  # an empty file can't be mapped
        array = np.load(at, mmap_mode=mode, allow_pickle=False)
    except (ValueError, EOFError):
        raise FolderError(f"{at} was altered: it is no .npy file of numbers") from None
    if array.shape != shape or array.dtype.str != entry["dtype"]:
        raise FolderError(f"{at} was altered: it holds {array.dtype} {array.shape}")
    return array


def _bytes(told: Mapping[str, Any]) -> int:
    return sum(entry["bytes"] for entry in told["arrays"].values())


def _entry(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}[version]
        shape, _, dtype = read(file)
    size = path.stat().st_size
    return {"dtype": dtype.str, "shape": list(shape), "bytes": size, "sha256": _sum(path)}


def _sum(path: Path) -> str:
    digest, block = hashlib.sha256(), bytearray(BLOCK)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.hexdigest()


def _write_header(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """An .npy header, as long for any number of rows, so that it can be written anew."""
    told = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    text = f"{told!r}".encode("ascii")
    length = 118 + 64 * (len(f"{shape[1:]!r}") // 64 + 1)
    file.write(b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little"))
    file.write(text + b" " * (length - len(text) - 1) + b"\n")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_free(path: Path, kind: str, replace: bool) -> None:
    """Whether a folder may be written here: never over anything but a folder of the same kind."""
    if not path.exists():
        return
    if not replace:
        raise FolderError(f"{path} exists already")
    if not path.is_dir() or (any(path.iterdir()) and not (path / LIST).exists()):
        raise FolderError(f"{path} exists already, and is no {kind} folder that may be replaced")


def _rename(folder: Path, path: Path, kind: str, replace: bool) -> None:
    """Give the folder its name; of two writers who may not replace, the second is refused."""
    _check_free(path, kind, replace)
    aside = None
    while path.exists():
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        with suppress(FileNotFoundError):  # another writer was faster
            os.rename(path, aside)  # onto an empty folder
        shutil.rmtree(aside, ignore_errors=True)
    try:
        os.rename(folder, path)
    except OSError:
        if replace:
            raise
        raise FolderError(f"{path} exists already: another process made it") from None
    _flush(path.parent)


def _clear_remains(path: Path) -> None:
    """Remove what killed writers of this folder left; the living hold their lock."""
    for remains in path.parent.glob(f".{path.name}.*/{LOCK}"):
        with suppress(OSError), open(remains) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(remains.parent, ignore_errors=True)


@contextmanager
def _told(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Trouble of the system, told of the folder that was asked for and not of the temporary one."""
    try:
        yield
    except OSError as error:
        named = Path(str(error.filename)) if error.filename else path
        inside = folder is not None and folder in [named, *named.parents]
        raise OSError(error.errno, error.strerror, str(path if inside else named)) from None
