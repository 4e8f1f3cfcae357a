"""Record: the result of one run, with everything that determined it. Read and written as JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dynagat.experiment.settings import flat


@dataclass(frozen=True, eq=False)
class Record:
    """One run. `key` is a hash of all that determines the result: equal keys mean equal runs.

    The versions and the device, which `versions` names if it was not the CPU, are not in the key.
    """

    key: str
    benchmark: str
    mechanism: str
    heads: int
    seed: int
    fidelity: str  # as the version that made it called its settings; reports derive it from them
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    history: list[Mapping[str, float]]
    ended: str  # "perfect", "patience", "budget", "failed" or "diverged"
    converged: bool
    seconds: float
    peak_memory_bytes: int
    versions: Mapping[str, str]
    commit: str
    created: str
    exhibits: Mapping[str, Any] = field(default_factory=dict)  # what figures are drawn from
    round_seconds: list[list[float]] = field(default_factory=list)  # training, evaluation
    attempts: int = 1  # more if the run lost its worker and was started again
    weights: bytes | None = field(default=None, repr=False)  # of torch.save; not in the JSON

    def setting(self, name: str) -> Any:
        """A setting by the last part of its name: record.setting("k")."""
        return next(v for path, v in flat(self.settings).items() if path.split(".")[-1] == name)

    def to_json(self) -> str:
        """One line with everything except the weights, and the attempts only if there were more."""
        once = {"attempts"} if self.attempts == 1 else set()
        values = {n: value for n, value in vars(self).items() if n not in {"weights", *once}}
        return json.dumps(plain(values), allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Record:
        """The record of a line; a ValueError says why a line is not one."""
        try:
            values = json.loads(line)
        except ValueError as error:
            raise ValueError(f"a record must be one line of JSON, but {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"a record must be a JSON object, but is a {type(values).__name__}")
        names = {each.name for each in fields(cls)} - {"weights"}
        missing = names - set(values) - {"exhibits", "round_seconds", "attempts"}
        if missing or set(values) - names:
            odd = f"lacks {sorted(missing)}" if missing else f"has {sorted(set(values) - names)}"
            raise ValueError(f"a record must have the fields of this version, but it {odd}")
        values["metrics"] = _numbers(values["metrics"], "metrics")
        if not isinstance(values["history"], list):
            kind = type(values["history"]).__name__
            raise ValueError(f"a record's history must be a JSON array, but is a {kind}")
        values["history"] = [_numbers(each, "history") for each in values["history"]]
        record = cls(**values)
        key = key_of(record.benchmark, record.mechanism, record.seed, record.settings)
        if key != record.key:
            raise ValueError(f"the key {record.key} does not fit the record's settings ({key})")
        return record


def key_of(benchmark: str, mechanism: str, seed: int, settings: Mapping[str, Any]) -> str:
    """A hash of all that determines the result of a run."""
    text = json.dumps(
        [benchmark, mechanism, seed, settings],
        sort_keys=True,
        allow_nan=False,
        separators=(",", ":"),
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _numbers(values: Any, name: str) -> dict[str, float]:
    """Numbers that `plain` wrote: None stands for nan."""
    if not isinstance(values, dict):
        kind = type(values).__name__
        raise ValueError(f"a record's {name} must be of JSON objects, but has a {kind}")
    return {each: math.nan if value is None else value for each, value in values.items()}


def plain(value: Any) -> Any:
    """What JSON can hold: None stands for nan and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value
