"""The paper's own p-values from its printed means and deviations; the laws the tests obey."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dynagat.significance import (
    Contrast,
    PValue,
    Sample,
    bootstrap_interval,
    contrast,
    detectable,
    effect_size,
    holm,
    paired,
    slopes,
    student,
    welch,
)

few = settings(max_examples=50, deadline=None, derandomize=True)
runs = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


def half_unit(text: str) -> float:
    """The largest rounding error of a printed number."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


@dataclass(frozen=True)
class Row:
    """One printed comparison: "mean±std" of the better and of the worse mechanism, runs, p."""

    better: str
    worse: str
    n: int
    p: str

    def samples(self, sample=Sample, n=None, moved=(0, 0, 0)) -> tuple[Sample, Sample]:
        """Both groups, with difference and deviations moved by so many half units."""
        difference, *deviations = moved
        pair = []
        for text, towards, up in zip((self.better, self.worse), (1, -1), deviations, strict=True):
            mean, std = text.split("±")
            moved_mean = float(mean) + towards * difference * half_unit(mean)
            pair.append(sample(moved_mean, float(std) + up * half_unit(std), n or self.n))
        return pair[0], pair[1]

    def agrees(self, low: float, high: float, slack: float = 0.0) -> bool:
        """Whether some p in [low, high] would print as this row's, within a relative slack."""
        if self.p.startswith("<"):
            return low < float(self.p[1:])
        reach = half_unit(self.p) + slack * float(self.p)
        return low <= float(self.p) + reach and high >= float(self.p) - reach


def greater(a: Sample, b: Sample) -> float:
    return student(a, b, "greater")


def reachable(row: Row, test=greater, **reading) -> tuple[float, float]:
    """The least and the greatest p of all numbers that round to this row's.

    Student's p is monotone in the difference and in each deviation, so its extremes are at the
    corners. In these rows Welch's p has its extremes there, too: a grid of 7³ points agrees.
    """
    corners = product((-1, 1), repeat=3)
    p = [test(*row.samples(moved=moved, **reading)) for moved in corners]
    return min(p), max(p)


# Section 5 of the protocol, and the 20-run table of QM9 (4.9), whose better mechanism errs less.
PAPER = {
    "arxiv": Row("71.93±0.35", "71.65±0.38", 30, "0.0022"),
    "products": Row("80.63±0.70", "79.04±1.54", 30, "<0.0001"),
    "mag": Row("33.01±0.41", "32.36±1.10", 30, "0.0018"),
    "proteins": Row("78.96±1.19", "78.29±1.59", 30, "0.0349"),
    "collab without validation edges": Row("43.82±2.24", "42.24±2.26", 30, "0.0043"),
    "collab with validation edges": Row("49.06±2.50", "46.02±4.09", 30, "0.0005"),
    "citation2": Row("80.20±0.62", "79.91±0.13", 30, "0.0075"),
    "VarMisuse seen": Row("88.0±1.1", "86.9±0.7", 5, "0.048"),
    "VarMisuse unseen": Row("82.8±1.7", "81.2±0.9", 5, "0.049"),
    "PubMed": Row("78.5±0.38", "78.1±0.59", 100, "<0.0001"),
    "QM9 1": Row("-2.67±0.08", "-2.74±0.08", 20, "0.0043"),
    "QM9 2": Row("-4.28±0.23", "-4.73±0.40", 20, "<0.0001"),
    "QM9 3": Row("-1.43±0.05", "-1.47±0.06", 20, "0.0138"),
    "QM9 4": Row("-1.51±0.07", "-1.53±0.06", 20, "0.1691"),
    "QM9 5": Row("-2.21±0.08", "-2.44±0.60", 20, "0.0487"),
    "QM9 6": Row("-16.64±1.17", "-55.21±42.33", 20, "0.0001"),
    "QM9 7": Row("-13.61±1.68", "-25.36±31.42", 20, "0.0516"),
    "QM9 8": Row("-6.13±0.59", "-7.36±0.87", 20, "<0.0001"),
    "QM9 9": Row("-6.33±0.82", "-6.79±0.86", 20, "0.0458"),
    "QM9 10": Row("-6.37±0.86", "-7.36±0.93", 20, "0.0006"),
    "QM9 11": Row("-5.95±0.62", "-6.69±0.86", 20, "0.0017"),
    "QM9 12": Row("-3.66±0.29", "-4.10±0.29", 20, "<0.0001"),
    "QM9 13": Row("-1.09±0.85", "-1.51±0.84", 20, "0.0621"),
}
POPULATION = {name for name in PAPER if name.startswith(("proteins", "QM9", "VarMisuse"))}  # D23
every_row = pytest.mark.parametrize("name", PAPER)


