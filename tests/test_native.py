"""The native module: bitwise reproducibility, threads, forks, instruction sets."""

import ctypes
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
import torch

from dynagat.graph import Graph
from dynagat.native import kernels
from dynagat.ops import fused
from tests.problems import MECHANISMS, make_problem, random_graph

pytestmark = pytest.mark.native


def big_problem(mechanism, **options):
    graph = random_graph(3000, 2500, 60_000, 1, 20_000)
    return make_problem(mechanism, 8, 8, graph=graph, dtype=torch.float32, edge_dim=2, **options)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bits_do_not_depend_on_threads_or_repetition(mechanism, threads):
    problem = big_problem(mechanism, dropout=0.2)
    threads(1)
    once = problem.results(fused)
    for num_threads in (2, 3, 2, 1):
        threads(num_threads)
        for x, y in zip(once, problem.results(fused), strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bits_of_half_precision_do_not_depend_on_threads(mechanism, dtype, threads):
    graph = random_graph(3000, 2500, 60_000, 1, 20_000)
    problem = make_problem(mechanism, 8, 32, graph=graph, dtype=torch.float32).to(dtype)
    threads(1)
    once = problem.results(fused)
    threads(2)
    for x, y in zip(once, problem.results(fused), strict=True):
        assert torch.equal(x, y)


def test_grouping_does_not_depend_on_threads(threads):
    edge_index = torch.randint(0, 1000, (2, 200_000))
    threads(1)
    once = Graph.from_edge_index(edge_index, 1000, self_loops=True)
    threads(3)
    again = Graph.from_edge_index(edge_index, 1000, self_loops=True)
    assert all(torch.equal(x, y) for x, y in zip(once.tensors, again.tensors, strict=True))


def test_the_number_of_threads_is_that_of_torch(threads):
    """If torch uses one thread, the op starts no other thread."""
    script = """
import os, torch
torch.set_num_threads(1)
from tests.test_native import big_problem
from dynagat.ops import fused
big_problem("gatv2").results(fused)
before = len(os.listdir("/proc/self/task"))
big_problem("gatv2").run(fused)
assert len(os.listdir("/proc/self/task")) == before
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_gil_is_released_while_a_kernel_runs():
    graph = random_graph(20_000, 20_000, 2_000_000)
    problem = make_problem("gatv2", 8, 16, graph=graph, dtype=torch.float32)
    done = threading.Event()

    def run():
        problem.run(fused)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
        done.wait(0.001)
    thread.join()
    assert turns > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_computes_the_same_result():
    script = """
import os, signal, sys, torch
from tests.test_native import big_problem
from dynagat.ops import fused
torch.set_num_threads(2)
problem = big_problem("gatv2")
expected, _ = problem.run(fused)
child = os.fork()
if child == 0:
    signal.alarm(60)
    out, _ = problem.run(fused)
    os._exit(0 if bytes(out.detach().numpy()) == bytes(expected.detach().numpy()) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize("name", ["baseline", "avx2"])
def test_every_instruction_set_agrees_with_the_reference(name):
    script = f"""
from dynagat.native import kernels
from dynagat.ops import fused, reference
from tests.problems import MECHANISMS, make_problem, random_graph
assert kernels.instruction_set == "{name}", kernels.instruction_set
import torch
for mechanism in MECHANISMS:
    for dtype, limit in ((torch.float64, 1e-11), (torch.float32, 1e-4), (torch.float16, 2e-2),
                         (torch.bfloat16, 1e-1)):
        for shape, edge_dim in (((8, 8), 2), ((3, 5), 2), ((1, 64), 2), ((2, 32), 0)):
            problem = make_problem(mechanism, *shape, edge_dim=edge_dim, dtype=torch.float64)
            problem = problem.to(dtype)
            results = problem.results(fused)
            exact = problem.to(torch.float64).results(reference)
            for x, y in zip(results, exact, strict=True):
                assert (x.double() - y).abs().max() <= limit * (1 + y.abs().max())
"""
    if name == "avx2" and kernels.instruction_set == "baseline":
        pytest.skip("this machine has no AVX2")
    environment = {**os.environ, "DYNAGAT_ISA": name}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_the_checksum_detects_any_change():
    numbers = torch.arange(100_001, dtype=torch.int32)
    before = kernels.checksum(numbers.data_ptr(), 400_004, 2)
    assert before == kernels.checksum(numbers.data_ptr(), 400_004, 1)
    for at in (0, 1, 50_000, 100_000):
        changed = numbers.clone()
        changed[at] += 1
        assert kernels.checksum(changed.data_ptr(), 400_004, 2) != before
    swapped = numbers.clone()
    swapped[[10, 20]] = numbers[[20, 10]]
    assert kernels.checksum(swapped.data_ptr(), 400_004, 2) != before


@contextmanager
def rewritten(arrays, bad):
    """Within the block, another thread writes a bad value into the arrays, then good ones."""
    arrays = [array.numpy() for array in arrays]  # torch does not see these writes
    valid, done = [array.copy() for array in arrays], threading.Event()

    def write():
        while not done.is_set():
            for array, good in zip(arrays, valid, strict=True):
                array[..., 100:200] = bad
                array[:] = good

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_indices_that_change_during_a_call_are_never_used_unchecked(mechanism):
    """The sanitizers watch for reads and writes outside the arrays."""
    graph = random_graph(300, 300, 20_000, 1, 5_000)
    problem = make_problem(mechanism, 2, 8, graph=graph, dtype=torch.float32, edge_dim=2)
    expected = problem.run(fused)[0]
    errors = []
    with rewritten(graph.tensors, 2**30):
        for _ in range(8):
            try:
                problem.results(fused)
            except ValueError as error:
                errors.append(str(error))
    assert all("holds an index that is out of range" in error for error in errors)
    assert torch.equal(problem.run(fused)[0], expected)


def test_edges_that_change_while_they_are_grouped_never_give_an_invalid_graph():
    edge_index = torch.randint(0, 1000, (2, 100_000))
    with rewritten([edge_index], 10**12):
        for _ in range(20):
            with suppress(ValueError):  # it met a bad value
                graph = Graph.from_edge_index(edge_index, 1000, self_loops=True)
                assert 0 <= graph.key_index.min() <= graph.key_index.max() < 1000


class Attended(torch.utils.data.Dataset):
    """The result of an op, computed in a worker process."""

    def __init__(self, problem):
        self.problem = problem

    def __len__(self):
        return 2

    def __getitem__(self, index):
        torch.set_num_threads(2)  # the loader sets one
        return self.problem.run(fused)[0].detach()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_python_threads_and_loader_workers_compute_the_same_result(threads):
    threads(2)
    problem = big_problem("gatv2")
    expected = problem.run(fused)[0].detach()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: problem.run(fused)[0].detach(), range(4)))
    results += torch.utils.data.DataLoader(Attended(problem), batch_size=None, num_workers=2)
    assert len(results) == 6
    assert all(torch.equal(result, expected) for result in results)


def test_a_call_inside_an_openmp_region_computes_the_same_result(threads):
    """As in a function that torch calls from at::parallel_for."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libgomp" in line}
    if not paths:
        pytest.skip("torch uses another OpenMP library")
    threads(2)
    problem, results = big_problem("gatv2"), []
    expected = problem.run(fused)[0]
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: results.append(problem.run(fused)[0])
    )
    ctypes.CDLL(paths.pop()).GOMP_parallel(callback, None, 2, 0)
    assert len(results) == 2
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_too_little_memory_is_an_error_in_python():
    """One channel row has 64 MB, so that the scratch memory of the threads does not fit."""
    script = """
import resource, torch
from dynagat.ops import fused
from tests.problems import make_problem, random_graph
torch.set_num_threads(2)
graph = random_graph(1, 1, 9000)  # enough edges for several tasks
problem = make_problem("dpgat", 1, 2**24, graph=graph, dtype=torch.float32)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
try:
    problem.run(fused)
except MemoryError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout == "refused\n"


@pytest.mark.parametrize("shape", [(2**62, 4), (2**31, 2**31, 2**31)])
def test_a_size_that_overflows_is_refused(shape):
    with pytest.raises(MemoryError):
        fused.empty(shape, torch.float32)
