"""A graph larger than memory is sampled from files: same results, and memory that stays bounded."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from dynagat.benchmarks.node_data import NodeData
from dynagat.data import rows, scratch
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes, open_graph
from dynagat.experiment import run
from dynagat.prediction.nodes import NodePrediction, NodeTask
from dynagat.sampling import NeighborLoader, Neighbours
from tests.node_graphs import short, tiny


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def nothing_in_memory(monkeypatch):
    monkeypatch.setenv("DYNAGAT_MEMORY", "0")


def graph(num_nodes=700, num_edges=5_000):
    """With duplicates, self-loops, a hub, and nodes without edges."""
    draw = np.random.default_rng(0)
    key, query = draw.integers(0, num_nodes - 50, (2, num_edges), np.int32)
    query[:900] = 17
    key[900:950] = query[900:950]
    return GraphData("large", {NODE: Nodes(num_nodes)}, {EDGE: Edges(key, query)})


@pytest.mark.parametrize("bucket", [1, 500, 1 << 20])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_rows_on_disk_equal_those_in_memory(loops, both, bucket, monkeypatch, nothing_in_memory):
    monkeypatch.setattr(rows, "BUCKET", bucket)
    monkeypatch.setattr(rows, "BLOCK", 640)
    monkeypatch.setattr(rows, "BINS", 64)
    data = graph().save()
    on_disk = Neighbours.on_disk(data, both=both, loops=loops, edge_id=not both)
    expected = data.symmetric() if both else data
    expected = expected if loops else expected.without_loops()
    edges = expected.sole_edges
    in_memory = Neighbours.from_edges(edges.query_index, edges.key_index, data.num_nodes)
    assert on_disk is not None
    assert np.array_equal(on_disk.rowptr, in_memory.rowptr)
    assert np.array_equal(on_disk.key_index, in_memory.key_index)
    if not both:
        assert on_disk.edge_id is not None
        given = data.sole_edges
        query = np.repeat(np.arange(data.num_nodes), np.diff(on_disk.rowptr))
        assert np.array_equal(given.query_index[on_disk.edge_id], query)
        assert np.array_equal(given.key_index[on_disk.edge_id], on_disk.key_index)
        ids_by_query = np.split(on_disk.edge_id, on_disk.rowptr[1:-1])
        assert all((np.diff(ids) > 0).all() for ids in ids_by_query)  # in the order of the graph


def test_rows_are_sorted_once_and_removed_with_the_graph(cache, nothing_in_memory, monkeypatch):
    data = graph().save()
    Neighbours.on_disk(data)
    monkeypatch.setattr(rows, "_write", None)  # calling it again would fail
    assert Neighbours.on_disk(data) is not None
    assert data.folder is not None
    rows.remove_rows(data.folder)
    assert not list((cache / "rows").iterdir())


def test_a_graph_that_fits_or_is_not_stored_has_no_rows_on_disk(cache):
    assert Neighbours.on_disk(graph().save()) is None
    assert not (cache / "rows").exists()


def test_rows_that_were_not_finished_are_not_used(cache, nothing_in_memory, monkeypatch):
    data = graph().save()
    with monkeypatch.context() as patch:
        patch.setattr(rows, "_sorted", None)
        with pytest.raises(TypeError):
            Neighbours.on_disk(data)
    assert Neighbours.on_disk(data) is not None
    assert not list((cache / "rows").glob("*/buckets"))


def test_a_stored_graph_is_sampled_alike_from_memory_and_from_disk(monkeypatch):
    data = graph().save()
    seen = []
    for limit in ("1G", "0"):
        monkeypatch.setenv("DYNAGAT_MEMORY", limit)
        loader = NeighborLoader(data, [4, 3], np.arange(60), batch_size=20, seed=1)
        seen.append([(batch.node_id.tolist(), batch.edge_id[0].tolist()) for batch in loader])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("more", [(), ("eval_neighbours=4,4,4",), ("class_weights=balanced",)])
def test_a_run_from_disk_gives_the_same_record(more, monkeypatch):
    tiny("mine").save()
    benchmark = short("ogbn-products", "gatv2", "dataset=mine", *more)
    in_memory = run(benchmark, "gatv2", 0)
    monkeypatch.setenv("DYNAGAT_MEMORY", "0")
    from_disk = run(benchmark, "gatv2", 0)
    assert from_disk.weights == in_memory.weights
    assert from_disk.metrics == in_memory.metrics
    for one, other in zip(from_disk.history, in_memory.history, strict=True):
        losses = one.pop("valid_loss"), other.pop("valid_loss")  # means of means
        assert losses == pytest.approx(losses[::-1], nan_ok=True)
        assert one == pytest.approx(other, nan_ok=True, abs=0)


def test_both_directions_come_from_disk_too(nothing_in_memory):
    tiny("directed").save()
    problem = NodeData("directed").load(0)
    assert isinstance(problem.edges, Neighbours)
    expected = NodeData("directed").directed(open_graph("directed")).without_loops().graph()
    assert torch.equal(problem.whole_edges.key_index, expected.key_index)
    assert torch.equal(problem.whole_edges.rowptr, expected.rowptr)


def test_features_of_another_type_are_cast_batch_by_batch(nothing_in_memory):
    data = tiny("half")
    nodes = data.nodes[NODE]
    half = {**nodes.arrays, "x": np.asarray(nodes.arrays["x"], np.float16)}
    replace(data, nodes={NODE: replace(nodes, arrays=half)}).save()
    problem = NodeData("half").load(0)
    assert problem.x.dtype == torch.float16
    benchmark = short("ogbn-products", "gatv2", "dataset=half")
    network = benchmark.network.build(problem, "gatv2")
    prediction = NodePrediction(problem, NodeTask(neighbours=(4, 4, 4)))
    (batch,) = prediction.batches(torch.Generator())
    assert torch.isfinite(prediction.loss(network, batch)[0])
    assert torch.isfinite(torch.tensor(prediction.evaluate(network, "valid"))).all()


def test_the_limit_is_a_number_of_bytes(monkeypatch):
    for text, size in (("", 1 << 30), ("123", 123), ("2k", 2048), ("3M", 3 << 20), ("1G", 1 << 30)):
        monkeypatch.setenv("DYNAGAT_MEMORY", text)
        assert scratch.memory_limit() == size
    monkeypatch.setenv("DYNAGAT_MEMORY", "much")
    with pytest.raises(ValueError, match="number of bytes such as 500M or 2G, but is 'much'"):
        scratch.memory_limit()


TRAIN = """
import sys, threading, time
from pathlib import Path

