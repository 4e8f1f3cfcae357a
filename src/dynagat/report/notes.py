"""notes: what a reader of a benchmark's tables must know besides the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dynagat.experiment import Benchmark
from dynagat.report import wording
from dynagat.report.rows import Row


def notes(benchmark: Benchmark, rows: Sequence[Row]) -> list[str]:
    """Sentences: caveats, tuned settings, standard deviations that are computed differently."""
    tuned = [
        sentence
        for name, members in _by_dataset(rows).items()
        for sentence in _tuned(benchmark, benchmark.tuned_on.get(name, benchmark.tuned), members)
    ]
    return [*_caveats(rows), *dict.fromkeys(tuned), *_deviations(rows)]


def _by_dataset(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.dataset, []).append(row)
    return groups


def _caveats(rows: Sequence[Row]) -> Iterator[str]:
    texts = {wording.setting_label(path.split(".")[-1], row.changed[path]): text
             for row in rows for path, text in row.caveats.items()}  # fmt: skip
    for setting, text in texts.items():
        yield f"{setting}: {text}."


def _tuned(
    benchmark: Benchmark, tuned: Mapping[str, Mapping[str, object]], rows: Sequence[Row]
) -> Iterator[str]:
    """Of the mechanisms that have rows."""
    run = {row.mechanism for row in rows}
    place = f" on {rows[0].dataset}" if rows[0].dataset else ""
    parts = [
        f"{wording.name_of(mechanism)} with {_settings(chosen)}"
        for mechanism, chosen in tuned.items()
        if mechanism in run and chosen
    ]
    if parts:
        yield f"{benchmark.tuned_by}{place}: {'; '.join(parts)}."


def _settings(chosen: Mapping[str, object]) -> str:
    return ", ".join(wording.setting_label(name, value) for name, value in chosen.items())


def _deviations(rows: Sequence[Row]) -> Iterator[str]:
    published = [row.published for row in rows if row.published is not None]
    places = dict.fromkeys(each.where for each in published if each.divided_by == "n")
    if places:
        yield (
            f"The standard deviations of {wording.listed(list(places))} are as printed in the"
            " paper, with the variance divided by n; ours are divided by n − 1 (D23)."
        )
