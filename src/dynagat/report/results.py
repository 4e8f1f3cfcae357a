"""The result tables: published | ours, n | difference | p; and all tests of each row."""

from __future__ import annotations

from collections.abc import Iterable

from dynagat.report import wording
from dynagat.report.parts import Line, Table
from dynagat.report.rows import OURS, Row

COLUMNS = ("settings", "mechanism", "heads", "published", "ours", "n", "difference", "p", "p Holm",
           "unfinished")  # fmt: skip
DETAILS = (*COLUMNS[:3], "95% interval", "effect size", "p two-sided", "Welch", "Welch two-sided",
           "paired", "paired two-sided", "GATv2 heads", "ended", "source")  # fmt: skip
LEGEND = (
    "ours: mean ± standard deviation over n seeds. published: numbers without ± are single runs. p:"
    " Student's one-sided test that GATv2 is better than the row's mechanism under the same"
    " settings, as in the paper. unfinished: runs that were cut off, which count as better or worse"
    " for no mechanism and have no p; runs that ended at the last round of a fixed number; and runs"
    " that failed the released code's rule, which are left out."
)
DETAILS_LEGEND = (
    "95% interval: bootstrap of the mean. effect size: Hedges' g of GATv2 against the row. Paired"
    " tests match runs by seed. Welch's and the paired p are one-sided unless stated."
)


def result_table(family: list[Row], *, folded: bool, brief: bool) -> Table:
    """The rows of one family."""
    return Table(
        title=wording.first_upper(caption(family[0])),
        columns=COLUMNS,
        lines=tuple(_line(row, cells(row)) for row in family),
        text_columns=2,
        dot_column=1,
        folded=folded,
        brief=brief,
    )


def details_table(family: list[Row]) -> Table:
    """All tests, intervals and effect sizes of one family."""
    return Table(
        title=f"All tests, intervals and effect sizes: {caption(family[0])}",
        columns=DETAILS,
        lines=tuple(_line(row, details(row)) for row in family),
        text_columns=2,
        dot_column=1,
        legend=DETAILS_LEGEND,
        folded=True,
    )


def _line(row: Row, texts: list[str]) -> Line:
    return Line(tuple(texts), wording.colour_of(row.mechanism), row.mechanism == OURS)


def caption(row: Row) -> str:
    """Of the table that the row is in."""
    unit = ", per cent" if row.metric.is_fraction else ""
    return f"{row.metric.title}{unit} ({full_name(row)})"


def full_name(row: Row) -> str:
    """The row's family with its caveats."""
    return "; ".join([row.family, *row.caveats.values()])


def legend(rows: Iterable[Row]) -> str:
    """How to read the tables, with the families of Holm's correction."""
    tested = [row for row in rows if row.num_tests > 1]
    is_mixed = len({row.family for row in tested}) > 1
    by_size: dict[int, dict[str, None]] = {}
    for row in tested:
        place = f" on {row.dataset}" if row.dataset else ""
        place += f" ({row.family})" if is_mixed else ""
        name = f"{wording.name_of(row.mechanism)}{place}"
        by_size.setdefault(row.num_tests, {})[name] = None
    parts = [
        f"{count}{' each' if len(names) > 1 else ''} against {wording.listed(list(names))}"
        for count, names in by_size.items()
    ]
    family = f" ({'; '.join(parts)})" if parts else ""
    return (
        f"{LEGEND} p Holm: p corrected by Holm's method for all tests against one mechanism on"
        f" one data set{family}."
    )


def cells(row: Row) -> list[str]:
    """One text for each of COLUMNS."""
    ours, metric, paper = row.sample, row.metric, row.published
    std = float("nan") if paper is None or paper.std is None else paper.std
    is_ours = row.mechanism == OURS
    return [
        row.label,
        wording.name_of(row.mechanism),
        wording.heads_of(row.mechanism, row.heads),
        wording.NOTHING if paper is None else wording.mean_and_std(paper.mean, std, metric),
        wording.NOTHING if ours is None else wording.mean_and_std(ours.mean, ours.std, metric),
        str(len(row.values)),
        wording.signed(row.difference, metric),
        "" if is_ours else wording.p_value(row.p),
        "" if is_ours else wording.p_value(row.p_holm),
        unfinished(row),
    ]


def unfinished(row: Row) -> str:
    """ "2 of 10, 3 failed": runs that failed the released code's rule are counted apart."""
    stopped = f"{row.not_converged} of {len(row.counted)}" if row.not_converged else ""
    fixed = f"{row.at_last_round} at the last round" if row.at_last_round else ""
    failed = f"{row.failed} failed" if row.failed else ""
    return ", ".join(word for word in (stopped, fixed, failed) if word)


def details(row: Row) -> list[str]:
    """One text for each of DETAILS."""
    tests, metric = row.contrast, row.metric
    low, high = (wording.number(end, metric) for end in row.interval)
    texts = [wording.NOTHING] * 6
    if tests is not None and not row.is_cut:
        paired = tests.paired
        texts = [wording.effect(tests.effect_size)] + [
            wording.p_value(p)
            for p in (
                tests.student.two_sided,
                tests.welch.one_sided,
                tests.welch.two_sided,
                float("nan") if paired is None else paired.one_sided,
                float("nan") if paired is None else paired.two_sided,
            )
        ]
    return [
        *cells(row)[:3],
        low if low == high else f"{low} to {high}",
        *texts,
        wording.NOTHING if row.against is None else str(row.against),
        ", ".join(f"{n} {how}" for how, n in sorted(row.ended.items())),
        wording.NOTHING if row.published is None else row.published.where,
    ]
