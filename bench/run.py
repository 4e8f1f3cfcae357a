"""Running: every case that the file has not yet, each in a process of its own, kept as it ends."""

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

from bench.cases import Case
from bench.isolation import fresh_process, reason_of
from bench.machine import describe_session
from bench.measure import measure
from bench.records import Entry, Ledger, Record, read_ledger, write_ledger

OWN_PROCESSES = ("memory", "import", "training")  # groups that start their own processes


def run(
    cases: Sequence[Case],
    chosen: Sequence[Case],
    path: Path,
    *,
    command: str,
    fresh: bool,
    shared: bool,
) -> Ledger:
    """Measure which of the chosen cases are missing in the file and add them there, one by one.

    `fresh` measures anew what is there; `shared` has one process for all cases, which is quicker.
    """
    names = [case.name for case in cases]
    ledger = read_ledger(path).only(names)
    missing = [case for case in chosen if fresh or not ledger.has(case.describe())]
    say(f"{len(chosen) - len(missing)} cases are in {path} already, {len(missing)} to measure")
    if missing:
        ledger = ledger.with_session(describe_session(command))
    with compiler_cache(), Workers(shared) as workers:
        for place, case in enumerate(missing, 1):
            begin = time.perf_counter()
            entry = replace(workers.measure(case), session=len(ledger.sessions) - 1)
            ledger = ledger.with_entry(entry).only(names)
            write_ledger(ledger, path)
            took = time.perf_counter() - begin
            say(f"[{place}/{len(missing)}] {case.name}, {took:.0f} s. {headline(entry)}")
    return ledger


class Workers:
    """The process that measures: another one for each case, or the same for all."""

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
        except Exception as error:  # the case is lost, but not the others
            self._end()
            lost = Record("all", "step", reason=reason_of(error))
            sizes = case.graph.num_nodes, case.graph.num_edges
            return Entry(case.describe(), *sizes, 0.0, (lost,))
        finally:
            if not self.shared:
                self._end()

    def _end(self) -> None:
        if self.process is not None:
            self.process.shutdown()
            self.process = None


@contextmanager
def compiler_cache() -> Iterator[None]:
    """An empty cache for torch.compile, so that compile times are those of the first time."""
    with tempfile.TemporaryDirectory(prefix="dynagat-bench-") as folder:
        before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
            if before is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


def headline(entry: Entry) -> str:
    """Medians, for whoever watches."""
    quantities = ("step", "attention", "build", "memory", "edge", "seconds")
    parts = []
    for record in entry.records:
        if record.reason:
            parts.append(f"{record.contender}: {record.reason}")
        elif record.quantity in quantities:
            parts.append(f"{record.contender} {_in_short(record)}")
    return "; ".join(parts)


def _in_short(record: Record) -> str:
    if record.quantity == "memory":
        return f"{record.median / 1e6:.0f} MB"
    if record.quantity == "edge":
        return f"{1e-6 / record.median:.1f} million edges/s"
    if record.quantity == "seconds":
        return f"{record.median:.1f} s"
    return f"{record.median * 1e3:.1f} ms"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
