"""write_page: a comparison as one HTML file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dynagat.comparison.comparison import Comparison
from dynagat.comparison.figures import curves_figure, scores_figure
from dynagat.comparison.results import (
    baseline_table,
    difference_table,
    metric_table,
    score_table,
)
from dynagat.comparison.subject import KNOWN_METRICS
from dynagat.experiment.settings import flat
from dynagat.files import write_text
from dynagat.report import wording
from dynagat.report.page import render_part, template
from dynagat.report.parts import Facts, Figure, Part


def write_page(
    comparison: Comparison,
    path: Path | str,
    *,
    description: str = "",
    attention: str | None = None,
    commands: Sequence[str] = (),
) -> Path:
    """Write the page to a path, which it returns.

    Args:
        comparison: the result of `compare`.
        path: of the file; its folder is created.
        description: of the graph, or of the molecules, as plain text.
        attention: address of a page of the microscope to link to.
        commands: how to use the model, shown as they are.
    """
    path = Path(path)
    text = template(Path(__file__).with_suffix(".html")).render(
        title=f"Which attention for {comparison.name}?",
        sentences=comparison.sentences,
        scores=_scores(comparison),
        description=description,
        attention=attention,
        commands=commands,
        reasons=comparison.plan.reasons,
        facts=_facts(comparison),
        subject=comparison.plan.subject,
        show=render_part,
    )
    write_text(path, text)
    return path


def _scores(comparison: Comparison) -> list[Part]:
    results = comparison.results
    parts: list[Part | None] = [
        score_table(results),
        baseline_table(comparison.baselines),
        Figure(
            "scores",
            scores_figure(results),
            f"Every run on the test {comparison.plan.subject.rows}. A line joins the runs of one"
            " seed; a bar is a mean.",
        ),
        difference_table(results),
        metric_table(results, KNOWN_METRICS[comparison.task["kind"]]),
        Figure(
            "curves",
            curves_figure(results),
            "The validation score during training, which ends when it no longer improves.",
        ),
    ]
    return [part for part in parts if part is not None]


def _facts(comparison: Comparison) -> Facts:
    """Settings and versions, as in the records."""
    record = comparison.records[0]
    settings = {path: value for path, value in flat(record.settings).items()
                if path.split(".")[0] in ("network", "task", "schedule")}  # fmt: skip
    texts = {path: wording.setting_text(value) for path, value in settings.items()}
    changed = ", ".join(f"{path.split('.')[-1]}={text}" for path, text in texts.items() if text)
    versions = ", ".join(f"{name} {each}" for name, each in record.versions.items())
    seeds = wording.ranges(list(comparison.plan.seeds))
    return Facts(
        {"settings": changed, "seeds": seeds, "versions": versions, "commit": record.commit}
    )
