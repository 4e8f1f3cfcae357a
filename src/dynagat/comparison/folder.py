"""The folder of a comparison: the same graph and settings resume it, others are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynagat.comparison.plan import Plan
from dynagat.data.arrays import LIST, fingerprint, remove_folder
from dynagat.data.store import GraphData, open_graph
from dynagat.experiment import Record, Store
from dynagat.experiment.settings import values_of
from dynagat.experiment.store import StoreError
from dynagat.report.wording import setting_text

RECORDS = "records.sqlite"
# Not of a comparison as a whole: where the graph is, and the heads, which GCN has none of.
VARYING = ("data.graph", "network.heads")


def store_graph(folder: Path, save: Callable[[Path], GraphData]) -> GraphData:
    """Let `save` store the graph in the folder, unless it holds results on another graph."""
    path = folder / "graph"
    if not (folder / RECORDS).exists() or not (path / LIST).exists():
        return save(path)
    new = save(folder / "graph.new")
    assert new.folder is not None
    is_same = fingerprint(new.folder) == fingerprint(path)
    remove_folder(new.folder)
    if not is_same:
        raise _refusal(folder, "of another graph")
    return open_graph(path)


def check_same(store: Store, plan: Plan) -> None:
    """Refuse a store with runs on another graph or with other settings."""
    ours, folder = values_of(plan.benchmark.settings), store.path.parent
    for record in _records(store, plan):
        theirs = _settings(record, plan, folder)
        if theirs["data.content"] != ours["data.content"]:
            raise _refusal(folder, "of another graph")
        for name, value in ours.items():
            if name not in VARYING and theirs[name] != value:
                was, now = f"{name}={setting_text(theirs[name])}", setting_text(value)
                raise _refusal(folder, f"with other settings ({was} instead of {now})")


def _records(store: Store, plan: Plan) -> list[Record]:
    try:
        return store.records([plan.benchmark.name])
    except ValueError as error:
        raise StoreError(f"store {store.path} was altered: {error}") from None


def _settings(record: Record, plan: Plan, folder: Path) -> dict[str, Any]:
    try:
        return values_of(plan.benchmark.as_recorded(record).settings)
    except (ValueError, KeyError, TypeError):
        raise _refusal(folder, "of another version of dynagat") from None


def _refusal(folder: Path, what: str) -> ValueError:
    advice = "name another folder with --out (folder), or remove this one"
    return ValueError(f"{folder} holds a comparison {what}; {advice}")
