"""What the report adds for edge noise: Figure 4, attention on noise edges, and the answer."""

from __future__ import annotations

from collections.abc import Iterator

from dynagat.benchmarks.edge_noise.attention import answers, noise_table
from dynagat.benchmarks.edge_noise.figures import (
    figure_4,
    figure_4_caption,
    noise_figure,
    noise_figure_caption,
)
from dynagat.report.findings import Findings
from dynagat.report.parts import Extras, Figure
from dynagat.report.rows import families

CAPTIONS = {figure_4: figure_4_caption, noise_figure: noise_figure_caption}


def extras(findings: Findings) -> Extras:
    def draw_figures() -> Iterator[Figure]:
        for draw, caption in CAPTIONS.items():
            svg = draw(findings)
            if svg is not None:
                yield Figure(draw.__name__.replace("_", "-"), svg, caption(findings))

    tables = [table for _, family in families(findings.rows) if (table := noise_table(family))]
    return Extras(draw_figures, tuple(tables), answers)
