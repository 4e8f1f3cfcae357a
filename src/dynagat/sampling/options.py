"""PyG's options that our loaders have no use for: taken where that changes no batch, or refused.

What only says how work is done or kept (processes, pinned memory, sorted edges) makes no
difference to threads of the same process. What would make other batches is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IGNORED = (
    "is_sorted",
    "filter_per_worker",
    "persistent_workers",
    "pin_memory",
    "pin_memory_device",
    "prefetch_factor",
    "multiprocessing_context",
    "timeout",
    "dataset",  # PyG drops these two as well: they are there for Lightning
    "collate_fn",
)
ONLY: Mapping[str, Any] = {
    "input_time": None,
    "subgraph_type": "directional",
    "disjoint": False,
    "temporal_strategy": "uniform",
    "time_attr": None,
    "weight_attr": None,
    "transform_sampler_output": None,
    "neighbor_sampler": None,
    "directed": True,
    "input_id": None,
    "sampler": None,
    "batch_sampler": None,
    "generator": None,  # the order of seeds comes from `seed`
    "worker_init_fn": None,
}
SAINT_IGNORED = (*IGNORED, "log", "shuffle", "drop_last")
SAINT_ONLY: Mapping[str, Any] = {
    name: ONLY[name] for name in ("sampler", "batch_sampler", "generator", "worker_init_fn")
} | {"save_dir": None}


def check_options(
    given: Mapping[str, Any],
    ignored: tuple[str, ...] = IGNORED,
    only: Mapping[str, Any] = ONLY,
) -> None:
    """Refuse what is unknown, or set to what is not done here."""
    for name, value in given.items():
        if name in ignored:
            continue
        if name not in only:
            raise TypeError(f"there is no option {name}; known are those of PyG's loader and ours")
        value = getattr(value, "value", value)  # of PyG's enumerations
        if value is not only[name] and not (isinstance(value, str) and value == only[name]):
            raise ValueError(f"{name} must be {only[name]!r}, the only one there is here, "
                             f"but is {value!r}")  # fmt: skip
