"""Loaders: batches for dynagat's layers and for PyG code, prefetched and reproducible."""

import copy
import threading
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import k_hop_subgraph, trim_to_layer

from dynagat import GATv2Conv, Graph
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes
from dynagat.sampling import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    NeighborLoader,
    Neighbours,
)
from dynagat.sampling.saint import normalise

NUM_NODES, NUM_EDGES = 300, 2500
SAINTS = {
    "walks": lambda data, **options: GraphSAINTRandomWalkSampler(data, 20, 3, 4, **options),
    "nodes": lambda data, **options: GraphSAINTNodeSampler(data, 60, 4, **options),
    "edges": lambda data, **options: GraphSAINTEdgeSampler(data, 30, 4, **options),
}


def make_data():
    """Node i has x = i in its first column, edge e has edge_attr = e."""
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(0, NUM_NODES - 10, (2, NUM_EDGES), generator=generator)
    x = torch.cat([torch.arange(NUM_NODES)[:, None].float(),
                   torch.randn(NUM_NODES, 7, generator=generator)], 1)  # fmt: skip
    data = Data(x=x, edge_index=edge_index, y=torch.arange(NUM_NODES) % 5)
    data.edge_attr = torch.arange(NUM_EDGES)[:, None].float()
    data.train_mask = torch.arange(NUM_NODES) % 3 == 0
    data.name = "made up"
    return data


DATA = make_data()
GRAPH = Graph.from_edge_index(DATA.edge_index, NUM_NODES)
STORED = GraphData(
    "made-up",
    {NODE: Nodes(NUM_NODES, {"x": DATA.x.numpy(), "y": DATA.y.numpy()})},
    {EDGE: Edges(*DATA.edge_index.numpy())},
)


def sampling_threads():
    return [t for t in threading.enumerate() if t.name.startswith("dynagat-sampling")]


def assert_same_batches(one, other):
    assert len(one) == len(other)
    for x, y in zip(one, other, strict=True):
        assert torch.equal(x.n_id, y.n_id)
        assert torch.equal(x.edge_index, y.edge_index)
        assert torch.equal(x.e_id, y.e_id)


# PyG's Data


@pytest.mark.parametrize("replace", [False, True])
def test_a_data_batch_has_all_attributes_of_its_nodes_and_edges(replace):
    loader = NeighborLoader(DATA, [4, 3], batch_size=64, replace=replace, shuffle=True)
    seen = []
    for batch in loader:
        assert torch.equal(batch.x, DATA.x[batch.n_id])
        assert torch.equal(batch.y, DATA.y[batch.n_id])
        assert torch.equal(batch.train_mask, DATA.train_mask[batch.n_id])
        assert torch.equal(batch.edge_attr, DATA.edge_attr[batch.e_id])
        assert torch.equal(batch.n_id[batch.edge_index], DATA.edge_index[:, batch.e_id])
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        assert (batch.name, batch.num_nodes) == ("made up", len(batch.n_id))
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges
        seen += batch.input_id.tolist()
    assert sorted(seen) == list(range(NUM_NODES))
    assert seen != sorted(seen)
    assert DATA.num_nodes == NUM_NODES
    assert "n_id" not in DATA


def test_a_data_without_features_keeps_its_number_of_nodes():
    data = Data(edge_index=DATA.edge_index, num_nodes=NUM_NODES)
    for batch in NeighborLoader(data, [2], batch_size=100):
        assert batch.num_nodes == len(batch.n_id)


