"""A sweep: many short runs in one process, in worker processes, and as tasks of a Ray cluster."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cases import Case
from bench.isolation import in_fresh_process, reason_of
from bench.records import Record
from dynagat.benchmarks import find
from dynagat.experiment import Cluster, Request, Runner, Store, jobs_of, run_lacking
from dynagat.experiment.runner import runner_of


def measure_sweep(case: Case) -> Iterator[Record]:
    """Seconds per run in each setup, the start of its workers included."""
    for name in case.contenders:
        try:
            seconds = in_fresh_process(seconds_per_run, case, name)
        except Exception as error:
            yield Record(name, "run", reason=reason_of(error))
        else:
            yield Record.rounded(name, "run", [seconds])


def seconds_per_run(case: Case, setup: str) -> float:
    """Meant for a process of its own."""
    seeds = tuple(range(case.num_runs))
    request = Request(smoke=True, mechanisms=(case.mechanism,), seeds=seeds)
    jobs = jobs_of(find(case.benchmark), request)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        chosen_runner(setup, folder) as runner,
        Store(Path(folder, "records.sqlite")) as store,
    ):
        begin = time.perf_counter()
        records = list(run_lacking(jobs, store, runner))
        return (time.perf_counter() - begin) / len(records)


@contextmanager
def chosen_runner(setup: str, folder: str) -> Iterator[Runner]:
    if not setup.startswith("--ray"):
        yield runner_of(int(setup.split()[-1]))
        return
    # Ray reads them when it is imported: it listens on loopback, and writes no token anywhere.
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(16),
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_USAGE_STATS_ENABLED="0",
    )
    import ray

    options = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    options |= {"_node_ip_address": "127.0.0.1", "_temp_dir": folder}
    ray.init(num_cpus=2, object_store_memory=80 << 20, **options)
    try:
        yield Cluster("auto")
    finally:
        ray.shutdown()