import numpy as np
import torch

from dynagat.benchmarks.ogbn_products import OGBN_PRODUCTS
from dynagat.data import arrays, store
from dynagat.experiment.settings import with_values
from dynagat.training import Schedule, fit

NODES, FEATURES, EDGES, MIB = 1 << 17, 512, 1 << 17, 1 << 20
draw = np.random.default_rng(0)
with arrays.write_folder(store.store_folder() / "big", store.KIND) as writer:
    writer.make("nodes/node/x", np.float32, (NODES, FEATURES))  # zeros that take 256 MiB
    writer.add("nodes/node/y", np.arange(NODES) % 3)
    for end in ("key", "query"):
        writer.add(f"edges/node__to__node/{end}_index", draw.integers(0, NODES, EDGES, np.int32))
    for n, part in enumerate(store.SPLITS):
        writer.add(f"split/{part}", np.arange(600 * n, 600 * n + 600))
    task = {"kind": "classification", "classes": ["a", "b", "c"]}
    writer.about = {"name": "big", "nodes": {"node": NODES}, "edges": [["node", "to", "node"]],
                    "about": {"task": task}}

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

peak = before = anonymous()

def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
values = {"data.dataset": "big", "network.dim": 8, "network.heads": 2, "task.neighbours": (4, 4, 4)}
settings = with_values(OGBN_PRODUCTS.settings, values)
problem = settings.data.load(0)
network = settings.network.build(problem, "gatv2")
schedule = Schedule(batch_size=100, max_rounds=1)
outcome = fit(network, settings.task.prepare(problem, schedule), schedule, torch.Generator())
assert outcome.history[0].valid >= 0
print((peak - before) // MIB)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RssAnon is Linux's")
def test_training_and_exact_evaluation_never_copy_the_features(cache):
    """Of 256 MiB of features, the process keeps far less in memory; mapped pages don't count."""
    environment = {**os.environ, "DYNAGAT_CACHE": str(cache), "DYNAGAT_MEMORY": "3M"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200
