"""Where the numbers come from: the commands that reproduce them, on what they ran, and how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynagat.experiment import Benchmark, Record
from dynagat.experiment.settings import short_name
from dynagat.report import wording
from dynagat.report.rows import Row


def first_command(benchmark: Benchmark) -> str:
    return f"dynagat run {benchmark.name}"


def commands(benchmark: Benchmark, rows: Sequence[Row]) -> list[str]:
    """Commands that together make all rows: one for rows that differ only in swept settings."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        seeds = tuple(run.seed for run in row.runs)
        budget = tuple(row.budget.items())
        # --set takes several numbers, but one name
        names = tuple(v for v in row.swept.values() if not isinstance(v, (int, float)))
        group = (row.family, names, row.mechanism, row.heads, seeds, budget)
        groups.setdefault(group, []).append(row)
    return [_command(benchmark, group) for group in groups.values()]


def _command(benchmark: Benchmark, group: list[Row]) -> str:
    row = group[0]
    words = [first_command(benchmark), f"--mechanism {row.mechanism}", f"--heads {row.heads}"]
    words.append(f"--seeds {wording.ranges([run.seed for run in row.runs])}")
    words += [] if row.fidelity == "corrected" else [f"--{row.fidelity}"]
    for name in row.swept:
        values = list(dict.fromkeys(each.swept[name] for each in group))
        words.append(f"--set {name}={wording.ranges(values)}")
    for path, value in {**row.budget, **row.changed}.items():
        name = short_name(benchmark.settings, path)
        words.append(f"--set {name}={wording.setting_text(value)}")
    return " ".join(words)


def facts(records: Sequence[Record]) -> Mapping[str, str]:
    """What the records say about how they were made."""
    if not records:
        return {}
    dates = sorted(record.created[:10] for record in records)
    numbers = sorted({record.seed for record in records})
    seeds = f"{wording.count(len(numbers), 'seed')} ({wording.ranges(numbers)})"
    seconds = sum(record.seconds for record in records)
    memory = max(record.peak_memory_bytes for record in records)
    return {
        "runs": f"{len(records):,} with {seeds}",
        "date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
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
