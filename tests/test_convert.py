"""Converted state dicts compute the same function, and models are accelerated in place."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.utils import parametrize

import dynagat
from dynagat import DPGATConv, Dropout, GATConv, GATv2Conv, accelerate, convert

N, E, IN, H, C = 6, 20, 5, 3, 4
WIDTH = H * C


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def draw(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """A state dict; `__` in a name stands for a dot."""
    return {name.replace("__", "."): torch.randn(*shape) for name, shape in shapes.items()}


def edges() -> Tensor:
    return torch.randint(N, (2, E))


def attend(score: Tensor, value: Tensor, query: Tensor) -> Tensor:
    """score [E, H] and value [E, H, C] -> [N, H·C], query by query."""
    out = torch.zeros(N, H, C)
    for i in range(N):
        at = query == i
        out[i] = (F.softmax(score[at], 0)[..., None] * value[at]).sum(0)
    return out.flatten(1)


# The old layers, written from their documentation


def old_gat(state, x: Tensor, edge_index: Tensor, source: str, target: str, left: str, right: str):
    """`left` is the source's vector: att_l in PyG 1.6 and 1.7, attn_l in DGL."""
    key, query = edge_index
    z_source = (x @ state[source].T).view(N, H, C)
    z_target = (x @ state[target].T).view(N, H, C)
    score = (z_source * state[left]).sum(-1)[key] + (z_target * state[right]).sum(-1)[query]
    return attend(F.leaky_relu(score, 0.2), z_source[key], query)


def dgl_gatv2(state, x: Tensor, edge_index: Tensor) -> Tensor:
    key, query = edge_index
    z_source = F.linear(x, state["fc_src.weight"], state.get("fc_src.bias")).view(N, H, C)
    z_target = F.linear(x, state["fc_dst.weight"], state.get("fc_dst.bias")).view(N, H, C)
    score = (F.leaky_relu(z_source[key] + z_target[query], 0.2) * state["attn"]).sum(-1)
    return attend(score, z_source[key], query)


# PyG


@pytest.mark.parametrize("prefix", ["", "convs.0."])
def test_pyg_1_gat_with_one_matrix(prefix) -> None:
    state = draw(att_l=(1, H, C), att_r=(1, H, C), lin_l__weight=(WIDTH, IN), bias=(WIDTH,))
    state["lin_r.weight"] = state["lin_l.weight"].clone()  # one tensor when saved, two when loaded
    named = {prefix + name: value for name, value in state.items()}
    converted = {k.removeprefix(prefix): v for k, v in convert(named).items()}
    layer = GATConv(IN, C, heads=H, add_self_loops=False)
    layer.load_state_dict(converted)
    x, edge_index = torch.randn(N, IN), edges()
    expected = old_gat(state, x, edge_index, "lin_l.weight", "lin_r.weight", "att_l", "att_r")
    torch.testing.assert_close(layer(x, edge_index), expected + state["bias"])


def test_pyg_1_gat_with_a_pair() -> None:
    state = draw(att_l=(1, H, C), att_r=(1, H, C))
    state |= draw(lin_l__weight=(WIDTH, IN), lin_r__weight=(WIDTH, IN))
    layer = GATConv((IN, IN), C, heads=H, bias=False, add_self_loops=False)
    layer.load_state_dict(convert(state))
    x, edge_index = torch.randn(N, IN), edges()
    expected = old_gat(state, x, edge_index, "lin_l.weight", "lin_r.weight", "att_l", "att_r")
    torch.testing.assert_close(layer(x, edge_index), expected)


def test_pyg_2_0_gat_gets_one_matrix() -> None:
    new = GATConv(IN, C, heads=H, edge_dim=2)
    state = dict(new.state_dict())
    state["lin_src.weight"] = state["lin_dst.weight"] = state.pop("lin.weight")
    converted = convert(state)
    assert converted.keys() == new.state_dict().keys()
    new.load_state_dict(converted)


