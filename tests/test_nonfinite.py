"""NaN and infinities come out of the kernels where they come out of the reference.

Each case puts NaN (any sign and payload) and infinities at random places of the inputs. Results in
half precision are compared with the reference in single precision, in which the kernels add.
"""

import os
import random
import subprocess
import sys

import pytest
import torch

from dynagat.graph import Graph
from dynagat.native import INSTRUCTION_SETS, kernels
from dynagat.ops import fused, reference
from tests.problems import MECHANISMS, make_problem, random_graph

pytestmark = pytest.mark.native

DTYPES = [torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16]
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def random_nan(dtype, rng):
    """NaN with a random sign and payload, as the integer that has the same bits."""
    width = 8 * dtype.itemsize
    payload = {torch.float32: 23, torch.float64: 52, torch.float16: 10, torch.bfloat16: 7}[dtype]
    bits = (1 << (width - 1)) - (1 << payload) | rng.randrange(1, 1 << payload)
    return bits if rng.getrandbits(1) else bits - (1 << (width - 1))


def spoil(tensor, rng):
    flat = tensor.detach().view(-1)
    at = rng.randrange(flat.numel())
    if rng.getrandbits(1):
        flat.view(BITS[tensor.dtype.itemsize])[at] = random_nan(tensor.dtype, rng)
    elif rng.getrandbits(1):
        flat[at] = rng.choice([torch.inf, -torch.inf])
    else:
        tensor.detach()[rng.randrange(tensor.shape[0])] = rng.choice([torch.inf, -torch.inf])


def random_problem(seed, relations=1):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    options = {"dropout": rng.choice([0.3, 0.9])} if rng.random() < 0.25 else {}
    mechanism = rng.choice(MECHANISMS)
    if mechanism != "dpgat":
        options["slope"] = rng.choice([0.2, 0.2, 0.0, -0.3, 1.7])
    sizes = rng.randrange(1, 30), rng.randrange(1, 30), rng.randrange(150)
    problem = make_problem(
        mechanism,
        rng.choice([1, 2, 3, 8]),
        rng.choice([1, 5, 8, 16, 32, 64]),
        graph=random_graph(*sizes, relations, hub=4200 if rng.random() < 0.01 else 0),
        batch=rng.choice([(), (), (2,)]),
        edge_dim=rng.choice([0, 0, 2]),
        own_value=rng.random() < 0.3,
        dtype=torch.float32,
        **options,
    ).to(rng.choice(DTYPES))
    for _ in range(rng.randrange(1, 5)):
        tensors = [tensor for tensor in problem.leaves if tensor.numel()]
        spoil(rng.choice(tensors), rng)
    return problem


def pattern(tensor):
    """0 where the number is finite, 1 and 2 for the two infinities, 3 for NaN."""
    infinite = (tensor == torch.inf) * 1 + (tensor == -torch.inf) * 2
    return infinite + tensor.isnan() * 3


def count_differences(seeds, **options):
    """In how many of these cases does the pattern of any result differ from the reference's?"""
    count = 0
    for seed in seeds:
        problem = random_problem(seed, **options)
        results = problem.results(fused)
        is_half = problem.leaves[0].dtype.itemsize == 2
        expected = (problem.to(torch.float32) if is_half else problem).results(reference)
        pairs = zip(results, expected, strict=True)
        count += any(not torch.equal(pattern(x), pattern(y.to(x.dtype))) for x, y in pairs)
    return count


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_nan_and_infinities_are_where_the_reference_has_them(isa):
    if isa == kernels.instruction_set:
        assert count_differences(range(100)) == 0
        return
    if INSTRUCTION_SETS.index(isa) < INSTRUCTION_SETS.index(kernels.instruction_set):
        pytest.skip(f"this machine has no {isa}")
    script = "from tests.test_nonfinite import count_differences as c; assert c(range(50)) == 0"
    environment = {**os.environ, "DYNAGAT_ISA": isa}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_nan_with_payload_stays_nan(mechanism):
    problem = make_problem(mechanism, 1, 8, dtype=torch.float32)
    problem.tables[1].detach().view(torch.int32).fill_(0x7FC00001)
    out, weights = problem.run(fused, return_weights=True)
    assert out[problem.graph.rowptr.diff() > 0].isnan().all()
    assert weights.isnan().all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nan_in_a_node_without_edges_reaches_no_gradient_of_others(mechanism):
    query, key = torch.randint(0, 10, (2, 40))
    larger = Graph.from_edges(query, key, 11)  # node 10 has no edges
    problem = make_problem(mechanism, 2, 8, graph=larger, dtype=torch.float32)
    for table in problem.tables[:2]:
        table.detach()[-1] = torch.nan
    for result in problem.results(fused)[2:]:
        assert result.isfinite().all()


def test_large_values_do_not_overflow_before_they_are_averaged():
    problem = make_problem("gat", 2, 8, dtype=torch.float32)
    problem.tables[2].detach().fill_(3e38)
    out, _ = problem.run(fused)
    assert out.isfinite().all()
