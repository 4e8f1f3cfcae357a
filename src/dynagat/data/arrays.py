"""A folder of plain arrays: .npy files, and arrays.json, which lists and describes them.

A folder is written as a whole or not at all, even if the writer is killed (files.new_folder).
Readers map the files into memory, so that many processes share one copy, and a folder may be larger
than memory. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from dynagat import files
from dynagat.data.texts import Texts
from dynagat.files import checksum, is_being_written, new_folder

LIST = "arrays.json"
VERSION = 1
KINDS = "biuf"  # booleans, integers, floats
DTYPE = re.compile(r"[<>|=](b1|[iu][1248]|f2|f4|f8|f16)")
VERIFIED_BYTES = 1 << 30  # checksums of smaller folders are verified whenever they are opened
BLOCK = 1 << 22  # bytes written at a time
READ_AND_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
# Changed pages are copied on write. Without NORESERVE (numpy's mode "c"), the system would reserve
# as much memory as the file is large. Python has a name for the flag since 3.13.
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
OWN_COPY = mmap.MAP_PRIVATE | NO_RESERVE
RETRIES = 20  # of a reader whose folder is replaced while it reads


class FolderError(ValueError):
    """A folder of arrays can't be read or written."""


Array = np.ndarray | Texts


@dataclass(eq=False)
class Growing:
    """An array file to which rows are appended; its header is completed at the end."""

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
        self.file.write(_header(self.dtype, (self.rows, *self.row_shape)))
        self.file.close()


@dataclass(eq=False)
class Writer:
    """Adds arrays to a folder that is being written."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)  # metadata, stored as JSON
    _growing: list[Growing] = field(default_factory=list)

    def add(self, name: str, array: Array) -> None:
        """Add a whole array; texts become two arrays, bytes and offsets."""
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
        """Add an array to which rows can be appended."""
        path, dtype = self._path(name, np.dtype(dtype)), np.dtype(dtype)
        file = open(path, "w+b")  # noqa: SIM115  (closed by finish or close)
        self._growing.append(Growing(path, dtype, tuple(row_shape), file))
        file.write(_header(dtype, (0, *row_shape)))
        return self._growing[-1]

    def make(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Add an array that the caller fills in, mapped from its file.

        Disk space is allocated first, since a full disk would otherwise kill the process.
        """
        path, dtype = self._path(name, np.dtype(dtype)), np.dtype(dtype)
        with open(path, "w+b") as file:
            file.write(_header(dtype, shape))
            file.flush()
            size = math.prod(shape) * dtype.itemsize
            if size:
                os.posix_fallocate(file.fileno(), file.tell(), size)
        return np.load(path, mmap_mode="r+") if size else np.empty(shape, dtype)

    def finish(self, kind: str) -> None:
        for growing in self._growing:
            growing.finish()
        paths = sorted(self.folder.rglob("*.npy"))
        entries = {str(path.relative_to(self.folder)): _entry(path) for path in paths}
        listing = {"kind": kind, "version": VERSION, "arrays": entries, "about": self.about}
        text = json.dumps({**listing, "sha256": _list_sum(listing)}, indent=1, allow_nan=False)
        (self.folder / LIST).write_text(text, encoding="utf-8")

    def close(self) -> None:
        for growing in self._growing:
            with suppress(OSError):
                growing.file.close()

    def _path(self, name: str, dtype: np.dtype) -> Path:
        if dtype.kind not in KINDS:
            raise ValueError(f"{name} must hold numbers or booleans, but holds {dtype}")
        path = self.folder / f"{name}.npy"
        if not path.resolve().is_relative_to(self.folder.resolve()) or path.exists():
            raise ValueError(f"{name!r} is not a valid name for a new array")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@contextmanager
def write_folder(path: Path | str, kind: str, *, replace: bool = False) -> Iterator[Writer]:
    """Write a folder that exists when the block ends, and does not if the block fails.

    Args:
        path: of the folder; missing parent folders are created.
        kind: what the arrays are, for example "graph"; `read_folder` checks it.
        replace: whether to replace an existing folder of arrays. The old one stays until the new
            one is complete.
    """
    path = Path(os.path.realpath(path))
    with new_folder(path, lambda: _check_free(path, kind, replace)) as folder:
        writer = Writer(folder)
        try:
            yield writer
            writer.finish(kind)
        finally:
            writer.close()


