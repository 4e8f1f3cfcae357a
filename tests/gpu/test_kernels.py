"""Every kernel and option in Triton's interpreter, compared with the reference."""

from dataclasses import replace

import pytest
import torch

from dynagat import DPGATConv, GATConv, GATv2Conv, ops
from dynagat.graph import Graph
from dynagat.ops import devices, fused, observe, reference
from dynagat.ops.triton import attention, tiles
from tests.problems import MECHANISMS, make_problem, random_graph
from tests.test_ops import OPTIONS, largest_error, problem_of

pytestmark = [pytest.mark.usefixtures("forced", "short_segments")]


def small(option):
    """The options of the native kernels' tests, with fewer edges and batches."""
    graph = OPTIONS[option].get("graph", ())
    sizes = (9, 11, 40, *graph[3:4], *([40] if len(graph) == 5 else []))
    return {"graph": sizes} | ({"batch": (2,)} if "batch" in OPTIONS[option] else {})


def errors(problem):
    """Of the kernels and of the reference in single precision, against double precision."""
    exact, single = problem.results(reference), problem.to(torch.float32)
    return (largest_error(single.results(backend), exact) for backend in (fused, reference))


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_error_is_at_most_twice_that_of_the_reference(mechanism, option):
    ours, allowed = errors(problem_of(mechanism, 3, 5, option, **small(option)))
    assert ours <= 2 * allowed + 2e-6


