"""Group: the processes that train one network together, or one process by itself.

Each computes its part of every batch and of every inference. Gradients are averaged by torch's
DistributedDataParallel; so are losses, and outputs are exchanged. A group of one does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dynagat.placement import CPU, moved

Value = TypeVar("Value")


@final
@dataclass(frozen=True)
class Group:
    """This process as number `rank` of `size` processes.

    With more than one, torch.distributed must have been initialised with the same numbers, and all
    processes must call the methods in the same order.
    """

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank must lie in [0, {self.size}), but is {self.rank}")

    @classmethod
    def of_torch(cls) -> Group:
        """The default process group of torch.distributed."""
        return cls(dist.get_rank(), dist.get_world_size())

    def part(self, count: int) -> slice:
        """This process's part of `count` items. Parts differ in length by at most one."""
        return self._part(count, self.rank)

    def _part(self, count: int, rank: int) -> slice:
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def wrap(self, network: nn.Module) -> nn.Module:
        """The network, with its gradients averaged over the group after each backward pass.

        To be called for each epoch: DistributedDataParallel changes the order of gradients, and
        thus of their sums, after its first step. An epoch that follows a checkpoint must not differ
        from others.
        """
        return network if self.size == 1 else DistributedDataParallel(network)

    def factors(self, *weights: float) -> list[float]:
        """size · weight / Σ weight, of each: turns means over the group into weighted means."""
        if self.size == 1:
            return [1.0] * len(weights)
        own = torch.tensor(weights, dtype=torch.float64)
        total = own.clone()
        dist.all_reduce(total)
        return (self.size * own / total).tolist()

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the group of each value."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.size

    def of_first(self, value: Value) -> Value:
        """The first process's value, for all, on the CPU: another device is not that of others."""
        if self.size == 1:
            return value
        values: list[Any] = [moved(value, CPU)]
        dist.broadcast_object_list(values)
        return values[0]

    def align(self, network: nn.Module) -> None:
        """Give all processes the buffers of the first one, such as running means."""
        for buffer in network.buffers() if self.size > 1 else ():
            dist.broadcast(buffer, 0)

    def reseed(self, generator: torch.Generator) -> None:
        """Seed torch's global generator, which draws dropout, for each process differently.

        The common generator stays as it is, and with it the order of the batches.
        """
        if self.size > 1:
            copy = torch.Generator()
            copy.set_state(generator.get_state())
            torch.manual_seed(int(torch.randint(2**62, (), generator=copy)) + self.rank)

    def exchange(self, table: Any) -> None:
        """Send the rows of `part(len(table))` of a tensor to the others, and receive theirs."""
        for rank in range(self.size if self.size > 1 else 0):
            dist.broadcast(table[self._part(len(table), rank)], rank)


ALONE = Group()
