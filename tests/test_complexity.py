"""The cost of a layer: the fit on simulated times, the measured quantities, and the counts."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagat.analysis import complexity
from dynagat.analysis.complexity import ParameterCount, Problem, Scaling

few = settings(max_examples=25, deadline=None, derandomize=True)


@few
@given(exponent=st.floats(-1, 3), constant=st.floats(1e-9, 1e3))
def test_the_exponent_of_a_power_law_is_recovered(exponent, constant):
    sizes = (10, 20, 50, 400)
    seconds = tuple(constant * size**exponent for size in sizes)
    scaling = Scaling("gatv2", "|E| d'", "|E|", sizes, seconds)
    assert scaling.exponent == pytest.approx(exponent, abs=1e-9)


def test_too_few_or_invalid_sizes_are_an_error():
    with pytest.raises(ValueError, match=r"at least two different sizes.* but are \[4, 4\] for 2"):
        complexity.fit_exponent([4, 4], [1.0, 2.0])
    with pytest.raises(ValueError, match="one per entry of seconds"):
        complexity.fit_exponent([4, 8], [1.0])
    with pytest.raises(ValueError, match="seconds must be positive"):
        complexity.fit_exponent([4, 8], [1.0, 0.0])


def test_time_is_certified_if_no_exponent_is_above_one():
    def growing_as(power):
        return Scaling(
            "gat", "|E| d'", "d'", (1, 2, 4), tuple(0.1 * 2 ** (power * k) for k in (0, 1, 2))
        )

    assert complexity.certify_times([growing_as(0.7), growing_as(1.0)]).shown
    certificate = complexity.certify_times([growing_as(1.0), growing_as(2.0)])
    assert not certificate.shown
    fact = "gat, large |E| d': time grows as d'^2.00 (d' = 1 to 4: 1e+02 to 1.6e+03 ms)"
    assert certificate.facts[1] == fact


def test_each_size_of_each_mechanism_is_timed(monkeypatch):
    """On tiny problems: only the sizes and names are checked."""
    small = Problem(num_nodes=20, num_edges=30, in_dim=4, out_dim=4)
    varied = [("|E| d'", small, field, (8, 16)) for field in complexity.SYMBOLS]
    monkeypatch.setattr(complexity, "VARIED", varied)
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "process_time", lambda: float(next(ticks)))
    before, state = torch.get_num_threads(), torch.get_rng_state()
    scalings = complexity.time_exponents(("gat", "dpgat"), repeats=2)
    assert [(s.mechanism, s.varied) for s in scalings] == [
        (name, varied) for name in ("gat", "dpgat") for varied in ("|V|", "|E|", "d", "d'")
    ]
    assert all(s.seconds == (1.0, 1.0) for s in scalings)
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_the_first_pass_is_a_warm_up(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    costs = iter([100.0, 3.0, 1.0, 2.0])

    def run():
        clock[0] += next(costs)

    assert complexity.median_seconds([run], repeats=3) == [2.0]


def test_an_unknown_mechanism_is_an_error():
    message = "mechanisms must be among gat, gatv2, dpgat, but contain 'gin'"
    with pytest.raises(ValueError, match=message):
        complexity.time_exponents(("gat", "gin"))


@few
@given(in_dim=st.integers(1, 40), out_dim=st.integers(1, 40))
def test_the_modules_have_the_papers_parameter_counts(in_dim, out_dim):
    counts = complexity.parameter_counts(in_dim, out_dim)
    d, c = in_dim, out_dim
    assert [count.counted for count in counts] == [
        2 * c + d * c, c + 2 * d * c, 3 * d * c, c + d * c, 2 * d * c,
    ]  # fmt: skip
    assert complexity.certify_counts(counts).shown


def test_a_count_that_differs_is_not_certified():
    certificate = complexity.certify_counts([ParameterCount("GAT", "2d' + dd'", 24, 25)])
    assert not certificate.shown
    assert str(certificate).endswith("\n  GAT: 2d' + dd' = 24, the module has 25")
