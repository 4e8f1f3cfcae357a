"""Downloads: resumed after an interruption, verified, and stored as a whole or not at all."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dynagat.files import checksum, new_folder, write_text

ATTEMPTS = 5  # in a row without new data
PAUSE = 1.0  # seconds before the next attempt, times the number of failed ones
TIMEOUT = 60.0  # seconds
BLOCK = 1 << 20  # bytes
RECORD = "DOWNLOADED.json"

Progress = Callable[[int, int | None], Any]  # bytes so far, and in total if known
Check = Callable[[Path], None]  # raises DownloadError


class DownloadError(ValueError):
    """A file can't be downloaded, or is not the expected one."""


@dataclass(frozen=True)
class Remote:
    """A file on a server, and its checksum if it is known."""

    url: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


def download(
    remote: Remote, folder: Path, progress: Progress | None = None, check: Check | None = None
) -> Path:
    """Download a file into a folder; an interrupted download is resumed from NAME.part.

    The file must have the known checksum. If none is known, the first download records it in
    DOWNLOADED.json, and later ones must match. `check` examines the file before that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / remote.file_name, folder / f"{remote.file_name}.part"
    failures = 0
    while True:
        before = _size(part)
        why = _fetch(remote.url, part, progress)
        if why is None:
            break
        failures = 0 if _size(part) > before else failures + 1
        if failures == ATTEMPTS:
            raise DownloadError(f"{remote.url} can't be downloaded: {why}; {_advice(part)}")
        time.sleep(PAUSE * failures)
    try:
        if check is not None:
            check(part)
        _check_checksum(remote, checksum(part), folder)
    except DownloadError:
        _discard(part)
        raise
    os.replace(part, path)
    _discard(part)
    return path


def _fetch(url: str, part: Path, progress: Progress | None) -> str | None:
    """Append the missing rest to the part; None if it is complete, else the reason why not."""
    start, tag = _size(part), _tag_file(part)
    headers = {"User-Agent": "dynagat"}
    if start and tag.exists():  # If-Range: a file that changed is sent from its start
        headers |= {"Range": f"bytes={start}-", "If-Range": tag.read_text()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        ) as response:
            return _receive(response, part, start if response.status == 206 else 0, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:  # the part is longer than the file
            _discard(part)
            return "the part downloaded earlier does not fit the file"
        if error.code in (408, 429) or error.code >= 500:
            return f"{error.code} {error.reason}"
        raise DownloadError(f"{url} can't be downloaded: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        return f"{error.reason}"
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        return f"{error or type(error).__name__}"


def _receive(response: Any, part: Path, start: int, progress: Progress | None) -> str | None:
    length = response.headers.get("Content-Length")
    total = start + int(length) if length is not None else None
    if total is not None and total - start > shutil.disk_usage(part.parent).free:
        raise DownloadError(
            f"{part.parent} has no space for the remaining {total - start:,} bytes of the download"
        )
    tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
    if tag and not tag.startswith("W/"):  # weak tags do not promise identical bytes
        _tag_file(part).write_text(tag)
    else:
        _tag_file(part).unlink(missing_ok=True)
    with open(part, "r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        while block := response.read(BLOCK):
            file.write(block)
            if progress is not None:
                progress(file.tell(), total)
        if total is not None and file.tell() != total:
            return f"the connection ended after {file.tell():,} of {total:,} bytes"
    return None


def _advice(part: Path) -> str:
    size = _size(part)
    return f"{size:,} bytes are kept; run the command again to resume" if size else "try again"


def _check_checksum(remote: Remote, actual: str, folder: Path) -> None:
    """Compare with the known checksum, or with that of the first download, which is recorded."""
    record = folder / RECORD
    seen = json.loads(record.read_text()) if record.exists() else {}
    known = remote.sha256 or seen.get(remote.url)
    if known is None:
        write_text(record, json.dumps({**seen, remote.url: actual}, indent=1))
    elif actual != known:
        first = "" if remote.sha256 else f" of the first download, recorded in {record}"
        raise DownloadError(
            f"{remote.url} must have the sha256 {known}{first}, but has {actual}; it was deleted"
        )


def check_zip(path: Path, needed: tuple[str, ...]) -> None:
    """Check the CRCs of a zip file, and that it holds one of the needed files, at any depth.

    The names matter because a truncated zip may be mistaken for another zip inside it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names, bad = archive.namelist(), archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{path} was cut short or altered: {error}") from None
    if bad is not None:
        raise DownloadError(f"{path} was cut short or altered: the CRC of {bad} is wrong")
    if not any(f"/{name}".endswith(f"/{sign}") for name in names for sign in needed):
        expected = ", ".join(needed)
        raise DownloadError(f"{path} was cut short or altered: it holds none of {expected}")


def unzip(path: Path, folder: Path) -> None:
    """Extract a zip file into a new folder, without the outer folder that all its files are in.

    A folder that exists is replaced. Each file's CRC is checked. A name that would leave the
    folder is refused.
    """
    try:
        with zipfile.ZipFile(path) as archive, new_folder(folder) as inside:
            names = {member: _safe_name(member, path) for member in archive.infolist()}
            outer = {name.parts[0] for name in names.values() if name.parts}
            is_wrapped = len(outer) == 1 and all(
                member.is_dir() or len(name.parts) > 1 for member, name in names.items()
            )
            for member, name in names.items():
                target = inside.joinpath(*name.parts[is_wrapped:])
                if member.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as packed, open(target, "wb") as file:
                        shutil.copyfileobj(packed, file, BLOCK)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{path} was cut short or altered: {error}") from None


def _safe_name(member: zipfile.ZipInfo, source: Path) -> PurePosixPath:
    name = PurePosixPath(member.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or ":" in member.filename:
        raise DownloadError(f"{source} holds a file that would leave its folder: {name}")
    return name


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _tag_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def _discard(part: Path) -> None:
    for path in (part, _tag_file(part)):
        path.unlink(missing_ok=True)
