"""how_attentive: verdicts on known heads, any model on any data, clear errors."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from examples.known_heads import CASES, line
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data, HeteroData

from dynagat import DPGATConv, GATConv, GATv2Conv, capture, how_attentive, measure
from dynagat.analysis import subset
from dynagat.analysis.attentive import Head
from dynagat.analysis.resample import Estimate
from dynagat.analysis.verdict import Verdict, judge_focus, judge_ranking, words_of
from dynagat.benchmarks.dictionary_lookup.dictionary import make_dictionary
from dynagat.benchmarks.dictionary_lookup.network import DictionaryNetwork
from tests.scores import NAN, attention_of, head_of, random_scores, view_of

ROOT = Path(__file__).parent.parent
UNKNOWN = "not enough to tell"
LAYERS = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}

# Verdicts


def words(head: Head) -> tuple[str, str]:
    return head.attends.word, head.ranking.word


def test_a_head_with_equal_weights_is_uniform_and_has_no_ranking() -> None:
    head = head_of(torch.full((8, 5), 0.3))
    assert words(head) == ("uniform", UNKNOWN)
    assert head.entropy.value == pytest.approx(1)
    assert head.effective.value == pytest.approx(5)
    assert (head.selection.selected, head.pairs) == (0, 0)


def test_neither_verdict_overrules_the_other() -> None:
    """Nearly equal weights: uniform, whether the rankings are unrelated or those of a GAT."""
    head = head_of(1e-3 * random_scores(0, 20, 10))
    assert head.agreement.value < 0.2
    assert words(head) == ("uniform", "dynamic")
    layer = GATConv(3, 4)
    nn.init.normal_(layer.att_src, std=1e-4)
    result = how_attentive(layer, (torch.randn(20, 3), complete(20)))
    assert words(result.heads[0]) == ("uniform", "static")


@pytest.mark.parametrize("kind", [GATv2Conv, DPGATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_a_layer_with_zero_attention_vectors_is_uniform(kind) -> None:
    layer = kind(3, 4, heads=2)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name == "att" or name.startswith(("lin_l", "lin_key")):
                parameter.zero_()
    report = how_attentive(layer, (torch.randn(9, 3), complete(9)))
    assert [head.attends.word for head in report.heads] == ["uniform", "uniform"]


def test_random_dot_products_are_dynamic() -> None:
    torch.manual_seed(0)
    report = how_attentive(DPGATConv(8, 8, heads=4), (3 * torch.randn(20, 8), complete(20)))
    assert set(map(words, report.heads)) == {("attends", "dynamic")}
    assert all(abs(head.agreement.value) < 0.3 for head in report.heads)


@pytest.mark.parametrize("k", [5, 20, 100])
def test_the_same_choice_of_all_queries_is_static_whatever_the_noise_on_the_rest(k) -> None:
    """98 % of the attention is on one key; the order of the other keys is random."""
    rest = 0.02 / (k - 1)
    weights = rest + rest * (torch.rand(30, k) - 0.5)
    weights[:, 3] = 0.98
    head = head_of(weights.log())
    assert head.agreement.value < 0.5
    assert head.weighted_agreement.value > 0.999
    assert words(head) == ("attends", "static")


def test_two_nearly_equal_first_choices_are_static_too() -> None:
    weights = torch.full((30, 20), 0.001)
    weights[:, :2] = 0.49 + 1e-4 * torch.randn(30, 2)
    head = head_of(weights.log())
    assert head.same_choice.value < 0.7
    assert words(head) == ("attends", "static")


@pytest.mark.parametrize("k", [20, 100])
def test_queries_that_only_differ_in_their_first_choice_are_dynamic(k) -> None:
    scores = torch.linspace(0, 1, k).repeat(k, 1) + 5 * torch.eye(k)
    head = head_of(scores)
    assert head.agreement.value > 0.8
    assert head.same_choice.value == 0
    assert (head.selection.selected, head.selection.selectable) == (k, k)
    assert head.weighted_agreement.value < 0
    assert words(head) == ("attends", "dynamic")


def test_queries_that_share_no_key_with_much_attention_hardly_count() -> None:
    """Each query of the first half has its own key with most of its attention; there, the order of
    the shared keys is noise. The second half agrees."""
    scores = torch.full((40, 26), NAN)
    scores[:, :6] = 1e-3 * torch.randn(40, 6)
    scores[range(20), range(6, 26)] = 5
    scores[20:, :6] = torch.arange(6.0)
    head = head_of(scores)
    assert head.agreement.value < 0.5
    assert words(head) == ("attends", "static")


@pytest.mark.parametrize(("noise", "expected"), [(0.05, "static"), (0.4, "mixed"), (2, "dynamic")])
def test_the_more_noise_a_ranking_has_the_less_static_it_is(noise, expected) -> None:
    torch.manual_seed(0)
    assert head_of(0.3 * torch.arange(10.0) + noise * torch.randn(60, 10)).ranking.word == expected


def test_too_few_pairs_of_queries_are_not_enough_to_tell() -> None:
    ranked = torch.arange(5.0)
    few, enough = (head_of(ranked.repeat(queries, 1)) for queries in (6, 7))
    assert (few.pairs, enough.pairs) == (15, 21)
    assert words(few) == ("attends", UNKNOWN)
    assert words(enough) == ("attends", "static")


def test_pairs_with_little_attention_at_stake_count_as_a_fraction() -> None:
    """One pair disagrees much; 27 agree on weights that hardly differ."""
    scores = 1e-6 * torch.arange(5.0).repeat(8, 1)
    scores[0, 0] = scores[1, 1] = 5
    head = head_of(scores)
    assert head.pairs < 2
    assert head.ranking.word == UNKNOWN


@pytest.mark.parametrize(
    ("weighted", "pairs", "contents", "expected"),
    [
        ((1.0, 1.0, 1.0), 20, None, "static"),
        ((1.0, 1.0, 1.0), 19, None, UNKNOWN),
        ((1.0, 1.0, 1.0), 900, 1, UNKNOWN),
        ((1.0, 1.0, 1.0), 900, 2, "static"),
        ((0.99, 0.99, 1.0), 20, None, "static"),
        ((0.995, 0.98, 1.0), 20, None, "static (or mixed)"),
        ((0.98, 0.9, 0.99), 20, None, "mixed (or static)"),
        ((0.7, 0.4, 0.99), 20, None, "mixed (or static or dynamic)"),
        ((0.5, 0.5, 0.6), 20, None, "mixed"),
        ((0.49, 0.4, 0.49), 20, None, "dynamic"),
        ((math.nan,) * 3, 20, None, UNKNOWN),
    ],
)
def test_the_verdict_on_a_ranking(weighted, pairs, contents, expected) -> None:
    assert str(judge_ranking(Estimate(*weighted), pairs, contents)) == expected


@pytest.mark.parametrize(
    ("uniformity", "expected"),
    [
        ((0.8, 0.7, 0.9), "attends"),
        ((0.985, 0.98, 0.995), "attends (or uniform)"),
        ((0.995, 0.98, 1.0), "uniform (or attends)"),
        ((0.99, 0.99, 1.0), "uniform"),
        ((math.nan,) * 3, UNKNOWN),
    ],
)
def test_the_verdict_on_attending(uniformity, expected) -> None:
    assert str(judge_focus(Estimate(*uniformity))) == expected


def test_degrees_that_differ_do_not_make_a_uniform_head_uncertain() -> None:
    scores = torch.zeros(30, 12).masked_fill(torch.arange(12) > torch.arange(2, 32)[:, None], NAN)
    assert head_of(scores + 1e-3 * torch.randn(30, 12)).attends == Verdict("uniform")


@pytest.mark.parametrize(
    ("tau", "same", "effective", "expected"),
    [
        (1.0, 1.0, 4.96, ("uniform", "static")),  # was called static
        (0.8, 1.0, 4.96, ("uniform", "mixed")),  # was called not attending
        (0.99, 0.2, 2.0, ("attends", "dynamic")),
        (0.6, None, 2.0, ("attends", "mixed")),
        (None, None, None, (UNKNOWN, UNKNOWN)),
    ],
)
def test_a_record_without_weighted_tau_is_judged_by_what_it_has(
    tau, same, effective, expected
) -> None:
    numbers = {"agreement": tau, "same_choice": same, "effective": effective}
    stored = {name: {"value": value} for name, value in numbers.items()}
    assert words_of({**stored, "degree": 5.0, "verdict": "any"}) == expected


def test_a_stored_head_has_its_own_verdicts() -> None:
    head = head_of(random_scores(0, 20, 10))
    report = measure(attention_of(view_of(random_scores(0, 20, 10))))
    (stored,) = json.loads(json.dumps(report.to_dict()))["layers"][0]["heads"]
    assert words_of(stored) == words(head)


@pytest.mark.parametrize("kind", [GATv2Conv, pyg.GATv2Conv])
def test_few_distinct_contents_are_noted(kind) -> None:
    """Four contents, of which the isolated fifth node's is not counted; then one."""
    x, layer = torch.randn(5, 3)[torch.arange(41) % 4], kind(3, 4, add_self_loops=False)
    x[40] = 9
    report = how_attentive(layer, (x, complete(40)))
    assert (report.layers[0].query_contents, report.layers[0].key_contents) == (4, 4)
    assert "the queries have only 4 distinct contents" in str(report)
    alike = how_attentive(layer, ((torch.randn(40, 3), torch.ones(40, 3)), complete(40)))
    assert alike.heads[0].ranking == Verdict(UNKNOWN)
    assert alike.layers[0].key_contents == 40
    assert alike.notes == [
        f"{kind.__name__}: the queries have the same content, so the ranking may differ for others."
    ]


