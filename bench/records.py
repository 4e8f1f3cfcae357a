"""Records: what was measured, kept in one JSON file from which every table is computed."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Record:
    """One quantity of one contender, once per repetition; or the reason why there is none."""

    contender: str
    quantity: str  # "step", "attention", "build" in seconds, "memory" in bytes, ...
    values: tuple[float, ...] = ()
    reason: str = ""

    @classmethod
    def rounded(cls, contender: str, quantity: str, values: Iterable[float]) -> Record:
        """The values with six significant digits; further ones are noise."""
        return cls(contender, quantity, tuple(float(f"{value:.6g}") for value in values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True)
class Entry:
    """All records of a case, and the session in which they were made."""

    case: dict[str, Any]  # Case.describe()
    num_nodes: int
    num_edges: int
    seconds: float  # what it took to measure
    records: tuple[Record, ...]
    session: int = 0

    @property
    def name(self) -> str:
        return self.case["name"]

    @property
    def group(self) -> str:
        return self.case["group"]

    @property
    def shape(self) -> str:
        return f"{self.case['heads']}×{self.case['channels']}"

    @property
    def is_complete(self) -> bool:
        """Did the case run to its end, whoever was left out?"""
        return any(record.values for record in self.records)

    def find(self, contender: str, quantity: str) -> Record | None:
        for record in self.records:
            if (record.contender, record.quantity) == (contender, quantity):
                return record
        return None

    def median(self, contender: str, quantity: str) -> float | None:
        record = self.find(contender, quantity)
        return record.median if record and record.values else None

    def ratio(self, above: str, below: str, quantity: str) -> float | None:
        """The median of one contender over that of another, if both were measured."""
        top, bottom = self.median(above, quantity), self.median(below, quantity)
        return top / bottom if top is not None and bottom else None


@dataclass(frozen=True)
class Ledger:
    """The whole file: sessions (machine, versions, date, commit) and the entries of their cases."""

    sessions: tuple[dict[str, str], ...] = ()
    entries: tuple[Entry, ...] = field(default=())

    def group(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.group == name]

    def has(self, case: dict[str, Any]) -> bool:
        return any(entry.case == case and entry.is_complete for entry in self.entries)

    def with_entry(self, entry: Entry) -> Ledger:
        """The entry in the place of an older one of that name, or else at the end."""
        names = [old.name for old in self.entries]
        if entry.name not in names:
            return replace(self, entries=(*self.entries, entry))
        at = names.index(entry.name)
        return replace(self, entries=(*self.entries[:at], entry, *self.entries[at + 1 :]))

    def with_session(self, session: dict[str, str]) -> Ledger:
        return replace(self, sessions=(*self.sessions, session))

    def only(self, names: Sequence[str]) -> Ledger:
        """The entries of these names, in this order, and the sessions they come from."""
        entries = [entry for entry in self.entries if entry.name in names]
        entries.sort(key=lambda entry: names.index(entry.name))
        used = sorted({entry.session for entry in entries})
        moved = (replace(entry, session=used.index(entry.session)) for entry in entries)
        return Ledger(tuple(self.sessions[place] for place in used), tuple(moved))


def read_ledger(path: Path) -> Ledger:
    """What the file holds; nothing, if there is no such file."""
    if not path.exists():
        return Ledger()
    content = json.loads(path.read_text())
    return Ledger(tuple(content["sessions"]), tuple(map(_read_entry, content["entries"])))


def write_ledger(ledger: Ledger, path: Path) -> None:
    """To a temporary name first, so that a reader, or a crash, never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(json.dumps(asdict(ledger), indent=1, ensure_ascii=False) + "\n")
    os.replace(beside, path)


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _read_entry(content: dict[str, Any]) -> Entry:
    records = (Record(**{**r, "values": tuple(r["values"])}) for r in content["records"])
    return Entry(**{**content, "records": tuple(records)})
