"""Files from the network: resumed where they broke off, checked, there as a whole or not at all."""

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

ATTEMPTS = 5  # in a row that bring nothing
PAUSE = 1.0  # seconds before another attempt, times the failed ones
TIMEOUT = 60.0
BLOCK = 1 << 20
RECORD = "DOWNLOADED.json"

Tell = Callable[[int, int | None], Any]  # bytes so far, and of how many if that is known
Check = Callable[[Path], None]  # raises DownloadError


class DownloadError(ValueError):
    """A file that can't be had, in a sentence."""


@dataclass(frozen=True)
class Remote:
    """A file in the network; sha256 is its checksum where we know it."""

    url: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


def download(
    remote: Remote, folder: Path, tell: Tell | None = None, check: Check | None = None
) -> Path:
    """The file in the folder; what a broken download left in NAME.part is gone on with.

    Its checksum must be the known one; where none is known, it is written down at the first
    download, in DOWNLOADED.json, and must be the same ever after. `check` looks at it before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / remote.file_name, folder / f"{remote.file_name}.part"
    failures = 0
    while True:
        had = _size(part)
        why = _fetch(remote.url, part, tell)
        if why is None:
            break
        failures = 0 if _size(part) > had else failures + 1
        if failures == ATTEMPTS:
            raise DownloadError(f"{remote.url} can't be downloaded: {why}; {_kept(part)}")
        time.sleep(PAUSE * failures)
    try:
        if check is not None:
            check(part)
        _check_sum(remote, checksum(part), folder)
    except DownloadError:
        _forget(part)
        raise
    os.replace(part, path)
    _forget(part)
    return path


def _fetch(url: str, part: Path, tell: Tell | None) -> str | None:
    """Add to the part what is missing; None when it is whole, else why it is not."""
    start, tag = _size(part), _tag_file(part)
    headers = {"User-Agent": "dynagat"}
    if start and tag.exists():  # If-Range: if the file has changed since, all of it comes
        headers |= {"Range": f"bytes={start}-", "If-Range": tag.read_text()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        ) as answer:
            return _receive(answer, part, start if answer.status == 206 else 0, tell)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:  # nothing is left, or what is there is of another file
            _forget(part)
            return "the part that was there did not fit"
        if error.code in (408, 429) or error.code >= 500:
            return f"{error.code} {error.reason}"
        raise DownloadError(f"{url} can't be downloaded: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        return f"{error.reason}"
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        return f"{error or type(error).__name__}"


def _receive(answer: Any, part: Path, start: int, tell: Tell | None) -> str | None:
    length = answer.headers.get("Content-Length")
    total = start + int(length) if length is not None else None
    if total is not None and total - start > shutil.disk_usage(part.parent).free:
        raise DownloadError(f"{part.parent} has no room for the {total - start:,} bytes to come")
    tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    if tag and not tag.startswith("W/"):  # a weak one does not promise the same bytes
        _tag_file(part).write_text(tag)
    else:
        _tag_file(part).unlink(missing_ok=True)
    with open(part, "r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        while block := answer.read(BLOCK):
            file.write(block)
            if tell is not None:
                tell(file.tell(), total)
        if total is not None and file.tell() != total:
            return f"the connection ended after {file.tell():,} of {total:,} bytes"
    return None


def _kept(part: Path) -> str:
    size = _size(part)
    return f"{size:,} bytes of it are kept, and the same command goes on" if size else "try again"


def _check_sum(remote: Remote, found: str, folder: Path) -> None:
    """Against the known checksum, or that of the first download, which is written down."""
    record = folder / RECORD
    seen = json.loads(record.read_text()) if record.exists() else {}
    known = remote.sha256 or seen.get(remote.url)
    if known is None:
        write_text(record, json.dumps({**seen, remote.url: found}, indent=1))
    elif found != known:
        first = "" if remote.sha256 else f" as at the first download, told by {record}"
        told = f"must have the sha256 {known}{first}, but has {found}"
        raise DownloadError(f"{remote.url} {told}; it was not kept")


def check_zip(path: Path, needed: tuple[str, ...]) -> None:
    """A zip whose files have their CRCs, and that holds one of the needed ones, at any depth.

    A zip that lacks its end may be taken for another one that lies in it: so the names matter.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names, bad = archive.namelist(), archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{path} was cut short or altered: {error}") from None
    if bad is not None:
        raise DownloadError(f"{path} was cut short or altered: the CRC of {bad} is wrong")
    if not any(f"/{name}".endswith(f"/{sign}") for name in names for sign in needed):
        listed = ", ".join(needed)
        raise DownloadError(f"{path} was cut short or altered: it holds none of {listed}")


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


def _forget(part: Path) -> None:
    for path in (part, _tag_file(part)):
        path.unlink(missing_ok=True)
