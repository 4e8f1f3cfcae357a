"""write_markdown: a benchmark's results as a Markdown page, with its figures as files beside it."""

from __future__ import annotations

from pathlib import Path

from dynagat.experiment import Benchmark, Record
from dynagat.experiment.files import write_whole
from dynagat.report.attentive import COLUMNS, LEFT, LEGEND, attentive_rows, heads_of
from dynagat.report.headline import headline
from dynagat.report.page import FIGURES
from dynagat.report.provenance import commands, told
from dynagat.report.render import markdown, markdown_table
from dynagat.report.tables import Row, current, families, metrics_of, rows


def write_markdown(records: list[Record], benchmark: Benchmark, folder: Path) -> None:
    """folder/<name>.md and one SVG per figure; nothing if there are no records."""
    by_metric = [rows(records, benchmark, metric) for metric in metrics_of(benchmark)]
    if not by_metric[0]:
        return
    parts = [f"# {benchmark.title}", f"{benchmark.source}. Written by `dynagat report`."]
    parts.append("\n".join(f"- {line}" for line in headline(benchmark, by_metric[0])))
    for draw, words in FIGURES.get(benchmark.name, ()):
        svg = draw(records)
        if svg is not None:
            name = f"{draw.__name__.replace('_', '-')}.svg"
            # Dark ink needs paper, whatever page shows the file.
            write_whole(folder / name, svg.replace("<svg ", '<svg style="background: white" ', 1))
            parts.append(f"![{words}]({name})\n\n{words}")
    for each in by_metric:
        parts += [markdown(family).rstrip() for _, family in families(each)]
    parts += [
        _attentive(family) for _, family in families(by_metric[0]) if any(map(heads_of, family))
    ]
    parts.append("## How it was run")
    facts = told(current(records, benchmark)).items()
    parts.append("\n".join(f"- {name}: {words}" for name, words in facts))
    parts.append("```sh\n" + "\n".join(commands(benchmark, by_metric[0])) + "\n```")
    write_whole(folder / f"{benchmark.name}.md", "\n\n".join(parts) + "\n")


def _attentive(family: list[Row]) -> str:
    title = f"**How attentive ({family[0].family})**"
    return f"{title}\n\n{markdown_table(COLUMNS, LEFT, attentive_rows(family))}\n{LEGEND}"
