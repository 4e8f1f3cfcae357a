"""capture: captured attention equals what the layers compute, and capturing changes nothing."""

from __future__ import annotations

import copy
import gc
import os
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path

import pandas
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import add_self_loops, is_sparse, k_hop_subgraph, softmax, subgraph

import dynagat
from dynagat import Graph, capture
from dynagat.analysis.pyg import observing_softmax
from dynagat.analysis.table import tabulate
from dynagat.benchmarks.dictionary_lookup.network import DictionaryNetwork
from dynagat.nn import loops
from dynagat.ops import devices, observe

pytestmark = pytest.mark.filterwarnings("ignore:Sparse ", "ignore:'.*add_self_loops")
N, IN, C, H, D, R = 7, 5, 4, 2, 3, 3


@pytest.fixture(autouse=True)
def _warned_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_warned", True)


# Edges as (key, query); node 6 is isolated in all graphs but the last.
GRAPHS = {
    "plain": [(0, 1), (2, 1), (4, 3), (1, 0), (5, 4)],
    "loops": [(0, 1), (2, 2), (0, 0), (2, 1), (4, 4), (3, 4)],
    "several loops": [(2, 2), (0, 1), (2, 2), (0, 0), (1, 2), (2, 2), (0, 0)],
    "only loops": [(3, 3), (1, 1), (3, 3)],
    "loops last": [(0, 1), (2, 1), *((i, i) for i in range(6))],
    "duplicates": [(0, 1), (2, 1), (0, 1), (0, 1), (5, 1), (2, 1), (3, 3)],
    "no edges": [],
    "dense": [(i * i % N, i % N) for i in range(40)],
}


def edges(name: str = "several loops") -> Tensor:
    return torch.tensor(GRAPHS[name], dtype=torch.long).reshape(-1, 2).T.contiguous()


def nodes(num_nodes: int = N, *batch: int) -> Tensor:
    return torch.randn(*batch, num_nodes, IN, dtype=torch.float64)


def kinds_of(edge_index: Tensor) -> Tensor:
    return torch.arange(edge_index.shape[1]) % R


class OwnConv(pyg.MessagePassing):
    """A user's layer: adds self-loops without removing any, one head, in-place dropout."""

    add_self_loops = None

    def __init__(self, **options) -> None:
        super().__init__(aggr="add", **options)
        self.lin = nn.Linear(IN, C)

    def forward(self, x: Tensor, edge_index: Tensor, return_attention_weights=None):
        edge_index, _ = add_self_loops(edge_index, num_nodes=len(x))
        out = self.propagate(edge_index, x=self.lin(x))
        return (out, (edge_index, self.kept)) if return_attention_weights else out

    def message(self, x_i, x_j, index, size_i):
        self.kept = weight = softmax((x_i * x_j).sum(-1), index, num_nodes=size_i)
        weight = nn.functional.dropout(weight, 0.5, self.training, inplace=True)
        return weight[:, None] * x_j


def layer_of(name: str, **options) -> nn.Module:
    """'pyg.GATConv', 'dynagat.GATv2Conv'...; RGAT by its mechanism."""
    library, _, kind = name.partition(".")
    torch.manual_seed(3)
    if name == "own":
        return OwnConv(**options).double()
    options = {"heads": H, "dropout": 0.5} | options
    if "relation" in kind:
        return pyg.RGATConv(IN, C, R, attention_mechanism=kind, **options).double()
    home = dynagat if library == "dynagat" else pyg
    return getattr(home, kind)(IN, C, **options).double()


def call(layer: nn.Module, x, edge_index, **more):
    if isinstance(layer, pyg.RGATConv) and not is_sparse(edge_index):
        more["edge_type"] = kinds_of(edge_index)
    if isinstance(layer, dynagat.nn.core.GraphAttention) and layer.num_relations:
        more["relation"] = kinds_of(edge_index)
    return layer(x, edge_index, **more)


OURS = ("dynagat.GATConv", "dynagat.GATv2Conv", "dynagat.DPGATConv")
LOOPED = ("pyg.GATConv", "pyg.GATv2Conv", *OURS)
LOOPLESS = ("pyg.TransformerConv", "pyg.across-relation", "pyg.within-relation")
LAYERS = [
    *((name, {}) for name in LOOPED),
    *((name, {"add_self_loops": False}) for name in LOOPED),
    *((name, {"num_relations": R}) for name in OURS),
    *((name, {}) for name in (*LOOPLESS, "own")),
]
every_layer = pytest.mark.parametrize(("name", "options"), LAYERS, ids=str)
every_graph = pytest.mark.parametrize("graph", GRAPHS)


