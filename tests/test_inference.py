"""Layer-wise inference equals the full forward pass, in the memory of a batch."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric import nn as pyg

from dynagat import DPGATConv, GATConv, GATv2Conv, Graph
from dynagat.sampling import Neighbours, infer

NUM_NODES = 500
EDGE_INDEX = torch.randint(0, NUM_NODES - 5, (2, 4000), generator=torch.Generator().manual_seed(0))
GRAPH = Graph.from_edge_index(EDGE_INDEX, NUM_NODES)
X = torch.randn(NUM_NODES, 8, generator=torch.Generator().manual_seed(1))
CONVS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}


def as_layer(conv, act=lambda x: x):
    """A layer of dynagat or PyG in the form that `infer` calls."""

    def layer(x, graph):
        edges = graph if type(conv) in CONVS.values() else torch.stack(
            [graph.key_index.long(), graph.query_index.long()]
        )  # fmt: skip
        return act(conv((x, x[: graph.num_queries]), edges))

    return layer


def three_layers(make):
    widths = ((8, 6, 2), (12, 6, 2), (12, 3, 1))
    convs = [make(i, o, heads) for i, o, heads in widths]
    return [as_layer(conv, F.elu if n < 2 else lambda x: x) for n, conv in enumerate(convs)]


KINDS = {
    **{
        name: lambda i, o, h, kind=kind: kind(i, o, heads=h, add_self_loops=False)
        for name, kind in CONVS.items()
    },
    "PyG's GATConv": lambda i, o, h: pyg.GATConv(i, o, heads=h, add_self_loops=False),
    "PyG's SAGEConv": lambda i, o, h: pyg.SAGEConv(i, o * h),
}


def full(layers, x, graph):
    with torch.no_grad():
        for layer in layers:
            x = layer(x, graph)
    return x


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_layer_wise_inference_equals_the_full_forward_pass(make, loops):
    """In double precision: in single precision, the rounding of three layers exceeds 1e-5."""
    layers, x = three_layers(lambda *sizes: make(*sizes).double()), X.double()
    graph = GRAPH.with_self_loops() if loops else GRAPH
    expected = full(layers, x, graph)
    for batch_size in (64, 500, 4096):
        torch.testing.assert_close(infer(layers, x, graph, batch_size=batch_size), expected)
    assert not infer(layers, x, graph).requires_grad


def test_features_and_results_may_be_in_files(tmp_path):
    layers = three_layers(KINDS["gatv2"])
    expected = full(layers, X, GRAPH)
    np.save(tmp_path / "x.npy", X.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = Neighbours.from_graph(GRAPH)
    found = infer(layers, mapped, rows, batch_size=100, out=tmp_path / "out.npy")
    assert isinstance(found, np.memmap)
    torch.testing.assert_close(torch.from_numpy(np.array(found)), expected)
    assert np.array_equal(np.load(tmp_path / "out.npy"), found)
    assert {path.name for path in tmp_path.iterdir()} == {"x.npy", "out.npy"}
    for out in (torch.empty(NUM_NODES, 3), np.empty((NUM_NODES, 3), np.float32)):
        assert infer(layers, X, GRAPH, batch_size=100, out=out) is out
        torch.testing.assert_close(torch.as_tensor(out), expected)


def test_a_failure_leaves_no_file(tmp_path):
    def fail(x, graph):
        raise RuntimeError("no memory")

    layers = [as_layer(KINDS["gatv2"](8, 4, 1)), fail]
    with pytest.raises(RuntimeError, match="no memory"):
        infer(layers, X, GRAPH, out=tmp_path / "out.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"layers": []}, "layers must hold at least one layer"),
        ({"x": X[:-1]}, "row for each of 500 nodes, but has 499"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"layers": [lambda x, graph: x[:3]]}, "a row for each of 500 queries, but one returned 3"),
        ({"out": torch.empty(500, 9)}, r"out must have shape \[500, 8\], but has \[500, 9\]"),
        (
            {"graph": Graph.from_edges(EDGE_INDEX[0], EDGE_INDEX[1], 500, 600)},
            "500 queries and 600",
        ),
        (
            {"graph": Graph.from_edge_index(EDGE_INDEX[:, :0], 0), "x": X[:0]},
            "must have at least one node",
        ),
    ],
)
def test_wrong_arguments_are_refused(change, text):
    given = {"layers": [lambda x, graph: x[: graph.num_queries]], "x": X, "graph": GRAPH, **change}
    with pytest.raises(ValueError, match=text):
        infer(**given)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_that_of_a_batch_and_not_of_the_graph(tmp_path):
    """x and the outputs of two layers take 200 MB each, in files; mapped pages do not count."""
    script = f"""
import re, numpy as np, torch
from dynagat.sampling import Neighbours, infer
nodes, peak = 50_000, 0
key = np.random.default_rng(0).integers(0, nodes, nodes * 3)
rows = Neighbours.from_edges(np.repeat(np.arange(nodes), 3), key, nodes)
np.lib.format.open_memmap(r"{tmp_path}/x.npy", "w+", np.float32, (nodes, 1000))
x = np.load(r"{tmp_path}/x.npy", mmap_mode="r")

def kilobytes():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

def layer(x, graph):
    global peak
    peak = max(peak, kilobytes())
    first = graph.key_index[graph.rowptr[:-1].long()]
    return x[: graph.num_queries] + x[first.long()]

before = kilobytes()
infer([layer, layer], x, rows, batch_size=1000, out=r"{tmp_path}/out.npy")
print((peak - before) // 1024)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 190  # MB; x and each output have 200, a batch has 16


def take_queries(x, graph):
    return x[: graph.num_queries]


def test_an_unsuitable_out_is_refused(tmp_path):
    """A read-only mapped file would kill the process, and x would be overwritten too early."""
    x, layers = torch.randn(9, 2), [take_queries]
    np.save(tmp_path / "out.npy", np.zeros((9, 2), np.float32))
    with pytest.raises(ValueError, match="out must be a writeable array"):
        infer(layers, x, lonely(9), out=np.load(tmp_path / "out.npy", mmap_mode="r"))
    for out in (x, x.numpy()):
        with pytest.raises(ValueError, match="out must not share memory with x"):
            infer(layers, x, lonely(9), out=out)
    with pytest.raises(TypeError, match=r"out must hold torch\.float32, but holds torch\.int64"):
        infer(layers, x, lonely(9), out=torch.zeros(9, 2, dtype=torch.long))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        infer(layers, x, lonely(9), out=tmp_path / "none" / "out.npy")
    with pytest.raises(ValueError, match="prefetch must be"):
        infer(layers, x, lonely(9), prefetch=-1)


@pytest.mark.parametrize("to_file", [False, True])
def test_rows_that_change_their_shape_are_refused(tmp_path, to_file):
    def grow(x, graph):
        widths.append(0)
        return torch.zeros(graph.num_queries, len(widths))

    widths: list[int] = []
    out = tmp_path / "out.npy" if to_file else None
    with pytest.raises(
        ValueError, match=r"one type and shape, but one returned .* \[1\] and .* \[2\]"
    ):
        infer([grow], torch.randn(9, 2), lonely(9), batch_size=4, out=out)
    assert list(tmp_path.iterdir()) == []


def lonely(num_nodes):
    return Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), num_nodes)
