"""Groups of processes: forked ones, which start at once, and a task that kills a worker."""

import os
import pickle
import signal
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from dynagat.group import Group
from dynagat.prediction.nodes import NodePrediction, NodeTask


def in_group(size, work, folder):
    """The results of work(group) in as many processes, by rank; an error ends the test."""
    path, pipes = Path(folder, uuid.uuid4().hex), []
    for rank in range(size):
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            try:
                torch.set_num_threads(1)  # threads that torch has started are not forked
                store = dist.FileStore(str(path), size)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
                content = pickle.dumps(work(Group.of_torch()))
                with os.fdopen(writer, "wb") as file:
                    file.write(content)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writer)
        pipes.append((process, os.fdopen(reader, "rb")))
    contents = [pipe.read() for _, pipe in pipes]
    for process, pipe in pipes:
        pipe.close()
        os.waitpid(process, 0)
    assert all(contents), "a process of the group failed"
    return [pickle.loads(content) for content in contents]


@dataclass(frozen=True)
class FragileTask(NodeTask):
    """The second worker is killed in the middle of its fifth epoch, if there is such a folder."""

    folder: str = ""

    def prepare(self, problem, schedule):
        return FragilePrediction(problem, self, schedule.batch_size)


class FragilePrediction(NodePrediction):
    def batches(self, generator):
        epoch = count_epoch(self.settings.folder) if self.group.rank == 1 else 0
        for n, batch in enumerate(super().batches(generator)):
            if n == 2 and epoch == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


def count_epoch(folder):
    if not os.path.isdir(folder):
        return 0
    with open(f"{folder}/epochs", "ab") as file:
        file.write(b".")
        return file.tell()


def fail(contact):
    """The second worker fails, and the first one waits for it."""
    if contact.group.rank == 1:
        raise ValueError(f"a worker fails on {contact.device}")
    contact.group.mean(torch.zeros(1))
