"""What the report adds for edge noise: Figure 4, slopes, attention on noise, and the answers."""

from __future__ import annotations

from collections.abc import Iterator

from dynagat.benchmarks.edge_noise.attention import answers, noise_table
from dynagat.benchmarks.edge_noise.figures import (
    figure_4,
    figure_4_caption,
    noise_figure,
    noise_figure_caption,
)
from dynagat.benchmarks.edge_noise.slope import robustness, slope_table
from dynagat.report.findings import Findings
from dynagat.report.parts import Extras, Figure
from dynagat.report.rows import Row, families

CAPTIONS = {figure_4: figure_4_caption, noise_figure: noise_figure_caption}


def extras(findings: Findings) -> Extras:
    def draw_figures() -> Iterator[Figure]:
        for draw, caption in CAPTIONS.items():
            svg = draw(findings)
            if svg is not None:
                yield Figure(draw.__name__.replace("_", "-"), svg, caption(findings))

    def say(rows: list[Row]) -> Iterator[str]:
        yield from robustness(rows)
        yield from answers(rows)

    every = [family for _, family in families(findings.rows)]
    tables = [make(family) for family in every for make in (slope_table, noise_table)]
    return Extras(draw_figures, tuple(table for table in tables if table), say)
