"""notes: what a reader of a benchmark's tables must know beside the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynagat.experiment import Benchmark
from dynagat.report import wording
from dynagat.report.tables import Row


def notes(benchmark: Benchmark, rows: list[Row]) -> list[str]:
    """Sentences: caveats, how mechanisms were tuned, deviations that are another's."""
    return [*_caveats(rows), *_tuned(benchmark.tuned, rows), *_deviations(rows)]


def _caveats(rows: list[Row]) -> Iterator[str]:
    told = {wording.told_setting(path.split(".")[-1], row.changed[path]): words
            for row in rows for path, words in row.caveats.items()}  # fmt: skip
    for setting, words in told.items():
        yield f"{setting}: {words}."


def _tuned(tuned: Mapping[str, Mapping[str, object]], rows: list[Row]) -> Iterator[str]:
    """Of the mechanisms that have rows."""
    run = {row.mechanism for row in rows}
    parts = [
        f"{wording.name_of(mechanism)} with {_settings(chosen)}"
        for mechanism, chosen in tuned.items()
        if mechanism in run and chosen
    ]
    if parts:
        yield f"Tuned for each mechanism, by validation alone: {'; '.join(parts)}."


def _settings(chosen: Mapping[str, object]) -> str:
    return ", ".join(wording.told_setting(name, value) for name, value in chosen.items())


def _deviations(rows: list[Row]) -> Iterator[str]:
    printed = [row.published for row in rows if row.published is not None]
    places = dict.fromkeys(each.where for each in printed if each.divided_by == "n")
    if places:
        yield (
            f"The paper's deviations of {wording.listed(list(places))} are as it prints them, "
            "divided by n; ours are divided by n − 1 (D23)."
        )
