"""What all three layers offer beyond PyG: relations, batches, cached graphs, error messages."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading
import warnings
import weakref

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat import DPGATConv, GATConv, GATv2Conv, Graph
from dynagat import graph as graph_module
from dynagat.native import kernels
from dynagat.nn import cache, loops
from dynagat.ops import devices

LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
N, E, IN, H, C, D, R = 7, 25, 5, 3, 4, 2, 3

every_mechanism = pytest.mark.parametrize("mechanism", LAYERS)


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(loops, "_warned", True)


def make(mechanism: str, in_channels=IN, **options):
    return LAYERS[mechanism](in_channels, C, heads=options.pop("heads", H), **options).double()


def features(*shape: int) -> Tensor:
    return torch.randn(*(shape or (N, IN)), dtype=torch.float64)


def edges(num_keys: int = N, num_queries: int = N, num_edges: int = E) -> Tensor:
    """(key, query) pairs without self-loops."""
    key = torch.randint(num_keys, (num_edges,))
    query = (key + torch.randint(1, num_queries, (num_edges,))) % num_queries
    return torch.stack([key, query])


# The formulas, edge by edge


def explicit(layer, x: Tensor, edge_index: Tensor, relation: Tensor, edge_attr: Tensor | None):
    """Output and weights of a layer without self-loops, computed edge by edge."""
    num_edges = edge_index.shape[1]
    score = torch.stack(
        [
            explicit_score(layer, x[i], x[j], r, None if edge_attr is None else edge_attr[e])
            for e, (j, i, r) in enumerate(zip(*edge_index, relation, strict=True))
        ]
    )
    weight = torch.stack(
        [F.softmax(score[edge_index[1] == edge_index[1, e]], 0)[rank(e, edge_index)]
         for e in range(num_edges)]
    )  # fmt: skip
    out = torch.zeros(len(x), H, C, dtype=x.dtype)
    for e, (j, i) in enumerate(edge_index.T):
        out[i] = out[i] + weight[e][:, None] * block(value_matrix(layer), x[j], relation[e])
    return out.flatten(1) + (0 if layer.bias is None else layer.bias), weight


def rank(e: int, edge_index: Tensor) -> int:
    """The number of earlier edges with the same query as edge e."""
    return int((edge_index[1, :e] == edge_index[1, e]).sum())


def block(linear, x: Tensor, r: Tensor) -> Tensor:  # [H, C]
    """The matrix of relation r inside `linear`, times x."""
    rows = slice(int(r) * H * C, (int(r) + 1) * H * C)
    bias = 0 if linear.bias is None else linear.bias[rows]
    return (linear.weight[rows] @ x + bias).view(H, C)


def value_matrix(layer):
    own = getattr(layer, "lin_v", None)
    return own if own is not None else layer.lin if isinstance(layer, GATConv) else layer.lin_l


def explicit_score(layer, x_i: Tensor, x_j: Tensor, r: Tensor, e_ij: Tensor | None) -> Tensor:
    if isinstance(layer, GATConv):
        query, key = block(layer.lin, x_i, r), block(layer.lin, x_j, r)
        total = (layer.att_dst[r] * query + layer.att_src[r] * key).sum(-1)
        if e_ij is not None:
            total = total + (layer.att_edge[r] * block(layer.lin_edge, e_ij, r)).sum(-1)
        return F.leaky_relu(total, 0.2)
    query, key = block(layer.lin_r, x_i, r), block(layer.lin_l, x_j, r)
    edge = 0 if e_ij is None else block(layer.lin_edge, e_ij, r)
    if isinstance(layer, GATv2Conv):
        return (layer.att[r] * F.leaky_relu(query + key + edge, 0.2)).sum(-1)
    return (query * (key + edge)).sum(-1) / math.sqrt(C)


@pytest.mark.parametrize("edge_dim", [None, D])
@pytest.mark.parametrize("share_weights", [True, False])
@pytest.mark.parametrize("num_relations", [None, 1, R])
@every_mechanism
def test_each_layer_computes_its_formula(mechanism, num_relations, share_weights, edge_dim) -> None:
    options = {"edge_dim": edge_dim, "num_relations": num_relations, "add_self_loops": False}
    if mechanism != "gat":
        options["share_weights"] = share_weights
    layer = make(mechanism, **options)
    x, edge_index = features(), edges()
    relation = torch.randint(num_relations or 1, (E,))
    edge_attr = features(E, D) if edge_dim else None
    given: dict = {} if num_relations is None else {"relation": relation}
    given["return_attention_weights"] = True
    out, (returned, weight) = layer(x, edge_index, edge_attr, **given)
    expected_out, expected_weight = explicit(layer, x, edge_index, relation, edge_attr)
    assert returned is edge_index
    torch.testing.assert_close(out, expected_out)
    torch.testing.assert_close(weight, expected_weight)


@every_mechanism
def test_a_graph_provides_its_relations(mechanism) -> None:
    layer = make(mechanism, num_relations=R)
    x, edge_index, relation = features(), edges(), torch.randint(R, (E,))
    graph = Graph.from_edge_index(edge_index, N, relation=relation, num_relations=R)
    torch.testing.assert_close(layer(x, graph), layer(x, edge_index, relation=relation))


@every_mechanism
def test_a_loop_may_be_given_a_relation_on_the_graph(mechanism) -> None:
    layer = make(mechanism, num_relations=R)
    x, edge_index, relation = features(), edges(), torch.randint(R, (E,))
    graph = Graph.from_edge_index(edge_index, N, relation=relation, num_relations=R)
    loop = torch.arange(N).expand(2, -1)
    looped = torch.cat([edge_index, loop], 1)
    with_loops = torch.cat([relation, torch.full((N,), 2)])
    expected = layer(x, looped, relation=with_loops)
    torch.testing.assert_close(layer(x, graph.with_self_loops(2)), expected)


def test_unshared_gatv2_has_a_value_matrix_only_with_relations() -> None:
    assert make("gatv2", num_relations=R).lin_v is not None
    assert make("gatv2", num_relations=R, share_weights=True).lin_v is None
    assert make("gatv2").lin_v is None


@every_mechanism
def test_the_weights_of_each_relation_are_initialised_on_their_own(mechanism) -> None:
    layer = make(mechanism, 40, num_relations=50)
    lengths = {"gat": 2 * H * C, "gatv2": H * C}
    for name, parameter in layer.named_parameters():
        if name.startswith("att"):
            limit = math.sqrt(3 / lengths[mechanism])
        elif name.endswith("weight"):
            limit = math.sqrt(6 / (H * C + 40))
        else:
            continue
        assert 0.95 * limit < parameter.abs().max() <= limit


@every_mechanism
def test_loops_are_added_unless_there_are_relations(mechanism) -> None:
    assert make(mechanism).add_self_loops is True
    assert make(mechanism, num_relations=R).add_self_loops is False
    with pytest.raises(ValueError, match="add_self_loops must be False or None with num_rel"):
        make(mechanism, num_relations=R, add_self_loops=True)


# Shapes


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("batch", [(2,), (2, 3), (1,)])
@every_mechanism
def test_leading_axes_are_a_batch_over_one_graph(mechanism, batch, concat) -> None:
    layer = make(mechanism, concat=concat, residual=True, edge_dim=D)
    x, edge_index, edge_attr = features(*batch, N, IN), edges(), features(E, D)
    out, (_, weight) = layer(x, edge_index, edge_attr, return_attention_weights=True)
    assert out.shape == (*batch, N, H * C if concat else C)
    assert weight.shape == (*batch, E + N, H)
    alone = [layer(one, edge_index, edge_attr) for one in x.flatten(0, -3)]
    torch.testing.assert_close(out.flatten(0, -3), torch.stack(alone))


@every_mechanism
def test_a_batch_with_relations_or_pairs_equals_one_call_per_element(mechanism) -> None:
    layer = make(mechanism, num_relations=R)
    x = (features(2, N, IN), features(2, 4, IN))
    edge_index, relation = edges(num_queries=4), torch.randint(R, (E,))
    out = layer(x, edge_index, relation=relation)
    for b in range(2):
        alone = layer((x[0][b], x[1][b]), edge_index, relation=relation)
        torch.testing.assert_close(out[b], alone)


@pytest.mark.parametrize("residual", [True, False])
@every_mechanism
def test_a_query_without_keys_gets_bias_and_residual_only(mechanism, residual) -> None:
    layer = make(mechanism, residual=residual, add_self_loops=False)
    nn.init.normal_(layer.bias)
    x, edge_index = features(), torch.tensor([[0, 1], [2, 2]])
    expected = layer.bias.expand(N, -1) + (layer.res(x) if residual else 0)
    alone = torch.arange(N) != 2
    torch.testing.assert_close(layer(x, edge_index)[alone], expected[alone])


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("num_nodes", [0, 1, N])
@every_mechanism
def test_a_graph_without_edges_works(mechanism, num_nodes, add_self_loops) -> None:
    layer = make(mechanism, add_self_loops=add_self_loops, edge_dim=D)
    x = features(num_nodes, IN).requires_grad_()
    nothing = torch.empty(2, 0, dtype=torch.long)
    out, (index, weight) = layer(x, nothing, features(0, D), return_attention_weights=True)
    num_edges = num_nodes if add_self_loops else 0
    assert out.shape == (num_nodes, H * C)
    assert index.shape == (2, num_edges)
    assert weight.shape == (num_edges, H)
    out.sum().backward()
    assert x.grad is None or x.grad.isfinite().all()


@every_mechanism
def test_edges_may_be_strided_and_int32(mechanism) -> None:
    layer, x, edge_index = make(mechanism), features(), edges()
    expected = layer(x, edge_index)
    for given in (edge_index.int(), edge_index.T.contiguous().T):
        torch.testing.assert_close(layer(x, given), expected)


# Precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@every_mechanism
def test_every_float_dtype_trains(mechanism, dtype) -> None:
    wide = make(mechanism, edge_dim=D, residual=True)
    layer = copy.deepcopy(wide).to(dtype)
    x, edge_index, edge_attr = features().to(dtype), edges(), features(E, D).to(dtype)
    out = layer(x, edge_index, edge_attr)
    assert out.dtype == dtype
    expected = wide(x.double(), edge_index, edge_attr.double())
    close = 60 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, atol=close, rtol=close)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in layer.parameters())


@every_mechanism
def test_autocast_projects_in_half_precision(mechanism) -> None:
    layer = make(mechanism, edge_dim=D).float()
    x, edge_index, edge_attr = torch.randn(N, IN), edges(), torch.randn(E, D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x, edge_index, edge_attr)
    torch.testing.assert_close(out.float(), layer(x, edge_index, edge_attr), atol=0.1, rtol=0.1)
    out.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters())


@every_mechanism
def test_gradients_are_those_of_finite_differences(mechanism) -> None:
    layer = make(mechanism, edge_dim=D, residual=True, concat=False)
    edge_index, names = edges(), [name for name, _ in layer.named_parameters()]

    def compute(x, edge_attr, *parameters):
        state = dict(zip(names, parameters, strict=True))
        options = {"return_attention_weights": True}
        out, (_, weight) = torch.func.functional_call(
            layer, state, (x, edge_index, edge_attr), options
        )
        return out, weight

    inputs = (features().requires_grad_(), features(E, D).requires_grad_(), *layer.parameters())
    assert torch.autograd.gradcheck(compute, inputs)


@every_mechanism
def test_the_second_derivative_is_right_or_an_error(mechanism) -> None:
    layer, edge_index = make(mechanism, heads=1), edges()
    x = features().requires_grad_()
    if kernels is None:
        assert torch.autograd.gradgradcheck(lambda x: layer(x, edge_index), (x,))
        return
    (gradient,) = torch.autograd.grad(layer(x, edge_index).pow(2).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        gradient.pow(2).sum().backward()


# Attention weights


@pytest.mark.parametrize("training", [True, False])
@every_mechanism
def test_weights_sum_to_one_before_dropout_and_carry_gradients(mechanism, training) -> None:
    layer = make(mechanism, dropout=0.5).train(training)
    x = features().requires_grad_()
    _, (index, weight) = layer(x, edges(), return_attention_weights=True)
    total = torch.zeros(N, H, dtype=x.dtype).index_add(0, index[1], weight)
    torch.testing.assert_close(total, torch.ones_like(total))
    weight.pow(2).sum().backward()
    assert x.grad.abs().sum() > 0


@every_mechanism
def test_weights_come_in_the_callers_order_with_loops_last(mechanism) -> None:
    layer, x = make(mechanism), features()
    edge_index = edges()
    edge_index[:, 5] = 3  # a self-loop, which is replaced
    index, weight = layer(x, edge_index, return_attention_weights=True)[1]
    kept = edge_index[0] != edge_index[1]
    assert torch.equal(index, torch.cat([edge_index[:, kept], torch.arange(N).expand(2, -1)], 1))
    assert weight.shape == (E - 1 + N, H)
    order = torch.randperm(E)
    _, shuffled = layer(x, edge_index[:, order], return_attention_weights=True)[1]
    torch.testing.assert_close(shuffled[: E - 1], weight[: E - 1][kept_order(order, kept)])


def kept_order(order: Tensor, kept: Tensor) -> Tensor:
    """`order` restricted to the kept edges, with indices among these."""
    index = kept.cumsum(0) - 1
    return index[order[kept[order]]]


@every_mechanism
def test_weights_of_a_graph_come_in_the_callers_order(mechanism) -> None:
    layer, x, edge_index = make(mechanism), features(), edges()
    edge_index[:, 5] = 3
    expected = layer(x, edge_index, return_attention_weights=True)
    for graph in (
        Graph.from_edge_index(edge_index, N),
        Graph.from_edge_index(edge_index, N, self_loops=True),
    ):
        out, (index, weight) = layer(x, graph, return_attention_weights=True)
        torch.testing.assert_close(out, expected[0])
        torch.testing.assert_close(index.long(), expected[1][0])
        torch.testing.assert_close(weight, expected[1][1])


@every_mechanism
def test_without_loops_the_edges_of_a_graph_are_returned_unchanged(mechanism) -> None:
    layer, x, edge_index = make(mechanism, add_self_loops=False), features(), edges()
    graph = Graph.from_edge_index(edge_index, N)
    out, (index, weight) = layer(x, graph, return_attention_weights=True)
    expected, (_, expected_weight) = layer(x, edge_index, return_attention_weights=True)
    torch.testing.assert_close(out, expected)
    assert torch.equal(index, edge_index)
    torch.testing.assert_close(weight, expected_weight)


@pytest.mark.parametrize("fill_value", ["mean", "max", 0.5])
@every_mechanism
def test_edge_features_of_a_graph_are_in_the_callers_order(mechanism, fill_value) -> None:
    layer = make(mechanism, edge_dim=D, fill_value=fill_value)
    x, edge_index, edge_attr = features(), edges(), features(E, D)
    edge_index[:, 5] = 3
    expected = layer(x, edge_index, edge_attr)
    torch.testing.assert_close(layer(x, Graph.from_edge_index(edge_index, N), edge_attr), expected)
    gaps = Graph.from_edge_index(edge_index, N, self_loops=True)
    padded = torch.cat([edge_attr, features(N, D)])
    torch.testing.assert_close(layer(x, gaps, padded), expected)


# Dropout


@every_mechanism
def test_dropout_repeats_with_the_same_seed_and_is_off_in_evaluation(mechanism) -> None:
    layer, x, edge_index = make(mechanism, dropout=0.5), features(), edges()
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(layer(x, edge_index))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    layer.eval()
    state = torch.get_rng_state()
    assert torch.equal(layer(x, edge_index), layer(x, edge_index))
    assert torch.equal(state, torch.get_rng_state())  # no random numbers were used


@every_mechanism
def test_dropout_does_not_change_the_mean(mechanism) -> None:
    layer, x, edge_index = make(mechanism, dropout=0.4), features(), edges()
    outs = torch.stack([layer(x, edge_index) for _ in range(400)])
    expected = layer.eval()(x, edge_index)
    error = (outs.mean(0) - expected) / (outs.std(0) / math.sqrt(len(outs)) + 1e-9)
    assert error.abs().mean() < 1.2  # 0.8 if the errors are normal
    assert error.abs().max() < 6


@every_mechanism
def test_dropout_of_everything_leaves_the_bias(mechanism) -> None:
    layer = make(mechanism, dropout=1.0)
    nn.init.normal_(layer.bias)
    torch.testing.assert_close(layer(features(), edges()), layer.bias.expand(N, -1))


# Copies


@every_mechanism
def test_copies_and_pickles_compute_the_same(mechanism) -> None:
    layer = make(mechanism, edge_dim=D, residual=True, fill_value=torch.ones(D))
    x, edge_index, edge_attr = features(), edges(), features(E, D)
    expected = layer(x, edge_index, edge_attr)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x, edge_index, edge_attr), expected)


@pytest.mark.parametrize("num_relations", [None, R])
@every_mechanism
def test_a_state_dict_restores_the_layer(mechanism, num_relations) -> None:
    layers = [make(mechanism, num_relations=num_relations) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    relation = {} if num_relations is None else {"relation": torch.randint(R, (E,))}
    x, edge_index = features(), edges()
    assert torch.equal(layers[0](x, edge_index, **relation), layers[1](x, edge_index, **relation))


def test_a_copied_shared_matrix_is_still_shared() -> None:
    layer = copy.deepcopy(make("gatv2", share_weights=True))
    assert layer.lin_r is layer.lin_l
    assert len(list(layer.parameters())) == 4


# Compilers

SIZES = ((7, 25), (9, 31), (12, 11))


def case(num_nodes: int, num_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(num_nodes, IN)
    return x, edges(num_nodes, num_nodes, num_edges), torch.randn(num_edges, D)


def assert_compiles(layer, backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for size in SIZES:
        x, edge_index, edge_attr = case(*size)
        edge_attr = edge_attr if layer.edge_dim else None
        gradients = []
        for function in (layer, compiled):
            layer.zero_grad()
            out = function(x, edge_index, edge_attr)
            out.square().sum().backward()
            gradients.append([out, *(p.grad for p in layer.parameters())])
        torch.testing.assert_close(gradients[1], gradients[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"edge_dim": D, "residual": True}], ids=str)
@every_mechanism
def test_compiles_in_one_graph_for_changing_sizes(mechanism, options) -> None:
    assert_compiles(make(mechanism, **options).float(), "aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiles_with_inductor() -> None:
    assert_compiles(make("gatv2", edge_dim=D).float(), "inductor")


@every_mechanism
def test_compiles_with_dropout_and_relations(mechanism) -> None:
    torch.compiler.reset()
    layer = make(mechanism, num_relations=R, dropout=0.5).float()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for size in SIZES:
        x, edge_index, _ = case(*size)
        out = compiled(x, edge_index, relation=torch.randint(R, (size[1],)))
        assert out.isfinite().all()


@every_mechanism
def test_compiled_weights_equal_the_eager_ones(mechanism) -> None:
    torch.compiler.reset()
    layer = make(mechanism).float()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, edge_index, _ = case(*SIZES[0])
    weights = compiled(x, edge_index, return_attention_weights=True)
    torch.testing.assert_close(weights, layer(x, edge_index, return_attention_weights=True))


@pytest.mark.parametrize("backend", [pytest.param("fused", marks=pytest.mark.native), "reference"])
@every_mechanism
def test_compiles_over_edges_with_loops_among_them(mechanism, backend, monkeypatch) -> None:
    if backend == "reference":
        for module in (graph_module, devices):
            monkeypatch.setattr(module, "kernels", None)
    torch.compiler.reset()
    layer = make(mechanism, edge_dim=D).float()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, edge_index, edge_attr = case(*SIZES[0])
    edge_index[:, :3] = 2
    out, (index, weight) = compiled(x, edge_index, edge_attr, return_attention_weights=True)
    expected, (_, expected_weight) = layer(x, edge_index, edge_attr, return_attention_weights=True)
    torch.testing.assert_close(out, expected)
    assert torch.equal(index[:, :3], edge_index[:, :3])
    assert not weight[:3].any()
    torch.testing.assert_close(weight[3:], expected_weight)


@pytest.mark.parametrize("add_self_loops", [True, False])
@every_mechanism
def test_compiles_over_a_graph(mechanism, add_self_loops) -> None:
    torch.compiler.reset()
    layer = make(mechanism, add_self_loops=add_self_loops).float()
    x, edge_index, _ = case(*SIZES[0])
    graph = Graph.from_edge_index(edge_index, len(x))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, graph), layer(x, graph))


def test_a_lazy_layer_can_not_be_compiled() -> None:
    torch.compiler.reset()
    layer = GATv2Conv(-1, C)
    with pytest.raises(RuntimeError, match="call the layer once before compiling"):
        torch.compile(layer, fullgraph=True, backend="eager")(*case(*SIZES[0])[:2])


@pytest.mark.parametrize("options", [{}, {"edge_dim": D, "residual": True}], ids=str)
@every_mechanism
def test_exports_with_dynamic_nodes_and_edges(mechanism, options) -> None:
    layer = make(mechanism, **options).float().eval()
    num_nodes, num_edges = torch.export.Dim("num_nodes"), torch.export.Dim("num_edges")
    arguments = [(*case(*size)[:2], case(*size)[2] if options else None) for size in SIZES]
    edge_shape = {0: num_edges} if options else None
    shapes = ({0: num_nodes}, {1: num_edges}, edge_shape)
    exported = torch.export.export(layer, arguments[0], dynamic_shapes=shapes)
    for given in arguments:
        torch.testing.assert_close(exported.module()(*given), layer(*given))


# Cached graphs


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The query arrays of all graphs built so far."""
    queries, build = [], Graph.from_edges.__func__

    def counted(cls, query_index, *args, **options):
        queries.append(query_index)
        return build(cls, query_index, *args, **options)

    monkeypatch.setattr(Graph, "from_edges", classmethod(counted))
    return queries