class Sage(torch.nn.Module):
    """Plain PyG code, with trimming."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(8, 16), SAGEConv(16, 16), SAGEConv(16, 5)])

    def forward(self, x, edge_index, nodes=None, edges=None):
        for n, conv in enumerate(self.convs):
            if nodes is not None:
                x, edge_index, _ = trim_to_layer(n, nodes, edges, x, edge_index)
            x = conv(x, edge_index).relu()
        return x


def test_pyg_code_with_all_neighbours_gives_the_output_of_the_full_graph():
    model = Sage()
    expected = model(DATA.x, DATA.edge_index)
    for batch in NeighborLoader(DATA, [-1, -1, -1], input_nodes=DATA.train_mask, batch_size=40):
        seeds = batch.n_id[: batch.batch_size]
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        sizes = batch.num_sampled_nodes, batch.num_sampled_edges
        trimmed = model(batch.x, batch.edge_index, *sizes)[: batch.batch_size]
        torch.testing.assert_close(out, expected[seeds])
        torch.testing.assert_close(trimmed, expected[seeds])
    seeds = torch.arange(40)
    found = next(iter(NeighborLoader(DATA, [-1, -1], batch_size=40)))
    subset = k_hop_subgraph(seeds, 2, DATA.edge_index, num_nodes=NUM_NODES)[0]
    assert torch.equal(found.n_id.sort().values, subset)


IGNORED = {"persistent_workers": True, "pin_memory": True, "is_sorted": True,
           "filter_per_worker": True, "prefetch_factor": 2}  # fmt: skip
OFF = {"input_time": None, "subgraph_type": "directional", "disjoint": False, "directed": True,
       "temporal_strategy": "uniform", "time_attr": None, "weight_attr": None, "sampler": None,
       "generator": None}  # fmt: skip


@pytest.mark.parametrize("options", [IGNORED, OFF, {"subgraph_type": SubgraphType.directional}])
def test_pyg_options_that_do_not_change_batches_are_accepted(options):
    given = {"num_neighbors": [3, 2], "batch_size": 32, "num_workers": 2}
    assert_same_batches(
        list(NeighborLoader(DATA, **given, **options)), list(NeighborLoader(DATA, **given))
    )


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"disjoint": True}, ValueError, "disjoint must be False, .* but is True"),
        ({"directed": False}, ValueError, "directed must be True, .* but is False"),
        ({"subgraph_type": "induced"}, ValueError, "must be 'directional', .* but is 'induced'"),
        ({"weight_attr": "edge_attr"}, ValueError, "weight_attr must be None"),
        ({"time_attr": "time"}, ValueError, "time_attr must be None"),
        ({"sampler": [0, 0, 1]}, ValueError, r"sampler must be None, .* but is \[0, 0, 1\]"),
        ({"generator": torch.Generator()}, ValueError, "generator must be None"),
        ({"batchsize": 3}, TypeError, "unknown option batchsize"),
        ({"input_nodes": ("paper", DATA.train_mask)}, TypeError, "names the type 'paper'"),
        ({"input_nodes": "paper"}, TypeError, "names the type 'paper'"),
    ],
)
def test_pyg_options_that_would_change_batches_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        NeighborLoader(DATA, [2], **options)


def test_graphsaint_accepts_pyg_options_as_well():
    options = {"log": False, "shuffle": True, "save_dir": None, "pin_memory": True}
    assert_same_batches(list(SAINTS["walks"](DATA, **options)), list(SAINTS["walks"](DATA)))
    with pytest.raises(ValueError, match="save_dir must be None"):
        SAINTS["walks"](DATA, save_dir="here")


def test_integers_of_numpy_and_torch_are_accepted():
    expected = list(NeighborLoader(DATA, [3, 2], batch_size=32, seed=4))
    for fanouts in (np.array([3, 2]), torch.tensor([3, 2]), [np.int64(3), np.int32(2)]):
        loader = NeighborLoader(DATA, fanouts, batch_size=np.int64(32), seed=np.int64(4))
        assert_same_batches(list(loader), expected)


def test_a_huge_fan_out_means_all_neighbours():
    expected = list(NeighborLoader(DATA, [-1, -1], batch_size=64))
    assert_same_batches(list(NeighborLoader(DATA, [2**31, 2**80], batch_size=64)), expected)


def test_input_ids_are_those_of_pyg():
    """Node indices for a mask, positions for a list of indices."""
    nodes = DATA.train_mask.nonzero().flatten()
    for given, ids in ((DATA.train_mask, nodes), (nodes, torch.arange(len(nodes)))):
        loader = NeighborLoader(DATA, [2], given, batch_size=32, shuffle=True)
        for batch in loader:
            seeds = batch.n_id[: batch.batch_size]
            assert torch.equal(ids[torch.searchsorted(nodes, seeds)], batch.input_id)
        assert len(loader.dataset) == len(nodes)


def test_changes_to_the_data_of_a_loader_show_in_its_batches():
    """PyG's example of GraphSAGE on Reddit does this for inference."""
    loader = NeighborLoader(copy.copy(DATA), [-1], batch_size=64, persistent_workers=True)
    del loader.data.x, loader.data.y
    loader.data.num_nodes = NUM_NODES
    loader.data.n_id = torch.arange(NUM_NODES)
    for batch in loader:
        assert "x" not in batch
        assert batch.num_nodes == len(batch.n_id)
        assert torch.equal(batch.n_id[batch.edge_index], DATA.edge_index[:, batch.e_id])


