"""Records: the measurements, in one JSON file from which every table is computed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dynagat.files import write_text


@dataclass(frozen=True)
class Record:
    """One quantity of one contender, one value per repetition; or the reason why it is missing."""

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
    """All records of a case, and the session that measured them."""

    case: dict[str, Any]  # Case.describe()
    num_nodes: int
    num_edges: int
    seconds: float  # duration of the measurement
    records: tuple[Record, ...]
    session: int = 0  # index into the sessions of the file

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
        """Whether at least one contender was measured."""
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
        """The median of one contender divided by that of another; None if one is missing."""
        top, bottom = self.median(above, quantity), self.median(below, quantity)
        return top / bottom if top is not None and bottom else None


@dataclass(frozen=True)
class Ledger:
    """The whole file: sessions (machine, versions, date, commit) and one entry per case."""

    sessions: tuple[dict[str, str], ...] = ()
    entries: tuple[Entry, ...] = field(default=())

    def group(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.group == name]

    def has(self, case: dict[str, Any]) -> bool:
        return any(entry.case == case and entry.is_complete for entry in self.entries)

    def with_entry(self, entry: Entry) -> Ledger:
        """With an entry that replaces the one of the same name, or is added at the end."""
        names = [old.name for old in self.entries]
        if entry.name not in names:
            return replace(self, entries=(*self.entries, entry))
        index = names.index(entry.name)
        return replace(self, entries=(*self.entries[:index], entry, *self.entries[index + 1 :]))

    def with_session(self, session: dict[str, str]) -> Ledger:
        return replace(self, sessions=(*self.sessions, session))

    def only(self, names: Sequence[str]) -> Ledger:
        """The entries with these names, in this order, and the sessions they come from."""
        entries = [entry for entry in self.entries if entry.name in names]
        entries.sort(key=lambda entry: names.index(entry.name))
        used = sorted({entry.session for entry in entries})
        moved = (replace(entry, session=used.index(entry.session)) for entry in entries)
        return Ledger(tuple(self.sessions[index] for index in used), tuple(moved))


def read_ledger(path: Path) -> Ledger:
    """Read the file; an empty ledger if it does not exist."""
    if not path.exists():
        return Ledger()
    content = json.loads(path.read_text())
    return Ledger(tuple(content["sessions"]), tuple(map(_read_entry, content["entries"])))


def write_ledger(ledger: Ledger, path: Path) -> None:
    write_text(path, json.dumps(asdict(ledger), indent=1, ensure_ascii=False) + "\n")


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _read_entry(content: dict[str, Any]) -> Entry:
    records = (Record(**{**r, "values": tuple(r["values"])}) for r in content["records"])
    return Entry(**{**content, "records": tuple(records)})
