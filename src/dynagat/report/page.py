"""write_page: the whole report as one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from dynagat.benchmarks.dictionary_lookup import DICTIONARY_LOOKUP
from dynagat.experiment import Benchmark, Record, departures
from dynagat.files import write_text
from dynagat.report import attentive, costs, noise, wording
from dynagat.report.attention import SEEDS_SHOWN, UNIT, shown_runs, start_of
from dynagat.report.attentive import attentive_rows, heads_of
from dynagat.report.figures import INK, QUERY_COLOURS
from dynagat.report.headline import headline, is_told
from dynagat.report.notes import notes
from dynagat.report.pictures import pictures
from dynagat.report.provenance import commands, first_command, made_up, told
from dynagat.report.render import COLUMNS, LEFT, caption, cells, full_name
from dynagat.report.tables import (
    OURS,
    Row,
    current,
    families,
    metrics_of,
    rows,
    untested_rows,
)

DETAILS = (*COLUMNS[:3], "95% interval", "effect size", "p two-sided", "Welch", "Welch two-sided",
           "paired", "paired two-sided", "GATv2 heads", "ended", "paper's place")  # fmt: skip


def write_page(
    records: Iterable[Record], benchmarks: Iterable[Benchmark], path: Path | str
) -> Path:
    """The page at a path of a folder that is there."""
    path = Path(path)
    write_text(path, page(list(records), list(benchmarks)))
    return path


def page(records: list[Record], benchmarks: list[Benchmark]) -> str:
    """The HTML text."""
    shown, left_out = shown_runs(records, benchmarks)
    return template(Path(__file__).with_suffix(".html")).render(
        attention=for_script(_attention(shown)),
        has_attention=bool(shown),
        wants_attention=bool(shown) or DICTIONARY_LOOKUP in benchmarks,
        left_out=left_out,
        seeds_shown=SEEDS_SHOWN,
        attention_command=first_command(DICTIONARY_LOOKUP),
        sections=[_section(records, benchmark) for benchmark in benchmarks],
        skipped=_skipped(records, benchmarks),
    )


def template(path: Path) -> Template:
    """A file to be filled in; it may include others of its folder."""
    environment = Environment(
        loader=FileSystemLoader(path.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(path.name)


def _attention(shown: list[dict[str, Any]]) -> dict[str, Any]:
    return {"unit": UNIT, "colours": QUERY_COLOURS, "start": start_of(shown), "runs": shown}


def for_script(value: Any) -> Markup:
    """For a <script>, which "</" and "<!--" could end."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))


def _skipped(records: list[Record], benchmarks: list[Benchmark]) -> list[str]:
    """A line for each lot of records that the page leaves out."""
    known = {benchmark.name for benchmark in benchmarks}
    others = Counter(record.benchmark for record in records if record.benchmark not in known)
    lines = [
        f"{wording.count(n, 'record')} of {name} left out: not a benchmark of this report."
        for name, n in sorted(others.items())
    ]
    for benchmark in benchmarks:
        mine = sum(record.benchmark == benchmark.name for record in records)
        old = mine - len(current(records, benchmark))
        if old:
            what = wording.count(old, "record")
            lines.append(f"{what} of {benchmark.name} left out: of another revision of it.")
    return lines


def _section(records: list[Record], benchmark: Benchmark) -> dict[str, Any]:
    by_metric = [rows(records, benchmark, metric) for metric in metrics_of(benchmark)]
    found, cost = by_metric[0], costs.costs(records, benchmark)
    spoken = headline(benchmark, found, made_up(current(records, benchmark)))
    return {
        "benchmark": benchmark,
        "headline": [*spoken, *costs.beside_pyg(cost)],
        "figures": _figures(records, benchmark),
        "tables": [
            _table(family, open_=each is found and is_told(family[0]))
            for each in by_metric
            for _, family in families(each)
        ],
        "notes": notes(benchmark, found),
        "seen": [*_attentive(found), *_noise(found)],
        "costs": _plain_table("Time and memory", costs, [each.cells() for each in cost]),
        "columns": COLUMNS,
        "details": DETAILS,
        "left": LEFT,
        "first_command": first_command(benchmark),
        "commands": commands(benchmark, untested_rows(records, benchmark, benchmark.metric)),
        "told": told(current(records, benchmark)),
        "departures": [_departure(mark) for mark in departures(benchmark.settings)],
    }


def _figures(records: list[Record], benchmark: Benchmark) -> list[dict[str, Any]]:
    return [
        {
            "svg": Markup(each.svg.replace(INK, "currentColor")),
            "words": each.words,
            "wide": each.wide,
        }
        for each in pictures(records, benchmark)
    ]


def _attentive(found: list[Row]) -> list[dict[str, Any]]:
    return [
        _plain_table(f"How attentive ({full_name(family[0])})", attentive, attentive_rows(family))
        for _, family in families(found)
        if any(map(heads_of, family))
    ]


def _noise(found: list[Row]) -> list[dict[str, Any]]:
    return [
        _plain_table(f"Attention on noise ({full_name(family[0])})", noise, lines)
        for _, family in families(found)
        if (lines := [each.cells() for each in noise.noise_seen(family)])
    ]


def _plain_table(title: str, kind: Any, lines: list[list[str]]) -> dict[str, Any]:
    """Of a module that has COLUMNS, LEFT and a LEGEND."""
    return {
        "title": title,
        "columns": kind.COLUMNS,
        "left": kind.LEFT,
        "rows": lines,
        "legend": kind.LEGEND,
    }


def _table(family: list[Row], open_: bool) -> dict[str, Any]:
    return {
        "caption": caption(family[0]),
        "open": open_,
        "rows": [
            {
                "cells": cells(row),
                "details": details(row),
                "ours": row.mechanism == OURS,
                "colour": wording.colour_of(row.mechanism),
                "first": place == 0 or family[place - 1].swept != row.swept,
            }
            for place, row in enumerate(family)
        ],
    }


def details(row: Row) -> list[str]:
    """One text for each of DETAILS."""
    compared, metric = row.comparison, row.metric
    low, high = (wording.number(end, metric) for end in row.interval)
    tests = [wording.NOTHING] * 6
    if compared is not None:
        paired = compared.paired
        tests = [wording.effect(compared.effect_size)] + [
            wording.p_value(p)
            for p in (
                compared.student.two_sided,
                compared.welch.one_sided,
                compared.welch.two_sided,
                float("nan") if paired is None else paired.one_sided,
                float("nan") if paired is None else paired.two_sided,
            )
        ]
    return [
        *cells(row)[:3],
        low if low == high else f"{low} to {high}",
        *tests,
        wording.NOTHING if row.against is None else str(row.against),
        ", ".join(f"{n} {how}" for how, n in sorted(row.ended.items())),
        wording.NOTHING if row.published is None else row.published.where,
    ]


def _departure(mark: Any) -> list[str]:
    sides = [wording.setting_text(value) or "none" for value in (mark.corrected, mark.published)]
    return [mark.number, mark.path, *sides]
