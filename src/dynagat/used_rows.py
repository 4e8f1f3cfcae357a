"""UsedRows: which rows (node, relation) of a table some edge needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class UsedRows:
    """Row i·R + r of N·R rows is needed if node i has an edge of relation r.

    A table of only these U rows has them relation after relation, each in the order of the nodes:
    the rows of relation r are offset[r] .. offset[r + 1] - 1.
    """

    number: Tensor  # [N·R] int32: where the table has each row; -1: nowhere
    node: Tensor  # [U] int64: the node of each row of the table
    offset: tuple[int, ...]  # R + 1 numbers

    @classmethod
    def where(cls, is_used: Tensor) -> UsedRows:
        """From a mask [N, R]."""
        relation, node = is_used.t().nonzero(as_tuple=True)
        number = torch.full(is_used.shape, -1, dtype=torch.int32, device=is_used.device)
        number[node, relation] = torch.arange(len(node), dtype=torch.int32, device=is_used.device)
        counts = is_used.sum(0).cumsum(0).tolist()
        return cls(number.flatten(), node, (0, *counts))

    def __len__(self) -> int:
        return self.offset[-1]
