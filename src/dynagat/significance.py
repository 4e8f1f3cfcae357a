"""Is one mechanism better than another? The tests behind the paper's p-values, and stricter ones.

The paper does not name its test. Up to rounding, each p that it prints is that of
`student(gatv2, gat, "greater")` for the printed means and standard deviations (`"less"` for
errors): tests/test_significance.py recomputes them all.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy import optimize, stats

Alternative = Literal["greater", "less", "two-sided"]
QUANTILES = 2_000  # over which `detectable` takes a mean


@dataclass(frozen=True)
class Sample:
    """n runs of one mechanism: mean = Σ x / n,  std = √(Σ (x - mean)² / (n - 1)), nan for n = 1"""

    mean: float
    std: float
    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, (bool, float)) or self.n < 1:
            raise ValueError(f"n must count at least one run, but is {self.n}")
        if not math.isfinite(self.mean):
            raise ValueError(f"mean must be finite, but is {self.mean}")
        if self.n == 1 and not math.isnan(self.std):
            raise ValueError(f"std must be nan for n = 1, which has none, but is {self.std}")
        if self.n > 1 and not 0 <= self.std < math.inf:
            raise ValueError(f"std must be finite and at least 0, but is {self.std}")

    @classmethod
    def of(cls, values: Iterable[float], name: str = "values") -> Sample:
        """Summary of single runs. The caller must score diverged runs: nan is refused."""
        runs = _finite(values, name)
        # statistics sums exactly, so that equal runs have a standard deviation of exactly 0
        std = statistics.stdev(runs) if len(runs) > 1 else math.nan
        return cls(statistics.mean(runs), std, len(runs))

    @classmethod
    def from_population(cls, mean: float, std: float, n: int) -> Sample:
        """std √(n / (n - 1)): from a standard deviation that was divided by n, like numpy's.

        The paper's code prints such standard deviations for proteins, QM9 and VarMisuse. Yet its
        p-values read every printed one as Sample's: converting first contradicts five of them.
        """
        printed = cls(mean, math.nan if n == 1 else std, n)
        return replace(printed, std=printed.std * math.sqrt(n / (n - 1))) if n > 1 else printed


def student(a: Sample, b: Sample, alternative: Alternative = "greater") -> float:
    """p of t = (mean_a - mean_b) / (s √(1/n_a + 1/n_b)), where s pools both deviations

    `"greater"` tests whether a's mean is above b's. The p of a single run is nan.
    Equal means have t = 0 whatever the standard deviations: p = 1 two-sided, 1/2 one-sided.
    Different means with standard deviations of 0 have t = ±∞: p = 0, or 1 on the wrong side.
    """
    return _two_sample(a, b, alternative, equal_var=True)


def welch(a: Sample, b: Sample, alternative: Alternative = "greater") -> float:
    """p of t = (mean_a - mean_b) / √(std_a²/n_a + std_b²/n_b); else as `student`"""
    return _two_sample(a, b, alternative, equal_var=False)


def paired(
    values_a: Sequence[float], values_b: Sequence[float], alternative: Alternative = "greater"
) -> float:
    """p of t = mean(d) / (std(d) / √n),  d = a - b, matched by the caller; else as `student`"""
    _check_alternative(alternative)
    runs_a, runs_b = _finite(values_a, "values_a"), _finite(values_b, "values_b")
    if len(runs_a) != len(runs_b):
        raise ValueError(
            f"values_b must match values_a run by run, but has {len(runs_b)} for {len(runs_a)}"
        )
    if len(runs_a) < 2:
        raise ValueError(f"values_a must hold at least two runs to pair, but holds {len(runs_a)}")
    d = Sample.of([x - y for x, y in zip(runs_a, runs_b, strict=True)])
    # scipy's ttest_rel warns where all d are equal up to rounding
    t = _ratio(d.mean, d.std / math.sqrt(d.n))
    if alternative == "two-sided":
        return float(2 * stats.t.sf(abs(t), d.n - 1))
    return float(stats.t.sf(t if alternative == "greater" else -t, d.n - 1))


def detectable(std: float, n: int, level: float = 0.05, power: float = 0.8) -> float:
    """The mean difference that the two-sided paired t-test finds with this power

    δ with P(|t| > t_{1-level/2}) = power, where t has n - 1 degrees of freedom and the
    noncentrality δ √n / std, and std is the standard deviation of the n differences.
    """
    if n < 2 or not math.isfinite(std):
        return math.nan
    critical = stats.t.isf(level / 2, n - 1)
    quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    spread = np.sqrt(stats.chi2.ppf(quantiles, n - 1) / (n - 1))  # of the estimate of std

    def surplus(noncentrality: float) -> float:
        """scipy's noncentral t is wrong for few degrees of freedom."""
        limit = critical * spread
        tails = stats.norm.cdf([noncentrality - limit, -noncentrality - limit])
        return float(tails.sum(0).mean()) - power

    root = optimize.root_scalar(surplus, bracket=(0, 2 * critical + 3)).root
    return float(root) * std / math.sqrt(n)


