"""PyG's options that our loaders do not have: ignored if they do not change batches, else refused.

Options about processes, pinned memory or sorted edges have no effect here, since the loaders use
threads of the same process. Options that would change the content of batches are refused.
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
    "dataset",  # PyG ignores these two as well: they are for Lightning
    "collate_fn",
)
ONLY: Mapping[str, Any] = {
    "input_time": None,
    "edge_label_time": None,
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
    """Refuse options that are unknown, or set to a value that is not supported."""
    for name, value in given.items():
        if name in ignored:
            continue
        if name not in only:
            raise TypeError(
                f"unknown option {name}; see the documentation of the loader for those it has"
            )
        value = getattr(value, "value", value)  # PyG has enumerations
        if value is not only[name] and not (isinstance(value, str) and value == only[name]):
            raise ValueError(
                f"{name} must be {only[name]!r}, the only supported value, but is {value!r}"
            )
