"""The kernels compile for GPUs that are not here, and no register is spilled."""

import json

import pytest

pytest.importorskip("triton", reason="needs the extra gpu-check")

from bench.gpu import DTYPES, JSON, Compiled, compile_all, hash_of_sources, jobs, render

QUICK = [("sm_80", "gatv2", (8, 32)), ("sm_90", "gatv2", (1, 64)), ("gfx942", "gatv2", (8, 32))]
QUICK += [("sm_80", "gat", (8, 8)), ("sm_90", "dpgat", (1, 128))]


def spilled(target, mechanism, shape, dtype, options):
    found = list(compile_all(target, mechanism, shape, dtype, options))
    assert {"attend_kernel", "by_query_kernel", "by_key_kernel"} <= {one.kernel for one in found}
    assert all(one.registers > 0 for one in found)
    return [one for one in found if one.spilled]


@pytest.mark.parametrize(("target", "mechanism", "shape"), QUICK)
def test_some_kernels_compile_without_spills(target, mechanism, shape):
    assert spilled(target, mechanism, shape, DTYPES[0], "all") == []


def test_the_page_is_computed_from_the_committed_numbers():
    known = json.loads(JSON.read_text())
    kernels = [Compiled(*one) for one in known["kernels"]]
    message = "docs/gpu.md is out of date: run `make gpu-check`"
    assert known["sources"] == hash_of_sources(), f"a kernel has changed, and {message}"
    assert render(kernels, known["triton"]) == JSON.with_suffix(".md").read_text(), message
    assert [one for one in kernels if one.spilled] == []
    assert len(set(jobs())) == 4 * 3 * 7 * 3 * 2