@pytest.mark.parametrize("in_channels", [IN, (IN, IN)])
def test_the_target_decides_between_one_matrix_and_a_pair(in_channels) -> None:
    weight = torch.randn(WIDTH, IN)
    state = draw(att_src=(1, H, C), att_dst=(1, H, C), bias=(WIDTH,))
    state |= {"lin_src.weight": weight, "lin_dst.weight": weight}
    target = GATConv(in_channels, C, heads=H)
    target.load_state_dict(convert(state, target))
    (by_key,), (by_query,) = target.projections()
    assert (by_key is by_query) == isinstance(in_channels, int)
    assert torch.equal(by_key.weight, weight)
    assert torch.equal(by_query.weight, weight)


def test_two_different_matrices_are_not_merged() -> None:
    state = draw(att_src=(1, H, C), att_dst=(1, H, C))
    state |= draw(lin_src__weight=(WIDTH, IN), lin_dst__weight=(WIDTH, IN))
    with pytest.raises(ValueError, match=r"lin_src.weight and lin_dst.weight differ, but the targ"):
        convert(state, GATConv(IN, C, heads=H, bias=False))


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
@pytest.mark.parametrize("in_channels", [IN, (IN, 3), -1])
def test_current_state_dicts_stay_unchanged(name, in_channels) -> None:
    state = getattr(pyg, name)(in_channels, C, heads=H, edge_dim=2, residual=True).state_dict()
    converted = convert(state)
    assert converted.keys() == state.keys()
    assert all(converted[key] is state[key] for key in state)


# DGL


def test_dgl_gat_with_one_matrix_and_residual() -> None:
    state = draw(attn_l=(1, H, C), attn_r=(1, H, C), fc__weight=(WIDTH, IN), bias=(WIDTH,))
    state |= draw(res_fc__weight=(WIDTH, IN))
    layer = GATConv(IN, C, heads=H, residual=True, add_self_loops=False)
    layer.load_state_dict(convert(state))
    x, edge_index = torch.randn(N, IN), edges()
    expected = old_gat(state, x, edge_index, "fc.weight", "fc.weight", "attn_l", "attn_r")
    expected = expected + x @ state["res_fc.weight"].T + state["bias"]
    torch.testing.assert_close(layer(x, edge_index), expected)


def test_dgl_gat_with_a_pair_and_the_bias_in_the_residual() -> None:
    state = draw(attn_l=(1, H, C), attn_r=(1, H, C))
    state |= draw(fc_src__weight=(WIDTH, IN), fc_dst__weight=(WIDTH, IN))
    state |= draw(res_fc__weight=(WIDTH, IN), res_fc__bias=(WIDTH,))
    layer = GATConv((IN, IN), C, heads=H, residual=True, add_self_loops=False)
    layer.load_state_dict(convert(state))
    x, edge_index = torch.randn(N, IN), edges()
    expected = old_gat(state, x, edge_index, "fc_src.weight", "fc_dst.weight", "attn_l", "attn_r")
    expected = expected + F.linear(x, state["res_fc.weight"], state["res_fc.bias"])
    torch.testing.assert_close(layer(x, edge_index), expected)


