"""Experiments as values: Benchmark, run, Record, the Store of records, and who executes runs."""

from dynagat.experiment.benchmark import Benchmark, Published, Settings, fidelity, revive, run
from dynagat.experiment.execute import Job, execute
from dynagat.experiment.record import Record, key_of
from dynagat.experiment.settings import as_published, departure, departures, grid
from dynagat.experiment.store import Store

__all__ = [
    "Benchmark",
    "Job",
    "Published",
    "Record",
    "Settings",
    "Store",
    "as_published",
    "departure",
    "departures",
    "execute",
    "fidelity",
    "grid",
    "key_of",
    "revive",
    "run",
]
