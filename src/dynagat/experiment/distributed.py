"""Distributed: each run is made by several processes of this machine, which train one network.

torch's elastic launcher (that of torchrun) starts and watches them. They find each other through a
file and talk over loopback, so that no port is open to other machines. If one of them is lost, all
are started again, up to ATTEMPTS times, and continue from the checkpoint of the run.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import multiprocessing
import os
import pickle
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, final

import torch
import torch.distributed as dist

from dynagat.experiment.runner import (
    ATTEMPTS,
    Contact,
    Done,
    Receive,
    Results,
    Runner,
    Say,
    Work,
    become_worker,
    raise_failures,
    threads_of,
)
from dynagat.group import Group
from dynagat.placement import count_devices, find_device

LOGGERS = ("torch.distributed.elastic", "torch.multiprocessing")
# To wait for another worker: one that is gone is noticed at once, whatever this is.
TIMEOUT_SECONDS = 24 * 3600
GRACE_SECONDS = 10  # of a worker that noticed the loss of another, until the launcher ends it


@final
@dataclass(frozen=True)
class Distributed(Runner):
    """Worker processes on this machine that make each run together.

    Args:
        size: the number of workers.
        device: that networks compute on. "cuda" gives each worker a GPU of its own; "auto" likewise
            if torch finds one, else the CPU.
    """

    size: int
    device: str = "cpu"

    def __post_init__(self) -> None:
        cores = os.cpu_count() or 1
        if not 1 <= self.size <= cores:
            raise ValueError(
                f"--ddp must lie between 1 and the {cores} cores of this machine, but is "
                f"{self.size}; more machines: --ray"
            )
        check_kind(self.device, self.size)
        kind = find_device(self.device).type
        check_kind(kind, self.size)
        if kind == "cuda" and count_devices(kind) < self.size:
            raise ValueError(
                f"--ddp must be at most {count_devices(kind)}, the number of GPUs of this machine, "
                f"with device {self.device}, but is {self.size}"
            )

    @property
    def group_size(self) -> int:
        return self.size

    def run(self, work: Iterator[Work], receive: Receive, say: Say, beside: Path | None) -> Results:
        failures: list[str] = []
        for each in work:
            for attempt in range(1, ATTEMPTS + 1):
                outcome = _Launch(self.size, each, partial(receive, each), self.device).run()
                if isinstance(outcome, OutOfMemory):
                    failures.append(f"{each.name} needs more memory than its workers have")
                    break
                if not isinstance(outcome, WorkerLost):
                    yield Done(each, outcome, attempt)
                    break
                if attempt < ATTEMPTS:
                    say(f"{each.name}: {outcome}; all {self.size} workers are started again")
                else:
                    failures.append(f"{each.name} lost a worker {ATTEMPTS} times ({outcome})")
                    say(f"{failures[-1]}; the others go on")
        raise_failures(failures)


class WorkerLost(Exception):
    """A worker of a group ended before its work; the message says how."""


class OutOfMemory(Exception):
    """A worker of a group could not allocate memory."""


@dataclass
class _Launch:
    """One start of the workers."""

    size: int
    work: Work
    receive: Callable[[Any], Any]
    device: str = "cpu"
    ended: list[Any] = field(default_factory=list)  # the result, or an error

    def run(self) -> Any:
        """The result of the work; or a WorkerLost or OutOfMemory, which is not raised."""
        context = multiprocessing.get_context("spawn")
        messages, wanted = context.Queue(), context.Event()
        wanted.set()
        with tempfile.TemporaryDirectory(prefix="dynagat-ddp-") as folder, _quiet():
            given = (messages, wanted, os.getpid(), folder, self.device, self.work)
            launcher = threading.Thread(target=self._launch, args=(Path(folder), given))
            launcher.start()
            try:
                while launcher.is_alive() or not messages.empty():
                    try:
                        content = messages.get(timeout=0.1)
                    except queue.Empty:
                        continue
                    self.receive(content)
            finally:  # also after Ctrl-C
                wanted.clear()
                launcher.join()
            return self._outcome(Path(folder))

    def _launch(self, folder: Path, given: tuple[Any, ...]) -> None:
        """In a thread: otherwise the launcher would handle Ctrl-C, and messages would wait."""
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=self.size,
            run_id="dynagat",
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "launcher"),
            rdzv_configs={"store_type": "file"},
            local_addr="127.0.0.1",
            max_restarts=0,  # each start is counted and explained here
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        )
        try:
            results = elastic_launch(config, _work_in_group)(*given)
            self.ended.append(results[0])
        except BaseException as error:  # raised again in the caller's thread
            self.ended.append(error)

    def _outcome(self, folder: Path) -> Any:
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        [ended] = self.ended
        if not isinstance(ended, BaseException):
            return ended
        if not isinstance(ended, ChildFailedError):
            raise ended
        for path in sorted(folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns):
            error = pickle.loads(path.read_bytes())
            if is_out_of_memory(error):
                return OutOfMemory()
            if not is_loss_of_another(error):
                raise error
        rank, failure = min(ended.failures.items())
        if failure.exitcode >= 0:
            return WorkerLost("one of its workers ended")
        signal = f"signal {-failure.exitcode}"
        return WorkerLost(f"worker {rank} was killed by {signal}, perhaps because memory ran out")


def _work_in_group(
    messages: Any, wanted: Any, parent: int, folder: str, device: str, work: Work
) -> Any:
    """In a worker: the result, if it is the first one."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    become_worker(threads_of(size), lambda: wanted.is_set() and os.getppid() == parent)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    try:
        store = dist.FileStore(str(Path(folder, "workers")), size)  # pyright: ignore[reportPrivateImportUsage]
        timeout = timedelta(seconds=TIMEOUT_SECONDS)
        dist.init_process_group(backend(), store=store, timeout=timeout, rank=rank, world_size=size)
        send = messages.put if rank == 0 else send_nothing
        contact = Contact(send, device=member_device(device, rank), group=Group(rank, size))
        result = work.function(contact, *work.arguments)
        dist.destroy_process_group()
        # Threads of torch that are still there when Python ends sometimes abort the process.
        atexit.register(os._exit, 0)
        return result if rank == 0 else None
    except Exception as error:
        temporary = Path(folder, f"{rank}.writing")
        temporary.write_bytes(_pickled(error))
        temporary.rename(Path(folder, f"{rank}.error"))
        if is_loss_of_another(error):  # so that the launcher sees first how that one ended
            time.sleep(GRACE_SECONDS)
        raise