# Our batches


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [(8, 4), (8, 4), (8, 5)]
        self.convs = torch.nn.ModuleList(
            GATv2Conv(i, o, heads=2 if n < 2 else 1, add_self_loops=False)
            for n, (i, o) in enumerate(widths)
        )

    def forward(self, x, graphs):
        for n, (conv, graph) in enumerate(zip(self.convs, graphs, strict=True)):
            x = conv((x, x[: graph.num_queries]), graph)
            x = F.elu(x) if n < 2 else x
        return x


@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_all_neighbours_in_three_layers_give_the_output_of_the_full_graph(layered, loops):
    model, full = Network(), GRAPH.with_self_loops() if loops else GRAPH
    expected = model(DATA.x, [full] * 3)
    loader = NeighborLoader(full, [-1] * 3, batch_size=70, shuffle=True, layered=layered)
    for batch in loader:
        out = model(DATA.x[batch.node_id], batch.graphs)
        torch.testing.assert_close(out, expected[batch.node_id[: batch.num_seeds]])


@pytest.mark.parametrize("data", [STORED, DATA], ids=["GraphData", "Data"])
def test_a_batch_has_a_graph_per_layer_whose_queries_are_the_first_keys(data):
    for batch in NeighborLoader(data, [4, 3, 2], batch_size=50, layered=True, seed=3):
        assert torch.equal(batch.x, DATA.x[batch.node_id])
        assert torch.equal(batch.y, DATA.y[batch.node_id])
        assert batch.graphs[0].num_keys == batch.num_nodes
        assert batch.graphs[-1].num_queries == batch.num_seeds == len(batch.input_id)
        for graph, edge_id, fanout in zip(batch.graphs, batch.edge_id, (2, 3, 4), strict=True):
            key, query = DATA.edge_index[:, edge_id]
            assert torch.equal(batch.node_id[graph.key_index.long()], key)
            assert torch.equal(batch.node_id[graph.query_index.long()], query)
            assert int(graph.rowptr.diff().max()) <= fanout
        for outer, inner in zip(batch.graphs, batch.graphs[1:], strict=False):
            assert outer.num_queries == inner.num_keys
        with pytest.raises(ValueError, match="no single Data"):
            batch.to_pyg()


def test_a_batch_gives_the_gradients_of_its_data():
    """The same training step on the graphs of a batch and on its Data, trimmed by layer."""
    ours = NeighborLoader(STORED, [4, 3, 2], batch_size=64, seed=5, shuffle=True)
    theirs = NeighborLoader(DATA, [4, 3, 2], batch_size=64, seed=5, shuffle=True)
    model = Network().double()
    for batch, data in zip(ours, theirs, strict=True):
        turned = batch.to_pyg()
        assert_same_batches([turned], [data])
        assert turned.num_sampled_nodes == data.num_sampled_nodes
        x, grads = batch.x.double(), []
        turned.x = x
        for out in (model(x, batch.graphs), _through_trimmed(model, turned)):
            model.zero_grad()
            F.cross_entropy(out[: batch.num_seeds], batch.y[: batch.num_seeds]).backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for ours_, theirs_ in zip(*grads, strict=True):
            torch.testing.assert_close(ours_, theirs_)


def _through_trimmed(model, data):
    x, edge_index = data.x, data.edge_index
    sizes = data.num_sampled_nodes, data.num_sampled_edges
    for n, conv in enumerate(model.convs):
        x, edge_index, _ = trim_to_layer(n, *sizes, x, edge_index)
        x = conv(x, edge_index)
        x = F.elu(x) if n < 2 else x
    return x


def test_self_loops_added_to_a_batch_are_one_per_query():
    batch = next(iter(NeighborLoader(GRAPH, [3, 3], batch_size=20))).with_self_loops()
    for graph in batch.graphs:
        own = graph.query_index == graph.key_index
        assert torch.equal(graph.query_index[own], torch.arange(graph.num_queries).int())


# Epochs


def make_loader(**options):
    return NeighborLoader(DATA, [3, 2], batch_size=32, shuffle=True, seed=9, **options)


def test_epochs_differ_and_each_can_be_repeated():
    loader = make_loader()
    first, second = list(loader), list(loader)
    assert not torch.equal(first[0].n_id, second[0].n_id)
    loader.set_epoch(1)
    assert_same_batches(list(loader), second)
    assert_same_batches(list(make_loader()), first)
    assert loader.epoch == 2


