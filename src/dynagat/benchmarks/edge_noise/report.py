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
from dynagat.benchmarks.edge_noise.slope import (
    Decline,
    declines,
    robustness,
    slope_table,
    slope_text,
)
from dynagat.report.findings import Findings
from dynagat.report.judgement import (
    NOT_RUN,
    RUN,
    TESTED,
    Judgement,
    chosen,
    context_of,
    verdict_of,
)
from dynagat.report.parts import Extras, Figure
from dynagat.report.rows import RIVAL, Row, families

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
    return Extras(draw_figures, tuple(table for table in tables if table), say, judge)


def judge(findings: Findings) -> Iterator[Judgement]:
    """The claim is about the slope of accuracy over noise, with as many heads of GAT."""

    def tested(rows: list[Row]) -> list[Decline]:
        return [each for each in declines(rows) if each.row.mechanism == RIVAL and each.is_tested]

    def rank(rows: list[Row]) -> int:
        has_runs = any(row.mechanism == RIVAL for row in rows)
        return TESTED if tested(rows) else RUN if has_runs else NOT_RUN

    for rows in chosen(findings, rank):
        num_all = sum(each.row.mechanism == RIVAL for each in declines(rows))
        sure = [each for each in tested(rows) if each.difference > 0 and each.is_significant]
        higher = [each for each in tested(rows) if each.difference > 0]
        verdict = verdict_of(len(sure), len(higher), len(tested(rows)), num_all)
        yield Judgement(findings.benchmark.claim, context_of(rows[0]), verdict, slope_text(rows))
