"""write_markdown: a benchmark's results as a Markdown page, with its figures as files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynagat.experiment import Benchmark, Record
from dynagat.files import write_text
from dynagat.report import against, attentive, costs, noise
from dynagat.report.attentive import attentive_rows, heads_of
from dynagat.report.headline import headline
from dynagat.report.notes import notes
from dynagat.report.pictures import pictures
from dynagat.report.provenance import commands, made_up, told
from dynagat.report.render import full_name, markdown, markdown_table
from dynagat.report.tables import Row, current, families, metrics_of, rows, untested_rows


def write_markdown(records: list[Record], benchmark: Benchmark, folder: Path) -> None:
    """folder/<name>.md and one SVG per figure; nothing if there are no records."""
    mine = current(records, benchmark)
    if not mine:
        return
    by_metric = [rows(records, benchmark, metric) for metric in metrics_of(benchmark)]
    parts = [f"# {benchmark.title}", f"{benchmark.source}. Written by `dynagat report`."]
    cost = costs.costs(records, benchmark)
    spoken = [*headline(benchmark, by_metric[0], made_up(mine)), *costs.beside_pyg(cost)]
    parts.append("\n".join(f"- {line}" for line in spoken))
    for each in pictures(records, benchmark):
        # Dark ink needs paper, whatever page shows the file.
        svg = each.svg.replace("<svg ", '<svg style="background: white" ', 1)
        write_text(folder / f"{each.name}.svg", svg)
        parts.append(f"![{each.words}]({each.name}.svg)\n\n{each.words}")
    for each in by_metric:
        parts += [markdown(family).rstrip() for _, family in families(each)]
    parts += notes(benchmark, by_metric[0])
    parts += [table for _, family in families(by_metric[0]) for table in _more(family)]
    parts.append("## How it was run")
    parts.append("\n".join(f"- {name}: {words}" for name, words in told(mine).items()))
    lines = [each.cells() for each in cost]
    parts += [_table("Time and memory", costs, lines)] if lines else []
    asked = commands(benchmark, untested_rows(records, benchmark, benchmark.metric))
    parts.append("```sh\n" + "\n".join(asked) + "\n```")
    write_text(folder / f"{benchmark.name}.md", "\n\n".join(parts) + "\n")


def _more(family: list[Row]) -> Iterator[str]:
    """What else there is to say of a family, as tables."""
    name = full_name(family[0])
    if tests := against.tests_of(family):
        yield _table(f"GATv2 against GAT ({name})", against, tests)
    if any(map(heads_of, family)):
        yield _table(f"How attentive ({name})", attentive, attentive_rows(family))
    if seen := noise.noise_seen(family):
        yield _table(f"Attention on noise ({name})", noise, [each.cells() for each in seen])


def _table(title: str, kind: Any, lines: list[list[str]]) -> str:
    """Of a module that has COLUMNS, LEFT and a LEGEND."""
    return f"**{title}**\n\n{markdown_table(kind.COLUMNS, kind.LEFT, lines)}\n{kind.LEGEND}"
