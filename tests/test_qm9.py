"""QM9: readers, network, optimiser and error ratio, on the real files and on small made ones."""

import gzip
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dynagat.benchmarks.qm9 import ERROR_RATIO, FACTORS, QM9
from dynagat.benchmarks.qm9_report import every_run, learning_curves, relative
from dynagat.data.collection import GraphCollection, collection_of
from dynagat.data.molecules import BOND, GRAPH
from dynagat.data.qm9 import COMPACT, TARGETS, read_compact, read_jsonl, read_qm9
from dynagat.data.statistics import describe
from dynagat.data.store import NODE
from dynagat.experiment import as_published, run
from dynagat.graph import Graph
from dynagat.nn.averaged import GatedSum
from dynagat.nn.variables import clip_each, variables
from dynagat.prediction.graphs import GraphProblem
from dynagat.report.findings import Findings
from dynagat.rmsprop import TFRMSprop

REAL = Path(os.environ.get("DYNAGAT_DATA", "")) / "qm9"
needs_data = pytest.mark.data


def water(number=1, **changes):
    """A record in the layout of tf-gnn-samples."""
    oxygen = [0, 0, 0, 1, 0, 8, -0.4, 1, 0, 0, 0, 0, 1, 0, 2]
    hydrogen = [1, 0, 0, 0, 0, 1, 0.2, 0, 0, 0, 0, 0, 0, 1, 0]
    return {
        "id": f"qm9:{number:06d}",
        "targets": [[0.1 * n] for n in range(13)],
        "graph": [[0, 1, 1], [0, 1, 2]],
        "node_features": [oxygen, hydrogen, hydrogen],
    } | changes


def write(path, *records):
    """Records are objects, or lines as text or bytes."""
    with gzip.open(path, "wb") as file:
        for each in records:
            text = json.dumps(each) if isinstance(each, dict) else each
            file.write((text if isinstance(text, bytes) else text.encode()) + b"\n")


def folder_of(tmp_path, **parts):
    for part in ("train", "valid", "test"):
        write(tmp_path / f"{part}.jsonl.gz", *parts.get(part, [water()]))
    return tmp_path


# Data


def test_molecules_become_one_graph_with_bonds_in_both_directions(tmp_path):
    big = water(7, graph=[[0, 2, 1], [1, 3, 2], [0, 4, 2]])
    data = read_qm9(folder_of(tmp_path, train=[water(5), big]))
    assert data.nodes[GRAPH].arrays["id"].tolist() == [5, 7, 1, 1]
    assert describe(data).balance.unknown == 0
    assert {part: index.tolist() for part, index in data.split.items()} == {
        "train": [0, 1], "valid": [2], "test": [3]
    }  # fmt: skip
    pack = collection_of(data).pack(torch.tensor([1, 0]), self_loops=True)
    graph = pack.graph
    edges = zip(
        *(each.tolist() for each in (graph.key_index, graph.relation, graph.query_index)),
        strict=True,
    )
    bonds = {(0, 2, 1), (1, 3, 2), (0, 4, 2), (3, 1, 4), (3, 1, 5)}
    both = bonds | {(b, kind, a) for a, kind, b in bonds}
    assert set(edges) == both | {(n, 0, n) for n in range(6)}
    assert pack.node_graph.tolist() == [0, 0, 0, 1, 1, 1]