def ids_of(edge_index: Tensor, layer: nn.Module, num_loops: int = N) -> list[int]:
    """The expected edge_id: the caller's edges in their order, then self-loops."""
    every = list(map(tuple, edge_index.T.tolist()))
    if isinstance(layer, OwnConv):
        return [*range(len(every)), *[-1] * num_loops]
    if not getattr(layer, "add_self_loops", False):
        return list(range(len(every)))
    kept = [e for e, (key, query) in enumerate(every) if key != query]
    return kept + [every.index((i, i)) if (i, i) in every else -1 for i in range(num_loops)]


def weights_of(layer: nn.Module, *args, **options) -> tuple[Tensor, Tensor]:
    """What the layer itself returns in evaluation mode: edges, and weights [E, H]."""
    was = layer.training
    _, (index, weight) = call(layer.eval(), *args, return_attention_weights=True, **options)
    layer.train(was)
    return index, weight.detach()[:, None] if weight.dim() == 1 else weight.detach()


def seen_of(layer: nn.Module, *args, **options):
    with capture(layer) as attention:
        call(layer, *args, **options)
    return attention.seen


def assert_same_view(actual, expected) -> None:
    for name in ("query", "key", "edge_id", "is_self_loop", "weight"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name


def assert_softmax_of_scores(view) -> None:
    expected = softmax(view.score.double(), view.query)
    torch.testing.assert_close(view.weight.double(), expected, atol=1e-6, rtol=1e-5)


def sums(view, *kinds: Tensor) -> Tensor:
    """For each edge: the sum of weights over the edges of its query (and relation)."""
    _, group = torch.unique(torch.stack([view.query, *kinds]), dim=1, return_inverse=True)
    return torch.zeros_like(view.weight).index_add(0, group, view.weight)[group]


# Captured attention equals the layer's own


@pytest.mark.parametrize("training", [False, True])
@every_graph
@every_layer
def test_captured_weights_are_the_layers_own_before_dropout(name, options, graph, training) -> None:
    layer, x, edge_index = layer_of(name, **options), nodes(), edges(graph)
    expected_index, expected = weights_of(layer, x, edge_index)
    (view,) = seen_of(layer.train(training), x, edge_index)
    assert torch.equal(view.weight.double(), expected)
    assert torch.equal(torch.stack([view.key, view.query]), expected_index)
    assert view.edge_id.tolist() == ids_of(edge_index, layer)
    assert torch.equal(view.is_self_loop, view.key == view.query)
    assert (view.layer, view.kind, view.call) == ("", type(layer).__name__, 0)
    assert not view.weight.requires_grad
    within = name == "pyg.within-relation"
    total = sums(view, kinds_of(edge_index)) if within else sums(view)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (view.score is None) == within or graph == "no edges"
    if view.score is not None:
        assert_softmax_of_scores(view)


@every_graph
@pytest.mark.parametrize("name", LOOPED[:2])
def test_our_layers_are_captured_like_pygs(name, graph) -> None:
    theirs = layer_of(name, edge_dim=D)
    ours = layer_of(name.replace("pyg", "dynagat"), edge_dim=D)
    x, edge_index = nodes(), edges(graph)
    more = {"edge_attr": torch.randn(edge_index.shape[1], D).double()}
    (expected,), (actual,) = (seen_of(layer, x, edge_index, **more) for layer in (theirs, ours))
    for column in ("query", "key", "edge_id", "is_self_loop"):
        assert torch.equal(getattr(actual, column), getattr(expected, column))
    torch.testing.assert_close(actual.weight, expected.weight)
    torch.testing.assert_close(actual.score, expected.score)


@pytest.mark.parametrize("name", OURS)
def test_the_reference_is_captured_like_the_kernels(name, monkeypatch) -> None:
    layer, x, edge_index = layer_of(name), nodes(), edges("dense")
    (expected,) = seen_of(layer, x, edge_index)
    monkeypatch.setattr(devices, "kernels", None)
    (actual,) = seen_of(layer, x, edge_index)
    assert torch.equal(actual.edge_id, expected.edge_id)
    torch.testing.assert_close(actual.weight, expected.weight)
    torch.testing.assert_close(actual.score, expected.score)


@pytest.mark.parametrize("edge_type", [0, 2])
def test_within_relation_attention_of_one_relation_is_captured_once(edge_type) -> None:
    layer, x, edge_index = layer_of("pyg.within-relation"), nodes(), edges()
    kinds = torch.full((edge_index.shape[1],), edge_type)
    with capture(layer) as attention:
        _, (_, weight) = layer(x, edge_index, kinds, return_attention_weights=True)
    (view,) = attention.seen
    assert torch.equal(view.weight, weight)


@pytest.mark.parametrize("name", [*LOOPED, "pyg.TransformerConv", "pyg.across-relation"])
def test_a_reversed_flow_swaps_query_and_key(name) -> None:
    x, edge_index = nodes(), edges("dense")
    (expected,) = seen_of(layer_of(name), x, edge_index.flip(0))
    (actual,) = seen_of(layer_of(name, flow="target_to_source"), x, edge_index)
    assert_same_view(actual, expected)
    given = actual.edge_id >= 0
    ends = torch.stack([actual.query, actual.key])[:, given]
    assert torch.equal(ends, edge_index[:, actual.edge_id[given]])


PAIRED = ("pyg.GATConv", "pyg.GATv2Conv", "pyg.TransformerConv", *OURS)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("graph", ["plain", "loops", "loops last"])
@pytest.mark.parametrize("name", PAIRED)
def test_a_sparse_adjacency_is_captured_as_its_edges_in_order(name, graph, layout) -> None:
    key, query = torch.unique(edges(graph).flip(0), dim=1).flip(0)
    adj_t = torch.sparse_coo_tensor(
        torch.stack([query, key]), torch.ones(len(key)).double(), (N, N), is_coalesced=True
    )
    layer, x = layer_of(name), nodes()
    (expected,) = seen_of(layer, x, torch.stack([key, query]))
    (actual,) = seen_of(layer, x, adj_t if layout == torch.sparse_coo else adj_t.to_sparse_csr())
    order, right = ((view.query * N + view.key).argsort() for view in (actual, expected))
    for column in ("query", "key", "edge_id", "weight", "score", "is_self_loop"):
        torch.testing.assert_close(getattr(actual, column)[order], getattr(expected, column)[right])


@pytest.mark.parametrize("add", [False, True])
@every_graph
@pytest.mark.parametrize("name", OURS)
def test_a_graph_is_captured_with_its_edge_ids(name, graph, add) -> None:
    layer, x, edge_index = layer_of(name, add_self_loops=add), nodes(), edges(graph)
    given = Graph.from_edge_index(edge_index, N)
    (expected,), (actual,) = (seen_of(layer, x, each) for each in (edge_index, given))
    assert_same_view(actual, expected)
    looped = given.with_self_loops()  # leaves unused edge ids where it replaces self-loops
    (view,) = seen_of(layer, x, looped)
    assert torch.equal(view.edge_id.sort()[0], looped.edge_id.long().sort()[0])
    ends = torch.stack([looped.query_index, looped.key_index])[:, looped.edge_id.argsort()]
    assert torch.equal(torch.stack([view.query, view.key]), ends.long())
    torch.testing.assert_close(sums(view), torch.ones_like(view.weight))


def test_a_graph_with_relations_and_loops_is_captured() -> None:
    layer, edge_index = layer_of("dynagat.GATv2Conv", num_relations=R), edges()
    graph = Graph.from_edge_index(edge_index, N, relation=kinds_of(edge_index), num_relations=R)
    with capture(layer) as attention:
        _, (index, weight) = layer(nodes(), graph.with_self_loops(1), None, True)
    (view,) = attention.seen
    assert torch.equal(torch.stack([view.key, view.query]), index)
    assert torch.equal(view.weight, weight)


@pytest.mark.parametrize("own_loops", [False, True])
def test_queries_that_share_a_row_are_captured_separately(own_loops) -> None:
    k, size = 3, 4
    layer = dynagat.GATv2Conv(8, 8, add_self_loops=False)
    model = DictionaryNetwork(k, layer, dim=8, loops=own_loops)
    values = torch.stack([torch.randperm(k) for _ in range(size)])
    with capture(model) as attention:
        model(values)
    (view,) = attention.seen
    degree = k + own_loops
    assert torch.equal(view.query, torch.arange(size * k).repeat_interleave(degree))
    expected = model.attention(values).permute(0, 2, 3, 1).reshape(-1, 1)
    assert torch.equal(view.weight, expected)
    assert torch.equal(view.edge_id, torch.arange(size * k * degree))
    assert int(view.is_self_loop.sum()) == size * k * own_loops
    assert bool(view.is_self_loop.view(-1, degree)[:, k:].all())


# Pairs


@pytest.mark.parametrize(
    ("name", "options"), [(n, o) for n, o in LAYERS if n in PAIRED and "num_relations" not in o]
)
def test_in_a_pair_of_node_sets_only_added_loops_are_loops(name, options) -> None:
    layer, edge_index = layer_of(name, **options), torch.tensor([[0, 1, 6, 0], [0, 2, 1, 0]])
    x = (nodes(), nodes(4))
    _, expected = weights_of(layer, x, edge_index)
    (view,) = seen_of(layer, x, edge_index)
    assert view.edge_id.tolist() == ids_of(edge_index, layer, 4)
    assert torch.equal(view.is_self_loop, view.edge_id < 0)
    assert torch.equal(view.weight, expected)


@pytest.mark.parametrize("name", PAIRED)
def test_in_a_sampled_block_a_query_is_the_key_with_the_same_index(name) -> None:
    x, edge_index = nodes(), torch.tensor([[0, 1, 6, 2, 2], [0, 2, 1, 2, 2]])
    (view,) = seen_of(layer_of(name), (x, x[:4]), edge_index)
    assert torch.equal(view.is_self_loop, view.query == view.key)
    assert int(view.is_self_loop.sum()) == (3 if "Transformer" in name else 4)


# Whole models


class Net(nn.Module):
    """Two layers and other modules; can fail between the layers."""

    def __init__(self, first: str = "pyg.GATConv", second: str = "dynagat.GATv2Conv") -> None:
        super().__init__()
        self.first, self.second = layer_of(first), layer_of(second)
        self.between = nn.Linear(H * C, IN).double()
        self.fails = False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.between(call(self.first, x, edge_index).relu())
        return call(self.second, hidden[:3] if self.fails else hidden, edge_index)


PAIRS = [("pyg.GATConv", "dynagat.GATv2Conv"), ("pyg.GATv2Conv", "pyg.TransformerConv")]
PAIRS += [("pyg.within-relation", "pyg.across-relation"), ("dynagat.GATConv", "dynagat.DPGATConv")]
every_net = pytest.mark.parametrize("pair", PAIRS, ids=str)


class Products(TorchDispatchMode):
    """Counts the operations that a second pass would repeat."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "linear", "exp")
        return func(*args, **(kwargs or {}))


@every_net
def test_capturing_changes_no_bit_of_outputs_and_gradients(pair) -> None:
    net, edge_index = Net(*pair), edges("dense")
    results = []
    for watched in (False, True):
        x = torch.linspace(-1, 1, N * IN, dtype=torch.float64).view(N, IN).requires_grad_()
        torch.manual_seed(1)  # for dropout
        with capture(net) if watched else ExitStack(), Products() as products:
            out = net(x, edge_index)
        out.square().sum().backward()
        gradients = [each.grad.clone() for each in (x, *net.parameters()) if each.grad is not None]
        results.append([out, *gradients, torch.rand(1), torch.tensor(products.count)])
        net.zero_grad()
    assert len(results[0]) == len(results[1])
    assert all(map(torch.equal, *results))  # the last entry: no operation runs twice


@every_net
def test_no_autograd_graph_is_kept_alive(pair) -> None:
    net, edge_index, mark = Net(*pair), edges("dense"), nn.Identity()
    gone = weakref.ref(mark)
    with capture(net) as attention:
        out = net(Marked.apply(nodes().requires_grad_(), mark), edge_index)
        del mark
        assert gone() is not None
        del out
        gc.collect()
        assert gone() is None
    tensors = [each for view in attention.seen for each in (view.weight, view.score, view.query)]
    assert not any(each.requires_grad for each in tensors if each is not None)


class Marked(torch.autograd.Function):
    """x, and a weak reference that dies with its autograd graph."""

    @staticmethod
    def forward(ctx, x, mark):
        ctx.mark = mark
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def test_captured_attention_does_not_change_with_the_callers_tensors() -> None:
    for name in ("pyg.GATConv", *OURS):
        layer, x, edge_index = layer_of(name), nodes(), edges()
        (expected,) = seen_of(layer.eval(), x, edge_index)
        given = edge_index.clone()
        with capture(layer) as attention, torch.no_grad():
            _, (_, alpha) = layer(x, given, return_attention_weights=True)
            given.zero_()
            alpha.zero_()
        assert_same_view(attention.seen[0], expected)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("accelerated", [False, True])
def test_pygs_model_is_captured_layer_by_layer(v2, accelerated) -> None:
    model = pyg.models.GAT(IN, 6, 3, heads=2, v2=v2, dropout=0.3).double().eval()
    if accelerated:
        dynagat.accelerate(model)
    x, edge_index = nodes(), edges("dense")
    with capture(model) as attention:
        model(x, edge_index)
    assert [view.layer for view in attention.seen] == ["convs.0", "convs.1", "convs.2"]
    for conv, view in zip(model.convs, attention.seen, strict=True):
        _, expected = weights_of(conv, x, edge_index)
        torch.testing.assert_close(view.weight, expected)
        x = conv(x, edge_index).relu()


def test_calls_are_counted_and_a_shared_layer_has_its_first_path() -> None:
    layer, edge_index = layer_of("pyg.GATConv", heads=1), edges()
    model = nn.ModuleDict({"a": layer, "b": layer})
    inputs = [nodes(), nodes(), nodes()]
    with capture(model) as attention:
        for x, path in zip(inputs, "aba", strict=True):
            model[path](x, edge_index)
    assert [(view.layer, view.call) for view in attention.seen] == [("a", 0), ("a", 1), ("a", 2)]
    for x, view in zip(inputs, attention.seen, strict=True):
        assert torch.equal(view.weight, weights_of(layer, x, edge_index)[1])
    assert attention.table().call.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", OURS)
def test_each_element_of_a_batch_axis_is_a_call(name) -> None:
    layer, x, edge_index = layer_of(name), nodes(N, 2, 3), edges()
    views = seen_of(layer, x, edge_index)
    assert [view.call for view in views] == list(range(6))
    for view, each in zip(views, x.flatten(0, 1), strict=True):
        assert_same_view(view, seen_of(layer, each, edge_index)[0])


def test_a_batch_of_graphs_is_captured_like_single_graphs() -> None:
    layer = layer_of("pyg.GATv2Conv")
    graphs = [Data(x=nodes(), edge_index=edges(name)) for name in ("loops", "no edges", "dense")]
    batch = Batch.from_data_list(graphs)
    (view,) = seen_of(layer, batch.x, batch.edge_index)
    assert view.edge_id.tolist() == ids_of(batch.edge_index, layer, 3 * N)
    for place, graph in enumerate(graphs):
        mine = batch.batch[view.query] == place
        (alone,) = seen_of(layer, graph.x, graph.edge_index)
        assert torch.equal(view.query[mine] - place * N, alone.query)
        assert torch.equal(view.key[mine] - place * N, alone.key)
        torch.testing.assert_close(view.weight[mine], alone.weight)


# Hetero graphs and sampled batches

A_B, B_A, A_A = ("a", "to", "b"), ("b", "co-rates", "a"), ("a", "knows", "a")


def hetero_batch() -> HeteroData:
    batch = HeteroData()
    batch["a"].x, batch["b"].x = nodes(4), nodes(3)
    batch["a"].n_id, batch["b"].n_id = torch.tensor([40, 10, 30, 20]), torch.tensor([7, 9, 8])
    ends = {A_B: [[0, 1, 3], [0, 2, 2]], B_A: [[0, 0], [0, 1]], A_A: [[0, 2, 2, 1], [0, 1, 2, 1]]}
    for first, (kind, index) in enumerate(ends.items()):
        batch[kind].edge_index = torch.tensor(index)
        batch[kind].e_id = torch.arange(len(index[0])).flip(0) + 100 * first
    return batch


class Alone(nn.Module):
    """A model with one layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index)


