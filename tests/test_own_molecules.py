"""Molecules of a user: a comparison, its page and model; and QM9's runs, in real units."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from dynagat.benchmarks.own_molecules import OWN_MOLECULES, atom_inputs
from dynagat.benchmarks.qm9 import QM9, MoleculeData
from dynagat.benchmarks.qm9_units import UNITS
from dynagat.cli import app
from dynagat.comparison import MoleculeModel, compare, load_model
from dynagat.comparison.runs import predict_molecules
from dynagat.data import read_molecules
from dynagat.data.molecule_table import molecules_of
from dynagat.data.molecules import ELEMENTS, GRAPH, NUMBER
from dynagat.data.qm9 import COMPACT, TARGETS, read_compact, read_jsonl
from dynagat.experiment import Store, run
from dynagat.prediction.graphs import GraphTask, graph_problem
from dynagat.training import Schedule

REAL = Path(os.environ.get("DYNAGAT_DATA", "")) / "qm9"
QUICK = ["max_rounds=8", "dim=16", "heads=2", "layers=2", "lr=0.01"]
GROUPS = ("O", "N", "C#N", "C(=O)C", "c1ccccc1", "Cl")


def written(tmp_path, *more):
    """42 molecules; their weight is a sum over atoms, and rings are a class."""
    rows = [(f"{'C' * (1 + n)}{group}", 14.5 * n + 20.25 * place, "c1" in group)
            for n in range(7) for place, group in enumerate(GROUPS)]  # fmt: skip
    lines = [
        f"{smiles},{weight},{'ring' if is_ring else 'chain'}" for smiles, weight, is_ring in rows
    ]
    path = tmp_path / "molecules.csv"
    path.write_text("\n".join(["molecule,weight,kind", *lines, *more]))
    return path


def dynagat(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


def test_compare_and_predict_molecules(tmp_path):
    table, out = written(tmp_path, "C(,1,chain", "CCC,,"), tmp_path / "out"
    command = ("compare", "--graphs", table, "--smiles", "molecule", "--target", "weight", "--out",
               out, *(word for text in QUICK for word in ("--set", text)), "--mechanism",
               "gcn,gatv2", "--json")  # fmt: skip
    result = dynagat(*command, "--seeds", 0)
    values = json.loads(result.stdout)
    assert "Left out: 1 of 44 rows without a usable SMILES: line 44" in result.stderr
    assert values["score"] == "r_squared"
    assert {each["mechanism"] for each in values["mechanisms"]} == {"gcn", "gatv2"}
    assert [each["name"] for each in values["baselines"]] == ["mean", "ridge regression", "MLP"]
    text = " ".join(values["answer"])
    assert "on the validation molecules" in text
    assert "node" not in text
    assert "counts of atoms and bonds" in text
    page = (out / "index.html").read_text()
    assert "test molecules" in page
    assert "test nodes" not in page
    assert f"dynagat predict --model {out}/model --graphs {table} --smiles molecule" in page

    again = json.loads(dynagat(*command, "--seeds", "0-1").stdout)  # the first seed is kept
    assert len(again["mechanisms"][0]["metrics"]) == 2
    refused = dynagat(*command, "--seeds", 0, "--set", "dim=8", code=2)
    assert "holds a comparison with other settings" in refused.stderr
    with table.open("a") as file:
        file.write("\nCCCCO,33,chain")
    assert "of another graph" in dynagat(*command, "--seeds", 0, code=2).stderr

    (tmp_path / "new.csv").write_text("name,molecule\na,CCCN\nb,nonsense\nc,CCBr\n")
    predict = ("predict", "--model", out / "model", "--out", tmp_path / "p.csv")
    result = dynagat(*predict, "--graphs", tmp_path / "new.csv")
    assert "2 predictions" in result.stderr
    assert "line 3 ('nonsense': RDKit can't read it)" in result.stderr
    predictions = pd.read_csv(tmp_path / "p.csv")
    assert predictions["molecule"].tolist() == ["CCCN", "CCBr"]
    model = load_model(out / "model")
    assert isinstance(model, MoleculeModel)
    np.testing.assert_allclose(model.predict(["CCCN", "CCBr"]).value, predictions["weight"])
    with pytest.raises(ValueError, match=r"smiles\[1\] is 'C\(', which can't be used"):
        model.predict(["C", "C("])
    refused = dynagat(*predict, "--edges", table, "--nodes", table, code=2)
    assert "predicts molecules and takes --graphs, but no edges" in refused.stderr


def test_classes_of_molecules_are_learnt(tmp_path):
    data = read_molecules(written(tmp_path), smiles="molecule", target="kind")
    comparison = compare(data, mechanisms=["gat"], seeds=[0], settings=QUICK,
                         class_weights="balanced", folder=tmp_path / "out")  # fmt: skip
    assert comparison.metric.name == "roc_auc"
    assert comparison.results[0].sample("test").mean > 0.9
    table = load_model(tmp_path / "out/model").predict(data).to_pandas()
    assert set(table["kind"]) <= {"chain", "ring"}
    likely = table[["probability of chain", "probability of ring"]].to_numpy()
    np.testing.assert_allclose(likely.sum(1), 1)


def test_errors_are_in_the_unit_of_the_target(tmp_path):
    data = read_molecules(written(tmp_path), smiles="molecule", target="weight")
    problem = graph_problem(data)
    train = problem.y[problem.split["train"]]
    assert float(train.mean()) == pytest.approx(0, abs=1e-6)
    prediction = GraphTask(metric="mae").prepare(problem, Schedule())
    out, rows = torch.zeros_like(problem.y), problem.split["test"]
    error = prediction.value(prediction.metric, out[rows], problem.y[rows])
    y = data.y[data.split["test"]]
    assert error == pytest.approx(np.abs(y - data.y[data.split["train"]].mean()).mean(), rel=1e-5)


def test_totals_count_atoms_and_bonds(tmp_path):
    data = read_molecules(written(tmp_path), smiles="molecule", target="weight")
    totals = graph_problem(data).totals
    ethanol = list(data.nodes[GRAPH].arrays["id"]).index("CCO")
    assert totals[ethanol, :5].tolist() == [6, 2, 0, 1, 0]
    assert totals[ethanol, 15:].tolist() == [0, 16, 0, 0, 0]  # in both directions


def test_further_elements_are_told_apart():
    x = torch.zeros(2, 15)
    x[:, NUMBER] = torch.tensor([16.0, 35.0])
    inputs = atom_inputs(x)
    assert inputs.shape == (2, 23)
    assert inputs.max() == 1
    assert inputs[:, 15:].argmax(1).tolist() == [3, 6]


def test_molecules_without_a_part_or_without_one_target_are_refused(tmp_path):
    data = read_molecules(written(tmp_path), smiles="molecule", target="weight")
    with pytest.raises(ValueError, match="has no molecules for test in its split"):
        graph_problem(replace(data, split={**data.split, "test": np.empty(0, np.int64)}))
    with pytest.raises(ValueError, match="must have a target for its molecules, but has None"):
        graph_problem(read_molecules(written(tmp_path), smiles="molecule"))
    both = np.stack([data.y, data.y], 1)
    graphs = replace(data.nodes[GRAPH], arrays={**data.nodes[GRAPH].arrays, "y": both})
    with pytest.raises(ValueError, match="must have one target, but has 2"):
        graph_problem(replace(data, nodes={**data.nodes, GRAPH: graphs}))
    assert "--set graph=NAME" in OWN_MOLECULES.data.missing()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--graphs", "m.csv", "--target", "y"), "--smiles is missing"),
        (("--graphs", "m.csv", "--smiles", "s"), "--target is missing: the column of the molec"),
        (("cora", "--smiles", "s"), "--smiles names a column of --graphs, which is missing"),
        (("--graphs", "m.csv", "--smiles", "s", "--target", "y", "--id", "n"), "--id is for"),
        (("cora", "--graphs", "m.csv"), "takes the name of a graph, or --edges and --nodes, or"),
    ],
)  # fmt: skip
def test_a_command_that_lacks_something_is_one_sentence(arguments, message, tmp_path):
    result = dynagat("compare", *arguments, "--out", tmp_path / "out", code=2)
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("target", "metric"), [("weight", "R²"), ("kind", "ROC-AUC")])
def test_too_few_test_molecules_for_the_metric_are_refused_before_training(
    target, metric, tmp_path
):
    lines = [f"{'C' * n}O,{n / 3},{'ab'[n % 2]}" for n in range(1, 6)]
    (tmp_path / "few.csv").write_text("\n".join(["smiles,weight,kind", *lines, ""]))
    data = read_molecules(tmp_path / "few.csv", smiles="smiles", target=target)
    with pytest.raises(ValueError, match=f"{metric} can't be computed, since the targets of the 1"):
        compare(data, mechanisms=["gcn"], seeds=[0], settings=["max_rounds=1"])


# QM9

METHANE = {
    "mu": 0.0, "alpha": 13.21, "homo": -0.3877, "lumo": 0.1171, "gap": 0.5048, "r2": 35.3641,
    "zpve": 0.044749, "u0": -40.47893, "u": -40.476062, "h": -40.475117, "g": -40.498597,
    "cv": 6.469,
}  # fmt: skip
AMMONIA = {
    "mu": 1.6256, "alpha": 9.46, "homo": -0.257, "lumo": 0.0829, "gap": 0.3399, "r2": 26.1563,
    "zpve": 0.034358, "u0": -56.525887, "u": -56.523026, "h": -56.522082, "g": -56.544961,
    "cv": 6.316,
}  # fmt: skip


@pytest.mark.data
def test_normalised_targets_are_the_published_values_in_their_units():
    """Ammonia is in the published test part; the targets of methane were rebuilt."""
    data = read_compact(REAL / COMPACT)
    known = [(1, METHANE, [4, 1, 0, 0, 0]), (2, AMMONIA, [3, 0, 1, 0, 0])]
    for number, published, counts in known:
        place = int(np.flatnonzero(data.nodes[GRAPH].arrays["id"] == number)[0])
        targets = dict(zip(TARGETS, data.y[place].astype(np.float64), strict=True))
        for name, value in published.items():
            read = UNITS[name].values(targets[name], np.array(counts))
            assert read == pytest.approx(value, rel=1e-5, abs=1e-4), name


@pytest.mark.data
def test_the_units_are_those_of_the_shared_map():
    known = json.loads((REAL / "target_map.json").read_text())
    assert [name.lower().removesuffix("1") for name in known["names"]] == list(TARGETS)
    for name, (scale, offset, *per_atom) in zip(TARGETS, known["w"], strict=True):
        unit = UNITS[name]
        assert (unit.scale, unit.offset) == (scale, offset)
        assert unit.per_atom == tuple(per_atom or [0.0] * len(ELEMENTS))


# The last decimal of each property in QM9's own files; r2 and omega have more than a float32.
LAST_DIGITS = {
    "mu": 1e-4, "alpha": 1e-2, "homo": 1e-4, "lumo": 1e-4, "gap": 1e-4, "zpve": 1e-6,
    "u0": 1e-6, "u": 1e-6, "h": 1e-6, "g": 1e-6, "cv": 1e-3,
}  # fmt: skip


@pytest.mark.data
def test_predictions_of_test_molecules_in_units_have_the_digits_of_the_data_set():
    """Of a network without error: its output is the target."""
    data, source = read_jsonl(REAL, parts=("test",)), MoleculeData("qm9", "all", "smiles")
    columns = source.in_units(torch.from_numpy(np.asarray(data.y)), source.of_molecules(data))
    values = {name.split()[0]: column for name, column in columns.items()}
    for name, digit in LAST_DIGITS.items():
        last = values[name] / digit
        assert np.abs(last - np.rint(last)).max() < 0.1, name
    assert np.abs(values["lumo"] - values["homo"] - values["gap"]).max() < 1.1e-4
    work = values["h"] - values["u"]  # R T at 298.15 K
    assert np.abs(work - 0.000944).max() < 1.1e-6


@pytest.mark.parametrize("name", TARGETS)
def test_values_and_targets_are_inverse(name):
    draw = np.random.default_rng(0)
    values, counts = draw.normal(size=5), draw.integers(0, 9, (5, len(ELEMENTS)))
    unit = UNITS[name]
    np.testing.assert_allclose(unit.values(unit.targets(values, counts), counts), values, atol=1e-9)


def test_a_run_of_qm9_predicts_smiles_in_units(tmp_path, monkeypatch):
    rows = [f"{'C' * (1 + n)}{group},{n},{n}" for n in range(6) for group in ("O", "N", "F")]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["smiles,a,b", *rows]))
    data = read_molecules(path, smiles="smiles", target="a", task="regression")
    y = np.zeros((len(rows), len(TARGETS)), np.float32)
    graphs = replace(data.nodes[GRAPH], arrays={**data.nodes[GRAPH].arrays, "y": y})
    about = {**data.about, "task": {**data.task, "targets": list(TARGETS)}}
    qm9 = replace(data, nodes={**data.nodes, GRAPH: graphs}, about=about)
    monkeypatch.setattr("dynagat.benchmarks.qm9.load", lambda name: qm9)
    start, source = QM9.settings, MoleculeData(target="homo", features="smiles")
    network = replace(start.network, dim=8, heads=2, layers=2)
    schedule = replace(start.schedule, max_rounds=1)
    small = replace(QM9, data=source, network=network, schedule=schedule)
    record = run(small, "gatv2", 1)
    store = tmp_path / "records.sqlite"
    with Store(store) as kept:
        kept.add(record)
    (tmp_path / "new.csv").write_text("smiles\nC\nCCO\n")
    command = ("predict", "--run", record.key[:8], "--store", store, "--smiles", "smiles", "--out",
               tmp_path / "p.csv", "--graphs")  # fmt: skip
    dynagat(*command, tmp_path / "new.csv")
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table) == ["smiles", "homo (Ha)"]
    problem = source.of_molecules(molecules_of(["C", "CCO"]))
    with torch.no_grad():
        prediction = small.task.prepare(problem, schedule)
        trained = network.build(problem, "gatv2")
        trained.load_state_dict(torch.load(io.BytesIO(record.weights)))
        out = prediction.outputs(trained, torch.arange(2))[:, 0].double().numpy()
    expected = (out - UNITS["homo"].offset) / UNITS["homo"].scale
    np.testing.assert_allclose(table["homo (Ha)"], expected, rtol=1e-6)

    (tmp_path / "new.csv").write_text("smiles\nC\nCCCl\n")
    refused = dynagat(*command, tmp_path / "new.csv", code=2)
    assert "QM9 has the elements H, C, N, O, F, but 'CCCl' has Cl" in refused.stderr
    own = replace(small, data=MoleculeData(target="homo"))
    record = run(own, "gatv2", 1)
    with pytest.raises(ValueError, match=r"needs partial charges, .* --set features=smiles"):
        predict_molecules(record, record.weights, own, molecules_of(["C"]))
