"""What a worker of a Ray cluster gets; work of several workers, which Ray Train watches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dynagat.experiment.distributed import (
    TIMEOUT_SECONDS,
    WorkerLost,
    is_loss_of_another,
    is_out_of_memory,
    send_nothing,
)
from dynagat.experiment.hosts import describe_host
from dynagat.experiment.ray_connection import one_line
from dynagat.experiment.runner import Contact, Work, counted
from dynagat.group import Group


@dataclass(frozen=True)
class Task:
    """What a worker gets.

    Args:
        mailbox: the actor of `cluster._Mailbox`.
        number: of the task.
        work: what to do.
        expected: versions, by name.
        threads: of each worker.
        beside: path and inode of the file next to which runs keep checkpoints.
        device: that it computes on, found where it runs.
    """

    mailbox: Any
    number: int
    work: Work
    expected: Mapping[str, str]
    threads: int
    beside: tuple[str, int] | None
    device: str

    def start(self) -> bool:
        """Check the worker that calls it, of a node that may have just joined, and prepare it.

        Returns whether it sees `beside`.
        """
        import ray

        host = describe_host("", ray.util.get_node_ip_address(), "", self.beside)
        host.check(self.expected)
        torch.set_num_threads(self.threads)
        return host.sees_file


def work_in_group(task: Task, size: int, gpus: float) -> tuple[Any, int]:
    """In a worker without resources of its own: the result, and the number of messages."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

    resources = {"CPU": task.threads} | ({"GPU": gpus} if gpus else {})
    with tempfile.TemporaryDirectory(prefix="dynagat-train-") as folder:
        trainer = TorchTrainer(
            _work_as_member,
            train_loop_config={"task": task},
            torch_config=TorchConfig(
                backend="cpu:gloo,cuda:nccl" if gpus else "gloo", timeout_s=TIMEOUT_SECONDS
            ),
            scaling_config=ScalingConfig(
                num_workers=size, use_gpu=gpus > 0, resources_per_worker=resources
            ),
            # Attempts are counted by the driver; Ray would write to the home folder by default.
            run_config=RunConfig(
                name="dynagat", storage_path=folder, failure_config=FailureConfig(max_failures=0)
            ),
        )
        try:
            trainer.fit()
        except WorkerGroupError as error:
            raise cause_of(error.worker_failures) from None
        except ControllerError as error:
            raise WorkerLost(f"Ray Train: {one_line(error.controller_failure)}") from None
    return ray.get(task.mailbox.kept.remote(task.number))


def cause_of(failures: Mapping[int, Exception]) -> Exception:
    """What to raise for the errors of workers, by rank."""
    from ray.exceptions import RayError
    from ray.train.v2._internal.exceptions import RayTrainError

    if any(is_out_of_memory(error) for error in failures.values()):
        return MemoryError()
    lost = {rank for rank, error in failures.items() if isinstance(error, RayError | RayTrainError)}
    for rank, error in failures.items():
        if rank not in lost and not is_loss_of_another(error):
            return error
    rank = min(lost, default=min(failures))
    return WorkerLost(f"worker {rank} was killed, perhaps because memory ran out")


def _work_as_member(settings: Mapping[str, Any]) -> None:
    """In each worker of the group. The first one leaves the result in the mailbox."""
    import ray

    task: Task = settings["task"]
    sees_file, group = task.start(), Group.of_torch()
    send = sender(task.mailbox, task.number) if group.rank == 0 else send_nothing
    result = counted(task.work, Contact(send, None, sees_file, task.device, group))
    if group.rank == 0:
        ray.get(task.mailbox.keep.remote(task.number, result))


def sender(mailbox: Any, number: int) -> Callable[[Any], None]:
    """A function that sends messages in order: calls of an async actor may overtake each other."""
    import ray

    def send(message: Any) -> None:
        ray.get(mailbox.put.remote(number, message))

    return send