@every_row
def test_the_papers_p_value_is_reachable_from_its_rounded_means_and_deviations(name) -> None:
    row = PAPER[name]
    assert row.agrees(*reachable(row))


@every_row
def test_the_papers_p_value_is_within_two_percent_of_students(name) -> None:
    row = PAPER[name]
    p = student(*row.samples())
    assert row.agrees(p, p, slack=0.02)


def test_students_p_prints_as_the_papers_in_every_row_but_one() -> None:
    """VarMisuse unseen, from one digit after the point: 0.04997, printed 0.049."""
    p_values = {name: student(*row.samples()) for name, row in PAPER.items()}
    others = [name for name, p in p_values.items() if not PAPER[name].agrees(p, p)]
    assert others == ["VarMisuse unseen"]
    assert p_values["VarMisuse unseen"] == pytest.approx(0.04997, abs=5e-6)


@pytest.mark.parametrize(
    ("reading", "rows", "contradicted"),
    [
        ({"test": lambda a, b: welch(a, b, "greater")}, PAPER, 3),
        ({"test": lambda a, b: student(a, b, "two-sided")}, PAPER, 15),
        ({"n": 10}, PAPER, 22),
        ({"sample": Sample.from_population}, POPULATION, 5),
    ],
    ids=["Welch", "two-sided", "ten runs", "population deviations"],
)
def test_no_other_reading_reaches_all_of_the_papers_p_values(reading, rows, contradicted) -> None:
    names = [name for name in rows if not PAPER[name].agrees(*reachable(PAPER[name], **reading))]
    assert len(names) == contradicted, names


def test_products_is_significant_below_a_ten_thousandth_only_if_its_ten_runs_were_thirty() -> None:
    """D30: the 30-run table repeats the means and deviations of 10 runs."""
    row = PAPER["products"]
    assert student(*row.samples()) < 0.0001
    assert student(*row.samples(n=10)) == pytest.approx(0.0041, abs=5e-5)


# Section 4.8: mean, lower and upper end of the band of GATv2, then of GAT; ten runs; p.
NOISE = {
    "arxiv 0.10": (70.025, 69.804, 70.238, 69.361, 69.177, 69.555, "0.0002"),
    "arxiv 0.15": (69.325, 69.139, 69.482, 68.494, 68.324, 68.695, "<0.0001"),
    "arxiv 0.20": (68.957, 68.739, 69.203, 68.066, 67.884, 68.231, "<0.0001"),
    "arxiv 0.25": (68.624, 68.269, 68.989, 67.513, 67.313, 67.701, "0.0001"),
    "arxiv 0.30": (68.514, 68.266, 68.725, 67.284, 67.111, 67.460, "<0.0001"),
    "arxiv 0.35": (67.973, 67.809, 68.165, 66.719, 66.467, 66.919, "<0.0001"),
    "arxiv 0.40": (67.467, 67.289, 67.687, 66.588, 66.419, 66.763, "<0.0001"),
    "arxiv 0.45": (67.267, 67.026, 67.506, 66.157, 65.902, 66.363, "<0.0001"),
    "mag 0.10": (30.908, 30.691, 31.134, 29.749, 29.234, 30.254, "0.0006"),
    "mag 0.15": (30.674, 30.441, 30.900, 29.220, 28.686, 29.748, "0.0001"),
    "mag 0.20": (30.498, 30.242, 30.771, 28.659, 28.398, 28.928, "<0.0001"),
    "mag 0.25": (30.436, 29.995, 30.931, 28.620, 28.195, 29.039, "<0.0001"),
    "mag 0.30": (30.925, 30.541, 31.265, 28.604, 28.229, 29.118, "<0.0001"),
    "mag 0.35": (31.007, 30.831, 31.188, 28.235, 27.830, 28.572, "<0.0001"),
    "mag 0.40": (30.787, 30.364, 31.135, 27.779, 27.290, 28.162, "<0.0001"),
    "mag 0.45": (30.648, 30.203, 31.085, 28.086, 27.633, 28.483, "<0.0001"),
}
# Two standard errors of the width of a percentile interval from 1000 resamples (none is stated):
# 2 √2 √(0.025 · 0.975 / 1000) / φ(1.96) / 3.92
WIDTH_ERROR = 0.06


