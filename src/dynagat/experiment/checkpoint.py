"""Checkpoints: the states of unfinished runs, in a folder next to the store of finished ones.

A file holds a line of JSON about the run, the state as torch saves it, and a checksum. It is loaded
without running code, and only by the version that wrote it. Locks keep processes apart.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Any

import torch

from dynagat.experiment import environment
from dynagat.files import claimed, write_through
from dynagat.placement import CPU

SECONDS = 10.0  # between the checkpoints of a run
VARIABLE = "DYNAGAT_CHECKPOINT_SECONDS"  # sets another number
MAX_SHARE = 0.05  # of the time of a run that its checkpoints may take
FORMAT = 1
DIGEST = hashlib.sha256().digest_size
WAIT_SECONDS = 1.0  # for a lock: workers of a killed process end within a second
# Others may differ without changing a result. Without a device, it is the CPU.
VERSIONS = ("dynagat", "torch", "numpy", "kernels", "device", "backend")

Tell = Callable[[str, float], None]  # a sentence, and how many seconds the run took before


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints, one for each unfinished run.

    Args:
        folder: created when a run is long enough for a checkpoint, removed when it is empty.
        seconds: time between the checkpoints of a run; 0 for one after every epoch.
    """

    folder: Path
    seconds: float = SECONDS

    @classmethod
    def beside(cls, store: Path) -> Checkpoints:
        """The folder for a file of finished runs; DYNAGAT_CHECKPOINT_SECONDS sets the time."""
        return cls(store.with_name(f"{store.name}.checkpoints"), _seconds())

    def of(
        self, key: str, tell: Tell = lambda text, seconds: None, device: torch.device = CPU
    ) -> Checkpoint:
        """The checkpoint of a run on a device."""
        return Checkpoint(self.folder / f"{key}.pt", self.seconds, tell, device)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove checkpoints of finished runs, except those that another process is using."""
        if not self.folder.exists():
            return
        with suppress(OSError):  # files that are left do no harm
            found = {path.name.strip(".").split(".")[0] for path in self.folder.iterdir()}
            for key in found.intersection(keys):
                with suppress(BlockingIOError), claimed(self.folder / f"{key}.lock"):
                    for path in self.folder.glob(f"*{key}.pt*"):  # and unfinished writes
                        path.unlink()
            self.folder.rmdir()


class Checkpoint:
    """The checkpoint of one run, as `training.fit` uses it; `run` opens and closes it."""

    def __init__(self, path: Path, seconds: float, tell: Tell, device: torch.device = CPU) -> None:
        self.path, self.seconds, self.tell, self.device = path, seconds, tell, device
        self.seconds_before = 0.0  # that the run took until its last checkpoint

    def __enter__(self) -> Checkpoint:
        self._lock = ExitStack()
        self._started = time.perf_counter()
        self._due = self._started + self.seconds
        self._is_held = False
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def load(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        try:
            self._hold(WAIT_SECONDS)
            header, state = read(self.path, self.device)
        except BlockingIOError:
            return self._give_up("another process continues this run")
        except FileNotFoundError:  # the other process has finished the run meanwhile
            return None
        except (ValueError, OSError) as error:
            self.tell(f"starts from the beginning: {_reason(error)}", 0.0)
            return None
        self.seconds_before = header["seconds"]
        epochs = len(state["losses"])  # of the round that was not finished
        more = f" and {epochs} of the next one's epochs" if epochs else ""
        self.tell(f"continues after round {len(state['history'])}{more}", self.seconds_before)
        return state

    def save(self, state: Callable[[], dict[str, Any]]) -> None:
        """Write the state if it is time."""
        now = time.perf_counter()
        if now < self._due:
            return
        seconds = self.seconds_before + now - self._started
        try:
            self._hold()
            write(self.path, state(), seconds, self.device)
        except BlockingIOError:
            self._give_up("another process makes the same run")
        except OSError as error:
            self._give_up(_reason(error))
        else:
            done = time.perf_counter()
            self._due = done + max(self.seconds, (done - now) / MAX_SHARE) if self.seconds else done

    def _hold(self, wait: float = 0.0) -> None:
        """Hold the lock of the run until the end; BlockingIOError if it is not free in time."""
        deadline = time.monotonic() + wait
        while not self._is_held:
            try:
                self._lock.enter_context(claimed(self.path.with_suffix(".lock")))
                self._is_held = True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _give_up(self, why: str) -> None:
        self._due = math.inf
        self.tell(f"runs without a checkpoint: {why}", 0.0)


def write(path: Path, state: dict[str, Any], seconds: float, device: torch.device = CPU) -> None:
    """Write a checkpoint, whole or not at all."""
    known = _versions(device)
    header = {"format": FORMAT, "key": path.stem, "seconds": seconds, "versions": known}
    buffer = io.BytesIO()  # not straight to the file: torch hides that a disk is full
    buffer.write(json.dumps(header).encode() + b"\n")
    torch.save(state, buffer)
    content = buffer.getvalue()
    write_through(path, lambda temporary: temporary.write_bytes(content + _digest(content)))


def read(path: Path, device: torch.device = CPU) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is known about a run, and its state; a ValueError says why a file is not used."""
    content = path.read_bytes()
    content, digest = content[:-DIGEST], content[-DIGEST:]
    if digest != _digest(content):
        raise ValueError(f"checkpoint {path} is damaged")
    first, _, body = content.partition(b"\n")
    header = json.loads(first)
    if header["format"] != FORMAT or header["key"] != path.stem:
        raise ValueError(f"checkpoint {path} is of another run")
    known = _versions(device)
    for name in (*known, *header["versions"]):
        here, there = (each.get(name) for each in (known, header["versions"]))
        if there != here:
            raise ValueError(f"checkpoint {path} was written by {name} {there}, but this is {here}")
    try:
        return header, torch.load(io.BytesIO(body), weights_only=True)
    except UnpicklingError:
        raise ValueError(f"checkpoint {path} holds more than numbers") from None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _versions(device: torch.device) -> dict[str, str]:
    known = environment.versions(device) | {"commit": environment.commit()}
    return {name: known[name] for name in (*VERSIONS, "commit") if name in known}


def _seconds() -> float:
    text = os.environ.get(VARIABLE, str(SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(f"{VARIABLE} must be a number of seconds, but is {text!r}")
    return seconds


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return str(error)
