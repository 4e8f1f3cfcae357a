"""Check an installed package; this needs only torch and numpy: `python tests/smoke.py`."""

import subprocess
import sys
from importlib.util import find_spec
from unittest.mock import patch

import torch

import dynagat
from dynagat.native import kernels
from dynagat.ops import reference


def forward_and_backward(layer, x, edge_index):
    """The output and the gradients of the parameters."""
    out = layer(x, edge_index)
    return [out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]


def check_layers(x, edge_index):
    assert kernels is not None, "the package has no native kernels"
    for kind in (dynagat.GATConv, dynagat.GATv2Conv, dynagat.DPGATConv):
        layer = kind(x.shape[1], 4, heads=2).to(x.dtype)
        ours = forward_and_backward(layer, x, edge_index)
        with patch("dynagat.ops.backend", lambda tensor: reference):
            torch.testing.assert_close(ours, forward_and_backward(layer, x, edge_index))


def check_microscope(x, edge_index):
    layer = dynagat.GATConv(x.shape[1], 4, heads=2).to(x.dtype)
    heads = str(dynagat.how_attentive(layer, (x, edge_index)))
    assert heads.count("static") >= 2, heads


def check_command():
    """Without the extra `suite`, the command says in one line what to install."""
    command = [sys.executable, "-m", "dynagat", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    if find_spec("typer") is None:
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "pip install 'dynagat[suite]'" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def small_graph():
    """Features in double precision, in which rounding errors are far below the tolerance."""
    torch.manual_seed(0)
    return torch.randn(50, 8, dtype=torch.float64), torch.randint(50, (2, 400))


if __name__ == "__main__":
    graph = small_graph()
    check_layers(*graph)
    check_microscope(*graph)
    check_command()
    versions = f"Python {sys.version.split()[0]}, torch {torch.__version__}"
    print(f"dynagat {dynagat.__version__} works: {versions}, {kernels.instruction_set}")
