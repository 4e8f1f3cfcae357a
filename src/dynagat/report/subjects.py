"""What the microscope can analyse: a finished run, a Python file, or a checkpoint with data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dynagat.analysis.attentive import Attentiveness, how_attentive
from dynagat.analysis.checkpoint import load_into, read_checkpoint, read_data
from dynagat.analysis.exposed import read_exposed
from dynagat.data.molecules import Molecule
from dynagat.data.programs.snippets import Snippet
from dynagat.experiment import Benchmark, Record, Store, fidelity, revive
from dynagat.experiment.settings import flat, values_of
from dynagat.experiment.store import StoreError
from dynagat.placement import moved
from dynagat.report import wording

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin")
FILES = f"; or a .py file or a checkpoint ({', '.join(CHECKPOINTS)})"
MAX_LISTED = 8  # runs, if several fit


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, its input, and a title."""

    title: str
    model: nn.Module
    data: Any
    options: dict[str, Any] = field(default_factory=dict)  # options of how_attentive
    names: Sequence[str] | None = None  # of the nodes
    molecules: Mapping[int, Molecule] = field(default_factory=dict)  # by their first node
    programs: Mapping[int, Snippet] = field(default_factory=dict)  # likewise
    notes: tuple[str, ...] = ()  # sentences for the user

    def on(self, device: torch.device) -> Subject:
        """The same with model and data on a device."""
        return replace(self, model=self.model.to(device), data=moved(self.data, device))

    def analyse(self) -> Attentiveness:
        return how_attentive(self.model, self.data, **self.options)


def is_checkpoint(text: str) -> bool:
    return Path(text).suffix in CHECKPOINTS


def of_file(path: Path, checkpoint: Path | None = None) -> Subject:
    """A file that exposes `model` and `data`; optionally with the weights of a checkpoint."""
    exposed = read_exposed(path)
    if checkpoint is not None:
        load_into(exposed["model"], checkpoint)
    names = exposed.pop("names", None)
    return Subject(path.name, exposed.pop("model"), exposed.pop("data"), exposed, names)


def of_checkpoint(path: Path, data: Path | None) -> Subject:
    """The attention layers of a checkpoint, one after the other, on a file of data."""
    if data is None:
        raise ValueError(f"{path} needs its data: --data graph.npz with x and edge_index")
    model, arrays = read_checkpoint(path), read_data(data)
    dtype = next(model.parameters()).dtype  # numpy's default is float64
    inputs = {name: arrays[name].to(dtype) for name in ("x", "edge_attr") if name in arrays}
    inputs["edge_index"] = arrays["edge_index"]
    options = {"labels": arrays.get("y"), "noise": arrays.get("noise")}
    return Subject(path.name, model, inputs, options)


def weights_of(record: Record, store: Store) -> bytes:
    """The weights of a finished run; a StoreError if the store has none."""
    weights = store.weights(record.key)
    if weights is None:
        raise StoreError(
            f"store {store.path} has no weights of run {record.key[:8]}: it was imported, or made "
            "by an older dynagat; run it again in another store"
        )
    return weights


def of_run(record: Record, store: Store, benchmark: Benchmark) -> Subject:
    """The network of a finished run, with the weights that the store keeps."""
    weights = weights_of(record, store)
    recorded = benchmark.as_recorded(record)
    network, given = revive(recorded, record.mechanism, record.seed, weights)
    title = title_of(record, benchmark)
    return Subject(
        title,
        network,
        given.inputs,
        dict(given.marks),
        given.names,
        given.molecules,
        given.programs,
    )


def of_released(path: Path, benchmarks: Sequence[Benchmark]) -> Subject:
    """A model of the paper's released code, on the graphs of its benchmark."""
    readers = [each.released for each in benchmarks if each.released is not None]
    if len(readers) != 1:
        names = ", ".join(each.name for each in benchmarks)
        raise ValueError(f"a benchmark with released checkpoints must be named, but got {names}")
    model = readers[0](path)
    given = model.prediction.microscope_input()
    settings = [wording.setting_label(name, value) for name, value in model.settings.items()]
    kind = wording.title_of(model.mechanism, model.heads)
    title = ", ".join([f"{path.name}, released {kind}", *settings])
    marks, molecules = dict(given.marks), given.molecules
    return Subject(
        title, model.network, given.inputs, marks, given.names, molecules, notes=model.notes
    )


def find_run(
    store: Store,
    subject: str,
    benchmarks: Mapping[str, Benchmark],
    mechanism: str | None = None,
    heads: int | None = None,
    seed: int | None = None,
    settings: Sequence[str] = (),
    others: str = FILES,
) -> Record:
    """The only record of a benchmark, or with this start of its key, that fits the rest.

    `others` says in an error what else the command takes instead of a run.
    """
    fitting = [each for each in store.records() if _fits(each, subject, mechanism, heads, seed)]
    for text in settings:
        fitting = [each for each in fitting if _has(each, text, benchmarks.get(each.benchmark))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = "; ".join(
            f"{each.key[:8]} is {title_of(each, benchmarks.get(each.benchmark))}"
            for each in fitting[:MAX_LISTED]
        )
        more = f"; and {len(fitting) - MAX_LISTED} more" if len(fitting) > MAX_LISTED else ""
        raise ValueError(
            f"{len(fitting)} runs of {store.path} fit, name one by its key: {shown}{more}"
        )
    known = ", ".join(benchmarks)
    raise ValueError(
        f"no run of {store.path} fits {subject!r}, which must be a benchmark ({known}) or the "
        f"start of a run's key{others}"
    )


def _fits(
    record: Record, subject: str, mechanism: str | None, heads: int | None, seed: int | None
) -> bool:
    is_named = record.benchmark == subject or record.key.startswith(subject)
    pairs = ((mechanism, record.mechanism), (heads, record.heads), (seed, record.seed))
    return is_named and all(wanted in (None, given) for wanted, given in pairs)


def _has(record: Record, text: str, benchmark: Benchmark | None) -> bool:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"a setting must be written name=value, but is {text!r}")
    known = flat(record.settings)
    if benchmark is not None:
        known = values_of(benchmark.as_recorded(record).settings)
    values = [each for path, each in known.items() if name in (path, path.split(".")[-1])]
    if not values:
        raise ValueError(f"there is no setting {name!r}; there are {', '.join(known)}")
    return any(wording.setting_text(each) == value for each in values)


def title_of(record: Record, benchmark: Benchmark | None = None) -> str:
    """Short, with the settings that the benchmark's published numbers differ in."""
    published = () if benchmark is None else benchmark.published
    swept = {name for each in published for name in each.settings}
    values = [f"{name}={wording.setting_text(record.setting(name))}" for name in sorted(swept)]
    mechanism = wording.title_of(record.mechanism, record.heads)
    kind = record.fidelity if benchmark is None else fidelity(benchmark.as_recorded(record))
    changed = [] if kind == "corrected" else [kind]
    return ", ".join([record.benchmark, mechanism, *values, f"seed {record.seed}", *changed])