def test_a_graph_is_built_once_per_edge_index(builds) -> None:
    x, edge_index = features(), edges()
    for mechanism in LAYERS:
        make(mechanism)(x, edge_index)
        make(mechanism)(x, edge_index)
    assert len(builds) == 1
    make("gat", add_self_loops=False)(x, edge_index)
    make("gat", flow="target_to_source")(x, edge_index)
    make("gat")((x, features(N + 1, IN)), edge_index)
    assert len(builds) == 4


def rewrite_in_place(edge_index: Tensor) -> None:
    edge_index[0, 3] = (edge_index[0, 3] + 1) % N


def rewrite_by_data(edge_index: Tensor) -> None:
    edge_index.data[0, 3] = (edge_index[0, 3] + 1) % N


def rewrite_by_numpy(edge_index: Tensor) -> None:
    edge_index.numpy()[:, [3, 4]] = edge_index.numpy()[:, [4, 3]]
    edge_index.numpy()[1, 3] = (edge_index[0, 3] + 2) % N


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("rewrite", [rewrite_in_place, rewrite_by_data, rewrite_by_numpy])
def test_a_changed_edge_index_is_detected(rewrite, contiguous, builds) -> None:
    layer, x = make("gatv2"), features()
    edge_index = edges() if contiguous else edges().T.contiguous().T
    layer(x, edge_index)
    rewrite(edge_index)
    out = layer(x, edge_index)
    torch.testing.assert_close(out, layer(x, edge_index.clone()))
    assert len(builds) == 3


