"""measure: does a network find the one misused variable that is put into each of many files?

The files are those of test-unseen: no file of their projects was used in training, and no other
file has the same content.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynagat.benchmarks.varmisuse.findings import MAX_USES, THRESHOLD, check_threshold
from dynagat.benchmarks.varmisuse.injection import Injection, inject
from dynagat.benchmarks.varmisuse.measured import Alarms, MeasuredFile, Measurement
from dynagat.benchmarks.varmisuse.model import LANGUAGE, VariableModel
from dynagat.benchmarks.varmisuse.scoring import ScoredUse, score_uses
from dynagat.data.programs.python_source import MANY_BRANCHES, SkippedFile, read_source, skipping
from dynagat.data.programs.sources import find_sources, python_projects
from dynagat.data.programs.stored import UNSEEN, ProgramSet, open_programs
from dynagat.data.programs.summary import read_chunk

FILES = 200
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # whose alarms are counted besides the given one


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A file, and its doubtful uses: the probability of the suggestion, the misused one's first."""

    file: MeasuredFile
    injected: ScoredUse
    others: list[ScoredUse]


def measure(
    model: VariableModel,
    paths: Sequence[Path | str] = (),
    *,
    files: int = FILES,
    seed: int = 0,
    threshold: float = THRESHOLD,
    max_uses: int | None = MAX_USES,
    tell: Callable[[int, int], None] = lambda files, uses: None,
) -> Measurement:
    """Replace one use of a variable in each of many unseen files, and check these files.

    The replaced use is drawn, and so is the variable that is put there, from the candidates. A use
    is ranked before another one if the odds of its suggested variable against the present one are
    higher; among equals, the misused variable is the last.

    Args:
        model: what `load_model` returns.
        paths: the projects that the training data was imported from, as `import_python` takes them.
        files: at most so many.
        seed: of the choice of files, uses and variables.
        threshold: of the probability of the suggested variable, as in `check`.
        max_uses: files with more uses of variables are left out, because each use is a graph of its
            own; None: no limit.
        tell: called with the number of files and of uses so far.
    """
    for name, value in (("files", files), ("max_uses", max_uses)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, but is {value}")
    check_threshold(threshold)
    outcomes: list[_Outcome] = []
    skipped: dict[str, list[str]] = {}
    uses = 0
    for name, path in _unseen_files(model, paths, seed):
        try:
            outcomes.append(_outcome(model, name, path, f"{seed} {name}", max_uses))
            uses += outcomes[-1].file.uses
        except SkippedFile as reason:
            skipped.setdefault(str(reason), []).append(name)
        tell(len(outcomes), uses)
        if len(outcomes) == files:
            break
    if not outcomes:
        reasons = ", ".join(f"{len(names):,} {reason}" for reason, names in skipped.items())
        raise ValueError(f"no misused variable could be put into an unseen file: {reasons}")
    thresholds = [threshold, *(each for each in THRESHOLDS if each != threshold)]
    return Measurement(
        model.key,
        model.title,
        seed,
        threshold,
        tuple(_alarms(outcomes, each) for each in thresholds),
        tuple(each.file for each in outcomes),
        {reason: tuple(names) for reason, names in sorted(skipped.items())},
    )


def _unseen_files(
    model: VariableModel, paths: Sequence[Path | str], seed: int
) -> Iterator[tuple[str, Path | None]]:
    """Names and paths of the files of test-unseen, in random order; None: it is in no PATH."""
    programs = open_programs(model.dataset)
    if programs.language != LANGUAGE:
        raise ValueError(f"{model.dataset!r} must hold Python programs, not {programs.language}")
    names = _names(programs, random.Random(f"{seed} files"))
    places = {
        source.name: source.path
        for source in find_sources(python_projects([Path(path) for path in paths]))
    }
    known = False
    for name in names:
        known = known or name in places
        yield name, places.get(name)
    if not known:
        where = ", ".join(map(str, paths)) or "the installed packages"
        raise ValueError(
            f"PATH must hold projects of {UNSEEN} of {model.dataset!r}, from which it was imported,"
            f" but none of their files is in {where}"
        )


def _names(programs: ProgramSet, chance: random.Random) -> Iterator[str]:
    """Names of the files of test-unseen, each once; chunks have records in random order."""
    chunks, seen = programs.chunks(UNSEEN), set()
    chance.shuffle(chunks)
    for chunk in chunks:
        new = {record["filename"] for record in read_chunk(chunk)} - seen
        seen |= new
        order = sorted(new)
        chance.shuffle(order)
        yield from order


def _outcome(
    model: VariableModel, name: str, path: Path | None, seed: str, max_uses: int | None
) -> _Outcome:
    if path is None:
        raise SkippedFile("not in PATH any more")
    with skipping():
        injection = inject(read_source(path), seed)
    if max_uses is not None and len(injection.program.uses) > max_uses:
        raise SkippedFile(f"with more than {max_uses:,} uses of variables")
    uses = list(score_uses(injection.program, model))
    injected = next((use for use in uses if _is_injected(use, injection)), None)
    if injected is None:
        raise SkippedFile(MANY_BRANCHES)
    others = [use for use in uses if use is not injected]
    file = MeasuredFile(
        name,
        injection.line,
        injection.column,
        injection.wrong,
        injection.right,
        injected.suggested,
        injected.present_probability,
        injected.suggested_probability,
        1 + sum(use.certainty >= injected.certainty for use in others),
        len(uses),
    )
    return _Outcome(file, injected, [use for use in others if use.certainty > 0])


def _is_injected(use: ScoredUse, injection: Injection) -> bool:
    return (use.line, use.column) == (injection.line, injection.column)


def _alarms(outcomes: Sequence[_Outcome], threshold: float) -> Alarms:
    hits = [each for each in outcomes if each.injected.is_doubtful(threshold)]
    others = sum(use.is_doubtful(threshold) for each in outcomes for use in each.others)
    repaired = sum(each.file.suggested == each.file.right for each in hits)
    return Alarms(threshold, len(hits) + others, len(hits), repaired)
