"""What the paper claims about DictionaryLookup, and what came out."""

from __future__ import annotations

from collections.abc import Iterator

from dynagat.benchmarks.dictionary_lookup.fit import fit_of
from dynagat.benchmarks.dictionary_lookup.published import TEST, TRAIN
from dynagat.benchmarks.dictionary_lookup.trend import trend
from dynagat.metrics import Metric
from dynagat.report.findings import Findings
from dynagat.report.judgement import (
    FAILED,
    HELD,
    IN_PART,
    NOT_RUN,
    RUN,
    TESTED,
    UNTESTED,
    Judgement,
    chosen,
    compared,
    context_of,
)
from dynagat.report.rows import Row

FINDS = "GATv2 with one head looks up every value: 100% test accuracy at every k."
STATIC = "GAT can not, neither with 1 nor with 8 heads: its attention is static."
FITS = "GAT with 8 heads fits the training graphs."
GIN = "GIN, which has no attention, is worse than GATv2."
TREND = "Normalisation, activation, learning rate and dropout do not change the trend."


CLAIMS = (FINDS, STATIC, FITS, GIN, TREND)


def judge(findings: Findings) -> Iterator[Judgement]:
    """One judgement for each protocol with runs; a claim without runs has none."""
    yield from _reached(findings, FINDS, "gatv2", 1, TEST)
    yield from compared(findings, STATIC)
    yield from _reached(findings, FITS, "gat", 8, TRAIN)
    yield from compared(findings, GIN, "gin")
    yield from _trend(findings)


def _reached(
    findings: Findings, claim: str, mechanism: str, heads: int, metric: Metric
) -> Iterator[Judgement]:
    """The level is 100%, rounded as the paper prints it: to whole per cent."""

    def rank(rows: list[Row]) -> int:
        fit = fit_of(rows, mechanism, heads, metric)
        return NOT_RUN if fit is None else TESTED if fit.values else RUN

    for rows in chosen(findings, rank):
        fit = fit_of(rows, mechanism, heads, metric)
        assert fit is not None
        if not fit.values:
            verdict = UNTESTED
        elif fit.fitted == len(fit.values):
            verdict = HELD
        else:
            verdict = IN_PART if fit.fitted else FAILED
        yield Judgement(claim, context_of(rows[0]), verdict, f"{fit}.")


def _trend(findings: Findings) -> Iterator[Judgement]:
    num_held, count = trend(findings)
    if count:
        verdict = HELD if num_held == count else IN_PART if num_held else FAILED
        numbers = f"GATv2's mean is above GAT's at every k in {num_held} of {count} comparisons"
        numbers += " (means, without a test; the table is among the results)."
        yield Judgement(TREND, "corrected, one setting changed", verdict, numbers)