def hetero_conv() -> nn.Module:
    convs = {
        A_B: layer_of("pyg.GATConv", add_self_loops=False),
        B_A: Alone(layer_of("dynagat.GATv2Conv", add_self_loops=False)),
        A_A: layer_of("pyg.GATv2Conv"),
    }
    return pyg.HeteroConv(convs)


def to_hetero() -> nn.Module:
    model = Alone(layer_of("pyg.GATConv", add_self_loops=False))
    return pyg.to_hetero(model, (["a", "b"], [A_B, B_A, A_A])).double()


@pytest.mark.parametrize("by", ["batch", "dicts", "nodes"])
@pytest.mark.parametrize("build", [hetero_conv, to_hetero])
def test_a_hetero_model_is_captured_by_edge_type_with_global_ids(build, by) -> None:
    model, batch = build(), hetero_batch()
    with capture(model) as attention:
        attention.on(
            batch if by == "batch" else None,
            nodes=None if by == "batch" else batch.n_id_dict,
            edges=batch.e_id_dict if by == "dicts" else None,
        )
        model(batch.x_dict, batch.edge_index_dict)
        attention.on(None)
        model(batch.x_dict, batch.edge_index_dict)
    half = len(attention.seen) // 2
    assert half == 3
    for actual, local in zip(attention.seen[:half], attention.seen[half:], strict=True):
        path = actual.layer.replace("-", "_")  # as to_hetero writes it
        (kind,) = (kind for kind in (A_B, B_A, A_A) if kind[1].replace("-", "_") in path)
        assert torch.equal(actual.key, batch[kind[0]].n_id[local.key])
        assert torch.equal(actual.query, batch[kind[2]].n_id[local.query])
        given = local.edge_id >= 0
        ends = torch.stack([local.key, local.query])[:, given]
        assert torch.equal(ends, batch[kind].edge_index[:, local.edge_id[given]])
        ids = local.edge_id if by == "nodes" else batch[kind].e_id[local.edge_id.clamp_min(0)]
        assert torch.equal(actual.edge_id, torch.where(given, ids, -1))
        assert torch.equal(actual.is_self_loop, (local.key == local.query) & (kind == A_A))
        assert torch.equal(actual.weight, local.weight)


