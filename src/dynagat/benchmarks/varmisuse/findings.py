"""Finding and CheckReport: what a network would rather replace in Python files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

THRESHOLD = 0.9  # of the probability of the suggested variable
MAX_USES = 500  # of variables, in a file that `evaluate` checks


@dataclass(frozen=True)
class Finding:
    """A use of a variable in whose place the network would rather see another one."""

    path: str
    line: int  # from 1
    column: int  # from 1, in characters
    present: str
    suggested: str
    present_probability: float
    suggested_probability: float

    def __str__(self) -> str:
        return (
            f"{_printable(self.path)}:{self.line}:{self.column}: {self.present} -> "
            f"{self.suggested} ({self.suggested_probability:.4f} against "
            f"{self.present_probability:.4f})"
        )


@dataclass(frozen=True)
class CheckReport:
    """What `check` found: print it, or use `findings`, the most certain one first."""

    run: str  # key
    model: str  # title of the run
    threshold: float
    files: int  # with at least one use that another variable could replace
    uses: int  # that were scored
    left_out: Mapping[str, int]  # uses that were not, although there are others, by the reason
    findings: tuple[Finding, ...]
    skipped: Mapping[str, tuple[str, ...]]  # files by the reason

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self.summary])

    @property
    def summary(self) -> str:
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        left_out = "".join(
            f" Uses left out: {count:,} ({reason})." for reason, count in self.left_out.items()
        )
        return (
            f"The network would replace {len(self.findings):,} of {self.uses:,} uses of variables "
            f"in {files}: another variable is more probable, with a probability of at least "
            f"{self.threshold:g} (run {self.run[:8]}: {self.model}).{left_out}"
        )


def check_threshold(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], but is {threshold:g}")


def _printable(text: str) -> str:
    """Control characters, which file names may have, are escaped."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