def _pickled(error: Exception) -> bytes:
    try:
        return pickle.dumps(error)
    except (pickle.PicklingError, TypeError, AttributeError):  # of a class that has no way back
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def check_kind(device: str, size: int) -> None:
    """Refuse a device on which workers can't compute together."""
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(
            f"with --ddp {size}, device must be auto, cpu or cuda, which gives each worker a GPU "
            f"of its own, but is {device}"
        )


def member_device(device: str, rank: int) -> str:
    """The device of one of the workers of a machine."""
    kind = find_device(device).type
    return f"{kind}:{rank}" if kind == "cuda" else kind


def send_nothing(message: Any) -> None:
    """The first worker sends all messages."""


def backend() -> str:
    """Tensors on CPUs are exchanged by gloo, those on GPUs by NCCL."""
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    return "cpu:gloo,cuda:nccl" if has_nccl else "gloo"


def is_out_of_memory(error: BaseException) -> bool:
    """Also torch's error, which has no class of its own on CPUs."""
    is_torch = isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_torch)


def is_loss_of_another(error: BaseException) -> bool:
    """Whether a worker failed because another one is gone."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("gloo", "Connection closed by peer", "NCCL")
    )


def _loopback() -> str:
    """The name of the loopback interface: lo, or lo0 on macOS."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the launcher's log: what matters of it is said or raised."""
    importlib.import_module("torch.distributed.launcher.api")  # creates them
    known = [logging.getLogger(each) for each in list(logging.root.manager.loggerDict)]
    ours = [each for each in known if each.name.startswith(LOGGERS)]
    before = [each.disabled for each in ours]
    for each in ours:
        each.disabled = True
    try:
        yield
    finally:
        for each, was in zip(ours, before, strict=True):
            each.disabled = was