@pytest.mark.parametrize("name", [*LOOPED, "pyg.TransformerConv"])
@pytest.mark.parametrize("sample", ["subgraph", "k_hop_subgraph"])
def test_a_sampled_batch_is_captured_with_global_ids(name, sample) -> None:
    layer, x, edge_index = layer_of(name).eval(), nodes(), edges("dense")
    seeds = torch.tensor([2, 4])
    if sample == "subgraph":
        n_id = torch.tensor([1, 2, 4, 0])
        local, _, mask = subgraph(n_id, edge_index, relabel_nodes=True, return_edge_mask=True)
    else:
        n_id, local, _, mask = k_hop_subgraph(seeds, 1, edge_index, relabel_nodes=True)
    batch = Data(x=x[n_id], edge_index=local, n_id=n_id, e_id=mask.nonzero()[:, 0])
    (whole,) = seen_of(layer, x, edge_index)
    with capture(layer) as attention:
        attention.on(batch)
        layer(batch.x, batch.edge_index)
    table = attention.table()
    given = table.edge_id >= 0
    ends = torch.stack([table.key, table.query])
    assert torch.equal(ends[:, given], edge_index[:, table.edge_id[given]])
    assert bool(torch.isin(table.query, n_id).all())
    assert torch.equal(table.is_self_loop, table.query == table.key)
    if sample == "k_hop_subgraph":  # a seed has all of its keys
        (view,) = attention.seen
        for seed in seeds:
            rows = [each.weight[each.query == seed] for each in (view, whole)]
            torch.testing.assert_close(*(each.sort(0)[0] for each in rows))


