"""The options that say where runs are made: --device, --workers, --ddp, and --ray with its own."""

from __future__ import annotations

from typing import Annotated

import typer

from dynagat.experiment import Cluster, Distributed, Runner
from dynagat.experiment.runner import runner_of
from dynagat.placement import find_device

Workers = Annotated[int, typer.Option(help="Number of processes, which share the cores.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="auto|HOST:PORT", help="Run on a Ray cluster instead of in processes."
    ),
]
Ddp = Annotated[
    int,
    typer.Option(
        metavar="N", help="Make each run on N processes, which share every batch of nodes."
    ),
]
CpusPerRun = Annotated[
    int | None,
    typer.Option(help="With --ray: for each run, or each of its --ddp processes; default: 1."),
]
GpusPerRun = Annotated[
    float | None, typer.Option(help="With --ray: likewise, such as 0.5; default: 0.")
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|cuda[:N]|..",
        help="Where networks compute; auto: a GPU if torch finds one. Default: cpu, or auto with "
        "--gpus-per-run.",
    ),
]


def chosen_runner(
    workers: int,
    ray: str | None,
    cpus: int | None,
    gpus: float | None,
    device: str | None = None,
    ddp: int = 1,
) -> Runner:
    """Where to make the runs; a ValueError if the options contradict each other."""
    if device is None:
        device = "auto" if ray and gpus else "cpu"
    if ray is None:
        find_device(device)
        for name, value in (("cpus", cpus), ("gpus", gpus)):
            if value is not None:
                raise ValueError(f"--{name}-per-run is for --ray, which is missing")
        if ddp == 1:
            return runner_of(workers, device)
        if workers != 1:
            raise ValueError(
                f"--workers {workers} makes several runs at a time and --ddp {ddp} each run on "
                "several processes; give one of them"
            )
        return Distributed(ddp, device)
    if workers != 1:
        raise ValueError(f"--workers is for this machine, not for --ray, but is {workers}")
    return Cluster(ray, 1 if cpus is None else cpus, 0.0 if gpus is None else gpus, device, ddp)
