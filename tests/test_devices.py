"""Which implementation computes on a device; what is refused, in one sentence."""

import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from dynagat import GATv2Conv, Graph
from dynagat.cli import app
from dynagat.nn import cache
from dynagat.nn.gcn import GCNConv
from dynagat.nn.relational import RGCNConv
from dynagat.nn.sage import SAGEConv
from dynagat.ops import devices, fused
from tests.problems import make_problem

CPU, GPU, OTHER = torch.device("cpu"), torch.device("cuda:1"), torch.device("mps")
BEST = [(CPU, "fused"), (GPU, "triton"), (torch.device("xpu:0"), "triton"), (OTHER, "streamed")]


@pytest.mark.native
@pytest.mark.parametrize(("device", "name"), BEST)
def test_each_device_has_its_implementation(device, name, monkeypatch):
    monkeypatch.setattr(devices, "HAS_TRITON", True)
    assert devices.choose(device) == name
    monkeypatch.setattr(devices, "HAS_TRITON", False)
    assert devices.choose(device) == ("streamed" if name == "triton" else name)


IMPOSSIBLE = [
    ("fused", GPU, "computes on the CPU only, but the tensors are on cuda:1"),
    ("triton", CPU, "computes on cuda and xpu devices only, but the tensors are on cpu"),
    ("triton", OTHER, "computes on cuda and xpu devices only, but the tensors are on mps"),
]


@pytest.mark.parametrize(("name", "device", "message"), IMPOSSIBLE)
def test_an_impossible_choice_is_an_error(name, device, message, monkeypatch):
    monkeypatch.setattr(devices, "forced", name)
    monkeypatch.setattr(devices, "HAS_TRITON", True)
    monkeypatch.setattr(devices, "IS_INTERPRETED", False)
    with pytest.raises(RuntimeError, match=f"DYNAGAT_BACKEND={name} {message}"):
        devices.choose(device)


def test_a_command_explains_an_impossible_choice_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "forced", "triton")
    monkeypatch.setattr(devices, "HAS_TRITON", False)
    words = ["run", "dictionary-lookup", "--smoke", "--set", "k=4", "--store", str(tmp_path / "s")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    sentence = "dynagat: DYNAGAT_BACKEND=triton needs the package triton, which is not installed"
    assert done.stderr.splitlines()[-1].startswith(sentence)


def test_triton_that_is_not_installed_is_an_error(monkeypatch):
    monkeypatch.setattr(devices, "forced", "triton")
    monkeypatch.setattr(devices, "HAS_TRITON", False)
    with pytest.raises(RuntimeError, match="needs the package triton, which is not installed"):
        devices.choose(GPU)


@pytest.mark.parametrize("name", ["reference", "streamed"])
def test_the_variable_forces_an_implementation(name):
    script = "import torch; from dynagat.ops import devices; "
    script += "print(*(devices.choose(torch.device(each)) for each in ('cpu', 'cuda')))"
    environment = {**os.environ, "DYNAGAT_BACKEND": name}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [name, name]


def test_tensors_on_two_devices_are_an_error():
    problem = make_problem("gatv2", 2, 8)
    problem.tables[2] = problem.tables[2].to("meta")
    with pytest.raises(ValueError, match="all tensors must be on one device, but they are on cpu"):
        problem.run(fused)


def test_features_on_another_device_than_the_layer_are_an_error():
    edges = torch.tensor([[0, 1], [1, 0]], device="meta")
    with pytest.raises(ValueError, match="x must be on cpu like the layer, but is on meta"):
        GATv2Conv(3, 2)(torch.ones(2, 3, device="meta"), edges)
    edge_attr = torch.ones(2, 1)
    with pytest.raises(ValueError, match="edge_attr must be on meta like x, but is on cpu"):
        GATv2Conv(3, 2, edge_dim=1).to("meta")(torch.ones(2, 3, device="meta"), edges, edge_attr)


def test_a_pair_on_two_devices_is_an_error():
    x = torch.ones(2, 3), torch.ones(2, 3, device="meta")
    with pytest.raises(ValueError, match=r"x\[1\] must be on cpu like x, but is on meta"):
        GATv2Conv((3, 3), 2)(x, torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.parametrize("make", [GCNConv, SAGEConv, partial(RGCNConv, num_relations=1)])
def test_layers_without_attention_refuse_a_graph_on_another_device(make):
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
    with pytest.raises(ValueError, match="graph must be on meta like x, but is on cpu"):
        make(3, 2).to("meta")(torch.ones(2, 3, device="meta"), graph)


def test_edges_and_relations_on_two_devices_are_an_error():
    edges, relation = torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, dtype=torch.long)
    layer = GATv2Conv(3, 2, num_relations=2)
    message = "relation must be on cpu, as query_index is, but is on meta"
    with pytest.raises(ValueError, match=message):
        layer(torch.ones(2, 3), edges, relation=relation.to("meta"))


def test_remembering_edges_on_a_gpu_does_not_wait_for_it(monkeypatch):
    monkeypatch.setattr(cache, "checksum", lambda tensor: 1 / 0)
    edges = SimpleNamespace(
        device=GPU, _version=3, data_ptr=lambda: 16, shape=(2, 5), stride=lambda: (5, 1),
        dtype=torch.int64,
    )  # fmt: skip
    assert cache._fingerprint(edges)[:2] == (3, GPU)


def test_a_graph_on_another_device_than_the_features_is_an_error():
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
    with pytest.raises(ValueError, match="edge_index must be on meta like x, but is on cpu"):
        GATv2Conv(3, 2, add_self_loops=False).to("meta")(torch.ones(2, 3, device="meta"), graph)