@pytest.mark.parametrize("name", LOOPED)
def test_a_sampled_batch_without_edges_has_loops_only(name) -> None:
    layer = layer_of(name)
    batch = Data(n_id=torch.tensor([30, 10]), e_id=torch.zeros(0, dtype=torch.long))
    with capture(layer) as attention:
        attention.on(batch)
        layer(nodes(2), edges("no edges"))
    assert attention.seen[0].query.tolist() == attention.seen[0].key.tolist() == [30, 10]
    assert attention.seen[0].edge_id.tolist() == [-1, -1]


# Hooks and patches are removed


def assert_untouched(model: nn.Module) -> None:
    for module in model.modules():
        hooks = [each for name, each in vars(module).items() if "hooks" in name and each]
        assert not hooks, (module, hooks)
    for name in ("gat_conv", "gatv2_conv", "transformer_conv", "rgat_conv"):
        assert sys.modules[f"torch_geometric.nn.conv.{name}"].softmax is softmax
    assert not hasattr(softmax, "observed_softmax")
    assert not observe.has_observers()
    assert torch._dynamo.eval_frame._stance.stance == "default"


@every_net
@pytest.mark.parametrize("how", ["well", "model fails", "block fails", "unread"])
def test_everything_is_restored(pair, how) -> None:
    net = Net(*pair)
    net.fails = how == "model fails"
    with suppress(RuntimeError, ValueError, IndexError), capture(net) as attention:
        assert sum(len(each._forward_hooks) for each in net.modules()) == 2
        if how != "unread":
            net(nodes(), edges("dense"))
        if how == "block fails":
            raise ValueError
    assert_untouched(net)
    net.fails = False
    before = len(attention.seen)
    net(nodes(), edges("dense"))
    assert len(attention.seen) == before  # after the block, nothing is captured


