"""write_pages: the page of a comparison, the page of the microscope, and the numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dynagat.analysis.attentive import how_attentive
from dynagat.comparison.comparison import Comparison
from dynagat.comparison.page import write_page
from dynagat.comparison.subject import MOLECULES
from dynagat.data.molecule_summary import describe_molecules
from dynagat.data.statistics import describe
from dynagat.data.store import GraphData
from dynagat.files import write_text
from dynagat.report import wording
from dynagat.report.microscope import write_microscope

MAX_EDGES = 20_000_000  # of a graph that gets a page of the microscope


def write_pages(
    comparison: Comparison, data: GraphData, folder: Path | str, *, commands: Sequence[str] = ()
) -> Path:
    """folder/index.html, attention.html if the best model has attention, comparison.json."""
    folder, is_molecules = Path(folder), comparison.plan.subject is MOLECULES
    has_attention = _write_attention(comparison, data, folder / "attention.html")
    write_text(folder / "comparison.json", json.dumps(comparison.to_dict(), indent=1))
    return write_page(
        comparison,
        folder / "index.html",
        description=str(describe_molecules(data) if is_molecules else describe(data)),
        attention="attention.html" if has_attention else None,
        commands=commands,
    )


def _write_attention(comparison: Comparison, data: GraphData, path: Path) -> bool:
    """Whether there was attention to show."""
    if not comparison.results[0].verdicts or data.num_edges > MAX_EDGES:
        return False
    model = comparison.best
    given = model.microscope_input(data)
    analysis = how_attentive(model.network, given.inputs, **given.marks)
    title = f"{wording.name_of(model.mechanism)} on {comparison.name}"
    write_microscope(analysis, path, title=title, names=given.names, molecules=given.molecules)
    return True