def test_a_changed_relation_is_detected(builds) -> None:
    layer, x, edge_index = make("gat", num_relations=R), features(), edges()
    first, second = torch.randint(R, (2, E))
    for relation in (first, second, first, second):
        layer(x, edge_index, relation=relation)
    assert len(builds) == 2
    first[0] = (first[0] + 1) % R
    out = layer(x, edge_index, relation=first)
    torch.testing.assert_close(out, layer(x, edge_index.clone(), relation=first.clone()))


@pytest.mark.filterwarnings("ignore:Sparse ")
def test_the_graph_of_a_sparse_adjacency_is_cached_too(builds) -> None:
    layer, x = make("gatv2"), features()
    adjacency = torch.sparse_coo_tensor(edges().flip(0), torch.ones(E), (N, N)).coalesce()
    for given in (adjacency, adjacency.to_sparse_csr()):
        layer(x, given)
        layer(x, given)
    assert len(builds) == 2


def test_a_cached_graph_is_deleted_with_its_edge_index() -> None:
    layer, edge_index = make("gat"), edges()
    layer(features(), edge_index)
    (entry,) = cache._entries[edge_index].values()
    cached = weakref.ref(next(iter(entry.graphs.values())))
    del edge_index, entry
    gc.collect()
    assert cached() is None