@pytest.mark.parametrize("name", [*LOOPED, *LOOPLESS])
def test_a_failed_call_is_not_captured_and_raises_its_own_error(name) -> None:
    layer, x, edge_index = layer_of(name), nodes(), edges("dense")
    for wrong in ((x[:3], edge_index), (x,), (x, edge_index, None, None, None, None, None, 8)):
        errors = []
        for watched in (False, True):
            with capture(layer) if watched else ExitStack() as attention:
                with pytest.raises((IndexError, RuntimeError, ValueError, TypeError)) as caught:
                    layer(*wrong)
                errors.append((caught.type, str(caught.value)))
        assert errors[0] == errors[1]
        assert attention.seen == []
        with capture(layer) as attention:
            with suppress(IndexError, RuntimeError, ValueError, TypeError):
                layer(*wrong)
            call(layer, x, edge_index)
        assert_same_view(attention.seen[0], seen_of(layer, x, edge_index)[0])


def test_a_call_that_fails_in_another_hook_is_not_captured() -> None:
    layer, x, edge_index = layer_of("pyg.GATConv"), nodes(), edges()

    def refuse(*_):
        raise RuntimeError("refused")

    handle = layer.register_forward_pre_hook(refuse)
    with capture(layer) as attention:
        with pytest.raises(RuntimeError, match="refused"):
            layer(x, edge_index)
        handle.remove()
        layer(x, edge_index)
    assert len(attention.seen) == 1


