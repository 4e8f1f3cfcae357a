"""What can be put under the microscope: a finished run, a Python file, a checkpoint and data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from dynagat.analysis.attentive import Attentiveness, how_attentive
from dynagat.analysis.checkpoint import load_into, read_checkpoint, read_data
from dynagat.analysis.exposed import read_exposed
from dynagat.benchmarks import BENCHMARKS, find
from dynagat.experiment import Record, Store, revive
from dynagat.experiment.settings import flat
from dynagat.experiment.store import StoreError
from dynagat.report import wording

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin")
LISTED = 8  # runs, where more than one fits


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, what to run it on, and what to call it."""

    title: str
    model: nn.Module
    data: Any
    options: dict[str, Any] = field(default_factory=dict)  # of how_attentive
    names: list[str] | None = None  # of nodes

    def look(self) -> Attentiveness:
        return how_attentive(self.model, self.data, **self.options)


def is_checkpoint(text: str) -> bool:
    return Path(text).suffix in CHECKPOINTS


def of_file(path: Path, checkpoint: Path | None = None) -> Subject:
    """A file that exposes `model` and `data`; with other weights, if they are given."""
    told = read_exposed(path)
    if checkpoint is not None:
        load_into(told["model"], checkpoint)
    names = told.pop("names", None)
    return Subject(path.name, told.pop("model"), told.pop("data"), told, names)


def of_checkpoint(path: Path, data: Path | None) -> Subject:
    """The attention layers of a checkpoint, one after the other, on a file of data."""
    if data is None:
        raise ValueError(f"{path} needs its data: --data graph.npz with x and edge_index")
    told = read_data(data)
    given = {name: told[name] for name in ("x", "edge_index", "edge_attr") if name in told}
    options = {"labels": told.get("y"), "noise": told.get("noise")}
    return Subject(path.name, read_checkpoint(path), given, options)


def of_run(record: Record, store: Store) -> Subject:
    """A finished run's network, from the weights that the store keeps."""
    weights = store.weights(record.key)
    if weights is None:
        raise StoreError(
            f"store {store.path} has no weights of run {record.key[:8]}, for it was imported or "
            "made by an older dynagat; run it again in another store"
        )
    benchmark = find(record.benchmark).as_recorded(record)
    network, specimen = revive(benchmark, record.mechanism, record.seed, weights)
    return Subject(title_of(record), network, specimen.given, dict(specimen.marks))


def find_run(
    store: Store,
    subject: str,
    mechanism: str | None = None,
    heads: int | None = None,
    seed: int | None = None,
    settings: list[str] | None = None,
) -> Record:
    """The one record whose key starts so; or the one of a benchmark that fits all that is asked."""
    found = [each for each in store.records() if _fits(each, subject, mechanism, heads, seed)]
    for text in settings or []:
        found = [each for each in found if _has(each, text)]
    if len(found) == 1:
        return found[0]
    if found:
        shown = "; ".join(f"{each.key[:8]} is {title_of(each)}" for each in found[:LISTED])
        more = f"; and {len(found) - LISTED} more" if len(found) > LISTED else ""
        raise ValueError(
            f"{len(found)} runs of {store.path} fit, name one by its key: {shown}{more}"
        )
    known = ", ".join(BENCHMARKS)
    raise ValueError(
        f"no run of {store.path} fits {subject!r}, which must be a benchmark ({known}), the start "
        f"of a run's key, a .py file, or a checkpoint ({', '.join(CHECKPOINTS)})"
    )


def _fits(
    record: Record, subject: str, mechanism: str | None, heads: int | None, seed: int | None
) -> bool:
    is_named = record.benchmark == subject or record.key.startswith(subject)
    asked = ((mechanism, record.mechanism), (heads, record.heads), (seed, record.seed))
    return is_named and all(wanted in (None, given) for wanted, given in asked)


def _has(record: Record, text: str) -> bool:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"a setting must be written name=value, but is {text!r}")
    told = {path: each for path, each in flat(record.settings).items()
            if name in (path, path.split(".")[-1])}  # fmt: skip
    if not told:
        raise ValueError(f"there is no setting {name!r}; there are {', '.join(record.settings)}")
    return any(wording.setting_text(each) == value for each in told.values())


def title_of(record: Record) -> str:
    """Short, with the settings by which the benchmark's numbers are told apart."""
    swept = {name for each in find(record.benchmark).published for name in each.settings}
    told = [f"{name}={wording.setting_text(record.setting(name))}" for name in sorted(swept)]
    what = wording.title_of(record.mechanism, record.heads)
    changed = [] if record.fidelity == "corrected" else [record.fidelity]
    return ", ".join([record.benchmark, what, *told, f"seed {record.seed}", *changed])
