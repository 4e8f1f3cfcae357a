"""check: the uses of variables in Python files that a trained network would rather replace."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from dynagat.benchmarks.varmisuse.findings import (
    THRESHOLD,
    CheckReport,
    Finding,
    check_threshold,
)
from dynagat.benchmarks.varmisuse.model import VariableModel
from dynagat.benchmarks.varmisuse.scoring import ScoredUse, score_uses
from dynagat.data.programs.python_source import (
    MANY_BRANCHES,
    NO_USE,
    SkippedFile,
    program_of,
    read_source,
)
from dynagat.data.programs.sources import python_files


def check(
    paths: Sequence[Path | str],
    model: VariableModel,
    *,
    threshold: float = THRESHOLD,
    tell: Callable[[int, int], None] = lambda files, uses: None,
) -> CheckReport:
    """Find the uses of variables in Python files that a network would rather replace.

    A use is reported if one of the other variables that could stand there is more probable than the
    present one, and its probability is at least the threshold. The files are parsed and never
    executed. Those that can't be used are named in `skipped` of the result, by the reason. Of a
    file with too many branches, only the first uses are checked; `left_out` counts the others.

    Args:
        paths: files, and folders that are searched for `*.py`.
        model: what `load_model` returns.
        threshold: in (0, 1], of the probability of the suggested variable.
        tell: called with the number of files and of uses so far.
    """
    check_threshold(threshold)
    findings: list[tuple[float, Finding]] = []
    skipped: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    files = uses = 0
    for path in _files(paths):
        name, before = os.fsencode(path).decode("utf-8", "replace"), uses
        cut_off = left_out[MANY_BRANCHES]
        try:
            for use in score_uses(program_of(read_source(path)), model, left_out):
                uses += 1
                if use.is_doubtful(threshold):
                    findings.append((-use.certainty, _finding(name, use)))
                tell(files, uses)
            files += uses > before
            if left_out[MANY_BRANCHES] > cut_off:
                raise SkippedFile(MANY_BRANCHES)
            if uses == before:
                raise SkippedFile(NO_USE)
        except SkippedFile as reason:
            skipped.setdefault(str(reason), []).append(name)
        tell(files, uses)
    findings.sort(key=lambda each: (each[0], each[1].path, each[1].line, each[1].column))
    return CheckReport(
        model.key,
        model.title,
        threshold,
        files,
        uses,
        dict(+left_out),  # without zeros
        tuple(finding for _, finding in findings),
        {reason: tuple(names) for reason, names in sorted(skipped.items())},
    )


def _finding(path: str, use: ScoredUse) -> Finding:
    probabilities = use.present_probability, use.suggested_probability
    return Finding(path, use.line, use.column, use.present, use.suggested, *probabilities)


def _files(paths: Iterable[Path | str]) -> Iterator[Path]:
    """Each file once; a ValueError if there are none."""
    roots = [Path(path) for path in paths]
    for root in roots:
        if not root.exists():
            raise ValueError(f"PATH must be a Python file or a folder, but {root} does not exist")
    seen: set[Path] = set()
    for root in roots:
        for path in python_files(root):
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                yield path
    if not seen:
        where = ", ".join(map(str, roots)) or "no PATH"
        raise ValueError(f"PATH must hold Python files (*.py), but there are none in {where}")