def test_captures_can_be_nested() -> None:
    net, x, edge_index = Net(), nodes(), edges("dense")
    with capture(net) as outer:
        net(x, edge_index)
        with capture(net.first) as inner:
            net(x, edge_index)
        assert hasattr(sys.modules["torch_geometric.nn.conv.gat_conv"].softmax, "observed_softmax")
        net(x, edge_index)
    assert [view.layer for view in outer.seen] == ["first", "second"] * 3
    assert [view.layer for view in inner.seen] == [""]
    assert_same_view(inner.seen[0], outer.seen[2])
    assert_untouched(net)


@every_net
def test_two_threads_capture_their_own_models(pair) -> None:
    nets, edge_index = [Net(*pair), Net(*pair)], edges("dense")
    inputs = [nodes(), nodes()]
    expected = []
    for net, x in zip(nets, inputs, strict=True):
        with capture(net.eval()) as attention:
            net(x, edge_index)
        expected.append(attention.seen)
    gate = threading.Barrier(2, timeout=20)

    def work(place: int) -> None:
        for _ in range(10):
            gate.wait()
            with capture(nets[place]) as attention:
                nets[place](inputs[place], edge_index)
            for actual, right in zip(attention.seen, expected[place], strict=True):
                assert_same_view(actual, right)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    for net in nets:
        assert_untouched(net)


def test_an_observer_that_leaves_during_a_call_does_not_affect_others() -> None:
    layer, observed, stack = layer_of("pyg.GATConv"), [], ExitStack()
    stack.enter_context(observing_softmax([layer], lambda *_: stack.close()))
    with observing_softmax([layer], lambda *numbers: observed.append(numbers)):
        layer(nodes(), edges())
    assert len(observed) == 1
    assert_untouched(layer)


@pytest.mark.parametrize("how", ["model", "in place", "layers", "function"])
def test_a_compiled_model_is_captured_like_an_uncompiled_one(how) -> None:
    net, x, edge_index = Net().eval(), nodes(), edges("plain")
    with capture(net) as expected:
        net(x, edge_index)
    run = model = net
    if how == "model":
        run = model = torch.compile(net, backend="eager")
    elif how == "in place":
        net.compile(backend="eager")
    elif how == "layers":
        net.first = torch.compile(net.first, backend="eager")
    else:
        run = torch.compile(lambda *args: net(*args), backend="eager")
    with torch.no_grad():
        run(x, edge_index)
        with capture(model) as attention:
            run(x, edge_index)
    assert [view.layer for view in attention.seen] == ["first", "second"]
    for actual, right in zip(attention.seen, expected.seen, strict=True):
        assert_same_view(actual, right)
    assert torch._dynamo.eval_frame._stance.stance == "default"
    torch._dynamo.reset()


def test_a_copy_of_the_model_is_not_captured() -> None:
    net, x, edge_index = Net().eval(), nodes(), edges("dense")
    with capture(net) as attention:
        copied = copy.deepcopy(net)
        assert torch.equal(copied(x, edge_index), net(x, edge_index))
    assert len(attention.seen) == 2
    copied(x, edge_index)
    assert len(attention.seen) == 2