def test_dgl_heads_are_averaged_if_the_target_averages_them() -> None:
    state = draw(attn_l=(1, H, C), attn_r=(1, H, C), fc__weight=(WIDTH, IN), bias=(WIDTH,))
    state |= draw(res_fc__weight=(WIDTH, IN))
    layer = GATConv(IN, C, heads=H, concat=False, residual=True, add_self_loops=False)
    layer.load_state_dict(convert(state, layer))
    x, edge_index = torch.randn(N, IN), edges()
    whole = old_gat(state, x, edge_index, "fc.weight", "fc.weight", "attn_l", "attn_r")
    whole = whole + x @ state["res_fc.weight"].T + state["bias"]
    torch.testing.assert_close(layer(x, edge_index), whole.view(N, H, C).mean(1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_dgl_gatv2(residual, bias) -> None:
    state = draw(attn=(1, H, C), fc_src__weight=(WIDTH, IN), fc_dst__weight=(WIDTH, IN))
    if bias:
        state |= draw(fc_src__bias=(WIDTH,), fc_dst__bias=(WIDTH,))
    if residual:
        state |= draw(res_fc__weight=(WIDTH, IN)) | (draw(res_fc__bias=(WIDTH,)) if bias else {})
    layer = GATv2Conv(IN, C, heads=H, bias=bias, residual=residual, add_self_loops=False)
    layer.load_state_dict(convert(state))
    x, edge_index = torch.randn(N, IN), edges()
    expected = dgl_gatv2(state, x, edge_index)
    if residual:
        expected = expected + F.linear(x, state["res_fc.weight"], state.get("res_fc.bias"))
    torch.testing.assert_close(layer(x, edge_index), expected)


@pytest.mark.parametrize("names", ["lin_l lin_r att_l att_r", "fc_src fc_dst attn_l attn_r"])
def test_the_papers_dpgat(names) -> None:
    key, query, *unused = names.split()
    weights = [torch.randn(WIDTH, IN) for _ in range(3)]
    state = dict(zip((f"{key}.weight", f"{query}.weight", "v_layer.weight"), weights, strict=True))
    state |= {name: torch.randn(1, H, C) for name in unused}
    layer = DPGATConv(IN, C, heads=H, bias=False)
    layer.load_state_dict(convert(state))
    for linear, weight in zip((layer.lin_l, layer.lin_r, layer.lin_v), weights, strict=True):
        assert torch.equal(linear.weight, weight)


# Whole models, bad input


def test_other_entries_of_a_model_are_copied_and_the_argument_is_not_changed() -> None:
    state = {"norm.weight": torch.ones(3), "head.lin_l.weight": torch.ones(2, 2)}
    old = draw(attn_l=(1, H, C), attn_r=(1, H, C), fc__weight=(WIDTH, IN))
    state |= {f"gat.{i}.{name}": value for i in (0, 10) for name, value in old.items()}
    before = dict(state)
    converted = convert(state)
    assert state == before
    assert converted["norm.weight"] is state["norm.weight"]
    expected = {f"gat.{i}.{n}" for i in (0, 10) for n in ("att_src", "att_dst", "lin.weight")}
    assert converted.keys() == expected | {"norm.weight", "head.lin_l.weight"}


def test_a_missing_entry_is_named() -> None:
    with pytest.raises(ValueError, match=r"has convs\.1\.\* but no convs\.1\.attn_r"):
        convert({"convs.1.attn_l": torch.ones(1, H, C), "convs.1.fc.weight": torch.ones(WIDTH, IN)})


def test_wrong_shapes_are_named() -> None:
    state = draw(attn=(1, H, C), fc_src__weight=(7, IN), fc_dst__weight=(7, IN))
    with pytest.raises(
        ValueError, match=r"fc_src.weight must have H·C rows, .* \[1, 3, 4\] and \[7, 5\]"
    ):
        convert(state)


# accelerate


class Network(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.first = pyg.GATv2Conv(IN, C, heads=H, **options)
        self.second = pyg.GATConv(WIDTH, C, heads=H, concat=False, **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_an_accelerated_model_computes_and_trains_as_before() -> None:
    model = Network(residual=True)
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (model, twin)]
    parameters = dict(model.named_parameters())
    state = torch.get_rng_state()
    report = accelerate(model)
    assert torch.equal(state, torch.get_rng_state())
    assert report.model is model
    assert report.replaced == ("first", "second")
    assert isinstance(model.first, GATv2Conv)
    assert isinstance(model.second, GATConv)
    assert all(parameters[name] is p for name, p in model.named_parameters())
    x, edge_index = torch.randn(N, IN), edges()
    for _ in range(3):
        for network, optimizer in zip((model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            network(x, edge_index).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(model(x, edge_index), twin(x, edge_index), atol=1e-4, rtol=1e-4)


OPTIONS = [
    {"edge_dim": 2, "fill_value": "max", "negative_slope": 0.1, "dropout": 0.3},
    {"add_self_loops": False, "bias": False, "flow": "target_to_source"},
    {"heads": 2, "concat": False, "fill_value": torch.ones(2), "edge_dim": 2},
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_every_option_and_the_training_mode_are_kept(name, options, training) -> None:
    layer = getattr(pyg, name)(IN, C, **options).train(training)
    ours = accelerate(nn.ModuleList([layer])).model[0]
    assert ours.training == training
    for option, value in options.items():
        if option != "bias":
            assert getattr(ours, option) is value
    layer.eval(), ours.eval()
    x, edge_index = torch.randn(N, IN), edges()
    edge_attr = torch.randn(E, 2) if "edge_dim" in options else None
    torch.testing.assert_close(ours(x, edge_index, edge_attr), layer(x, edge_index, edge_attr))


@pytest.mark.parametrize("is_lazy", [True, False])
def test_lazy_layers_are_replaced_before_and_after_their_first_call(is_lazy) -> None:
    model = nn.Sequential(pyg.GATv2Conv(-1, C, heads=H))
    x, edge_index = torch.randn(N, IN), edges()
    if not is_lazy:
        model[0](x, edge_index)
    parameters = list(model.parameters())
    assert accelerate(model).replaced == ("0",)
    model[0](x, edge_index).sum().backward()
    assert all(mine is theirs for mine, theirs in zip(model.parameters(), parameters, strict=True))
    assert all(p.grad is not None for p in parameters)


def test_shared_weights_stay_shared() -> None:
    model = nn.Sequential(pyg.GATv2Conv(IN, C, share_weights=True))
    accelerate(model)
    assert model[0].lin_r is model[0].lin_l


def test_a_shared_layer_is_replaced_once_under_all_its_paths() -> None:
    shared = pyg.GATConv(IN, IN)
    model = nn.ModuleDict({"a": shared, "b": shared, "c": nn.ModuleList([shared])})
    report = accelerate(model)
    assert model["a"] is model["b"] is model["c"][0]
    assert isinstance(model["a"], GATConv)
    assert report.replaced == ("a", "b", "c.0")


def test_a_layer_as_the_model_is_returned_in_the_report() -> None:
    layer = pyg.GATConv(IN, C)
    report = accelerate(layer)
    assert isinstance(report.model, GATConv)
    assert report.model.att_src is layer.att_src
    assert "use report.model" in str(report)


class Own(pyg.GATConv):
    pass


def explained() -> nn.Module:
    layer = pyg.GATConv(IN, C)
    layer.explain = True
    return layer


def hooked() -> nn.Module:
    layer = pyg.GATConv(IN, C)
    layer.register_forward_hook(lambda *_: None)
    return layer


def message_hooked() -> nn.Module:
    layer = pyg.GATv2Conv(IN, C)
    layer.register_message_forward_hook(lambda *_: None)
    return layer


def parametrized() -> nn.Module:
    layer = pyg.GATConv(IN, C)
    parametrize.register_parametrization(layer.lin, "weight", nn.Identity())
    return layer


def rebuilt() -> nn.Module:
    layer = pyg.GATv2Conv(IN, C)
    layer.lin_l = nn.Linear(IN, C)
    return layer


def retied() -> nn.Module:
    layer = pyg.GATv2Conv(IN, C)
    layer.lin_r = layer.lin_l
    return layer


def patched() -> nn.Module:
    layer = pyg.GATConv(IN, C)
    layer.message = lambda x_j, alpha: x_j
    return layer


def buffered() -> nn.Module:
    layer = pyg.GATConv(IN, C)
    layer.register_buffer("steps", torch.zeros(1))
    return layer


def odd_fill() -> nn.Module:
    return pyg.GATConv(IN, C, edge_dim=2, fill_value="any")


LEFT = [
    (lambda: Own(IN, C), "Own is a subclass"),
    (lambda: pyg.GATConv(IN, C, aggr="max"), "it has aggr='max'"),
    (lambda: pyg.GATConv(IN, C, decomposed_layers=2), "it has decomposed_layers=2"),
    (explained, "an explainer is using it"),
    (hooked, "it has hooks"),
    (message_hooked, "it has hooks"),
    (parametrized, "lin is parametrized"),
    (rebuilt, "lin_l is a torch.nn.modules.linear.Linear"),
    (patched, "its message was replaced"),
    (buffered, "it has the buffer steps"),
    (odd_fill, "fill_value must be"),
    (lambda: torch.compile(pyg.GATConv(IN, C)), "it is compiled"),
]


@pytest.mark.parametrize(("make", "reason"), LEFT)
def test_the_report_says_why_a_layer_is_not_replaced(make, reason) -> None:
    layer = make()
    model = nn.ModuleList([layer, pyg.GATConv(IN, C)])
    report = accelerate(model)
    assert model[0] is layer
    assert report.replaced == ("1",)
    assert reason in report.left[0][1]
    assert reason in str(report)


def test_weights_shared_by_the_user_stay_shared() -> None:
    layer = retied()
    model = nn.ModuleList([layer])
    x, edge_index = torch.randn(N, IN), edges()
    accelerate(model)
    assert model[0].lin_l.weight is model[0].lin_r.weight
    torch.testing.assert_close(model[0](x, edge_index), layer(x, edge_index))


def test_a_model_without_attention_is_not_changed() -> None:
    model = nn.Sequential(nn.Linear(2, 2), pyg.GCNConv(2, 2))
    report = accelerate(model)
    assert report.replaced == report.left == ()
    assert str(report) == "no GATConv or GATv2Conv of torch_geometric found"


def test_accelerating_again_changes_nothing() -> None:
    model = Network()
    accelerate(model)
    first = model.first
    assert accelerate(model).replaced == ()
    assert model.first is first


def test_dropout_modules_are_replaced_and_listed() -> None:
    model = nn.Sequential(nn.Dropout(0.3), nn.Dropout(0.4, inplace=True), nn.Linear(3, 3)).eval()
    report = accelerate(model)
    assert report.dropouts == ("0",)
    assert report.left == (("1", "it works in place"),)
    assert isinstance(model[0], Dropout)
    assert (model[0].p, model[0].training) == (0.3, False)
    assert "replaced 0, a dropout" in str(report)


def test_a_dropout_that_was_changed_is_left_as_it_is() -> None:
    patched, counting, invalid = nn.Dropout(0.3), nn.Dropout(0.3), nn.Dropout(0.3)
    patched.forward = lambda x: x
    counting.register_buffer("calls", torch.zeros(1))
    invalid.p = 3.0
    report = accelerate(nn.Sequential(patched, counting, invalid))
    assert report.dropouts == ()
    assert report.left == (
        ("0", "its forward was replaced or added"),
        ("1", "its calls was replaced or added"),
        ("2", "p must lie in [0, 1], but is 3.0"),
    )


def test_only_modules_are_accelerated() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, but is a dict"):
        accelerate({})


def test_a_heterogeneous_model_is_accelerated() -> None:
    convs = {("a", "to", "b"): pyg.GATv2Conv((IN, 3), C, add_self_loops=False)}
    convs[("a", "to", "a")] = pyg.GATConv(IN, C)
    model = pyg.HeteroConv(convs)
    x = {"a": torch.randn(N, IN), "b": torch.randn(4, 3)}
    edge_index = {("a", "to", "b"): edges() % 4, ("a", "to", "a"): edges()}
    expected = model(x, edge_index)
    assert len(accelerate(model).replaced) == 2
    out = model(x, edge_index)
    for kind in expected:
        torch.testing.assert_close(out[kind], expected[kind])


def test_all_public_names_exist() -> None:
    for name in (*dynagat.__all__, "__version__"):
        assert hasattr(dynagat, name)
