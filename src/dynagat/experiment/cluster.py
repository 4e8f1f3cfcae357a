"""Cluster: runs as tasks on a Ray cluster, each with its own CPUs and GPUs.

The process that starts the runs is the only one that writes the store. A run whose worker is lost
is started again, up to ATTEMPTS times in all; a run that fails by itself is not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, final

from dynagat.experiment.cluster_group import Task, sender, work_in_group
from dynagat.experiment.distributed import WorkerLost, check_kind
from dynagat.experiment.environment import versions
from dynagat.experiment.hosts import Host, copy_graph, describe_host, graph_on_host
from dynagat.experiment.ray_connection import check_address, connected, one_line
from dynagat.experiment.runner import (
    ATTEMPTS,
    Contact,
    Done,
    Receive,
    Results,
    Runner,
    Say,
    Work,
    WorkerError,
    counted,
    raise_failures,
)

POLL_SECONDS = 0.1
MESSAGE_SECONDS = 5.0  # to wait for the last messages of finished work
ROOM_SECONDS = 60.0  # to wait for nodes with the resources for a run, after the last one has left


@final
@dataclass(frozen=True)
class Cluster(Runner):
    """A Ray cluster that this machine has joined.

    Args:
        address: HOST:PORT of its head, or "auto" for the cluster that runs on this machine.
        cpus: reserved for each run, or each worker of a group, which uses as many threads.
        gpus: reserved likewise; may be a fraction, unless runs are made by groups.
        device: that runs compute on, found where they run: "auto" is a GPU where one is reserved.
        size: number of workers that make each run together, started by Ray Train.
    """

    address: str = "auto"
    cpus: int = 1
    gpus: float = 0.0
    device: str = "cpu"
    size: int = 1

    def __post_init__(self) -> None:
        check_address(self.address)
        if self.cpus < 1:
            raise ValueError(f"cpus-per-run must be at least 1, but is {self.cpus}")
        if self.gpus < 0:
            raise ValueError(f"gpus-per-run must not be negative, but is {self.gpus}")
        if not (self.gpus < 1 or float(self.gpus).is_integer()):
            raise ValueError(
                f"gpus-per-run must be a whole number or less than 1, but is {self.gpus}"
            )
        if self.gpus == 0 and self.device not in ("cpu", "auto"):
            raise ValueError(f"--device {self.device} with --ray needs --gpus-per-run, such as 1")
        if self.size < 1:
            raise ValueError(f"--ddp must be at least 1, but is {self.size}")
        if self.size > 1:
            check_kind(self.device, self.size)
            if self.gpus % 1:
                raise ValueError(
                    f"with --ddp {self.size}, gpus-per-run must be a whole number, since each "
                    f"worker needs a GPU of its own, but is {self.gpus:g}"
                )

    @property
    def group_size(self) -> int:
        return self.size

    def run(self, work: Iterator[Work], receive: Receive, say: Say, beside: Path | None) -> Results:
        with connected(self.address) as ray, _Session(self, ray, receive, say, beside) as session:
            yield from session.run(work)

    def capacity(self, nodes: list[dict[str, Any]]) -> int:
        """Number of runs for which nodes have the resources at the same time."""
        return self._places(nodes) // self.size

    def _places(self, nodes: list[dict[str, Any]]) -> int:
        return sum(self._fitting(node["Resources"]) for node in nodes)

    def _fitting(self, resources: dict[str, float]) -> int:
        by_cpu = int(resources.get("CPU", 0) / self.cpus)
        by_gpu = int(resources.get("GPU", 0) / self.gpus) if self.gpus else by_cpu
        return min(by_cpu, by_gpu)

    def needs(self) -> str:
        """The options that say what a run needs, or each worker of a group."""
        gpus = f" and --gpus-per-run {self.gpus:g}" if self.gpus else ""
        return f"--cpus-per-run {self.cpus}{gpus}"

    def check(self, nodes: list[dict[str, Any]]) -> None:
        """Refuse more CPUs or GPUs for a worker than any node has, and too many workers."""
        if self.capacity(nodes):
            return
        places = self._places(nodes)
        if places:
            raise ValueError(
                f"--ddp {self.size} needs as many workers at a time, but the {len(nodes)} nodes of "
                f"the cluster have the resources for {places}"
            )
        sizes = [node["Resources"] for node in nodes]
        largest = max(sizes, key=lambda each: (each.get("GPU", 0), each.get("CPU", 0)))
        raise ValueError(
            f"{self.needs()} is more than any of the {len(nodes)} nodes of the cluster has; the "
            f"largest has {largest.get('CPU', 0):g} CPUs and {largest.get('GPU', 0):g} GPUs"
        )


@dataclass
class _Attempt:
    """A task on the cluster."""

    work: Work
    number: int  # of the task, among all
    attempts: int  # of the work, with this one
    received: int = 0


@dataclass
class _Session(ExitStack):
    """The state of one `Cluster.run`."""

    cluster: Cluster
    ray: Any
    receive: Receive
    say: Say
    beside: Path | None
    running: dict[Any, _Attempt] = field(default_factory=dict)  # by the reference of its result
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        ray, cluster = self.ray, self.cluster
        self._numbers = count()
        self._had_room = time.monotonic()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._graphs: set[tuple[str, str]] = set()  # node and graph that were compared
        here = self._on(ray.get_runtime_context().get_node_id())
        self._mailbox = ray.remote(num_cpus=0, scheduling_strategy=here)(_Mailbox).remote()
        options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": 0}
        self._task = ray.remote(**options)(_work_on_cluster)
        options = {"num_cpus": 0, "scheduling_strategy": here, "max_retries": 0}
        self._group_task = ray.remote(**options)(work_in_group)
        self.callback(self._cancel)

    def run(self, work: Iterator[Work]) -> Iterator[Done]:
        self._look_at_nodes()
        looked = time.monotonic()
        is_over = False
        while True:
            if time.monotonic() - looked > 1:
                self._look_at_nodes()
                looked = time.monotonic()
            slots = self.cluster.capacity(list(self._nodes.values()))
            self._check_room(slots)
            while not is_over and len(self.running) < max(1, slots):
                each = next(work, None)
                is_over = each is None
                if each is not None:
                    self._provide(each.graph)
                    self._start(each, 1)
            if not self.running:
                break
            ended, _ = self.ray.wait(list(self.running), num_returns=1, timeout=POLL_SECONDS)
            self._pass_on()
            for reference in ended:
                yield from self._end(reference)
        raise_failures(self.failures)

    def _check_room(self, slots: int) -> None:
        """Give up if nodes have left, and those that are there have had no room for a while."""
        now = time.monotonic()
        if slots:
            self._had_room = now
        elif now - self._had_room > ROOM_SECONDS:
            group = f"--ddp {self.cluster.size}, " if self.cluster.size > 1 else ""
            self.failures.append(
                f"the nodes of the cluster have not had the resources for a run ({group}"
                f"{self.cluster.needs()}) for {ROOM_SECONDS:g} seconds"
            )
            raise_failures(self.failures)

    def _start(self, work: Work, attempts: int) -> None:
        number = next(self._numbers)
        cluster, beside = self.cluster, _identity(self.beside)
        settings = (_versions(), cluster.cpus, beside, cluster.device)
        task = Task(self._mailbox, number, work, *settings)
        if cluster.size > 1:
            reference = self._group_task.remote(task, cluster.size, cluster.gpus)
        else:
            reference = self._task.remote(task)
        self.running[reference] = _Attempt(work, number, attempts)

    def _end(self, reference: Any) -> Iterator[Done]:
        """The result of a task; or start its work again if its worker was lost."""
        errors = self.ray.exceptions
        lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        lost += (errors.ObjectLostError, errors.LocalRayletDiedError)
        attempt = self.running[reference]
        try:
            result, sent = self.ray.get(reference)
        except lost as error:
            del self.running[reference]
            self._lose(attempt, _reason(error, errors))
            return
        except errors.RayTaskError as error:
            del self.running[reference]
            if isinstance(error.cause, WorkerLost):
                self._lose(attempt, str(error.cause))
                return
            if not isinstance(error.cause, MemoryError):
                raise error.cause from error
            self.failures.append(f"{attempt.work.name} needs more memory than its worker has")
            return
        deadline = time.monotonic() + MESSAGE_SECONDS
        while attempt.received < sent and time.monotonic() < deadline:
            self._pass_on()
        del self.running[reference]
        yield Done(attempt.work, result, attempt.attempts)

    def _lose(self, attempt: _Attempt, reason: str) -> None:
        name = attempt.work.name
        if attempt.attempts < ATTEMPTS:
            self.say(f"{name}: its worker was lost ({reason}); it is started again")
            self._start(attempt.work, attempt.attempts + 1)
        else:
            self.failures.append(f"{name} lost its worker {ATTEMPTS} times ({reason})")
            self.say(f"{self.failures[-1]}; the others go on")

    def _pass_on(self) -> None:
        """Pass on the messages of the tasks that are running, and answer their questions."""
        by_number = {each.number: each for each in self.running.values()}
        for number, message, question in self.ray.get(self._mailbox.take.remote()):
            attempt = by_number.get(number)
            if attempt is None:
                continue  # of a worker that was given up as lost
            answer = self.receive(attempt.work, message)
            if question is None:
                attempt.received += 1
            else:
                self._mailbox.answer.remote(question, answer)

    def _look_at_nodes(self) -> None:
        """Check the nodes that have joined since the last time, and say what has changed."""
        alive = {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}
        if alive.keys() == self._nodes.keys():
            return
        new = alive.keys() - self._nodes.keys()
        if not self._nodes:
            self.cluster.check(list(alive.values()))
        for host in self._ask_hosts(new, alive, ""):
            host.check(_versions())
            if self.beside is not None and not host.sees_file:
                self.say(
                    f"{host.name} does not see {self.beside}: runs there keep no checkpoints, "
                    "and start from the beginning if their worker is lost"
                )
        self._nodes = alive
        cpus = sum(node["Resources"].get("CPU", 0) for node in alive.values())
        gpus = sum(node["Resources"].get("GPU", 0) for node in alive.values())
        self.say(
            f"cluster {self.ray.get_runtime_context().gcs_address}: {len(alive)} nodes, "
            f"{cpus:g} CPUs, {gpus:g} GPUs, {self.cluster.capacity(list(alive.values()))} "
            "runs at a time"
        )

    def _provide(self, graph: str) -> None:
        """See that every node has a graph: on a shared path, or as a copy, once per node."""
        new = {node for node in self._nodes if (node, graph) not in self._graphs}
        self._graphs |= {(node, graph) for node in new}
        here = graph_on_host(graph)
        if not here or not new:  # generated data, or compared before
            return
        hosts = self._ask_hosts(new, self._nodes, graph)
        for host in hosts:
            host.check_graph(graph, here)
        lacking = [host for host in hosts if not host.fingerprint]
        if lacking:
            names = ", ".join(host.name for host in lacking)
            self.say(f"{graph} is copied to {names}, where it is not")
            copy_graph(self.ray, graph, [self._on(host.node) for host in lacking])

    def _ask_hosts(self, chosen: Any, nodes: dict[str, dict[str, Any]], graph: str) -> list[Host]:
        ask = self.ray.remote(num_cpus=0, max_retries=0)(describe_host)
        answers = {
            node: ask.options(scheduling_strategy=self._on(node)).remote(
                node, nodes[node]["NodeManagerAddress"], graph, _identity(self.beside)
            )
            for node in chosen
        }
        hosts, errors = [], self.ray.exceptions
        for node, answer in answers.items():
            name = nodes[node]["NodeManagerAddress"]
            try:
                hosts.append(self.ray.get(answer, timeout=60))
            except (errors.NodeDiedError, errors.TaskUnschedulableError):
                continue  # it has left
            except errors.RayTaskError as error:
                raise WorkerError(f"node {name} can't run dynagat: {error.cause}") from None
            except errors.RayError as error:
                raise WorkerError(
                    f"node {name} does not start workers: {one_line(error)}"
                ) from None
        return hosts

    def _on(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node, soft=False)

    def _cancel(self) -> None:
        for reference in self.running:
            self.ray.cancel(reference, force=True)
        self.ray.kill(self._mailbox)


def _versions() -> dict[str, str]:
    known = versions()
    return {name: known[name] for name in ("dynagat", "torch", "numpy")}


def _identity(path: Path | None) -> tuple[str, int] | None:
    """A file by its path and inode: on another host, the same path may be another file."""
    return None if path is None else (str(path), os.stat(path).st_ino)


def _reason(error: Exception, errors: Any) -> str:
    if isinstance(error, errors.OutOfMemoryError):
        return "its node ran out of memory"
    if isinstance(error, errors.WorkerCrashedError):
        return "its process was killed, perhaps because memory ran out"
    return "its node left the cluster"


def _work_on_cluster(task: Task) -> tuple[Any, int]:
    """In a worker: the result of work, and the number of messages."""
    import ray

    mailbox, number = task.mailbox, task.number
    sees_file = task.start()

    def ask(question: Any) -> Any:
        return ray.get(mailbox.ask.remote(number, question))

    return counted(task.work, Contact(sender(mailbox, number), ask, sees_file, task.device))


class _Mailbox:
    """An actor next to the driver that keeps the messages of workers until they are taken."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Any, int | None]] = []
        self.questions: dict[int, asyncio.Future[Any]] = {}
        self.results: dict[int, Any] = {}

    async def put(self, number: int, message: Any) -> None:
        self.messages.append((number, message, None))

    async def ask(self, number: int, question: Any) -> Any:
        name = len(self.questions)
        self.questions[name] = asyncio.get_running_loop().create_future()
        self.messages.append((number, question, name))
        return await self.questions[name]

    async def answer(self, name: int, value: Any) -> None:
        self.questions[name].set_result(value)

    async def keep(self, number: int, result: Any) -> None:
        self.results[number] = result

    async def kept(self, number: int) -> Any:
        return self.results.pop(number)

    async def take(self) -> list[tuple[int, Any, int | None]]:
        taken, self.messages = self.messages, []
        return taken