def test_contents_of_other_batch_elements_are_counted_too() -> None:
    layer, x = GATv2Conv(3, 4, add_self_loops=False), torch.randn(3, 6, 3)
    x[1] = x[0]
    report = how_attentive(layer, (x, complete(6)))
    assert report.layers[0].query_contents == 12


# Samples of queries in large graphs


def test_a_large_graph_is_measured_on_a_sample_that_depends_on_the_seed(monkeypatch) -> None:
    monkeypatch.setattr(subset, "MAX_EDGES", 800)
    torch.manual_seed(0)
    net, x, edges = Net(), torch.randn(60, 4), complete(60)
    one, same, other = (how_attentive(net, (x, edges), seed=seed) for seed in (0, 0, 1))
    for layer in one.layers:
        assert (layer.num_queries, layer.num_keys, layer.num_edges) == (60, 60, 3600)
        assert layer.analysed_queries == 14
        assert layer.analysed_pairs == 14 * 13 / 2
        assert not layer.is_exact
    assert str(one) == str(same) != str(other)
    expected = "first, second: analysed on a random sample of 14 of 60 queries (seed 0)."
    assert one.notes == [expected]
    assert str(one).splitlines()[-1] == expected
    stored = one.to_dict()["layers"][0]
    assert (stored["queries"], stored["analysed_queries"], stored["seed"]) == (60, 14, 0)


