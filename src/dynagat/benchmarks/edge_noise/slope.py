"""Robustness: how fast accuracy falls with noise, tested once for each mechanism.

The slope of a seed is that of the least-squares line through its accuracies over the noise ratio.
GATv2's slopes are compared with another mechanism's by a paired two-sided t-test over seeds, which
share split and noise. Holm corrects for the comparisons on one data set. Testing each ratio by
itself would count nested noise eleven times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dynagat.benchmarks.edge_noise.attention import NoiseAttention, noise_attention
from dynagat.report import wording
from dynagat.report.headline import SIGNIFICANT
from dynagat.report.parts import Table
from dynagat.report.results import full_name
from dynagat.report.rows import OURS, Row, longest
from dynagat.significance import Sample, holm, paired, slopes

STEP = 0.1  # slopes are shown in points of accuracy for so many added edges per edge
COLUMNS = ("data set", "mechanism", "heads", "slope", "ratios", "n", "GATv2 minus it",
           "p two-sided", "p Holm", "attention on noise ÷ uniform, by layer")  # fmt: skip
LEGEND = (
    "Slope: points of accuracy that 0.1 added edges per edge change, mean ± standard deviation over"
    " n seeds; a slope nearer to 0 is more robust. p: paired t-test of the slopes of GATv2 and the"
    " row's mechanism over the seeds they share, two-sided; p Holm: corrected for the comparisons"
    " on one data set. This is the primary test of the paper's claim. Attention on noise: at the"
    " highest ratio, relative to uniform weights."
)


@dataclass(frozen=True)
class Decline:
    """The slopes of one mechanism on one data set, by seed, and their test against GATv2's."""

    rows: tuple[Row, ...]  # over noise
    slopes: dict[int, float]
    difference: float = math.nan  # of GATv2's mean slope and this one, over shared seeds
    p: float = math.nan
    p_holm: float = math.nan
    is_cut: bool = False  # not tested against GATv2, because runs of either were cut off

    @property
    def row(self) -> Row:
        return self.rows[0]

    @property
    def sample(self) -> Sample:
        return Sample.of(self.slopes.values())

    def is_comparable(self, other: Decline) -> bool:
        """Whether no run of either was cut off at any ratio."""
        return all(map(Row.is_comparable, self.rows, other.rows))

    @property
    def is_tested(self) -> bool:
        """Whether there is a test against GATv2."""
        return math.isfinite(self.p)

    @property
    def is_significant(self) -> bool:
        return self.p_holm < SIGNIFICANT

    @property
    def text(self) -> str:
        """ "−1.4 ± 0.2" """
        mean, std = 100 * STEP * self.sample.mean, 100 * STEP * self.sample.std
        spread = "" if math.isnan(std) else f" ± {std:.2f}"
        return f"{mean:.2f}{spread}".replace("-", "−")