def read_folder(
    path: Path | str, kind: str, *, verify: bool | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays by name, mapped from their files, and the metadata of the folder.

    Changes to the arrays stay in this process. `verify` compares the checksums; None does so for
    folders of up to 1 GiB. Sizes are always compared.
    """
    path = Path(path)
    for _ in range(RETRIES):
        before = _identity(path)
        try:
            content = _read(path, kind, verify)
            if before == _identity(path):
                return content
        except (FolderError, FileNotFoundError):
            after = _identity(path)
            if before == after and (after is not None or not is_being_written(path)):
                raise
        time.sleep(0.01)  # it is being replaced
    return _read(path, kind, verify)


def _read(path: Path, kind: str, verify: bool | None) -> tuple[dict[str, Array], dict[str, Any]]:
    listing = _read_list(path, kind)
    if verify or (verify is None and _bytes(listing) <= VERIFIED_BYTES):
        check_folder(path, kind)
    arrays: dict[str, Array] = {}
    for name, entry in listing["arrays"].items():
        arrays[name.removesuffix(".npy")] = _map(path, name, entry)
    return Texts.gathered(arrays), listing["about"]


def check_folder(path: Path | str, kind: str) -> None:
    """Compare every file with its checksum."""
    path = Path(path)
    for name, entry in _read_list(path, kind)["arrays"].items():
        _map(path, name, entry)  # first, since its messages say more
        if checksum(path / name) != entry["sha256"]:
            raise FolderError(
                f"{path / name} was altered: its checksum differs from that in {LIST}"
            )


def remove_folder(path: Path | str) -> None:
    """Remove a folder of arrays; processes that have opened it keep their arrays."""
    path = Path(os.path.abspath(path))
    if not (path / LIST).is_file():
        raise FolderError(f"{path} is no folder of arrays: it has no {LIST}")
    files.remove_folder(path)


def fingerprint(path: Path | str) -> str:
    """A short hash of a folder's content, which does not depend on its path."""
    listing = _read_list(Path(path), None)
    sums = {name: entry["sha256"] for name, entry in sorted(listing["arrays"].items())}
    text = json.dumps([sums, listing["about"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(path: Path) -> tuple[int, int] | None:
    """Identifies the folder that has this path now; None if there is none."""
    with suppress(OSError):
        now = path.stat()
        return now.st_ino, now.st_mtime_ns
    return None


def _list_sum(listing: Mapping[str, Any]) -> str:
    """The checksum of the content of arrays.json, without the entry of the checksum."""
    rest = {name: value for name, value in listing.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read_list(path: Path, kind: str | None) -> dict[str, Any]:
    try:
        listing = json.loads((path / LIST).read_text(encoding="utf-8"))
        actual_kind, version = listing["kind"], listing["version"]
        is_whole = listing["sha256"] == _list_sum(listing)
    except (FileNotFoundError, NotADirectoryError):
        raise FolderError(f"{path} is no folder of arrays: it has no {LIST}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # no JSON of ours
        raise FolderError(f"{path / LIST} was cut short or altered: it can't be read") from None
    if not is_whole:
        raise FolderError(f"{path / LIST} was altered: its content differs from its checksum")
    if kind is not None and actual_kind != kind:
        raise FolderError(f"{path} must be a {kind} folder, but is a {actual_kind} folder")
    if version != VERSION:
        raise FolderError(
            f"{path} has format version {version}, but this dynagat reads version {VERSION}; "
            "import it again"
        )
    if not _describes_arrays(listing):
        raise FolderError(f"{path / LIST} was altered: it does not describe arrays")
    return listing


def _describes_arrays(listing: Mapping[str, Any]) -> bool:
    try:
        return "about" in listing and all(
            DTYPE.fullmatch(entry["dtype"])
            and all(type(size) is int and size >= 0 for size in entry["shape"])
            and type(entry["bytes"]) is int
            and isinstance(entry["sha256"], str)
            for entry in listing["arrays"].values()
        )
    except (LookupError, TypeError, AttributeError):
        return False


def _map(path: Path, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    file_path, shape = path / name, tuple(entry["shape"])
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
        raise FolderError(f"{path / LIST} was altered: it names {name!r}")
    if not file_path.is_file():
        raise FolderError(f"{path} was altered: {name} is missing")
    if file_path.stat().st_size != entry["bytes"]:
        size = f"{file_path.stat().st_size} of {entry['bytes']} bytes"
        raise FolderError(f"{file_path} was cut short or altered: it has {size}")
    dtype = np.dtype(entry["dtype"])
    header = _header(dtype, shape)
    with open(file_path, "rb") as file:
        is_ours = file.read(len(header)) == header
    size = len(header) + math.prod(shape) * dtype.itemsize
    if not is_ours or size != entry["bytes"]:
        raise FolderError(f"{file_path} was altered: its header is not that of {dtype} {shape}")
    if size == len(header):  # an empty array can't be mapped
        return np.empty(shape, dtype)
    with open(file_path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), size, flags=OWN_COPY, prot=READ_AND_WRITE)
    return np.frombuffer(mapped, dtype, offset=len(header)).reshape(shape)


def _bytes(listing: Mapping[str, Any]) -> int:
    return sum(entry["bytes"] for entry in listing["arrays"].values())


def _entry(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}[version]
        shape, _, dtype = read(file)
    size = path.stat().st_size
    return {"dtype": dtype.str, "shape": list(shape), "bytes": size, "sha256": checksum(path)}


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """An .npy header, whose length does not depend on the number of rows: it is written twice."""
    fields = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    text = f"{fields!r}".encode("ascii")
    length = 118 + 64 * (len(f"{shape[1:]!r}") // 64 + 1)
    start = b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little")
    return start + text + b" " * (length - len(text) - 1) + b"\n"


def _check_free(path: Path, kind: str, replace: bool) -> None:
    """Refuse to replace anything but a folder of arrays."""
    if not path.exists():
        return
    if not replace:
        raise FolderError(f"{path} exists already; replace=True (--replace) replaces it")
    if not path.is_dir() or (any(path.iterdir()) and not (path / LIST).exists()):
        raise FolderError(f"{path} exists already and is not a {kind} folder; it is not replaced")