def test_numbers_of_a_sample_of_queries_are_close_to_those_of_all(monkeypatch) -> None:
    scores = 0.3 * torch.arange(12.0) + torch.randn(900, 12)
    view = attention_of(view_of(scores))
    whole = measure(view, labels=torch.arange(900) % 3).heads[0]
    monkeypatch.setattr(subset, "MAX_EDGES", 3000)
    part = measure(view, labels=torch.arange(900) % 3).heads[0]
    for name in (
        "weighted_agreement",
        "agreement",
        "same_choice",
        "explained",
        "effective",
        "interaction",
    ):
        estimate = getattr(part, name)
        width = estimate.high - estimate.low
        assert abs(estimate.value - getattr(whole, name).value) <= width, name
    assert part.degree == whole.degree


def test_batches_are_sampled_together(monkeypatch) -> None:
    monkeypatch.setattr(subset, "MAX_EDGES", 300)
    x, edges = torch.randn(30, 4), complete(30)
    report = how_attentive(Net().first, [Data(x=x, edge_index=edges)] * 2)
    assert sum(len(view.query.unique()) for view in report.layers[0].views) == 10
    assert report.layers[0].num_queries == 60


# Known heads


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_trained_on_dictionary_lookup_gat_is_static_and_gatv2_dynamic(mechanism) -> None:
    torch.manual_seed(0)
    shared = {"share_weights": True} if mechanism == "gatv2" else {}
    layer = LAYERS[mechanism](32, 32, bias=False, add_self_loops=False, **shared)
    if mechanism == "gatv2":
        layer.att.data.abs_()  # as in the benchmark: equal attributes attract
    network = DictionaryNetwork(6, layer, dim=32)
    values = torch.tensor(make_dictionary(6, seed=0).train)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(30):
        for some in values[torch.randperm(len(values))].split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(some).flatten(0, 1), some.flatten()).backward()
            optimizer.step()
    accuracy = float((network(values).argmax(-1) == values).float().mean())
    head = how_attentive(network, (values[:40],)).heads[0]
    if mechanism == "gat":
        assert accuracy < 0.9  # on its training data
        assert words(head) == ("attends", "static")
    else:
        assert accuracy > 0.95
        assert words(head) == ("attends", "dynamic")
        assert head.selection.selected == head.selection.selectable


