"""The implementation for any device, in chunks of edges, compared with the reference."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from dynagat import DPGATConv, GATConv, GATv2Conv
from dynagat.ops import devices, fused, observe, reference, streamed
from tests.problems import MECHANISMS, make_problem, random_graph
from tests.test_ops import OPTIONS, graphs, largest_error, problem_of

SMALL = 600  # numbers per chunk: queries with more edges than fit are continued


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    """The ops of torch.library call this implementation, on the CPU too."""
    monkeypatch.setattr(devices, "forced", "streamed")


@pytest.fixture(params=[streamed.CHUNK_NUMBERS, SMALL])
def chunks(request, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK_NUMBERS", request.param)


def short(option):
    """The options of the kernels' tests; shorter hubs, which are longer than a small chunk."""
    graph = OPTIONS[option].get("graph", ())
    return {"graph": (*graph[:4], 300)} if len(graph) == 5 else {}


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_equals_the_reference_in_double_precision(mechanism, option):
    problem = problem_of(mechanism, 3, 5, option, **short(option))
    assert largest_error(problem.results(fused), problem.results(reference)) < 1e-12


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_single_precision_error_is_at_most_twice_that_of_the_reference(mechanism, option):
    problem = problem_of(mechanism, 3, 5, option, **short(option))
    exact, single = problem.results(reference), problem.to(torch.float32)
    allowed = 2 * largest_error(single.results(reference), exact) + 2e-6
    assert largest_error(single.results(fused), exact) <= allowed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_half_precision_tables_are_summed_in_single_precision(mechanism, dtype):
    problem = problem_of(mechanism, 4, 8, "relations and edges").to(dtype)
    exact = problem.to(torch.float64).results(reference)
    out, weights, *grads = problem.results(fused)
    assert (out.dtype, weights.dtype) == (dtype, torch.float32)
    assert largest_error([out], exact[:1]) < torch.finfo(dtype).eps
    assert largest_error([weights], exact[1:2]) < 1e-5
    assert largest_error(grads, exact[2:]) < 4 * torch.finfo(dtype).eps


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(graphs(), st.sampled_from(MECHANISMS), st.integers(1, 4), st.integers(1, 7), st.booleans())
def test_it_equals_the_reference_on_any_graph(graph, mechanism, heads, channels, edges):
    problem = make_problem(
        mechanism, heads, channels, graph=graph, edge_dim=2 if edges else 0, dropout=0.3
    )
    for result, exact in zip(problem.results(fused), problem.results(reference), strict=True):
        torch.testing.assert_close(result, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_compact_graph_gives_the_same_as_the_reference(mechanism):
    graph = random_graph(9, 12, 30, relations=4).compact
    problem = make_problem(mechanism, 2, 5, graph=graph)
    for side, used in enumerate((graph.used_query_rows, graph.used_key_rows)):
        for table in [side] if side == 0 or mechanism == "gatv2" else [side, 2]:
            rows = problem.tables[table][: len(used)]
            problem.tables[table] = rows.detach().requires_grad_()
    assert largest_error(problem.results(fused), problem.results(reference)) < 1e-12


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_observers_receive_scores_and_weights_before_dropout(mechanism):
    problem = problem_of(mechanism, 2, 5, "relations and edges")
    seen = {}
    for backend in (fused, reference):
        with observe.observing(lambda observation, b=backend: seen.update({b: observation})):
            problem.run(backend)
    for name in ("rowptr", "key_index", "edge_id", "weights", "scores"):
        results = (getattr(seen[backend], name) for backend in (fused, reference))
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_compiled_programs_see_single_nodes(mechanism):
    problem = make_problem(mechanism, 2, 8, dtype=torch.float32)
    targets = []

    def note(module, _):
        targets.extend(str(node.target) for node in module.graph.nodes)
        return module

    compiled = torch.compile(lambda: problem.run(fused)[0], backend=note, fullgraph=True)
    torch.testing.assert_close(compiled(), problem.run(fused)[0])
    assert sum("dynagat.attend" in target for target in targets) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("return_weights", [True, False])
def test_the_op_passes_opcheck(mechanism, return_weights):
    problem = problem_of(mechanism, 2, 4, "edge features")
    query, key, third = problem.tables
    a, value = (third, None) if mechanism == "gatv2" else (None, third)
    graph = problem.graph
    torch.library.opcheck(
        fused.attend,
        (query, key, value, a, problem.tensors["edge"], problem.tensors["edge_weight"], None,
         graph.tensors, mechanism, graph.num_edges, 1, 0.2, 0.0, return_weights),
    )  # fmt: skip


@pytest.mark.parametrize("convolution", [GATConv, GATv2Conv, DPGATConv])
def test_a_layer_trains_as_with_the_kernels(convolution, monkeypatch):
    layer = convolution(5, 4, heads=3, edge_dim=2, residual=True)
    x, edge_index, edge_attr = torch.randn(9, 5), torch.randint(0, 9, (2, 30)), torch.randn(30, 2)
    results = []
    for name in ("streamed", "reference"):
        monkeypatch.setattr(devices, "forced", name)
        layer.zero_grad()
        out = layer(x, edge_index, edge_attr)
        out.square().sum().backward()
        results.append([out, *(parameter.grad for parameter in layer.parameters())])
    for streamed_one, expected in zip(*results, strict=True):
        torch.testing.assert_close(streamed_one, expected)


class LargestTensor(TorchDispatchMode):
    """Remembers how many numbers the largest result of any torch function has."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = result if isinstance(result, (tuple, list)) else [result]
        sizes = [t.numel() for t in tensors if isinstance(t, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_array_is_larger_than_a_chunk_or_the_results(mechanism, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK_NUMBERS", SMALL)
    problem = make_problem(mechanism, 4, 8, graph=random_graph(20, 25, 400, hub=300))
    sizes = {}
    for backend in (fused, reference):
        with LargestTensor() as largest:
            problem.run(backend)[0].sum().backward()
        sizes[backend] = largest.numbers
    assert sizes[fused] == 20 * 4 * (8 + 2)  # out, top and total of the queries
    assert sizes[reference] == 1000 * 4 * 8  # numbers per edge
