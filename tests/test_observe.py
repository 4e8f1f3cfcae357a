"""Observers receive the scores and weights of the ops, and do not change the results."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.utils import softmax

import dynagat
from dynagat.ops import fused, observe, reference
from tests.problems import MECHANISMS, make_problem, random_graph

BACKENDS = [pytest.param(fused, marks=pytest.mark.native, id="fused"), reference]
VARIANTS = {
    "plain": {},
    "batch": {"batch": (2, 3)},
    "relations": {"graph": lambda: random_graph(9, 11, 60, relations=3)},
    "gaps": {"graph": lambda: random_graph(9, 9, 60).with_self_loops()},
    "no edges": {"graph": lambda: random_graph(9, 11, 0)},
    "edge features": {"edge_dim": 3},
    "all": {"graph": lambda: random_graph(9, 9, 60, relations=3).with_self_loops(2),
            "batch": (2,), "edge_dim": 3, "dropout": 0.5},
    "dropout": {"dropout": 0.9},
}  # fmt: skip


def problem_of(mechanism: str, variant: str):
    options = dict(VARIANTS[variant])
    graph = options.pop("graph", lambda: None)()
    return make_problem(mechanism, 2, 5, graph=graph, **options)


def observed(problem, backend, **more):
    observations = []
    with observe.observing(observations.append):
        out, weights = problem.run(backend, **more)
    (observation,) = observations
    assert not observe.has_observers()
    assert not observation.weights.requires_grad
    assert not observation.scores.requires_grad
    return observation, out, weights


def scores_by_formula(problem) -> Tensor:  # [*, P, H], in float64
    """The formulas of the reference's docstring, in the graph's own edge order."""
    graph, at = problem.graph, -2 if problem.mechanism == "gat" else -3
    leaky = nn.functional.leaky_relu
    relation = graph.relation.long()
    key_row = graph.key_index.long() * graph.num_relations + relation
    query = problem.tables[0].detach().double().index_select(at, graph.row_index.long())
    key = problem.tables[1].detach().double().index_select(at, key_row)
    if "edge" in problem.tensors:
        edge, weight = (problem.tensors[n].detach().double() for n in ("edge", "edge_weight"))
        features = edge[graph.edge_id.long()]
        key = key + (weight[relation] @ features.view(-1, *[1] * (at == -3), 3, 1))[..., 0]
    if problem.mechanism == "gat":
        return leaky(query + key, 0.2)
    if problem.mechanism == "gatv2":
        return (leaky(query + key, 0.2) * problem.tables[2].detach().double()[relation]).sum(-1)
    return (query * key).sum(-1) / query.shape[-1] ** 0.5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.__name__.rsplit(".", 1)[-1])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_observers_receive_scores_and_weights_before_dropout(mechanism, backend, variant) -> None:
    problem = problem_of(mechanism, variant)
    graph = problem.graph
    observation, out, weights = observed(problem, backend)
    assert weights is None
    ids = graph.edge_id.long()
    torch.testing.assert_close(observation.scores[..., ids, :], scores_by_formula(problem))
    expected = softmax(observation.scores[..., ids, :], graph.query_index.long(), dim=-2)
    torch.testing.assert_close(observation.weights[..., ids, :], expected)
    gaps = torch.ones(graph.num_edges, dtype=torch.bool).index_fill(0, ids, False)
    assert not observation.weights[..., gaps, :].any()
    assert not observation.scores[..., gaps, :].any()
    assert torch.equal(observation.rowptr, graph.rowptr)
    assert torch.equal(observation.key_index, graph.key_index)
    assert torch.equal(observation.edge_id, graph.edge_id)
    assert observation.num_relations == graph.num_relations
    unobserved, returned = problem.run(backend, return_weights=True)
    assert torch.equal(out, unobserved)
    observation, _, weights = observed(problem, backend, return_weights=True)
    assert torch.equal(weights, returned)
    assert torch.equal(observation.weights, returned)
    assert not len(ids) or observation.weights.data_ptr() != weights.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.__name__.rsplit(".", 1)[-1])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_observers_of_half_precision_receive_float32(mechanism, backend, dtype) -> None:
    problem = make_problem(mechanism, 2, 5, dropout=0.5).to(dtype)
    observation, _, _ = observed(problem, backend)
    assert observation.weights.dtype == observation.scores.dtype == torch.float32
    ids, query = problem.graph.edge_id.long(), problem.graph.query_index.long()
    expected = softmax(observation.scores[ids].double(), query).float()
    torch.testing.assert_close(observation.weights[ids], expected)
    tolerance = 1e-5 if backend is fused or dtype == torch.float32 else 16 * torch.finfo(dtype).eps
    formula = scores_by_formula(problem).float()
    torch.testing.assert_close(observation.scores[ids], formula, atol=tolerance, rtol=tolerance)


def test_every_observer_is_called_until_its_block_ends() -> None:
    problem, first, second = problem_of("gatv2", "plain"), [], []
    with observe.observing(first.append):
        with suppress(KeyError), observe.observing(second.append):
            problem.run(dynagat.ops)
            raise KeyError
        problem.run(dynagat.ops)
    problem.run(dynagat.ops)
    assert (len(first), len(second)) == (2, 1)