@pytest.mark.parametrize("name", CASES)
def test_known_heads_are_what_the_documentation_says(name) -> None:
    """Each row of the table in docs/microscope.md, whose last columns are the verdicts."""
    documented = (ROOT / "docs" / "microscope.md").read_text().splitlines()
    (row,) = [each for each in documented if each.startswith(f"| {name} |")]
    torch.manual_seed(0)
    actual, expected = (text.split("|")[-3:] for text in (line(name, CASES[name]()), row))
    assert actual == expected


# Any model, any data


def complete(num_nodes: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes)).T


def some_edges(num_nodes: int = 12, num_edges: int = 70) -> Tensor:
    return torch.unique(torch.randint(num_nodes, (2, num_edges)), dim=1)


class Net(nn.Module):
    """Two layers, and dropout that must not affect the result."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.first = GATv2Conv(4, 4, heads=2, **options)
        self.second = pyg.GATConv(8, 4, **options)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        x = self.dropout(self.first(x, edge_index, edge_attr))
        return self.second(x, edge_index, edge_attr)


class Whole(nn.Module):
    """Takes the whole data object."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, data) -> Tensor:
        return self.net(data.x, data.edge_index)


class WholeBatch(Whole):
    def forward(self, batch) -> Tensor:  # also the name of an attribute of the data
        return super().forward(batch)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(12, 4)


@pytest.fixture
def edges(seeded) -> Tensor:
    return some_edges()


def lines(report) -> list[str]:
    """The table without the names of the layers."""
    return [line.split(None, 1)[1] for line in str(report).splitlines()[1:]]


def test_data_may_have_any_form(x, edges) -> None:
    net, data = Net(), Data(x=x, edge_index=edges)
    expected = str(how_attentive(net, data))
    assert str(how_attentive(net, (x, edges))) == expected
    assert str(how_attentive(net, [x, edges])) == expected
    assert str(how_attentive(net, {"x": x, "edge_index": edges})) == expected
    assert str(how_attentive(net, data, call=lambda model, d: model(d.x, d.edge_index))) == expected
    assert str(how_attentive(net, iter([data]))) == expected
    assert str(how_attentive(net, Batch.from_data_list([data]))) == expected


@pytest.mark.parametrize("kind", [Whole, WholeBatch])
def test_a_model_may_take_the_data_object(x, edges, kind) -> None:
    model, data = kind(), Data(x=x, edge_index=edges)
    for each in (data, Batch.from_data_list([data])):
        assert lines(how_attentive(model, each)) == lines(how_attentive(model.net, (x, edges)))


def test_a_tensor_is_passed_as_the_only_argument(edges) -> None:
    network = DictionaryNetwork(4, GATv2Conv(8, 8, add_self_loops=False), dim=8)
    values = torch.stack([torch.randperm(4) for _ in range(5)])
    assert str(how_attentive(network, values)) == str(how_attentive(network, (values,)))


def test_graphs_of_a_batch_are_measured_together(x, edges) -> None:
    graphs = [Data(x=torch.randn(12, 4), edge_index=some_edges()) for _ in range(3)]
    layer = how_attentive(GATv2Conv(4, 4), Batch.from_data_list(graphs)).layers[0]
    assert layer.num_queries == 36


def test_a_node_in_another_batch_is_a_different_query_and_key(x, edges) -> None:
    data = Data(x=x, edge_index=edges)
    one, two = (how_attentive(GATv2Conv(4, 4), [data] * count).layers[0] for count in (1, 2))
    assert (two.num_queries, two.num_edges) == (2 * one.num_queries, 2 * one.num_edges)


def test_batches_of_a_loader_use_global_ids(x, edges) -> None:
    """Labels and noise marks of the whole graph are found through n_id and e_id."""
    net, labels = Net(add_self_loops=False), torch.randint(2, (12,))
    noise = torch.rand(edges.shape[1]) < 0.4
    batches = []
    for part in torch.arange(12).split(4):
        kept = torch.isin(edges[1], part).nonzero()[:, 0]
        nodes = torch.randperm(12)
        local = nodes.argsort()[edges[:, kept]]
        batches.append(Data(x=x[nodes], edge_index=local, n_id=nodes, e_id=kept))
    options = {"labels": labels, "noise": noise}
    whole = how_attentive(net.first, (x, edges), **options).layers[0]
    parts = how_attentive(net.first, batches, **options).layers[0]
    assert (parts.num_queries, parts.num_edges) == (whole.num_queries, whole.num_edges)
    assert set(parts.one_ranking.unique().tolist()) == set(whole.one_ranking.unique().tolist())
    for one, other in zip(whole.heads, parts.heads, strict=True):
        for name in ("same_label", "noise", "self_loops"):
            masses = getattr(one, name), getattr(other, name)
            assert [mass.attention.value for mass in masses] == pytest.approx(
                [masses[0].attention.value] * 2
            )
            assert masses[0].uniform == pytest.approx(masses[1].uniform)
        assert one.effective.value == pytest.approx(other.effective.value)


