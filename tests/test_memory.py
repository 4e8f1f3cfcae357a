"""Large results use memory that is kept from call to call and never shared by two tensors."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from dynagat import GATv2Conv, native
from dynagat.ops import fused, project

pytestmark = pytest.mark.native


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_projections_equal_those_of_torch(batch, bias, dtype):
    x = torch.randn(*batch, 12_000, 20, dtype=dtype, requires_grad=True)
    weight = torch.randn(256, 20, dtype=dtype, requires_grad=True)
    b = torch.randn(256, dtype=dtype, requires_grad=True) if bias else None
    assert project._is_pooled(x, weight)
    leaves = [x, weight] if b is None else [x, weight, b]
    results = []
    for linear in (project.project, F.linear):
        out = linear(x, weight, b)
        results.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected)


def test_a_projection_can_be_differentiated_twice():
    x = torch.randn(20_000, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(64, 3, dtype=torch.float64, requires_grad=True)
    (dx,) = torch.autograd.grad(
        project.project(x, weight, None).square().sum(), x, create_graph=True
    )
    (result,) = torch.autograd.grad(dx.sum(), weight)
    (dx,) = torch.autograd.grad(F.linear(x, weight).square().sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(dx.sum(), weight)
    torch.testing.assert_close(result, expected)


def test_memory_is_reused_once_no_tensor_holds_it():
    shape = (5_000, 5_000)  # a size that no other test uses
    first = fused.empty(shape, torch.float32)
    address = first.data_ptr()
    view = first[10:]
    view.fill_(7.0)
    del first
    other = fused.empty(shape, torch.float32)
    assert other.data_ptr() != address  # a view still holds it
    other.fill_(1.0)
    assert (view == 7).all()
    del view
    assert fused.empty(shape, torch.float32).data_ptr() == address


def test_results_on_pooled_memory_behave_like_ordinary_tensors():
    layer = GATv2Conv(8, 16, heads=8)
    x, edge_index = torch.randn(10_000, 8), torch.randint(0, 10_000, (2, 50_000))
    out = layer(x, edge_index)
    kept = out.detach().clone()
    again = copy.deepcopy(out.detach())
    for _ in range(3):  # later calls must not overwrite an earlier result
        layer(x, edge_index).sum().backward()
    assert torch.equal(out, kept)
    assert torch.equal(again, kept)
    out.relu_()
    assert out.untyped_storage().nbytes() >= out.numel() * 4


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("keep", ["1", "0"])
def test_keep_memory_decides_whether_memory_is_returned_to_the_system(keep):
    script = """
import torch
from dynagat.ops import fused
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
held = fused.empty((64, 1 << 20), torch.float32).fill_(1.0)
assert resident() - before > 200e6
del held
print(int(resident() - before > 200e6))
"""
    environment = {**os.environ, "DYNAGAT_KEEP_MEMORY": keep}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == keep


def test_kept_memory_is_free_for_other_processes():
    script = """
import torch
from dynagat.ops import fused
def lazily_free():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("LazyFree"))
held = fused.empty((64, 1 << 20), torch.float32).fill_(1.0)
before = lazily_free()
del held
print(lazily_free() - before)
"""
    path = Path("/proc/self/smaps_rollup")
    if not path.exists() or "LazyFree" not in path.read_text():
        pytest.skip("this system has no MADV_FREE")
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert int(done.stdout) > 200e6


CGROUPS = {
    "version 2": ("0::/job/task\n", {"job/memory.max": "4096", "job/task/memory.max": "max"}),
    "version 1": (
        "4:memory:/job\n3:cpu:/\n0::/\n",
        {"memory/memory.limit_in_bytes": "8192", "memory/job/memory.limit_in_bytes": "4096"},
    ),
    "in a container": ("4:cpu,memory:/not/mounted\n", {"memory/memory.limit_in_bytes": "4096"}),
}


@pytest.mark.parametrize("case", CGROUPS)
def test_the_memory_limit_is_that_of_the_cgroup(case, tmp_path):
    groups, limits = CGROUPS[case]
    files = {"proc/self/cgroup": groups} | {f"sys/fs/cgroup/{k}": v for k, v in limits.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert native.memory_limit(tmp_path) == 4096


def test_without_a_cgroup_the_memory_limit_is_that_of_the_machine(tmp_path):
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert native.memory_limit(tmp_path) == total
