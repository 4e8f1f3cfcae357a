"""Experiments as values: Benchmark, run, Record, Store of records; who executes runs; tuning."""

from dynagat.experiment.benchmark import (
    Benchmark,
    Published,
    Settings,
    Specimen,
    fidelity,
    revive,
    run,
    validate,
)
from dynagat.experiment.execute import Job, execute
from dynagat.experiment.record import Record, key_of
from dynagat.experiment.settings import as_published, departure, departures, grid
from dynagat.experiment.store import Store
from dynagat.experiment.study import Study
from dynagat.experiment.tune import Tuned, tune
from dynagat.experiment.tuning import Tuning

__all__ = [
    "Benchmark",
    "Job",
    "Published",
    "Record",
    "Settings",
    "Specimen",
    "Store",
    "Study",
    "Tuned",
    "Tuning",
    "as_published",
    "departure",
    "departures",
    "execute",
    "fidelity",
    "grid",
    "key_of",
    "revive",
    "run",
    "tune",
    "validate",
]
