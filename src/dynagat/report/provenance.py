"""Where the numbers come from: the commands that make them, on what they ran, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynagat.experiment import Benchmark, Record
from dynagat.experiment.settings import paths
from dynagat.report import wording
from dynagat.report.tables import Row, is_made


def first_command(benchmark: Benchmark) -> str:
    return f"dynagat run {benchmark.name}"


def commands(benchmark: Benchmark, rows: list[Row]) -> list[str]:
    """One for the rows that differ in nothing but swept settings; together they make all."""
    lots: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        seeds = tuple(run.seed for run in row.runs)
        budget = tuple(row.budget.items())
        # --set takes several numbers, but one name
        names = tuple(v for v in row.swept.values() if not isinstance(v, (int, float)))
        lot = (row.family, names, row.mechanism, row.heads, seeds, budget)
        lots.setdefault(lot, []).append(row)
    return [_command(benchmark, lot) for lot in lots.values()]


def _command(benchmark: Benchmark, lot: list[Row]) -> str:
    row = lot[0]
    words = [first_command(benchmark), f"--mechanism {row.mechanism}", f"--heads {row.heads}"]
    words.append(f"--seeds {wording.several([run.seed for run in row.runs])}")
    words += ["--as-published"] if row.fidelity == "as-published" else []
    for name in row.swept:
        values = list(dict.fromkeys(each.swept[name] for each in lot))
        words.append(f"--set {name}={wording.several(values)}")
    known = paths(benchmark.settings)
    for path, value in {**row.budget, **row.changed}.items():
        words.append(f"--set {_shortest(path, known)}={wording.setting_text(value)}")
    return " ".join(words)


def _shortest(path: str, known: list[str]) -> str:
    """The last name, where it is the only one of its kind."""
    last = path.split(".")[-1]
    return last if sum(each.split(".")[-1] == last for each in known) == 1 else path


def made_up(records: list[Record]) -> int:
    """How many of them are of made-up data."""
    return sum(map(is_made, records))


def told(records: list[Record]) -> Mapping[str, str]:
    """What the records say of their making, in words."""
    if not records:
        return {}
    dates = sorted(record.created[:10] for record in records)
    numbers = sorted({record.seed for record in records})
    seeds = f"{wording.count(len(numbers), 'seed')} ({wording.several(numbers)})"
    seconds = sum(record.seconds for record in records)
    memory = max(record.peak_memory_bytes for record in records)
    made = {"made up": f"the data of {made_up(records)} of these runs"} if made_up(records) else {}
    return {
        "runs": f"{len(records):,} with {seeds}",
        **made,
        "made": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
        "time": f"{duration(seconds)} in all, {duration(seconds / len(records))} a run",
        "memory": f"at most {memory / 2**20:,.0f} MiB a run",
        "versions": "; ".join(sorted({_versions(record) for record in records})),
        "commits": ", ".join(sorted({record.commit[:12] or "none" for record in records})),
    }


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