def declines(rows: Sequence[Row]) -> list[Decline]:
    """For rows of one data set and family: a value for each mechanism with at least two ratios."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in longest(list(rows)):
        groups.setdefault((row.mechanism, row.heads), []).append(row)
    every = [
        Decline(tuple(group), slopes({row.swept["noise"]: row.values for row in group}))
        for group in groups.values()
    ]
    every = [each for each in every if each.slopes]
    ours = next((each for each in every if each.row.mechanism == OURS), None)
    tested = [each if ours is None else _tested(each, ours) for each in every]
    corrected = holm([each.p for each in tested])
    return [replace(each, p_holm=p) for each, p in zip(tested, corrected, strict=True)]


def _tested(each: Decline, ours: Decline) -> Decline:
    ratios = [[row.swept["noise"] for row in one.rows] for one in (each, ours)]
    seeds = sorted(each.slopes.keys() & ours.slopes.keys())
    if each is ours or len(seeds) < 2 or ratios[0] != ratios[1]:
        return each
    if not each.is_comparable(ours):
        return replace(each, is_cut=True)
    own, other = ([one.slopes[seed] for seed in seeds] for one in (ours, each))
    difference = sum(own) / len(own) - sum(other) / len(other)
    return replace(each, difference=difference, p=paired(own, other, "two-sided"))


def slope_table(family: Sequence[Row]) -> Table | None:
    """The data sets of one family; None without two ratios."""
    lines = [
        _cells(each, noise_attention(each.rows))
        for group in by_dataset(family)
        for each in declines(group)
    ]
    if not lines:
        return None
    title = f"Robustness: slope of accuracy over noise ({full_name(family[0])})"
    return Table.of(title, COLUMNS, lines, text_columns=2, legend=LEGEND, brief=True)


def by_dataset(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.dataset, []).append(row)
    return list(groups.values())


def _cells(each: Decline, attention: Sequence[NoiseAttention]) -> list[str]:
    """One text for each of COLUMNS."""
    highest = max(attention, key=lambda one: one.row.swept["noise"], default=None)
    ratios = [row.swept["noise"] for row in each.rows]
    difference = 100 * STEP * each.difference
    return [
        each.row.dataset,
        wording.name_of(each.row.mechanism),
        wording.heads_of(each.row.mechanism, each.row.heads),
        each.text,
        wording.ranges_of_fractions(ratios),
        str(each.sample.n),
        f"{difference:+.2f}".replace("-", "−") if math.isfinite(difference) else wording.NOTHING,
        wording.p_value(each.p),
        wording.p_value(each.p_holm),
        wording.NOTHING if highest is None else ", ".join(f"{r:.2f}" for r in highest.by_layer),
    ]


def robustness(rows: Sequence[Row]) -> Iterator[str]:
    """For rows of one data set: each mechanism's slope, and which differ from GATv2's."""
    every = declines(rows)
    if not every:
        return
    parts = [f"{each.row.title} {each.text}" for each in every]
    yield f"Points of accuracy for 0.1 added edges per edge: {'; '.join(parts)}."
    num_tests = sum(each.is_tested for each in every)
    for each in every:
        if each.is_cut:
            name = each.row.title
            yield f"The slopes of GATv2 and {name} are not compared, because runs were cut off."
        elif each.is_tested:
            yield _verdict(each, num_tests)


def slope_test(each: Decline, num_tests: int) -> str:
    """The test and the family of its correction, for brackets."""
    place = f" on {each.row.dataset}" if each.row.dataset else ""
    family = f" after Holm's correction for the {num_tests} slope tests{place}"
    after = family if num_tests > 1 else ""
    return f"slope, paired, two-sided {wording.p_equals(each.p_holm)}{after}"


def _verdict(each: Decline, num_tests: int) -> str:
    name = each.row.title
    test = slope_test(each, num_tests)
    if not each.is_significant:
        side = "less" if each.difference > 0 else "more"
        return f"GATv2 loses {side} to noise than {name} on average, not significantly ({test})."
    if each.difference > 0:
        return f"GATv2 is more robust to noise than {name} ({test})."
    return f"{name} is more robust to noise than GATv2 ({test})."


def slope_text(rows: Sequence[Row]) -> str:
    """The slopes of all mechanisms, and the tests of GATv2's against each of the others."""
    every = declines(rows)
    if not any(each.row.mechanism == OURS for each in every):
        return "There are no slopes of GATv2."
    parts = [f"{wording.name_of(each.row.mechanism)} {each.text}" for each in every]
    seeds = wording.ranges(sorted({each.sample.n for each in every}))
    num_tests = sum(each.is_tested for each in every)
    tests = [
        f"not compared with {wording.name_of(each.row.mechanism)}, because runs were cut off"
        if each.is_cut
        else f"against {wording.name_of(each.row.mechanism)} {wording.p_equals(each.p_holm)}"
        for each in every
        if each.is_cut or each.is_tested
    ]
    family = f" (paired, two-sided, Holm's correction for {wording.count(num_tests, 'test')})"
    said = f" GATv2 {', '.join(tests)}{family if num_tests else ''}." if tests else ""
    return f"Points of accuracy per 0.1 added edges: {', '.join(parts)} (n = {seeds}).{said}"