def test_each_edge_type_is_a_separate_layer(x, edges) -> None:
    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = {
                ("author", "writes", "paper"): GATv2Conv((4, 4), 4, heads=2, add_self_loops=False),
                ("paper", "has", "author"): pyg.GATConv((4, 4), 4, add_self_loops=False),
            }
            self.conv = pyg.HeteroConv(kinds)

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    data = HeteroData()
    data["author"].x, data["paper"].x = x, torch.randn(15, 4)
    data["author", "writes", "paper"].edge_index = edges
    data["paper", "has", "author"].edge_index = edges.flip(0)
    report = how_attentive(Typed(), data)
    assert [len(layer.heads) for layer in report.layers] == [2, 1]
    assert "writes" in report.layers[0].name
    assert "has" in report.layers[1].name
    assert report.layers[1].heads[0].weighted_agreement.value == 1
    del data["author"].x, data["paper"].x
    with pytest.raises(ValueError, match="data has no 'x_dict'"):
        how_attentive(Typed(), data)


def test_training_modes_are_restored_and_dropout_is_off(x, edges) -> None:
    net = Net()
    net.first.eval()
    modes = [module.training for module in net.modules()]
    assert str(how_attentive(net, (x, edges))) == str(how_attentive(net, (x, edges)))
    assert [module.training for module in net.modules()] == modes
    with pytest.raises(TypeError):
        how_attentive(net, (x,))
    assert [module.training for module in net.modules()] == modes


def test_labels_default_to_the_datas_node_classes(x, edges) -> None:
    layer, labels = GATv2Conv(4, 4), torch.randint(3, (12,))
    given = how_attentive(layer, (x, edges), labels=labels).heads[0].same_label
    own = how_attentive(layer, Data(x=x, edge_index=edges, y=labels)).heads[0].same_label
    assert given == own
    assert given is not None
    for y in (torch.randn(12), torch.zeros(12, 3), torch.tensor([1])):
        actual = how_attentive(layer, Data(x=x, edge_index=edges, y=y)).heads[0]
        assert actual.same_label is None


def test_edge_features_reach_layers_that_have_an_edge_dim(x, edges) -> None:
    features = torch.randn(edges.shape[1], 3)
    data = Data(x=x, edge_index=edges, edge_attr=features)
    net = Net(edge_dim=3)
    assert str(how_attentive(net, data)) == str(how_attentive(net, (x, edges, features)))
    plain = Net()
    assert str(how_attentive(plain, data)) == str(how_attentive(plain, (x, edges)))


@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_layers_of_pyg_are_measured_too(x, edges, kind) -> None:
    report = how_attentive(kind(4, 4, heads=3), (x, edges))
    assert [head.head for head in report.heads] == [0, 1, 2]
    assert {head.kind for head in report.heads} == {kind.__name__}


def test_captured_attention_can_be_measured_later(x, edges) -> None:
    net = Net().eval()
    with capture(net) as attention:
        net(x, edges)
    assert str(measure(attention)) == str(how_attentive(net, (x, edges)))


def test_the_report_has_a_line_for_each_head(x, edges) -> None:
    report = how_attentive(Net(), (x, edges))
    header, *rows = str(report).splitlines()
    assert header.split()[-2:] == ["attends?", "ranking"]
    assert len(rows) == len(report.heads) == 3
    for row, head in zip(rows, report.heads, strict=True):
        assert row.startswith(head.layer)
        words = re.escape(str(head.attends)), re.escape(str(head.ranking))
        assert re.search(r"  {}  +{}$".format(*words), row)


def test_the_report_is_json(x, edges) -> None:
    data = Data(x=x, edge_index=edges, y=torch.randint(2, (12,)))
    report = how_attentive(Net(), data, noise=torch.rand(edges.shape[1]) < 0.5)
    read = json.loads(json.dumps(report.to_dict()))
    assert [layer["name"] for layer in read["layers"]] == ["first", "second"]
    head = read["layers"][0]["heads"][1]
    assert head["ranking"] == {"word": report.heads[1].ranking.word, "others": []}
    assert head["agreement"]["value"] == report.heads[1].agreement.value
    assert head["noise"]["attention"]["low"] <= head["noise"]["attention"]["high"]