def test_batches_do_not_depend_on_threads_or_prefetching(threads):
    threads(1)
    expected = list(make_loader(prefetch=0))
    for count in (1, 2, 3):
        threads(count)
        for prefetch in (0, 1, 2, 7):
            assert_same_batches(list(make_loader(prefetch=prefetch)), expected)
    assert_same_batches(list(make_loader(num_workers=0)), expected)
    assert_same_batches(list(make_loader(num_workers=4)), expected)
    assert torch.get_num_threads() == 3


def test_the_length_is_the_number_of_batches():
    for drop_last, count in ((False, 10), (True, 9)):
        loader = NeighborLoader(DATA, [2], batch_size=32, drop_last=drop_last)
        assert len(loader) == len(list(loader)) == count


def test_no_thread_remains_after_a_loop_ends_early():
    for _ in make_loader(prefetch=4):
        break
    assert sampling_threads() == []
    iterator = iter(make_loader(prefetch=4))
    next(iterator)
    del iterator
    assert sampling_threads() == []
    with pytest.raises(ZeroDivisionError):
        _divide_batches_by_zero()
    assert sampling_threads() == []


def _divide_batches_by_zero():
    for batch in make_loader():
        batch.num_nodes / 0


def test_errors_in_the_background_are_raised_in_the_loop():
    def fail(batch):
        if 64 in batch.input_id:
            raise RuntimeError("the third batch")
        return batch

    loader = NeighborLoader(DATA, [2], batch_size=32, transform=fail)
    seen = []
    with pytest.raises(RuntimeError, match="the third batch"):
        seen.extend(loader)
    assert len(seen) == 2
    assert sampling_threads() == []


def test_no_more_batches_are_prepared_than_prefetch_says():
    prepared = []
    loader = NeighborLoader(DATA, [2], batch_size=10, transform=prepared.append, prefetch=3)
    iterator = iter(loader)
    next(iterator)
    time.sleep(0.1)
    assert len(prepared) <= 4


def test_a_transform_is_applied():
    loader = NeighborLoader(GRAPH, [2], batch_size=50, transform=lambda batch: batch.num_seeds)
    assert list(loader) == [50] * 6


# GraphSAINT


@pytest.mark.parametrize("make", SAINTS.values(), ids=SAINTS)
def test_a_subgraph_has_all_edges_among_its_nodes(make):
    key, query = DATA.edge_index
    count = 0
    for batch in make(DATA):
        inside = torch.isin(key, batch.n_id) & torch.isin(query, batch.n_id)
        assert torch.equal(batch.e_id.sort().values, inside.nonzero().flatten())
        assert torch.equal(batch.n_id[batch.edge_index], DATA.edge_index[:, batch.e_id])
        assert torch.equal(batch.n_id, batch.n_id.unique())
        assert torch.equal(batch.x, DATA.x[batch.n_id])
        assert torch.equal(batch.edge_attr, DATA.edge_attr[batch.e_id])
        count += 1
    assert count == len(make(DATA)) == 4


@pytest.mark.parametrize("make", SAINTS.values(), ids=SAINTS)
def test_subgraphs_of_a_graph_equal_those_of_its_data_on_any_threads(make, threads):
    for count in (1, 3):
        threads(count)
        for batch, data in zip(make(STORED, prefetch=count - 1), make(DATA), strict=True):
            assert_same_batches([batch.to_pyg()], [data])
            assert torch.equal(batch.x, data.x)
            graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
            for x, y in zip(batch.graphs[0].tensors, graph.tensors, strict=True):
                assert torch.equal(x, y)


def test_epochs_of_subgraphs_differ_and_each_can_be_repeated():
    loader = SAINTS["walks"](DATA)
    first, second = list(loader), list(loader)
    assert not torch.equal(first[0].n_id, second[0].n_id)
    loader.set_epoch(0)
    assert_same_batches(list(loader), first)


def test_walks_without_edges_stay_at_their_roots():
    lonely = Data(x=torch.zeros(50, 1), edge_index=torch.zeros(2, 0, dtype=torch.long))
    batch = next(iter(GraphSAINTRandomWalkSampler(lonely, 10, 2)))
    assert 0 < batch.num_nodes <= 10
    assert batch.num_edges == 0
    for name in ("nodes", "edges"):
        with pytest.raises(ValueError, match="must have at least one edge"):
            SAINTS[name](lonely)


