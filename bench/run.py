"""Running: measure the cases that the file lacks, each in its own process, and save each result."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from bench.cases import Case
from bench.isolation import fresh_process, reason_of
from bench.machine import describe_session
from bench.measure import measure
from bench.records import Entry, Ledger, Record, read_ledger, write_ledger

OWN_PROCESSES = (
    "first-call",
    "memory",
    "import",
    "epoch",
    "training",
    "ddp",
    "links",
    "sampled links",
    "programs",
    "larger-than-memory",
    "plan",
    "sweep",
)  # groups that start their own processes


def run(
    cases: Sequence[Case],
    chosen: Sequence[Case],
    path: Path,
    *,
    command: str,
    fresh: bool,
    shared: bool,
    device: torch.device | None = None,
) -> Ledger:
    """Measure the chosen cases that are missing in the file and add them one by one.

    Args:
        cases: all cases; entries of the file that belong to none of them are dropped.
        chosen: the cases to measure.
        path: the JSON file of the records.
        command: the command line, kept with the records.
        fresh: measure again the cases that are in the file already.
        shared: use one process for all cases, which is faster.
        device: the GPU that the cases are measured on.
    """
    names = [case.name for case in cases]
    ledger = read_ledger(path).only(names)
    missing = [case for case in chosen if fresh or not ledger.has(case.describe())]
    log(f"{len(chosen) - len(missing)} cases are in {path} already, {len(missing)} to measure")
    if missing:
        ledger = ledger.with_session(describe_session(command, device))
    with compiler_cache(), Workers(shared) as workers:
        for number, case in enumerate(missing, 1):
            begin = time.perf_counter()
            entry = replace(workers.measure(case), session=len(ledger.sessions) - 1)
            ledger = ledger.with_entry(entry).only(names)
            write_ledger(ledger, path)
            seconds = time.perf_counter() - begin
            log(f"[{number}/{len(missing)}] {case.name}, {seconds:.0f} s. {headline(entry)}")
    return ledger


class Workers:
    """The process that measures: a new one for each case, or the same one for all."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.process: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def measure(self, case: Case) -> Entry:
        if case.group in OWN_PROCESSES:
            return measure(case)
        self.process = self.process or fresh_process()
        try:
            return self.process.submit(measure, case).result()
        except Exception as error:  # the other cases still run
            self._end()
            failed = Record("all", "step", reason=reason_of(error))
            sizes = case.graph.num_nodes, case.graph.num_edges
            return Entry(case.describe(), *sizes, 0.0, (failed,))
        finally:
            if not self.shared:
                self._end()

    def _end(self) -> None:
        if self.process is not None:
            self.process.shutdown()
            self.process = None


@contextmanager
def compiler_cache() -> Iterator[None]:
    """An empty cache for torch.compile, so that compile times are those of a first compilation."""
    with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
        previous = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
            if previous is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = previous


def headline(entry: Entry) -> str:
    """The medians of a case, as one line of progress."""
    quantities = ("step", "epoch", "attention", "build", "memory", "edge", "seconds", "run")
    quantities += ("evaluation", "process memory", "anonymous memory")
    parts = []
    for record in entry.records:
        if record.reason:
            parts.append(f"{record.contender}: {record.reason}")
        elif record.quantity in quantities:
            parts.append(f"{record.contender} {_median_text(record)}")
    return "; ".join(parts)


def _median_text(record: Record) -> str:
    if record.quantity.endswith("memory"):
        return f"{record.median / 1e6:.0f} MB"
    if record.quantity == "edge":
        return f"{1e-6 / record.median:.1f} million edges/s"
    if record.quantity in ("seconds", "evaluation", "run"):
        return f"{record.median:.1f} s"
    return f"{record.median * 1e3:.1f} ms"


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
