"""write_page: a comparison as one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

import dynagat.report
from dynagat.comparison.compare import Comparison
from dynagat.comparison.figures import curves_figure, scores_figure
from dynagat.comparison.rows import Row, differences
from dynagat.comparison.table import COLUMNS, cells
from dynagat.experiment.settings import flat
from dynagat.files import write_text
from dynagat.report import wording
from dynagat.report.figures import INK
from dynagat.report.page import template


def write_page(
    comparison: Comparison,
    path: Path | str,
    *,
    description: str = "",
    attention: str | None = None,
    commands: Sequence[str] = (),
) -> Path:
    """The page at a path, which it returns.

    Args:
        comparison: what `compare` gave.
        path: of the file; its folder is made.
        description: of the graph, as a plain table.
        attention: the address of a page of the microscope, to link to.
        commands: how to go on, shown as they are.
    """
    path = Path(path)
    css = Path(dynagat.report.__file__).with_name("page.css").read_text(encoding="utf-8")
    text = template(Path(__file__).with_suffix(".html")).render(
        title=f"Which attention for {comparison.name}?",
        css=Markup(css),
        sentences=comparison.sentences,
        columns=COLUMNS,
        rows=[
            {"cells": cells(row), "colour": wording.colour_of(row.mechanism)}
            for row in comparison.rows
        ],
        differences=_differences(comparison.rows),
        figures=[
            Markup(draw(comparison.rows).replace(INK, "currentColor"))
            for draw in (scores_figure, curves_figure)
        ],
        description=description,
        attention=attention,
        commands=commands,
        reasons=comparison.plan.reasons,
        told=_told(comparison),
    )
    write_text(path, text)
    return path


def _differences(rows: Sequence[Row]) -> list[list[str]]:
    """Of the best to each other."""
    metric = f"test_{rows[0].score}"
    if rows[0].sample("test") is None:
        return []
    known = [row for row in rows[1:] if row.sample("test") is not None]
    return [
        [
            f"{wording.name_of(each.better)} − {wording.name_of(each.other)}",
            wording.signed(each.mean, metric),
            wording.p_value(each.p),
            str(each.seeds),
        ]
        for each in differences(rows[0], known)
    ]


def _told(comparison: Comparison) -> dict[str, str]:
    """How it was run: settings and versions, as the records have them."""
    record = comparison.records[0]
    settings = {path: value for path, value in flat(record.settings).items()
                if path.split(".")[0] in ("network", "task", "schedule")}  # fmt: skip
    texts = {path: wording.setting_text(value) for path, value in settings.items()}
    changed = ", ".join(f"{path.split('.')[-1]}={text}" for path, text in texts.items() if text)
    versions = ", ".join(f"{name} {each}" for name, each in record.versions.items())
    seeds = wording.several(list(comparison.plan.seeds))
    return {"settings": changed, "seeds": seeds, "versions": versions, "commit": record.commit}