def test_the_coefficients_equal_those_of_pyg():
    """PyG's formula of GraphSAINTSampler, on the same counts."""
    rows = Neighbours.from_graph(GRAPH)
    generator = torch.Generator().manual_seed(0)
    node_count = torch.randint(0, 5, (NUM_NODES,), generator=generator).float()
    edge_count = torch.randint(0, 3, (NUM_EDGES,), generator=generator).float()
    edge_norm = (node_count[DATA.edge_index[0]] / edge_count).clamp_(0, 1e4)
    edge_norm[torch.isnan(edge_norm)] = 0.1
    seen = node_count.clone()
    seen[seen == 0] = 0.1
    node_norm = 12 / seen / NUM_NODES
    found = normalise(node_count.numpy(), edge_count.numpy(), 12, rows)
    torch.testing.assert_close(found[0], node_norm)
    torch.testing.assert_close(found[1], edge_norm)
    assert (edge_norm == 1e4).any()


@pytest.mark.parametrize("make", SAINTS.values(), ids=SAINTS)
def test_coefficients_are_estimated_over_whole_epochs(make):
    loader = make(DATA, sample_coverage=5)
    node_norm, edge_norm = loader.norms
    batch = next(iter(loader))
    assert torch.equal(batch.node_norm, node_norm[batch.n_id])
    assert torch.equal(batch.edge_norm, edge_norm[batch.e_id])
    visited = edge_norm[edge_norm != np.float32(0.1)]
    assert (visited >= 1).all()  # an edge is sampled at most as often as its key
    again = make(STORED, sample_coverage=5, prefetch=0)
    assert all(map(torch.equal, again.norms, loader.norms))
    # 1 / node_norm = count · N / samples, whose sum is N times the mean size of a subgraph
    seen = (1 / node_norm)[node_norm < node_norm.max()]
    mean_size = float(seen.double().sum()) / NUM_NODES
    sizes = [len(each.n_id) for each in loader]
    assert mean_size == pytest.approx(np.mean(sizes), rel=0.2)
    assert not hasattr(next(iter(make(DATA))), "node_norm")


# Wrong arguments


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_neighbors": [2, 0]}, ValueError, "num_neighbors must be above 0, or -1 for all, "
         "but has 0"),
        ({"num_neighbors": [-2]}, ValueError, "has -2"),
        ({"num_neighbors": []}, ValueError, "one per hop"),
        ({"num_neighbors": 5}, ValueError, "one per hop, but is 5"),
        ({"num_neighbors": [1.5]}, ValueError, "has 1.5"),
        ({"batch_size": 0}, ValueError, "batch_size must be an integer of 1 or more, but is 0"),
        ({"prefetch": -1}, ValueError, "prefetch must be"),
        ({"seed": -1}, ValueError, "seed must be"),
        ({"input_nodes": [300]}, ValueError, r"input_nodes must lie in \[0, 300\), but hold 300"),
        ({"input_nodes": torch.tensor([-1])}, ValueError, "hold -1"),
        ({"input_nodes": torch.tensor([4, 5, 4])}, ValueError, "hold 4 twice"),
        ({"input_nodes": []}, ValueError, "one node or more"),
        ({"input_nodes": torch.zeros(300, dtype=torch.bool)}, ValueError, "one node or more"),
        ({"input_nodes": torch.ones(299, dtype=torch.bool)}, ValueError,
         r"must be \[300\], but is \[299\]"),
        ({"input_nodes": torch.ones(3)}, TypeError, "must be indices or a mask"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(options, error, text):
    given = {"num_neighbors": [2], **options}
    with pytest.raises(error, match=text):
        NeighborLoader(DATA, **given)


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (HeteroData(), TypeError, "is a HeteroData"),
        ([1, 2], TypeError, "data must be a PyG Data, .* but is a list"),
        (Data(x=torch.zeros(3, 1)), ValueError, "edge_index is missing"),
        (Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0], [3]])), ValueError,
         r"query_index must lie in \[0, 3\), but holds 3"),
        (Data(x=torch.zeros(3, 1), edge_index=torch.zeros(2, 4)), TypeError,
         "data.edge_index must hold int32 or int64"),
        (Data(x=torch.zeros(0, 1), edge_index=torch.zeros(2, 0, dtype=torch.long)), ValueError,
         "one node or more"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_sampled_from_is_refused(data, error, text):
    with pytest.raises(error, match=text):
        NeighborLoader(data, [2])


def test_wrong_arguments_of_graphsaint_are_refused():
    for options in ({"batch_size": 0}, {"walk_length": 0}, {"num_steps": 0}):
        given = {"batch_size": 5, "walk_length": 2, **options}
        with pytest.raises(ValueError, match=next(iter(options))):
            GraphSAINTRandomWalkSampler(DATA, **given)
    with pytest.raises(ValueError, match="sample_coverage must be"):
        SAINTS["nodes"](DATA, sample_coverage=-1)
