"""The kernels compared with the reference: values, gradients, all options, all precisions."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynagat.graph import Graph
from dynagat.ops import fused, reference
from tests.problems import MECHANISMS, make_problem, random_graph

pytestmark = pytest.mark.native

SHAPES = [(1, 1), (3, 5), (8, 8), (2, 16), (8, 16), (4, 32), (6, 32), (1, 64), (2, 40), (16, 8),
          (1, 48), (1, 128)]  # fmt: skip
OPTIONS = {
    "plain": {},
    "edge features": {"edge_dim": 3},
    "dropout": {"dropout": 0.4},
    "batch": {"batch": (2, 3)},
    "relations": {"graph": (20, 25, 200, 3)},
    "relations and edges": {"graph": (20, 25, 200, 2), "edge_dim": 2, "dropout": 0.2},
    "hub": {"graph": (20, 25, 100, 1, 9000)},
    "relational hub": {"graph": (20, 25, 100, 2, 9000), "edge_dim": 2},
    "own value": {"own_value": True},
    "steep": {"slope": 1.7},
    "flipped": {"slope": -0.3},
    "many edges": {"graph": (12, 25, 400), "edge_dim": 2, "dropout": 0.3},  # long vectors
    "large table": {"graph": (20, 3000, 300)},  # keys beyond the cache, so rows are prefetched
}
HALF = [((4, 8), option) for option in ("plain", "edge features", "relations", "dropout", "batch")]
HALF += [((1, 16), option) for _, option in HALF]
HALF += [
    (shape, "plain") for shape in ((3, 5), (2, 16), (8, 16), (2, 24), (4, 32), (2, 64), (1, 64))
]
HALF += [(shape, "large table") for shape in ((4, 32), (1, 128))]
HALF += [((2, 16), "own value"), ((4, 32), "relations"), ((8, 8), "hub"), ((1, 128), "hub")]


def problem_of(mechanism, heads, channels, option, **more):
    chosen = {**OPTIONS[option], **more}
    if "graph" in chosen:
        chosen["graph"] = random_graph(*chosen["graph"])
    if mechanism == "dpgat":
        chosen.pop("slope", None)
    return make_problem(mechanism, heads, channels, **chosen)


def largest_error(results, exact):
    return max(
        ((r.double() - e.double()).abs().max() / (e.double().abs().max() + 1e-30)).item()
        for r, e in zip(results, exact, strict=True)
        if e.numel()
    )


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("heads", "channels"), SHAPES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kernels_equal_the_reference_in_double_precision(mechanism, heads, channels, option):
    problem = problem_of(mechanism, heads, channels, option)
    assert largest_error(problem.results(fused), problem.results(reference)) < 1e-11


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("heads", "channels"), SHAPES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_single_precision_error_is_at_most_twice_that_of_the_reference(
    mechanism, heads, channels, option
):
    problem = problem_of(mechanism, heads, channels, option)
    exact = problem.results(reference)
    single = problem.to(torch.float32)
    allowed = 2 * largest_error(single.results(reference), exact) + 2e-6
    assert largest_error(single.results(fused), exact) <= allowed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "option"), HALF)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_half_precision_tables_are_summed_in_single_precision(mechanism, shape, option, dtype):
    problem = problem_of(mechanism, *shape, option).to(dtype)
    exact = problem.to(torch.float64)
    exact_out, exact_weights, *exact_grads = exact.results(reference)
    out, weights, *grads = problem.results(fused)
    assert out.dtype == dtype
    assert weights.dtype == torch.float32
    unit = torch.finfo(dtype).eps
    assert largest_error([out], [exact_out]) < unit
    # The inputs are not rounded again, only the results are.
    assert largest_error([weights], [exact_weights]) < 1e-5
    assert largest_error(grads, exact_grads) < 4 * unit


@pytest.mark.parametrize(
    "option",
    [
        "plain",
        "edge features",
        "dropout",
        "relations and edges",
        "batch",
        "own value",
        "steep",
        "flipped",
    ],
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_gradients_equal_finite_differences(mechanism, option):
    chosen = OPTIONS[option]
    small = (4, 5, 9, chosen.get("graph", (0, 0, 0, 1))[3])
    problem = problem_of(mechanism, 2, 3, option, graph=small)

    def run(*leaves):
        tables = leaves[: len(problem.tables)]
        tensors = dict(zip(problem.tensors, leaves[len(problem.tables) :], strict=True))
        op = getattr(fused, mechanism)
        return op(*tables, problem.graph, **tensors, **problem.options, return_weights=True)

    assert torch.autograd.gradcheck(run, problem.leaves, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("option", ["plain", "edge features", "dropout", "relations", "batch"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_op_passes_opcheck(mechanism, option):
    problem = problem_of(mechanism, 2, 8, option)
    query, key, third = (t.flatten(0, -3 if n < 2 and mechanism == "gat" else -4)
                         if t.dim() > 4 else t for n, t in enumerate(problem.tables))  # fmt: skip
    rows = 2 if mechanism == "gat" else 3
    query, key = (t.reshape(-1, *t.shape[-rows:]) for t in (query, key))
    a = third if mechanism == "gatv2" else None
    value = None if mechanism == "gatv2" else third.reshape(-1, *third.shape[-3:])
    graph = problem.graph
    torch.library.opcheck(
        fused.attend,
        (query, key, value, a, problem.tensors.get("edge"), problem.tensors.get("edge_weight"),
         problem.options.get("seed"), graph.tensors, mechanism, graph.num_edges,
         graph.num_relations, 0.2, problem.options.get("dropout", 0.0), True),
    )  # fmt: skip


@st.composite
def graphs(draw):
    num_queries, num_keys = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    relations = draw(st.integers(1, 3))
    possible = num_queries and num_keys
    edges = draw(
        st.lists(
            st.tuples(
                st.integers(0, max(num_queries - 1, 0)),
                st.integers(0, max(num_keys - 1, 0)),
                st.integers(0, relations - 1),
            ),
            max_size=40 if possible else 0,
        )
    )
    query, key, relation = torch.tensor(edges, dtype=torch.int64).view(-1, 3).T
    graph = Graph.from_edges(
        query, key, num_queries, num_keys, relation=relation, num_relations=relations
    )
    return graph.with_self_loops() if draw(st.booleans()) else graph


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from(MECHANISMS), st.integers(1, 9), st.integers(1, 17), st.booleans())
def test_kernels_equal_the_reference_on_any_graph(graph, mechanism, heads, channels, edges):
    problem = make_problem(
        mechanism, heads, channels, graph=graph, edge_dim=2 if edges else 0, dropout=0.3
    )
    for result, exact in zip(problem.results(fused), problem.results(reference), strict=True):
        torch.testing.assert_close(result, exact, rtol=1e-9, atol=1e-9)


def test_dropout_has_the_right_rate_and_is_independent_between_edges():
    keep = reference.keep_mask(torch.tensor(99), 1, 50_000, 8, 0.3)[0].double()
    assert abs(keep.mean().item() - 0.7) < 0.005
    assert (keep.mean(0) - 0.7).abs().max() < 0.02
    centred = keep - keep.mean()
    neighbours = (centred[1:] * centred[:-1]).mean() / centred.var()
    heads = (centred[:, 1:] * centred[:, :-1]).mean() / centred.var()
    other = reference.keep_mask(torch.tensor(100), 1, 50_000, 8, 0.3)[0].double() - 0.7
    seeds = (centred * other).mean() / centred.var()
    assert max(abs(neighbours), abs(heads), abs(seeds)) < 0.01


@pytest.mark.parametrize("dropout", [1.0, 0.999])
def test_dropping_almost_all_edges_gives_finite_results(dropout):
    problem = make_problem("gatv2", 2, 8, dropout=dropout)
    out, weights = problem.run(fused, return_weights=True)
    expected, _ = problem.run(reference)
    torch.testing.assert_close(out, expected)
    assert torch.isfinite(out).all()
    assert weights.sum() > 0


def test_a_second_derivative_raises_an_error():
    problem = make_problem("gatv2", 2, 8)
    out, _ = problem.run(fused)
    (grad,) = torch.autograd.grad(out.sum(), problem.tables[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad.square().sum().backward()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_torch_func_grad_equals_backward(mechanism):
    problem = make_problem(mechanism, 2, 8)
    op = getattr(fused, mechanism)

    def loss(query):
        return op(query, *problem.tables[1:], problem.graph)[0].square().sum()

    (expected,) = torch.autograd.grad(loss(problem.tables[0]), problem.tables[:1])
    torch.testing.assert_close(torch.func.grad(loss)(problem.tables[0]), expected)


def test_large_scores_do_not_overflow():
    problem = make_problem("dpgat", 2, 8, dtype=torch.float32)
    with torch.no_grad():
        problem.tables[0].mul_(1e4)
    out, weights = problem.run(fused, return_weights=True)
    assert torch.isfinite(out).all()
    index = problem.graph.query_index[problem.graph.edge_id.argsort()].long()
    total = torch.zeros(problem.graph.num_queries, 2).index_add(0, index, weights)
    torch.testing.assert_close(total[total > 0], torch.ones_like(total[total > 0]))


def test_nan_inputs_give_nan_where_the_reference_does():
    problem = make_problem("gatv2", 1, 8, dtype=torch.float32)
    with torch.no_grad():
        problem.tables[1][0] = torch.nan
    out, _ = problem.run(fused)
    expected, _ = problem.run(reference)
    assert torch.equal(out.isnan(), expected.isnan())


WRONG = {
    "query": lambda p: p.tables.__setitem__(0, p.tables[0][:-1]),
    "key": lambda p: p.tables.__setitem__(1, p.tables[1][..., :-1]),
    "a": lambda p: p.tables.__setitem__(2, p.tables[2][:, :, :-1]),
    "edge": lambda p: p.tensors.update(edge=p.tensors["edge"][:-1]),
    "edge_weight": lambda p: p.tensors.update(edge_weight=p.tensors["edge_weight"][..., :-1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_shape_raises_an_error(name):
    problem = make_problem("gatv2", 2, 8, edge_dim=3)
    WRONG[name](problem)
    with pytest.raises(ValueError, match="must have shape"):
        problem.run(fused)


MISSING = [
    ("gatv2", {"edge": torch.ones(120, 2)}, "edge_weight is missing, but edge was given"),
    ("gat", {"dropout": 0.5}, "seed is missing, but dropout is 0.5"),
]


@pytest.mark.parametrize("backend", [fused, reference])
@pytest.mark.parametrize(("mechanism", "options", "message"), MISSING)
def test_a_missing_argument_raises_an_error(mechanism, options, message, backend):
    problem = make_problem(mechanism, 2, 8)
    with pytest.raises(ValueError, match=message):
        getattr(backend, mechanism)(*problem.tables, problem.graph, **options)


FIELDS = ("rowptr", "key_index", "edge_id", "key_rowptr", "key_query", "key_position")


@pytest.mark.parametrize("value", [-1, 10**6])
@pytest.mark.parametrize("name", FIELDS)
def test_a_graph_with_indices_out_of_range_raises_an_error(name, value):
    problem = make_problem("gatv2", 2, 8, edge_dim=2)
    getattr(problem.graph, name)[3] = value
    with pytest.raises(ValueError, match=f"graph's {name} holds an index that is out of range"):
        problem.results(fused)