def test_loops_of_a_graph_are_built_once() -> None:
    layer, graph = make("gat"), Graph.from_edge_index(edges(), N)
    layer(features(), graph)
    first = cache.cached_self_loops(graph)
    assert cache.cached_self_loops(graph) is first


def test_graphs_of_inference_tensors_are_not_cached(builds) -> None:
    layer, x = make("gat"), features()
    with torch.inference_mode():
        edge_index = edges()
        layer(x, edge_index)
        layer(x, edge_index)
    assert len(builds) == 2


@pytest.mark.parametrize("kind", ["edge_index", "graph"])
def test_a_graph_cached_in_inference_mode_serves_training_too(kind) -> None:
    x, relation = features(), torch.zeros(len(edges()[0]), dtype=torch.int64)
    given = Graph.from_edge_index(edges(), len(x)) if kind == "graph" else edges()
    layers = [make("gatv2", residual=True)]
    calls = [lambda: layers[0](x, given)]
    if kind == "edge_index":
        layers.append(make("gatv2", num_relations=2))
        calls.append(lambda: layers[1](x, given, relation=relation))
    for layer, call in zip(layers, calls, strict=True):
        with torch.inference_mode():
            call()
        call().sum().backward()
        assert layer.att.grad is not None


def test_threads_may_share_an_edge_index() -> None:
    layer, x, edge_index = make("gatv2"), features(), edges()
    expected, outs = layer(x, edge_index.clone()), []
    threads = [threading.Thread(target=lambda: outs.append(layer(x, edge_index))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outs) == 8
    for out in outs:
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_checksum_sees_every_entry_and_their_order(dtype) -> None:
    numbers = torch.arange(40, dtype=dtype).view(2, 20)
    seen = {cache.checksum(numbers)}
    for entry in range(40):
        changed = numbers.clone()
        changed.view(-1)[entry] += 1
        seen.add(cache.checksum(changed))
    seen |= {cache.checksum(numbers.flip(0)), cache.checksum(numbers.flip(1))}
    assert len(seen) == 43


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_checksum_sees_changes_that_cancel_out(dtype) -> None:
    """Second differences and two reversed neighbouring edges, which cancel in any linear sum."""
    numbers = torch.arange(40, dtype=dtype).view(2, 20) % 7
    bent, reversed_ = numbers.clone(), numbers.clone()
    bent[0, 4:10:2] += torch.tensor([1, -2, 1], dtype=dtype)
    reversed_[:, 4], reversed_[:, 6] = torch.tensor([1, 5]), torch.tensor([5, 1])
    swapped = reversed_.clone()
    swapped[:, 4], swapped[:, 6] = reversed_[:, 6].clone(), reversed_[:, 4].clone()
    assert len({cache.checksum(n) for n in (numbers, bent, reversed_, swapped)}) == 4


# Self-loops on pairs


def test_self_loops_on_a_pair_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_warned", False)
    layer, x, edge_index = make("gatv2"), features(), edges()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(x, edge_index)
        layer((x, x), edge_index)  # the same node set twice
        assert caught == []
        layer((x, features(N, IN)), edge_index)
        layer((x, features(N, IN)), edge_index)
    (warning,) = caught
    assert "pass add_self_loops=False" in str(warning.message)


# Errors

X, EDGES = torch.ones(N, IN), torch.zeros(2, E, dtype=torch.long)

BAD_LAYERS = [
    ({"heads": 0}, "heads must be a positive integer, but is 0"),
    ({"out_channels": -1}, "out_channels must be a positive integer, but is -1"),
    ({"in_channels": 0}, "in_channels must be positive, or -1"),
    ({"in_channels": (3, 4, 5)}, r"in_channels must be one width or a pair, but is \(3, 4, 5\)"),
    ({"edge_dim": -2}, "edge_dim must be positive, or -1"),
    ({"dropout": -0.1}, "dropout must be a probability, but is -0.1"),
    ({"dropout": 1.5}, "dropout must be a probability, but is 1.5"),
    ({"fill_value": "median"}, "fill_value must be .*'mean'.* but is 'median'"),
    ({"fill_value": [1]}, "fill_value must be .* but is a list"),
    ({"aggr": "max"}, "aggr must be 'add' or 'sum', .* but is 'max'"),
    ({"flow": "up"}, "flow must be one of source_to_target, target_to_source, but is 'up'"),
    ({"num_relations": 0}, "num_relations must be a positive integer, but is 0"),
    ({"decomposed_layers": 2}, "unexpected keyword argument 'decomposed_layers'"),
]


@pytest.mark.parametrize(("options", "message"), BAD_LAYERS)
@every_mechanism
def test_a_bad_layer_is_a_clear_error(mechanism, options, message) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        LAYERS[mechanism](**{"in_channels": IN, "out_channels": C, **options})


BAD_CALLS = [
    ({}, {"x": torch.ones(N, 4)}, "x must have 5 features, the layer's in_channels, but has 4"),
    ({}, {"x": (X, torch.ones(N, 4))}, r"x\[1\] must have 5 features, the layer's in_channels"),
    (
        {},
        {"x": torch.ones(N, IN).long()},
        "x must have a floating-point dtype, but has torch.int64",
    ),
    ({}, {"x": X.double()}, "x must have dtype torch.float32 like the layer, but has torch.f"),
    ({}, {"x": torch.ones(IN)}, r"x must have shape \[\*, N, in_channels\], but has \[5\]"),
    ({}, {"x": [[1.0]]}, "x must be a tensor or a pair .* but has 1 entries"),
    ({}, {"x": "text"}, "x must be a tensor, but is a str"),
    ({}, {"x": (X[None], X)}, r"must have the same leading axes, but have \[1\] and \[\]"),
    ({}, {"edge_index": EDGES.to("meta")}, "edge_index must be on cpu like x, but is on meta"),
    ({}, {"edge_index": EDGES.float()}, "edge_index must hold int32 or int64"),
    ({}, {"edge_index": EDGES[:1]}, r"edge_index must have shape \[2, E\], but has \[1, 25\]"),
    ({}, {"edge_index": [[0], [1]]}, "edge_index must be a tensor, but is a list"),
    ({}, {"edge_index": EDGES + N}, r"must lie in \[0, 7\), but holds 7"),
    ({}, {"edge_index": EDGES - 1}, r"must lie in \[0, 7\), but holds -1"),
    ({}, {"edge_index": Graph.from_edge_index(EDGES, 9)}, "edge_index implies 9 keys, but x has"),
    ({}, {"edge_attr": torch.ones(E, D)}, "edge_attr was given, but the layer was created without"),
    ({}, {"size": (N, N + 1)}, "size implies 8 queries, but x has 7"),
    ({}, {"size": N}, "size must be a pair .* but is 7"),
    ({}, {"relation": EDGES[0]}, "relation was given, but the layer was created without num_rel"),
    ({"edge_dim": D}, {}, "edge_attr is missing, but the layer has edge_dim=2"),
    ({"edge_dim": D}, {"edge_attr": torch.ones(E, 5)}, "edge_attr must have 2 features, the layer"),
    ({"edge_dim": D}, {"edge_attr": torch.ones(4, D)}, r"each of the 25 edges, but has shape \[4"),
    (
        {"edge_dim": D},
        {"edge_attr": EDGES.T},
        "edge_attr must be a floating-point tensor, but is torch",
    ),
    (
        {"edge_dim": D},
        {"edge_attr": [[1.0]]},
        "edge_attr must be a floating-point tensor, but is list",
    ),
    (
        {"edge_dim": D, "fill_value": torch.ones(3)},
        {"edge_attr": torch.ones(E, D)},
        r"fill_value must broadcast to \[7, 2\], but has \[3\]",
    ),
    ({"num_relations": 2}, {}, "relation is missing, but the layer has num_relations=2"),
    ({"num_relations": 2}, {"relation": EDGES[0] + 2}, r"must lie in \[0, 2\), but holds 2"),
    ({"num_relations": 2}, {"relation": EDGES[0, :4]}, "relation must have one entry per edge"),
    ({"num_relations": 2}, {"relation": EDGES[0].float()}, "relation must hold int32 or int64"),
    (
        {"num_relations": 2},
        {"edge_index": Graph.from_edge_index(EDGES, N)},
        "edge_index is a Graph with num_relations=1, but the layer has num_relations=2",
    ),
]


@pytest.mark.parametrize(("options", "call", "message"), BAD_CALLS)
@every_mechanism
def test_a_bad_call_is_a_clear_error(mechanism, options, call, message) -> None:
    layer = LAYERS[mechanism](IN, C, **options)
    with pytest.raises((TypeError, ValueError), match=message):
        layer(**{"x": X, "edge_index": EDGES, **call})


@pytest.mark.parametrize("call", [{"edge_index": EDGES + N}, {"edge_attr": torch.ones(3, D)}])
@every_mechanism
def test_a_failed_call_changes_nothing(mechanism, call) -> None:
    layer = LAYERS[mechanism](-1, C, edge_dim=D, residual=True)
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="must"):
        layer(**{"x": X, "edge_index": EDGES, "edge_attr": torch.ones(E, D), **call})
    assert layer.res.is_lazy
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("mechanism", ["gatv2", "dpgat"])
def test_only_gat_takes_queries_without_features(mechanism) -> None:
    with pytest.raises(TypeError, match=r"x\[1\] must be a tensor, but is a NoneType"):
        make(mechanism)((X.double(), None), EDGES)


def test_a_shared_lazy_matrix_rejects_two_widths() -> None:
    layer = GATv2Conv((-1, -1), C, share_weights=True)
    with pytest.raises(ValueError, match=r"x\[1\] must have 5 features"):
        layer((X, torch.ones(N, 4)), EDGES)
    assert layer.lin_l.is_lazy


def test_edges_from_numpy_work() -> None:
    edge_index = torch.from_numpy(numpy.array([[0, 1], [1, 2]]))
    assert make("gat")(features(), edge_index).shape == (N, H * C)