def test_the_report_is_json_if_nothing_could_be_measured() -> None:
    """JSON has no nan."""
    report = measure(attention_of(view_of(torch.zeros(3, 3))))
    assert json.dumps(report.to_dict(), allow_nan=False)


# Errors


def test_a_model_without_attention_is_an_error(x, edges) -> None:
    with pytest.raises(ValueError, match="no attention layer to capture; it consists of GCNConv"):
        how_attentive(pyg.GCNConv(4, 4), (x, edges))


def test_a_model_that_never_calls_its_layer_is_an_error(x, edges) -> None:
    with pytest.raises(ValueError, match="no attention was captured"):
        how_attentive(Net(), (x, edges), call=lambda model, data: None)


def test_queries_with_a_single_key_are_nothing_to_compare(x) -> None:
    circle = torch.stack([torch.arange(12), torch.arange(12).roll(1)])
    for layer in (GATConv(4, 4, add_self_loops=False), pyg.GATConv(4, 4, add_self_loops=False)):
        with pytest.raises(ValueError, match="in GATConv: no query has more than one key"):
            how_attentive(layer, (x, circle))
    with pytest.raises(ValueError, match="in GATConv: no query has more than one key"):
        how_attentive(GATConv(4, 4), (x, circle[:, :0]))


def test_queries_that_share_no_two_keys_have_no_ranking_in_common_but_may_attend() -> None:
    head = head_of([[2, 1, NAN, NAN], [NAN, NAN, 3, 4], [1, NAN, 3, NAN]])
    assert words(head) == ("attends", UNKNOWN)


def test_a_layer_with_nothing_to_compare_does_not_stop_the_others(x, edges) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sparse = GATConv(4, 4, add_self_loops=False)
            self.dense = GATConv(4, 4, add_self_loops=False)

        def forward(self, x, edge_index):
            self.sparse(x, torch.stack([torch.arange(12), torch.arange(12).roll(1)]))
            return self.dense(x, edge_index)

    report = how_attentive(Two(), (x, edges))
    assert [head.attends.word for head in report.heads] == [UNKNOWN, "attends"]
    assert len(str(report).splitlines()) == 3


@pytest.mark.parametrize("kind", [GATv2Conv, pyg.GATv2Conv])
def test_weights_that_are_not_finite_are_an_error(x, edges, kind) -> None:
    layer = kind(4, 4, heads=2)
    layer.att.data[:, 1] = math.nan
    with pytest.raises(
        ValueError, match=r"layer 'GATv2Conv', head 1: \d+ of \d+ weights are nan or"
    ):
        how_attentive(layer, (x, edges))


def test_missing_attributes_are_named(x, edges) -> None:
    with pytest.raises(ValueError, match=r"data has no 'x', which the model's forward requires"):
        how_attentive(Net(), Data(edge_index=edges, num_nodes=12))


def test_missing_arguments_raise_pythons_own_error_without_warnings(x) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(TypeError, match="edge_index"):
            how_attentive(GATv2Conv(4, 4), (x,))
    assert not caught


def test_labels_and_noise_of_the_wrong_size_are_an_error(x, edges) -> None:
    layer = GATv2Conv(4, 4)
    with pytest.raises(ValueError, match=r"labels has 3 entries, but index \d+ is needed"):
        how_attentive(layer, (x, edges), labels=torch.zeros(3))
    with pytest.raises(ValueError, match=r"noise has 3 entries, but index \d+ is needed"):
        how_attentive(layer, (x, edges), noise=torch.zeros(3))
    with pytest.raises(ValueError, match=r"labels must be 1-D, but has shape \[12, 2\]"):
        how_attentive(layer, (x, edges), labels=torch.zeros(12, 2))


def test_labels_need_global_ids_if_there_are_several_batches(x, edges) -> None:
    model, batches = Net(), [Data(x=x, edge_index=edges)] * 2
    with pytest.raises(ValueError, match="batches need n_id and e_id"):
        how_attentive(model, batches, labels=torch.zeros(len(x), dtype=torch.long))


def test_a_model_must_be_a_module(x, edges) -> None:
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, but is a list"):
        how_attentive([Net()], (x, edges))