def test_self_loops_are_the_same_whether_a_graph_has_some_or_not():
    offset, edges = torch.tensor([0, 2, 4]), torch.tensor([[0, 1, 3], [1, 1, 2]])
    relation = torch.tensor([1, 2, 1])
    for kept in (slice(0, 3, 2), slice(None)):  # without the loop of node 1, and with it
        query, key = edges[:, kept]
        ends = torch.tensor([0, int((query < 2).sum()), len(query)])
        graphs = GraphCollection(offset, ends, query, key, relation[kept], 3)
        packed = graphs.pack(torch.tensor([1, 0]), self_loops=True).graph
        expected = graphs.pack(torch.tensor([1, 0])).graph.with_self_loops()
        pairs = zip(packed.tensors, expected.tensors, strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
        assert packed.num_edges == expected.num_edges


@needs_data
def test_packing_an_epoch_takes_the_same_calls_however_many_molecules_there_are():
    """A pass over the arrays for each batch, without a loop over molecules or bonds."""
    data = read_jsonl(REAL, parts=("test",))
    collection, test = collection_of(data), torch.from_numpy(data.split["test"])
    calls = []
    for some in (test[:50], test[:50], test):
        (batch,) = collection.batches(some, 200_000)
        count = 0

        def watch(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(watch)
        collection.pack(batch, self_loops=True)
        sys.setprofile(None)
        calls.append(count)
    assert calls[1] == calls[2]  # the first call fills what is kept


@needs_data
def test_both_layouts_hold_the_same_molecules():
    compact, published = read_compact(REAL / COMPACT), read_jsonl(REAL, parts=("valid", "test"))
    assert [len(compact.split[part]) for part in ("train", "valid", "test")] == [
        110484,
        10000,
        10000,
    ]
    place = {number: n for n, number in enumerate(compact.nodes[GRAPH].arrays["id"].tolist())}
    at = np.array([place[number] for number in published.nodes[GRAPH].arrays["id"].tolist()])
    for part in ("valid", "test"):
        assert sorted(at[published.split[part]]) == compact.split[part].tolist()
    one, other = (collection_of(each) for each in (compact, published))
    graphs = torch.from_numpy(at)
    one = one.pack(graphs)
    other = other.pack(torch.arange(len(at)))
    assert all(
        torch.equal(*pair) for pair in zip(one.graph.tensors, other.graph.tensors, strict=True)
    )
    x = compact.nodes[NODE].arrays["x"][one.nodes.numpy()]
    assert np.array_equal(x, published.nodes[NODE].arrays["x"])
    y = compact.nodes[GRAPH].arrays["y"][at]
    assert np.array_equal(y, published.nodes[GRAPH].arrays["y"])
    kinds = np.bincount(published.edges[BOND].arrays["type"][-187237:], minlength=5)
    assert kinds.tolist() == [0, 170004, 6344, 2737, 8152]  # of the test molecules, as published


BAD = {
    "not JSON": ("{", "line 2: this is no JSON"),
    "no object": ("[1]", "line 2: a molecule must be a JSON object, but is a list"),
    "nested": ("[" * 100_000, "line 2: "),
    "no targets": (
        {"id": "qm9:1", "graph": [], "node_features": []},
        "line 2: the molecule has no 'targets'",
    ),
    "bond type": (water(graph=[[0, 5, 1]]), "line 2: bond types are 1 to 4, but one is 5"),
    "atom": (water(graph=[[0, 1, 3]]), "line 2: atoms are 0 to 2, but a bond has atom 3"),
    "self-bond": (water(graph=[[1, 1, 1]]), "line 2: a bond must join two atoms"),
    "no atoms": (water(node_features=[], graph=[]), "line 2: the molecule has no atoms"),
    "few targets": (
        water(targets=[[1.0]] * 12),
        "line 2: targets must have 13 entries, but have 12",
    ),
    "NaN target": (
        water(targets=[[math.nan]] + [[1.0]] * 12),
        "line 2: targets must hold finite numbers",
    ),
    "null target": (
        water(targets=[[None]] + [[1.0]] * 12),
        "line 2: targets must hold finite numbers",
    ),
    "text target": (water(targets=[["x"]] * 13), "line 2: targets must be a list of equally long"),
    "narrow": (
        water(node_features=[[1.0] * 14]),
        "line 2: node_features must have 15 numbers per row",
    ),
    "ragged": (
        water(node_features=[[1.0] * 15, [1.0]]),
        "line 2: node_features must be a list of equally",
    ),
    "half an atom": (water(graph=[[0, 1, 1.5]]), "line 2: graph must hold whole numbers"),
    "huge": (water(graph=[[0, 1, 10**400]]), "line 2: graph must be a list"),
    "id": (water(id="water"), "line 2: id must be like 'qm9:000123', but is 'water'"),
    "long id": (water(id=f"qm9:{10**24}"), "line 2: id must be like 'qm9:000123', but is 'qm9:1"),
    "bytes": (b"\xff", "line 2: this is no UTF-8 text, byte 1 is 0xff"),
    "digits": ("1" + "0" * 4300, "line 2: this JSON has a number that can't be read: "),
    "too large for float32": (
        water(targets=[[1e39]] * 13),
        "line 2: targets must hold finite numbers",
    ),
    "too large for int64": (water(graph=[[0, 1, 1e300]]), "line 2: atoms are 0 to 2, but a bond"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_molecule_is_one_sentence_with_its_line(name, tmp_path):
    record, message = BAD[name]
    folder = folder_of(tmp_path, valid=[water(), record])
    with pytest.raises(ValueError, match=r"valid\.jsonl\.gz") as error:
        read_qm9(folder)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_cut_short_empty_or_missing_is_one_sentence(tmp_path):
    path = folder_of(tmp_path, train=[water(n) for n in range(200)]) / "train.jsonl.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"train.jsonl.gz was cut short or altered after line \d+"):
        read_qm9(tmp_path)
    path.write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="cut short or altered after line 0"):
        read_qm9(tmp_path)
    write(path)
    with pytest.raises(ValueError, match="holds no molecule"):
        read_qm9(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=r"train.jsonl.gz is missing"):
        read_qm9(tmp_path)


def compact_arrays(**changes):
    """Carbon monoxide, water and hydrogen fluoride: one molecule for each part."""
    flags = np.array(
        [[0, 0, 0, 1, 0], [1, 0, 0, 1, 0], [1, 0, 0, 3, 2], *[[0, 0, 0, 0, 0]] * 2, *[[0] * 5] * 2]
    )
    return {
        "qm9_index": np.array([9, 8, 7]), "split": np.array([0, 2, 1]),
        "num_atoms": np.array([2, 3, 2]), "num_bonds": np.array([1, 2, 1]),
        "atomic_number": np.array([6, 8, 8, 1, 1, 9, 1]),
        "mulliken_charge_1e6": np.array([5, -5, -400000, 200000, 200000, -3, 3]),
        "bond_src": np.array([0, 0, 0, 0]), "bond_dst": np.array([1, 1, 2, 1]),
        "bond_type": np.array([3, 1, 1, 1]), "atom_flags": flags,
        "targets": np.arange(39, dtype=np.float32).reshape(3, 13),
    } | changes  # fmt: skip


def test_the_compact_layout_is_read(tmp_path):
    np.savez(tmp_path / COMPACT, **compact_arrays(), target_names=np.array(TARGETS))
    data = read_qm9(tmp_path)
    water_atoms = data.nodes[NODE].arrays["x"][2:5]
    assert np.allclose(water_atoms, water()["node_features"])
    assert data.edges[BOND].query_index.tolist() == [1, 3, 4, 6]
    assert data.split["test"].tolist() == [1]


def in_place(key, row, value, dtype=None):
    """The arrays with one number changed."""
    array = np.array(compact_arrays()[key], dtype)
    array[row] = value
    return {key: array}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            in_place("bond_type", 1, 5),
            "molecule 1 has 3 atoms and bond types 1 to 4, but a bond of type 5",
        ),
        (in_place("bond_dst", 0, 2), "molecule 0 has 2 atoms"),
        (in_place("num_bonds", 1, 3), "must have 5 rows, but has 4"),
        ({"num_bonds": np.array([-1, 4, 1])}, "num_bonds of molecule 0 must be 0 or more"),
        ({"num_atoms": np.array([5, 0, 2])}, "num_atoms of molecule 1 must be 1 or more, but is 0"),
        (in_place("num_atoms", 0, 2, float), "num_atoms must hold integers, but is float64"),
        ({"targets": np.full((3, 13), np.nan, np.float32)}, "targets must be finite"),
        (in_place("targets", (2, 3), 1e39, float), "targets must be finite numbers of float32"),
        ({"targets": np.zeros((3, 12), np.float32)}, "targets has the wrong shape"),
        (
            in_place("mulliken_charge_1e6", 3, np.inf, float),
            "mulliken_charge_1e6 must be finite numbers",
        ),
        (in_place("atomic_number", 1, 0), "atomic_number of atom 1 must be 1 to 118, but is 0"),
        (
            in_place("atom_flags", (4, 3), 4),
            "atom_flags (column 3) of atom 4 must be 0 to 3",
        ),
        (in_place("split", 2, 3), "split of molecule 2 must be 0 to 2, but is 3"),
        ({"split": np.array([0, 2, 2])}, "there are no molecules for valid"),
    ],
)
def test_a_bad_compact_file_is_one_sentence(changes, message, tmp_path):
    np.savez(tmp_path / COMPACT, **compact_arrays(**changes))
    with pytest.raises(ValueError, match=COMPACT) as error:
        read_qm9(tmp_path)
    assert message in str(error.value)


