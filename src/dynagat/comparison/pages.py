"""write_pages: what a comparison leaves to look at: its page, the microscope's, and the numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dynagat.analysis.attentive import how_attentive
from dynagat.benchmarks.nodes import problem_of
from dynagat.comparison.compare import Comparison
from dynagat.comparison.page import write_page
from dynagat.data.describe import describe
from dynagat.data.store import GraphData
from dynagat.files import write_text
from dynagat.report import wording
from dynagat.report.microscope import write_microscope

MOST_EDGES = 20_000_000  # of a graph that the microscope's page is made of


def write_pages(
    comparison: Comparison, data: GraphData, folder: Path | str, *, commands: Sequence[str] = ()
) -> Path:
    """folder/index.html, attention.html of the best attentive model, comparison.json."""
    folder = Path(folder)
    seen = _write_attention(comparison, data, folder / "attention.html")
    write_text(folder / "comparison.json", json.dumps(comparison.to_dict(), indent=1))
    return write_page(
        comparison,
        folder / "index.html",
        description=str(describe(data)),
        attention="attention.html" if seen else None,
        commands=commands,
    )


def _write_attention(comparison: Comparison, data: GraphData, path: Path) -> bool:
    """Whether there was attention to show."""
    if not comparison.rows[0].verdicts or data.num_edges > MOST_EDGES:
        return False
    model = comparison.best
    problem = problem_of(data, model.self_loops)
    labels = problem.y if problem.kind == "classification" else None
    found = how_attentive(model.network, (problem.x, problem.graph), labels=labels)
    title = f"{wording.name_of(model.mechanism)} on {comparison.name}"
    ids = data.nodes[data.node_type].arrays.get("id")
    names = None if ids is None else [str(each) for each in ids]
    write_microscope(found, path, title=title, names=names)
    return True
