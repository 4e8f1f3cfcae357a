"""Experiments as values: benchmarks, runs, their records, the store of records, and tuning."""

from dynagat.experiment.benchmark import (
    Benchmark,
    Published,
    Settings,
    fidelity,
    revive,
    run,
    validate,
)
from dynagat.experiment.checkpoint import Checkpoints
from dynagat.experiment.cluster import Cluster
from dynagat.experiment.distributed import Distributed
from dynagat.experiment.execution import Job, execute
from dynagat.experiment.jobs import Request, jobs_of, run_lacking
from dynagat.experiment.record import Record, key_of
from dynagat.experiment.runner import Runner
from dynagat.experiment.settings import (
    as_published,
    departure,
    departures,
    grid,
    improved,
    improvement,
)
from dynagat.experiment.store import Store
from dynagat.experiment.study import Study
from dynagat.experiment.trials import Tuned, tune
from dynagat.experiment.tuning import Tuning

__all__ = [
    "Benchmark",
    "Checkpoints",
    "Cluster",
    "Distributed",
    "Job",
    "Published",
    "Record",
    "Request",
    "Runner",
    "Settings",
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
    "improved",
    "improvement",
    "jobs_of",
    "key_of",
    "revive",
    "run",
    "run_lacking",
    "tune",
    "validate",
]