# The table


def test_the_table_has_a_row_per_call_edge_and_head() -> None:
    net, x, edge_index = Net("pyg.within-relation", "dynagat.GATConv"), nodes(), edges("dense")
    with capture(net) as attention:
        net(x, edge_index)
        net(x, edge_index)
    table, views = attention.table(), attention.seen
    names = [each.name for each in fields(table)]
    assert names == ["layers", "layer", "call", "head", "query", "key", "edge_id", "is_self_loop",
                     "weight", "score"]  # fmt: skip
    assert table.layers == ("first", "second")
    assert len(table) == sum(view.weight.numel() for view in views)
    assert {len(getattr(table, name)) for name in names[1:]} == {len(table)}
    first = 0
    for view in views:
        rows = slice(first, first := first + view.weight.numel())
        edge = torch.arange(len(view.query)).repeat_interleave(H)
        assert torch.equal(table.head[rows], torch.arange(H).repeat(len(view.query)))
        for name in ("query", "key", "edge_id", "is_self_loop"):
            assert torch.equal(getattr(table, name)[rows], getattr(view, name)[edge])
        assert torch.equal(table.weight[rows], view.weight.flatten())
        assert bool(table.score[rows].isnan().all()) == (view.layer == "first")
        assert table.layer[rows].unique().tolist() == [table.layers.index(view.layer)]
        assert table.call[rows].unique().tolist() == [view.call]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["pyg.GATv2Conv", "dynagat.GATv2Conv"])
def test_frames_and_files_hold_the_table(name, dtype, tmp_path) -> None:
    layer = layer_of(name, add_self_loops=False).to(dtype)
    with capture(layer) as attention, torch.no_grad():
        layer(nodes().to(dtype), edges())
    table, path = attention.table(), tmp_path / "attention.parquet"
    frame = table.to_pandas()
    table.to_parquet(path)
    table.to_parquet(str(path))  # replaces the existing file
    pandas.testing.assert_frame_equal(pandas.read_parquet(path), frame)
    assert os.listdir(tmp_path) == [path.name]
    assert [str(layer) for layer in frame["layer"]] == [""] * len(table)
    for column in ("head", "query", "key", "edge_id", "is_self_loop", "weight", "score", "call"):
        assert frame[column].tolist() == getattr(table, column).tolist()


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch) -> None:
    (view,) = seen_of(layer_of("pyg.GATConv"), nodes(), edges())
    table = tabulate([view])
    with pytest.raises(OSError, match="nowhere"):
        table.to_parquet(tmp_path / "nowhere" / "attention.parquet")
    assert os.listdir(tmp_path) == []
    path = tmp_path / "attention.parquet"
    table.to_parquet(path)
    before = path.read_bytes()

    def fail(frame, target) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pandas.DataFrame, "to_parquet", fail)
    with pytest.raises(OSError, match="disk full"):
        table.to_parquet(path)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == before


# Errors


def test_the_error_for_a_model_without_attention_lists_its_modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), pyg.GCNConv(2, 2))
    with pytest.raises(ValueError, match=r"no attention layer.*GCNConv.*Linear.*Sequential"):
        capture(model).__enter__()
    assert_untouched(model)


@pytest.mark.parametrize("model", [None, len, nn.Linear], ids=["none", "function", "class"])
def test_a_model_must_be_a_module(model) -> None:
    kind = type(model).__name__
    with pytest.raises(TypeError, match=rf"must be a torch\.nn\.Module, but is a {kind}"):
        capture(model).__enter__()


def test_a_block_without_calls_has_no_table() -> None:
    with capture(layer_of("pyg.GATConv")) as attention:
        pass
    assert attention.seen == []
    with pytest.raises(ValueError, match="no attention was captured: call the model inside"):
        attention.table()


@pytest.mark.parametrize("kind", [Data, HeteroData])
@pytest.mark.parametrize("missing", ["n_id", "e_id"])
def test_a_batch_without_ids_is_an_error(kind, missing) -> None:
    batch = kind()
    if missing == "e_id":
        (batch if kind is Data else batch["a"]).n_id = torch.arange(3)
    with (
        capture(layer_of("pyg.GATConv")) as attention,
        pytest.raises(ValueError, match=f"batch has no {missing}; pass .* nodes= and edges="),
    ):
        attention.on(batch)