def noise_p(name: str, stretch: float = 0.0) -> float:
    """D18: a band is a bootstrapped 95% interval of the mean, 3.92 population std / √10 wide."""
    *numbers, _ = NOISE[name]
    gatv2, gat = (
        Sample.from_population(mean, (1 + stretch) * (high - low) / 3.92 * math.sqrt(10), 10)
        for mean, low, high in (numbers[:3], numbers[3:])
    )
    return student(gatv2, gat)


def noise_agrees(name: str, low: float, high: float) -> bool:
    return Row("", "", 10, NOISE[name][-1]).agrees(low, high)


@pytest.mark.parametrize("name", NOISE)
def test_the_noise_p_values_are_reachable_from_the_shaded_bands(name) -> None:
    assert noise_agrees(name, noise_p(name, -WIDTH_ERROR), noise_p(name, WIDTH_ERROR))


def test_the_noise_p_values_print_as_the_papers_at_every_ratio_but_one() -> None:
    others = [name for name in NOISE if not noise_agrees(name, noise_p(name), noise_p(name))]
    assert others == ["arxiv 0.25"]  # 0.00004, printed 0.0001


# Laws of the tests


@few
@given(a=runs, b=runs)
def test_student_and_welch_equal_scipys_on_the_runs_themselves(a, b) -> None:
    a, b = [*a, 0.0, 1.0], [*b, -1.0, 1.0]  # with some variance, or scipy warns
    for alternative in ("greater", "less", "two-sided"):
        for ours, equal_var in ((student, True), (welch, False)):
            theirs = stats.ttest_ind(a, b, equal_var=equal_var, alternative=alternative).pvalue
            p = ours(Sample.of(a), Sample.of(b), alternative)
            assert p == pytest.approx(theirs, rel=1e-6, abs=1e-12)


@few
@given(a=runs, seed=st.integers(0, 1000))
def test_paired_equals_scipys(a, seed) -> None:
    b = np.asarray(a) + np.random.default_rng(seed).normal(size=len(a))
    for alternative in ("greater", "less", "two-sided"):
        theirs = stats.ttest_rel(a, b, alternative=alternative).pvalue
        assert paired(a, list(b), alternative) == pytest.approx(theirs, rel=1e-6)


every_test = pytest.mark.parametrize(
    "test",
    [
        lambda a, b, alternative: student(Sample.of(a), Sample.of(b), alternative),
        lambda a, b, alternative: welch(Sample.of(a), Sample.of(b), alternative),
        lambda a, b, alternative: paired(a[:2], b[:2], alternative),
    ],
    ids=["student", "welch", "paired"],
)


@every_test
@few
@given(a=runs, b=runs)
def test_two_sided_is_twice_the_smaller_side_and_swapping_gives_one_minus_p(test, a, b) -> None:
    p = test(a, b, "greater")
    assert 0 <= p <= 1
    assert test(a, b, "two-sided") == pytest.approx(2 * min(p, test(a, b, "less")))
    assert test(b, a, "greater") == pytest.approx(1 - p)
    assert test(b, a, "less") == pytest.approx(p)


@every_test
def test_runs_without_variance_have_a_p_of_zero_one_or_a_half(test) -> None:
    low, high = [0.1] * 3, [0.3] * 3
    assert [test(high, low, side) for side in ("greater", "less", "two-sided")] == [0, 1, 0]
    assert [test(low, low, side) for side in ("greater", "less", "two-sided")] == [0.5, 0.5, 1]


def test_a_single_run_has_no_deviation_and_no_p() -> None:
    one, many = Sample.of([1.0]), Sample.of([1.0, 2.0, 4.0])
    assert math.isnan(one.std)
    for test in (student, welch, effect_size):
        assert math.isnan(test(one, many))
        assert math.isnan(test(many, one))


def test_equal_runs_have_a_standard_deviation_of_exactly_zero() -> None:
    assert Sample.of([0.1] * 10) == Sample(0.1, 0.0, 10)


def test_population_deviations_become_sample_deviations() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    printed = Sample.from_population(float(np.mean(values)), float(np.std(values)), 4)
    assert printed.std == pytest.approx(Sample.of(values).std)
    assert math.isnan(Sample.from_population(1.0, 0.0, 1).std)


# Effect size, Holm, bootstrap