# Network


def small_problem():
    return GraphProblem(
        collection=type("Collection", (), {"num_relations": 5})(), x=torch.zeros(1, 15),
        y=torch.zeros(1, 1), split={}, kind="regression", out_dim=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mechanism", "count"),
    [
        ("gat", 684_177),
        ("gatv2", 679_057),
        ("dpgat", 1_329_297),
        ("gcn", 675_985),
        ("gin", 1_003_153),
    ],
)
def test_the_number_of_parameters_is_that_of_the_released_code(mechanism, count):
    benchmark = QM9.with_settings(QM9.base(mechanism))
    network = benchmark.network.build(small_problem(), mechanism)
    assert sum(each.numel() for each in network.parameters()) == count


@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "gcn"])
def test_a_dense_layer_follows_the_first_layer_only(mechanism):
    network = QM9.with_settings(QM9.base(mechanism)).network.build(small_problem(), mechanism)
    tails = [[type(part).__name__ for part in layer.after] for layer in network.layers]
    assert [tail[-2:] == ["Linear", "Tanh"] for tail in tails] == [True] + [False] * 7


@pytest.mark.parametrize(
    ("mechanism", "change", "expected"),
    [
        ("gat", as_published, [0, 1, 1.0, 2.0]),  # every second layer
        ("gat", lambda settings: settings, [0, 0.5, 1.25, 1.875]),
        ("gatv2", as_published, [0, 0.5, 1.25, 1.875]),
        ("gcn", as_published, [0, 1, 1.0, 2.0]),
    ],
)
def test_every_second_or_every_layer_gets_a_mean_with_what_was_kept(mechanism, change, expected):
    seen = []

    class Add(torch.nn.Module):
        def forward(self, x, graph):
            seen.append(x[0, 0].item())
            return x + 1

    network = change(QM9.base(mechanism)).network.build(small_problem(), mechanism)
    network.layers = torch.nn.ModuleList([Add() for _ in range(4)])
    network.eval().encode(torch.zeros(1, 15), Graph.from_edges(*torch.zeros(2, 1).long(), 1))
    assert seen == expected


