"""Measurement: in how many files a network finds the one misused variable, and its precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FEW = 5  # first places of a file


@dataclass(frozen=True)
class MeasuredFile:
    """A file with one misused variable, and its place among the uses of the file."""

    path: str
    line: int  # of the misused variable, from 1
    column: int  # from 1, in characters
    wrong: str  # what is there
    right: str  # what was there
    suggested: str
    present_probability: float
    suggested_probability: float
    rank: int  # 1: the network would replace no other use of the file rather
    uses: int  # of the file, that another variable could replace


@dataclass(frozen=True)
class Alarms:
    """What is reported in all files at a threshold."""

    threshold: float
    reported: int  # uses
    injected: int  # of these, the misused ones
    repaired: int  # of these, with the right variable as the suggestion

    @property
    def precision(self) -> float | None:
        """Fraction of the reported uses that are misused; None if none is reported."""
        return self.injected / self.reported if self.reported else None

    def __str__(self) -> str:
        share = "" if self.precision is None else f", precision {self.precision:.3f}"
        return (
            f"{self.threshold:g}: {self.reported:,} uses reported, {self.injected:,} of them "
            f"misused{share}; {self.repaired:,} with the right suggestion"
        )


@dataclass(frozen=True)
class Measurement:
    """Result of `measure`: print it, or use `files` and `alarms`."""

    run: str  # key
    model: str  # title of the run
    seed: int
    threshold: float
    alarms: tuple[Alarms, ...]  # at the threshold, then at others
    files: tuple[MeasuredFile, ...]
    skipped: Mapping[str, tuple[str, ...]]  # files by the reason

    def ranked_within(self, places: int) -> int:
        """Number of files in which the misused variable is among the first uses."""
        return sum(each.rank <= places for each in self.files)

    def by_chance(self, places: int) -> float:
        """The same number, expected for uses in random order."""
        return sum(min(1.0, places / each.uses) for each in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, for JSON."""
        places = {
            name: {"files": self.ranked_within(n), "by_chance": self.by_chance(n)}
            for name, n in (("first", 1), (f"first_{FEW}", FEW))
        }
        alarms = [asdict(each) | {"precision": each.precision} for each in self.alarms]
        return asdict(self) | {"ranked": places, "alarms": alarms}

    def __str__(self) -> str:
        count, uses = len(self.files), sum(each.uses for each in self.files)
        lines = [
            f"{count:,} files of unseen projects with one misused variable each, {uses:,} uses of "
            f"variables (run {self.run[:8]}: {self.model}; seed {self.seed})"
        ]
        for name, places in (("ranked first", 1), (f"in the first {FEW}", FEW)):
            lines.append(
                f"the misused variable is {name} in {self.ranked_within(places):,} of {count:,} "
                f"files; by chance {self.by_chance(places):.1f}"
            )
        lines.append(f"at threshold {self.alarms[0]}")
        lines += [f"   threshold {each}" for each in self.alarms[1:]]
        return "\n".join(lines)
