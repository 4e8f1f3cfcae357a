"""Kills in sweeps: two sweeps make the same runs into one store, and are killed at random moments.

`python -m tests.kills 100 2` kills sweeps with two workers each 100 times, checks that nothing is
lost or changed, and prints what it counted. The tests do the same with a few kills.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from dynagat.experiment import Checkpoints, Job, Store, run_lacking
from dynagat.experiment.checkpoint import VARIABLE
from dynagat.experiment.runner import WorkerError
from dynagat.prediction.nodes import NodePrediction, NodeTask
from dynagat.training import Schedule
from tests.toys import nodes

MARK = "DYNAGAT_TEST"  # in the environment of all processes of a sweep
TIMES = ("seconds", "round_seconds", "peak_memory_bytes", "versions", "commit", "created",
         "attempts")  # fmt: skip


class SlowPrediction(NodePrediction):
    def evaluate(self, network, part):
        time.sleep(0.02)  # so that kills come in the middle of runs
        return super().evaluate(network, part)


@dataclass(frozen=True)
class SlowTask(NodeTask):
    def prepare(self, problem, schedule):
        return SlowPrediction(problem, self, schedule.batch_size)


def jobs_of(number: int, rounds: int) -> list[Job]:
    """Runs on the whole graph and on samples of it, in turn."""
    schedule = Schedule(lr=0.05, max_rounds=rounds, patience=rounds, batch_size=8, stop_at=2)
    whole = replace(nodes.BENCHMARK, schedule=schedule, task=SlowTask(), microscope="none")
    sampled = replace(whole, task=SlowTask(neighbours=(2, 2)))
    return [Job((whole, sampled)[seed % 2], "gatv2", seed) for seed in range(number)]


def result(record, weights: bytes):
    """Everything that must be the same if a run is repeated, to the last bit."""
    values = json.loads(record.to_json())
    state = torch.load(io.BytesIO(weights), weights_only=True)
    return (
        {name: value for name, value in values.items() if name not in TIMES},
        {name: value.numpy().tobytes() for name, value in state.items()},
    )


class Sweep:
    """A process that makes runs, and its workers. It reports what it stored and was told."""

    def __init__(self, path: Path, jobs: list[Job], workers: int) -> None:
        self.mark = uuid.uuid4().hex
        reader, writer = os.pipe()
        self.process = os.fork()
        if self.process:
            os.close(writer)
            self._lines = os.fdopen(reader)
            return
        status = 1
        try:
            os.environ.update({MARK: self.mark, "OMP_NUM_THREADS": "1"})
            torch.set_num_threads(1)

            def report(*words: str) -> None:
                os.write(writer, f"{' '.join(words)}\n".encode())

            with Store(path) as store:
                for record in run_lacking(
                    jobs, store, workers, tell=lambda job, text, _: report("told", text)
                ):
                    report("stored", record.key)
            status = 0
        except WorkerError:
            status = 3
        finally:
            os._exit(status)

    def workers(self) -> list[int]:
        """Ids of its workers, also of those that are starting."""
        ours = _processes_of(self.mark)
        return [each for each in ours if b"spawn_main" in _read(each, "cmdline")]

    def kill(self, draw: random.Random) -> str:
        """Kill the process or one of its workers; returns which."""
        victim = draw.choice([self.process, *self.workers()])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # a worker of a sweep that has just finished
            return "nothing"
        return "sweep" if victim == self.process else "worker"

    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> tuple[int, list[list[str]]]:
        """Exit status (negative: a signal) and what was reported, once all workers have ended."""
        lines = [line.split(maxsplit=1) for line in self._lines.read().splitlines()]
        _, status = os.waitpid(self.process, 0)
        self._lines.close()
        deadline = time.monotonic() + 300  # a worker on a busy machine may be importing modules
        while _processes_of(self.mark):
            assert time.monotonic() < deadline, "workers outlive their sweep"
            time.sleep(0.05)
        return os.waitstatus_to_exitcode(status), lines


def _read(process: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return b""


def _processes_of(mark: str) -> list[int]:
    ids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [each for each in ids if f"{MARK}={mark}".encode() in _read(each, "environ")]


@dataclass
class Trial:
    """Two sweeps on stores in a folder, killed until there were enough kills."""

    folder: Path
    jobs: list[Job]
    workers: int
    max_wait: float  # seconds before a kill
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    counts: Counter[str] = field(default_factory=Counter)
    reported: set[str] = field(default_factory=set)

    def run(self, kills: int) -> Counter[str]:
        expected = {}
        for job in self.jobs:
            record = job.run(lambda here: None)
            expected[job.key] = result(record, record.weights)
        while self.counts["kills"] < kills:
            path = self.folder / f"{self.counts['stores']}.sqlite"
            self._fill(path, kills)
            with Store(path) as store:
                records = {
                    each.key: result(each, store.weights(each.key)) for each in store.records()
                }
            assert records == expected
            assert not Checkpoints.beside(path).folder.exists()
            self.counts["stores"] += 1
            self.counts["records"] += len(records)
        return self.counts

    def _fill(self, path: Path, kills: int) -> None:
        """Two sweeps, one from each end, are killed and started again until all runs are stored."""
        self.reported.clear()
        orders = [self.jobs, self.jobs[::-1]]
        sweeps = [Sweep(path, order, self.workers) for order in orders]
        while self.counts["kills"] < kills:
            time.sleep(self.draw.uniform(0, self.max_wait))
            chosen = self.draw.randrange(2)
            if sweeps[chosen].has_ended():
                break
            victim = sweeps[chosen].kill(self.draw)
            self.counts[f"kills of a {victim}"] += 1
            self.counts["kills"] += victim != "nothing"
            self._check(path, sweeps[chosen])
            sweeps[chosen] = Sweep(path, orders[chosen], self.workers)
        for sweep in sweeps:
            self._check(path, sweep)
        last = Sweep(path, self.jobs, self.workers)  # what both left unfinished
        assert self._check(path, last) == 0

    def _check(self, path: Path, sweep: Sweep) -> int:
        """Every record that a sweep reported before it ended is in the store."""
        status, lines = sweep.wait()
        assert status in (0, 3, -signal.SIGKILL), status
        self.reported |= {text for kind, text in lines if kind == "stored"}
        for kind, text in lines:
            self.counts["runs continued" if "continues after" in text else kind] += 1
            assert "starts from the beginning" not in text, text
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with Store(path) as store:
            assert self.reported <= store.keys()
        return status


if __name__ == "__main__":
    kills, workers = int(sys.argv[1]), int(sys.argv[2])
    os.environ[VARIABLE] = "0"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        max_wait = 2.0 if workers == 1 else 6.0  # workers import modules first
        trial = Trial(Path(folder), jobs_of(30, 100), workers, max_wait)
        print(dict(trial.run(kills)), f"{time.monotonic() - started:.0f} s")