def effect_size(a: Sample, b: Sample) -> float:
    """Hedges' g = J (mean_a - mean_b) / s,  J = Γ(m/2) / (√(m/2) Γ((m - 1)/2)),  m = n_a + n_b - 2

    s pools both standard deviations as in `student`; J corrects the bias of few runs. nan for a
    single run, ±∞ for different means with standard deviations of 0.
    """
    if min(a.n, b.n) < 2:
        return math.nan
    m = a.n + b.n - 2
    pooled = math.hypot(math.sqrt(a.n - 1) * a.std, math.sqrt(b.n - 1) * b.std) / math.sqrt(m)
    correction = math.exp(math.lgamma(m / 2) - math.lgamma((m - 1) / 2)) / math.sqrt(m / 2)
    return correction * _ratio(a.mean - b.mean, pooled)


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Confidence interval of the mean: BCa bootstrap, or percentiles where BCa is undefined

    Equal values v give (v, v), a single value gives (nan, nan).
    """
    runs = _finite(values, "values")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), but is {confidence}")
    if isinstance(resamples, (bool, float)) or resamples < 1:
        raise ValueError(f"resamples must be a count, but is {resamples}")
    if len(runs) == 1:
        return math.nan, math.nan
    if len(set(runs)) == 1:
        return runs[0], runs[0]
    interval = _bootstrap(runs, confidence, resamples, seed, "BCa")
    if np.isnan(interval).any():
        interval = _bootstrap(runs, confidence, resamples, seed, "percentile")
    return interval


def holm(p_values: Sequence[float]) -> list[float]:
    """adjusted_(k) = max over i ≤ k of min(1, (m - i + 1) p_(i)), for p_(1) ≤ ... ≤ p_(m)

    In the order given. A nan stays nan and does not count towards m.
    """
    for p in p_values:
        if not (math.isnan(p) or 0 <= p <= 1):
            raise ValueError(f"p_values must lie in [0, 1], but hold {p}")
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, highest = [math.nan] * len(p_values), 0.0
    for rank, place in enumerate(sorted(known, key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(known) - rank) * float(p_values[place])))
        adjusted[place] = highest
    return adjusted


def slopes(curves: Mapping[float, Mapping[int, float]]) -> dict[int, float]:
    """Σ (x - mean x) y / Σ (x - mean x)², the least-squares slope of each seed's values y over x

    Args:
        curves: {x: {seed: y}}. Seeds that lack a value at some x are left out; with fewer than
            two x, there are no slopes.
    """
    if len(curves) < 2:
        return {}
    mean = statistics.mean(curves)
    spread = math.fsum((x - mean) ** 2 for x in curves)
    seeds = sorted(set.intersection(*(set(values) for values in curves.values())))
    return {
        seed: math.fsum((x - mean) * values[seed] for x, values in curves.items()) / spread
        for seed in seeds
    }


@dataclass(frozen=True)
class PValue:
    """p of one test: that ours is better (one-sided), and that they differ (two-sided)."""

    one_sided: float
    two_sided: float


@dataclass(frozen=True)
class Contrast:
    """All tests of one mechanism against another; difference = ours.mean - other.mean"""

    ours: Sample
    other: Sample
    difference: float
    effect_size: float
    student: PValue
    welch: PValue
    paired: PValue | None  # None if they share fewer than two seeds


def contrast(
    a: Mapping[int, float], b: Mapping[int, float], higher_is_better: bool = True
) -> Contrast:
    """All tests of a, ours, against b: {seed: metric} each; paired on the seeds they share."""
    ours, other = Sample.of(a.values(), "a"), Sample.of(b.values(), "b")
    better: Alternative = "greater" if higher_is_better else "less"
    seeds = sorted(a.keys() & b.keys())
    pair = [a[seed] for seed in seeds], [b[seed] for seed in seeds]
    return Contrast(
        ours,
        other,
        difference=ours.mean - other.mean,
        effect_size=effect_size(ours, other),
        student=PValue(student(ours, other, better), student(ours, other, "two-sided")),
        welch=PValue(welch(ours, other, better), welch(ours, other, "two-sided")),
        paired=PValue(paired(*pair, better), paired(*pair, "two-sided")) if seeds[1:] else None,
    )


def _two_sample(a: Sample, b: Sample, alternative: Alternative, equal_var: bool) -> float:
    _check_alternative(alternative)
    if min(a.n, b.n) < 2:
        return math.nan
    if a.mean == b.mean:  # scipy divides 0 by 0 if the standard deviations are 0 as well
        return 1.0 if alternative == "two-sided" else 0.5
    moments = a.mean, a.std, a.n, b.mean, b.std, b.n
    return float(stats.ttest_ind_from_stats(*moments, equal_var, alternative).pvalue)


def _bootstrap(
    runs: list[float], confidence: float, resamples: int, seed: int, method: str
) -> tuple[float, float]:
    with warnings.catch_warnings():  # scipy warns that BCa is undefined, and gives nan
        warnings.simplefilter("ignore")
        low, high = stats.bootstrap(
            (runs,),
            np.mean,
            confidence_level=confidence,
            n_resamples=resamples,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return float(low), float(high)


def _ratio(x: float, scale: float) -> float:
    """x / scale; with a scale of 0, it is 0 for x = 0 and ±∞ otherwise."""
    if x == 0:
        return 0.0
    return x / scale if scale > 0 else math.copysign(math.inf, x)


def _finite(values: Iterable[float], name: str) -> list[float]:
    runs = [float(value) for value in values]
    if not runs:
        raise ValueError(f"{name} must hold at least one run, but is empty")
    for run in runs:
        if not math.isfinite(run):
            raise ValueError(f"{name} must be finite, but hold {run}")
    return runs


def _check_alternative(alternative: str) -> None:
    if alternative not in get_args(Alternative):
        known = ", ".join(get_args(Alternative))
        raise ValueError(f"alternative must be one of {known}, but is {alternative!r}")