def test_hedges_g_of_two_groups_by_hand() -> None:
    """s = √((2·1 + 2·3²) / 4) = √5, d = 2 / √5; m = 4: J = Γ(2) / (√2 Γ(3/2)) = √(2/π)"""
    a, b = Sample(5.0, 1.0, 3), Sample(3.0, 3.0, 3)
    assert effect_size(a, b) == pytest.approx(2 / math.sqrt(5) * math.sqrt(2 / math.pi))
    assert effect_size(b, a) == -effect_size(a, b)


def test_hedges_g_is_cohens_d_for_many_runs_and_shrinks_it_for_few() -> None:
    a, b = Sample(1.0, 1.0, 10_000), Sample(0.0, 1.0, 10_000)
    assert effect_size(a, b) == pytest.approx(1, abs=1e-4)
    ten = effect_size(replace(a, n=10), replace(b, n=10))
    assert ten == pytest.approx(1 - 3 / (4 * 20 - 9), abs=1e-3)  # Hedges' own approximation


def test_the_effect_size_of_runs_without_variance_is_zero_or_infinite() -> None:
    a, b = Sample(1.0, 0.0, 3), Sample(0.0, 0.0, 3)
    assert [effect_size(a, a), effect_size(a, b), effect_size(b, a)] == [0, math.inf, -math.inf]


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, then not below 0.06."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_a_nan_stays_nan_and_does_not_count_in_holm() -> None:
    adjusted = holm([0.02, math.nan, 0.03])
    assert math.isnan(adjusted[1])
    assert [adjusted[0], adjusted[2]] == pytest.approx(holm([0.02, 0.03]))
    assert holm([]) == []


@few
@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_never_makes_a_p_smaller(p) -> None:
    adjusted = holm(p)
    assert all(raw <= new <= 1 for raw, new in zip(p, adjusted, strict=True))
    assert (np.diff(np.asarray(adjusted)[np.argsort(p)]) >= 0).all()
    assert min(adjusted) == pytest.approx(min(1, len(p) * min(p)))  # as Bonferroni's


@few
@given(values=runs, seed=st.integers(0, 100))
def test_a_bootstrap_interval_holds_the_mean_and_follows_from_its_seed(values, seed) -> None:
    low, high = bootstrap_interval(values, resamples=500, seed=seed)
    assert low - 1e-9 <= np.mean(values) <= high + 1e-9
    assert (low, high) == bootstrap_interval(values, resamples=500, seed=seed)


def test_a_bootstrap_interval_of_many_normal_runs_is_students() -> None:
    values = np.random.default_rng(0).normal(size=200)
    theirs = stats.t.interval(0.95, 199, values.mean(), values.std(ddof=1) / math.sqrt(200))
    assert bootstrap_interval(list(values)) == pytest.approx(theirs, abs=0.01)
    assert bootstrap_interval(list(values)) != bootstrap_interval(list(values), seed=1)


def test_a_bootstrap_interval_widens_with_its_confidence() -> None:
    values = [1.0, 2.0, 4.0, 7.0, 11.0]
    width = [np.diff(bootstrap_interval(values, confidence))[0] for confidence in (0.5, 0.9, 0.99)]
    assert width == sorted(width)
    assert width[0] > 0


def test_the_bootstrap_interval_falls_back_where_bca_is_undefined() -> None:
    assert bootstrap_interval([0.1] * 5) == (0.1, 0.1)
    assert np.isnan(bootstrap_interval([0.1])).all()
    low, high = bootstrap_interval([0.0, 1e-300])  # its squares are 0
    assert 0 <= low <= high <= 1e-300


# Contrasts


def test_a_contrast_pairs_the_seeds_that_both_have() -> None:
    ours, other = {0: 3.0, 1: 5.0, 2: 4.5, 9: 4.0}, {2: 4.0, 1: 3.5, 0: 2.0, 5: 1.0}
    a, b = Sample.of(ours.values()), Sample.of(other.values())
    matched = [3.0, 5.0, 4.5], [2.0, 3.5, 4.0]
    assert contrast(ours, other) == Contrast(
        ours=a,
        other=b,
        difference=1.5,
        effect_size=effect_size(a, b),
        student=PValue(student(a, b, "greater"), student(a, b, "two-sided")),
        welch=PValue(welch(a, b, "greater"), welch(a, b, "two-sided")),
        paired=PValue(paired(*matched, "greater"), paired(*matched, "two-sided")),
    )


def test_fewer_than_two_shared_seeds_are_not_paired() -> None:
    assert contrast({0: 1.0, 1: 2.0}, {1: 1.0, 2: 3.0}).paired is None
    assert contrast({0: 1.0, 1: 2.0}, {0: 1.0, 1: 3.0}).paired is not None