def test_the_readout_is_a_sum_over_atoms_of_gated_values():
    readout = GatedSum(3, 2, 1)
    h, x = torch.randn(4, 3), torch.randn(4, 2)
    for linear in (readout.gate, readout.value):
        torch.nn.init.normal_(linear.bias)
    gate, value = ([w.detach().double().numpy() for w in (each.weight[0], each.bias[0])]
                   for each in (readout.gate, readout.value))  # fmt: skip
    terms = []
    for own, given in zip(h.double().numpy(), x.double().numpy(), strict=True):
        score = gate[0][:3] @ own + gate[0][3:] @ given + gate[1]
        terms.append((value[0] @ own + value[1]) / (1 + np.exp(-score)))
    found = readout(h, x, torch.tensor([0, 2, 0, 2]), 3)[:, 0].detach()
    assert found.tolist() == pytest.approx([terms[0] + terms[2], 0, terms[1] + terms[3]], rel=1e-5)


# Training


def test_rmsprop_makes_the_steps_of_tensorflow():
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = TFRMSprop([w], lr=0.1, decay=0.9, momentum=0.5)
    square, step, value = np.ones(2), np.zeros(2), np.array([1.0, -2.0])
    for grad in ([0.5, -1.0], [2.0, 0.0], [-1.0, 3.0]):
        w.grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
        square = 0.9 * square + 0.1 * np.square(grad)
        step = 0.5 * step + 0.1 * np.array(grad) / np.sqrt(square + 1e-10)
        value = value - step
        assert np.allclose(w.detach().numpy(), value, rtol=1e-14)
    # the first step by hand: s = 0.9 + 0.1 · 0.25 = 0.925, m = 0.1 · 0.5 / √0.925 = 0.05198752
    fresh = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    fresh.grad = torch.tensor([0.5], dtype=torch.float64)
    TFRMSprop([fresh], lr=0.1, decay=0.9, momentum=0.5).step()
    assert float(fresh.detach()) == pytest.approx(1 - 0.05198752, abs=1e-8)


@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "dpgat", "gcn", "gin"])
def test_gradients_are_clipped_relation_by_relation(mechanism):
    stack = replace(QM9.network, layers=1, dim=8, heads=2)
    network = stack.build(small_problem(), mechanism)
    grads = {}
    for each in network.parameters():
        each.grad = grads[each] = torch.rand_like(each)
    counts = {each: count for group, count in variables(network) for each in group}
    assert set(counts) == set(network.parameters())
    assert 5 in counts.values()
    before = {each: grad.clone() for each, grad in grads.items()}
    clip_each(network, 0.5)
    for group, count in variables(network):
        for part in range(count):
            parts = [grads[each].view(count, -1)[part] for each in group]
            whole = torch.cat([before[each].view(count, -1)[part] for each in group])
            norm = whole.norm()
            expected = whole * min(1.0, 0.5 / float(norm))
            assert torch.allclose(torch.cat(parts), expected, rtol=1e-5)


