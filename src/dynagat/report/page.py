"""write_page: the whole report as one HTML file that works offline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from dynagat.experiment import Record
from dynagat.files import write_text
from dynagat.report import wording
from dynagat.report.drawing import INK
from dynagat.report.findings import Findings
from dynagat.report.parts import Figure, Part, Widget


def write_page(
    findings: Sequence[Findings], path: Path | str, left_out: Sequence[str] = ()
) -> Path:
    """Write the page to a path, which it returns."""
    path = Path(path)
    write_text(path, page(findings, left_out))
    return path


def page(findings: Sequence[Findings], left_out: Sequence[str] = ()) -> str:
    """The HTML text. `left_out` are lines about records that are not shown."""
    return template(Path(__file__).with_suffix(".html")).render(
        findings=findings, left_out=left_out, show=render_part
    )


def render_part(part: Part) -> Markup:
    """The HTML of one part of a report."""
    return Markup(
        template(Path(__file__).with_name("part.html")).render(
            part=part, kind=type(part).__name__.lower(), html=_html
        )
    )


@cache
def template(path: Path) -> Template:
    """A template; it may include others of its folder, and those of the report."""
    environment = Environment(
        loader=FileSystemLoader([path.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(path.name)


def _html(part: Figure | Widget) -> Markup:
    """Text and axes of a figure get the colour of the page's text."""
    return Markup(part.html if isinstance(part, Widget) else part.svg.replace(INK, "currentColor"))


def for_script(value: Any) -> Markup:
    """JSON inside <script>: "</" and "<!--" could end it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))


def left_out(records: Iterable[Record], findings: Sequence[Findings]) -> list[str]:
    """A line for each group of records that the page does not show."""
    known = {each.benchmark.name for each in findings}
    others = Counter(record.benchmark for record in records if record.benchmark not in known)
    lines = [
        f"{wording.count(n, 'record')} of {name} left out: not a benchmark of this report."
        for name, n in sorted(others.items())
    ]
    for each in findings:
        if each.num_outdated:
            number, name = wording.count(each.num_outdated, "record"), each.benchmark.name
            lines.append(f"{number} of {name} left out: made by another version of it.")
    return lines