@pytest.mark.parametrize(("heads", "channels"), [(1, 1), (8, 8), (1, 40), (5, 16), (20, 70)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_any_number_of_heads_and_channels(mechanism, heads, channels):
    graph = random_graph(4, 5, 24)
    ours, allowed = errors(make_problem(mechanism, heads, channels, graph=graph, edge_dim=2))
    assert ours <= 2 * allowed + 2e-6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_many_edge_features(mechanism):
    graph = random_graph(3, 4, 20, relations=2)
    ours, allowed = errors(make_problem(mechanism, 2, 20, graph=graph, edge_dim=19))
    assert ours <= 2 * allowed + 2e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_half_precision_tables_are_summed_in_single_precision(mechanism, dtype):
    graph = random_graph(6, 7, 40, relations=2, hub=20)
    problem = make_problem(mechanism, 3, 8, graph=graph, edge_dim=2, dropout=0.2).to(dtype)
    exact = problem.to(torch.float64).results(reference)
    out, weights, *grads = problem.results(fused)
    assert (out.dtype, weights.dtype) == (dtype, torch.float32)
    assert largest_error([out], exact[:1]) < torch.finfo(dtype).eps
    assert largest_error([weights], exact[1:2]) < 1e-5
    assert largest_error(grads, exact[2:]) < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_compact_graph_gives_the_same_as_the_reference(mechanism):
    graph = random_graph(6, 8, 30, relations=4, hub=20).compact
    problem = make_problem(mechanism, 2, 5, graph=graph, edge_dim=2)
    for side, used in enumerate((graph.used_query_rows, graph.used_key_rows)):
        for table in [side] if side == 0 or mechanism == "gatv2" else [side, 2]:
            rows = problem.tables[table][: len(used)]
            problem.tables[table] = rows.detach().requires_grad_()
    ours, allowed = errors(problem)
    assert ours <= 2 * allowed + 2e-6


GRAPHS = {
    "no edges": lambda: random_graph(3, 4, 0),
    "no queries": lambda: random_graph(0, 4, 0),
    "one row of many": lambda: Graph.from_edges(torch.full((50,), 3), torch.zeros(50).long(), 6, 2),
    "replaced loops": lambda: random_graph(6, 6, 30).with_self_loops(),
    "cuts at the ends of rows": lambda: Graph.from_edges(
        torch.arange(3).repeat_interleave(16), torch.arange(48) % 5, 3, 5
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_graphs_with_empty_rows_duplicates_and_gaps(mechanism, name):
    graph = GRAPHS[name]()
    ours, allowed = errors(make_problem(mechanism, 2, 5, graph=graph, edge_dim=2, dropout=0.3))
    assert ours <= 2 * allowed + 2e-6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_queries_that_share_rows_of_a_table(mechanism, monkeypatch):
    graph = random_graph(5, 6, 40).with_query_rows(torch.tensor([2, 0, 2, 1, 0]), 3)
    problem = make_problem(mechanism, 2, 5, graph=graph, dtype=torch.float32)
    problem.tables[0] = problem.tables[0][:3].detach().requires_grad_()
    results = []
    for name in ("triton", "reference"):
        monkeypatch.setattr(devices, "forced", name)
        out, _ = problem.run(ops)
        results.append([out, *torch.autograd.grad(out.square().sum(), problem.tables)])
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("convolution", [GATConv, GATv2Conv, DPGATConv])
def test_a_layer_trains_as_with_the_reference(convolution, monkeypatch):
    layer = convolution(5, 4, heads=3, edge_dim=2, residual=True)
    x, edge_index, edge_attr = torch.randn(9, 5), torch.randint(0, 9, (2, 30)), torch.randn(30, 2)
    results = []
    for name in ("triton", "reference"):
        monkeypatch.setattr(devices, "forced", name)
        layer.zero_grad()
        out = layer(x, edge_index, edge_attr)
        out.square().sum().backward()
        results.append([out, *(parameter.grad for parameter in layer.parameters())])
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.3, 1.0])
def test_the_dropout_mask_is_that_of_the_cpu_bit_for_bit(dropout):
    """With equal scores and a value of one, out counts the weights that are kept."""
    graph = Graph.from_edges(torch.arange(40), torch.zeros(40).long(), 40, 1)
    scores, value = torch.zeros(3, 40, 2), torch.ones(3, 1, 2, 1)
    seed = torch.tensor(-(2**62) + 12345)
    out, _ = fused.gat(scores, scores[:, :1], value, graph, dropout=dropout, seed=seed)
    assert torch.equal(out[..., 0] > 0, reference.keep_mask(seed, 3, 40, 2, dropout))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_observers_receive_scores_and_weights(mechanism):
    graph = random_graph(5, 6, 40, relations=2)
    problem = make_problem(mechanism, 2, 5, graph=graph, dropout=0.5, dtype=torch.float32)
    seen = {}
    for backend in (fused, reference):
        with observe.observing(lambda observation, b=backend: seen.update({b: observation})):
            problem.run(backend)
    for name in ("edge_id", "weights", "scores"):
        results = (getattr(seen[backend], name) for backend in (fused, reference))
        torch.testing.assert_close(*results)


def test_double_precision_is_computed_without_triton(monkeypatch):
    monkeypatch.setattr(attention, "forward", None)
    problem = make_problem("gatv2", 2, 5)
    torch.testing.assert_close(problem.run(fused)[0], problem.run(reference)[0])


def test_too_many_channels_are_an_error():
    problem = make_problem("gatv2", 1, tiles.MAX_CHANNELS + 1, dtype=torch.float32)
    with pytest.raises(ValueError, match="at most 4096 channels per head, but C is 4097"):
        problem.run(fused)


class Layer(torch.nn.Module):
    """The op as a module."""

    def __init__(self, problem):
        super().__init__()
        self.problem = problem

    def forward(self, *tables):
        return replace(self.problem, tables=tables).run(fused)[0]


def nodes_of(module):
    return [str(node.target) for node in module.graph.nodes if "dynagat" in str(node.target)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_compiled_programs_see_single_nodes(mechanism):
    problem = make_problem(mechanism, 2, 8, dtype=torch.float32)
    seen = []

    def note(module, _):
        seen.extend(nodes_of(module))
        return module

    compiled = torch.compile(Layer(problem), backend=note, fullgraph=True)
    torch.testing.assert_close(compiled(*problem.tables), problem.run(fused)[0])
    assert seen == ["dynagat.attend.default"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_exported_programs_see_single_nodes(mechanism):
    problem = make_problem(mechanism, 2, 8, dtype=torch.float32)
    program = torch.export.export(Layer(problem), tuple(problem.tables))
    assert nodes_of(program) == ["dynagat.attend.default"]
    torch.testing.assert_close(program.module()(*problem.tables), problem.run(fused)[0])