# Scores


def test_the_error_ratio_is_the_error_in_units_of_chemical_accuracy():
    metric = replace(
        ERROR_RATIO, function=lambda out, y: ERROR_RATIO.function(out, y, factors=(0.5, 0.1))
    )
    value = metric.function(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2, 2))
    assert value == pytest.approx((0.5 / 0.5 + 0.0) / 2)
    assert list(FACTORS) == list(TARGETS)


@needs_data
def test_zero_as_the_prediction_has_the_published_error_ratios():
    y = read_jsonl(REAL, parts=("test",)).nodes[GRAPH].arrays["y"]
    expected = [11.5, 62.0, 9.9, 24.3, 24.6, 168.7, 593.0, 187.7, 189.4, 190.8, 172.6, 64.1, 23.8]
    for column, (factor, ratio) in enumerate(zip(FACTORS.values(), expected, strict=True)):
        target = torch.from_numpy(y[:, column : column + 1])
        found = ERROR_RATIO.function(torch.zeros_like(target), target, factors=(factor,))
        assert round(found, 1) == ratio


def test_published_numbers_are_those_of_the_tables():
    found = {
        (each.where, each.mechanism, each.heads, each.settings["target"]): each
        for each in QM9.published
    }
    assert len(found) == 13 * (8 + 2)
    assert found["Table 2", "gatv2", 8, "homo"].mean == 1.41
    assert found["Table 2", "gat", 8, "r2"].std == 42.58
    assert found["Table 2 with 20 runs", "gatv2", 8, "omega"].mean == 1.09


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A few molecules with random targets in place of QM9."""
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DYNAGAT_DATA", str(tmp_path / "data"))
    generator = np.random.default_rng(0)
    (tmp_path / "data" / "qm9").mkdir(parents=True)

    def some(count):
        for n in range(count):
            record = water(n)
            record["targets"] = [[float(generator.normal())] for _ in range(13)]
            yield record

    parts = {"train": list(some(20)), "valid": list(some(5)), "test": list(some(5))}
    folder_of(tmp_path / "data" / "qm9", **parts)


def run_small(mechanism, target="homo"):
    settings = as_published(QM9.base(mechanism))
    small = replace(
        settings,
        data=replace(settings.data, target=target),
        network=replace(settings.network, dim=8, heads=8, layers=2),
        schedule=replace(settings.schedule, max_rounds=3),
    )
    return run(QM9.with_settings(small), mechanism, 1)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("target", ["homo", "all"])
def test_a_run_learns_and_keeps_the_best_network(target):
    record = run_small("gatv2", target)
    best = min(record.history, key=lambda each: each["valid_loss"])
    assert record.metrics["valid_loss"] == pytest.approx(best["valid_loss"])
    assert math.isfinite(record.metrics["test_error_ratio"])
    assert record.metrics["test_error_ratio"] > 0


@pytest.mark.usefixtures("made")
def test_the_report_has_learning_curves_and_errors_relative_to_gat():
    records = [run_small(name, target) for name in ("gat", "gatv2") for target in ("homo", "mu")]
    rows = Findings.of(records, QM9).rows
    curves = learning_curves(rows)
    assert all(text in curves for text in ("homo", "mu", "GATv2 (8 heads)", "epoch"))
    (line,) = relative(rows).lines
    errors = [each.metrics["test_error_ratio"] for each in records]
    mean = (errors[2] / errors[0] + errors[3] / errors[1]) / 2 - 1
    paper = (1.41 / 1.48 + 2.65 / 2.68) / 2 - 1
    assert line.cells == ("GATv2 (8 heads)", "2", f"{mean:+.1%}", f"{mean:+.1%}", f"{paper:+.1%}")
    assert relative(rows[:1]) is None
    assert learning_curves([]) is None


@pytest.mark.usefixtures("made")
def test_the_report_has_a_line_for_each_run():
    record = run_small("gatv2", "mu")
    best = min(record.history, key=lambda each: each["valid_loss"])
    record = replace(record, seconds=5400.0)
    (line,) = every_run(Findings.of([record], QM9).rows).lines
    family = "as-published, dim=8, layers=2"
    assert line.cells[:7] == ("mu", "GATv2", "8", "1", family, "3 (cut off)", str(best["round"]))
    error = record.metrics["test_error_ratio"]
    assert line.cells[7:] == (f"{error:.4g}", "2.65 ± 0.05", "1.5")
    assert every_run([]) is None
