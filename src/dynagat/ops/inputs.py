"""AttentionInputs: the arguments of one call of the op, whichever implementation computes it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dynagat.ops import observe


class AttentionInputs(NamedTuple):
    """The inputs of one call. Ops of torch.library take its fields as single arguments.

    A NamedTuple is faster to create than a dataclass and can be unpacked into arguments.
    """

    # A compact graph's tables have fewer rows: see `UsedRows`.
    query: Tensor  # [*, num_queries·R, H, C], or [*, num_queries·R, H] for gat
    key: Tensor  # [*, num_keys·R, H, C], or [*, num_keys·R, H] for gat
    value: Tensor | None  # [*, num_keys·R, H, C]; None: the keys (gatv2)
    a: Tensor | None  # [R, H, C], for gatv2
    edge: Tensor | None  # [num_edges, D]
    edge_weight: Tensor | None  # [R, H, C, D], or [R, H, D] for gat
    seed: Tensor | None
    graph: list[Tensor]  # `Graph.tensors`
    mechanism: str
    num_edges: int
    num_relations: int
    slope: float
    dropout: float

    @property
    def value_table(self) -> Tensor:
        return self.key if self.value is None else self.value

    @property
    def num_queries(self) -> int:
        return (self.graph[0].shape[0] - 1) // self.num_relations

    @property
    def num_keys(self) -> int:
        return (self.graph[3].shape[0] - 1) // self.num_relations

    @property
    def table_rows(self) -> tuple[int, int]:
        """How many rows the tables of queries and keys have."""
        axes = 2 if self.mechanism == "gat" else 3  # from here to the last
        query, key = (t.shape[-axes] if t.dim() >= axes else 0 for t in (self.query, self.key))
        return query, key

    @property
    def flat(self) -> AttentionInputs:
        """The same inputs, with tables that have exactly one batch axis."""
        axes = 2 if self.mechanism == "gat" else 3
        value = None if self.value is None else flatten_batch(self.value, 3)
        query, key = flatten_batch(self.query, axes), flatten_batch(self.key, axes)
        return self._replace(query=query, key=key, value=value)

    @property
    def compute_dtype(self) -> torch.dtype:
        return torch.promote_types(self.value_table.dtype, torch.float32)


def flatten_batch(table: Tensor, axes: int) -> Tensor:
    """[*, ...] -> [B, ...], where the table has so many axes besides the batch."""
    return table.reshape(math.prod(table.shape[:-axes]), *table.shape[-axes:])


NUM_DIFFERENTIABLE = 6  # query to edge_weight have gradients
NUM_TENSORS = 7  # query to seed are tensors; the graph's arrays follow
SCHEMA_TYPES = {
    "Tensor": "Tensor",
    "Tensor | None": "Tensor?",
    "list[Tensor]": "Tensor[]",
    "str": "str",
    "int": "SymInt",
    "float": "float",
}


def schema_of_inputs() -> str:
    """The fields of AttentionInputs as torch.library writes arguments: "Tensor query, ..."."""
    types = {name: hint.__forward_arg__ for name, hint in AttentionInputs.__annotations__.items()}
    return ", ".join(f"{SCHEMA_TYPES[hint]} {name}" for name, hint in types.items())


def notify_observers(
    inputs: AttentionInputs, weights: Tensor, scores: Tensor, is_returned: bool
) -> None:
    """Show the observers the weights and scores of a call, by edge id."""
    rowptr, key_index, edge_id = inputs.graph[:3]
    seen = weights.clone() if is_returned else weights  # the caller may modify its tensor
    relations = inputs.num_relations
    observe.notify(observe.Observation(rowptr, key_index, edge_id, relations, seen, scores))


class State(NamedTuple):
    """What a pass over edges needs of the forward pass, besides the inputs: parts of one array.

    `weights` is there only if they were returned, because their gradient then adds to that of the
    scores. The array is the op's own, so that callers can change `out` in place.
    """

    out: Tensor  # [B, N, H, C]; B is the product of the batch axes
    top: Tensor  # [B, N, H]: each query's largest score
    total: Tensor  # [B, N, H]: Σ_j exp(score_ij - top_i)
    weights: Tensor  # [B, num_edges, H], or [B, 0, H]

    @classmethod
    def size(cls, inputs: AttentionInputs, has_weights: bool) -> int:
        """How many numbers the array has."""
        return sum(math.prod(shape) for shape in cls._shapes(inputs, has_weights))

    @classmethod
    def of(cls, numbers: Tensor, inputs: AttentionInputs) -> State:
        """The parts of an array of `size` numbers."""
        has_weights = numbers.numel() > cls.size(inputs, False)
        shapes = cls._shapes(inputs, has_weights)
        parts = numbers.split([math.prod(shape) for shape in shapes])
        return cls(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

    @staticmethod
    def _shapes(inputs: AttentionInputs, has_weights: bool) -> list[tuple[int, ...]]:
        *batch, _, heads, channels = inputs.value_table.shape
        per_query = (math.prod(batch), inputs.num_queries, heads)
        num_edges = inputs.num_edges if has_weights else 0
        return [(*per_query, channels), per_query, per_query, (per_query[0], num_edges, heads)]