def test_for_errors_lower_is_better_and_differences_keep_their_sign() -> None:
    gain, error = {0: 3.0, 1: 5.0, 2: 4.0}, {0: 2.0, 1: 3.5, 2: 1.0}
    up = contrast(gain, error)
    down = contrast(
        {seed: -value for seed, value in gain.items()},
        {seed: -value for seed, value in error.items()},
        higher_is_better=False,
    )
    assert (down.student, down.welch, down.paired) == (up.student, up.welch, up.paired)
    assert (down.difference, down.effect_size) == (-up.difference, -up.effect_size)
    assert up.student.one_sided < 0.5


def test_single_runs_have_a_difference_but_no_p() -> None:
    single = contrast({0: 2.0}, {0: 1.0})
    assert single.difference == 1
    assert single.paired is None
    assert math.isnan(single.student.one_sided)


# Bad arguments


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Sample.of([]), "values must hold at least one run, but is empty"),
        (lambda: Sample.of([1.0, math.nan]), "values must be finite, but hold nan"),
        (lambda: Sample(math.inf, 1.0, 3), "mean must be finite, but is inf"),
        (lambda: Sample(1.0, -0.5, 3), "std must be finite and at least 0, but is -0.5"),
        (lambda: Sample(1.0, math.nan, 3), "std must be finite and at least 0, but is nan"),
        (lambda: Sample(1.0, 0.0, 1), "std must be nan for n = 1, which has none, but is 0.0"),
        (lambda: Sample(1.0, 1.0, 0), "n must count at least one run, but is 0"),
        (lambda: Sample(1.0, 1.0, 2.0), "n must count at least one run, but is 2.0"),
        (lambda: Sample.from_population(1.0, 1.0, -1), "n must count at least one run, but is -1"),
        (
            lambda: student(Sample(1.0, 1.0, 2), Sample(1.0, 1.0, 2), "more"),
            "alternative must be one of greater, less, two-sided, but is 'more'",
        ),
        (
            lambda: paired([1.0, 2.0], [1.0]),
            "values_b must match values_a run by run, but has 1 for 2",
        ),
        (lambda: paired([1.0], [1.0]), "values_a must hold at least two runs to pair, but holds 1"),
        (lambda: paired([1.0, 2.0], [1.0, math.inf]), "values_b must be finite, but hold inf"),
        (lambda: bootstrap_interval([1.0, 2.0], 95), "confidence must lie in (0, 1), but is 95"),
        (lambda: bootstrap_interval([1.0], resamples=0), "resamples must be a count, but is 0"),
        (lambda: holm([0.1, 1.5]), "p_values must lie in [0, 1], but hold 1.5"),
        (lambda: contrast({0: 1.0}, {}), "b must hold at least one run, but is empty"),
    ],
)
def test_a_bad_argument_is_refused_in_a_sentence(call, sentence) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole sentence is compared)
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("n", [2, 3, 5, 20, 200])
def test_a_detectable_difference_is_found_with_the_stated_power(n):
    """By simulation: 20,000 samples of n differences around it."""
    mean = detectable(1.0, n)
    draws = np.random.default_rng(0).normal(mean, 1, (20_000, n))
    found = stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.015)
    assert detectable(2.5, n) == pytest.approx(2.5 * mean)


def test_one_run_detects_nothing():
    assert math.isnan(detectable(math.nan, 1))
    assert detectable(0.0, 5) == 0


def test_the_slope_of_a_line_is_its_own_and_seeds_with_gaps_are_left_out():
    xs = (0.0, 0.1, 0.4)
    curves = {x: {0: 0.9 - 0.3 * x, 1: 0.8 + 0.2 * x, 2: 0.5} for x in xs}
    del curves[0.1][2]
    found = slopes(curves)
    assert found == pytest.approx({0: -0.3, 1: 0.2})
    assert slopes({0.1: {0: 1.0}}) == {}


def test_slopes_are_those_of_least_squares():
    draw = np.random.default_rng(0)
    xs = np.linspace(0, 0.5, 11)
    ys = draw.normal(size=(11, 4))
    curves = {float(x): dict(enumerate(map(float, y))) for x, y in zip(xs, ys, strict=True)}
    expected = np.polyfit(xs, ys, 1)[0]
    assert [slopes(curves)[seed] for seed in range(4)] == pytest.approx(list(expected))
