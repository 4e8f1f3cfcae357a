"""compare and predict: from tables to an answer, a page, a model and its predictions."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

import dynagat
from tests.test_cli import dynagat as run
from tests.test_cli import one_thread  # noqa: F401  (a fixture)

QUICK = ["--set", "max_rounds=3", "--set", "dim=8", "--set", "heads=2", "--seeds", "0-1"]
QUICK += ["--mechanism", "gat,gatv2,gcn"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two kinds of readers, linked mostly to their own kind; ids are texts, some cells empty."""
    folder = tmp_path_factory.mktemp("tables")
    draw = np.random.default_rng(0)
    kind = np.array(["maps", "poetry"])[draw.integers(0, 2, 120)]
    key, query = draw.integers(0, 120, (2, 900))
    kept = (kind[key] == kind[query]) | (draw.random(900) < 0.2)
    names = np.array([f"reader {n}" for n in range(120)])
    age = draw.normal(40, 10, 120).round(1)
    age[5] = np.nan
    nodes = pd.DataFrame({"name": names, "age": age, "town": draw.choice(["Ulm", "Bern"], 120),
                          "shelf": kind, "visits": draw.normal(size=120)})  # fmt: skip
    nodes.loc[7, "shelf"] = None  # to be predicted
    edges = pd.DataFrame({"from": names[key[kept]], "to": names[query[kept]]})
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


def words_for(folder, *more):
    return ["--edges", folder / "edges.csv", "--nodes", folder / "nodes.csv", *more]


@pytest.fixture(scope="module")
def compared(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    done = run("compare", *words_for(tables, "--target", "shelf"), *QUICK, cwd=folder)
    torch.set_num_threads(threads)
    return folder / "comparison", done


def test_compare_prints_an_answer_and_writes_a_page_and_a_model(compared):
    folder, done = compared
    graph, use = done.stdout.splitlines()[:2]
    assert "on the test nodes" in graph
    assert "label propagation on the edges alone" in graph
    assert use.startswith("Use G")
    assert "GATv2 (2 heads)" in done.stdout
    assert "whole graph at once" in done.stderr  # the reasons for the plan
    assert "Column 'name' holds the ids of the nodes." in done.stderr
    assert "Each edge is used in both directions" in (folder / "index.html").read_text()
    assert {"index.html", "model", "comparison.json", "records.sqlite", "graph"} <= {
        path.name for path in folder.iterdir()
    }
    values = json.loads((folder / "comparison.json").read_text())
    assert {each["mechanism"] for each in values["mechanisms"]} == {"gat", "gatv2", "gcn"}
    assert values["score"] == "roc_auc"
    assert [each["uses"] for each in values["baselines"]] == [
        "nothing", "features", "features", "edges"
    ]  # fmt: skip
    assert values["answer"][0] == done.stdout.splitlines()[0]


def test_the_page_has_the_printed_answer(compared, look_at):
    folder, done = compared
    view = look_at(folder / "index.html")
    assert view.locator("h1").inner_text() == "Which attention for nodes?"
    assert view.locator(".lead").inner_text() == done.stdout.splitlines()[0]
    assert view.locator("#scores tbody tr").count() >= 3
    assert view.locator("figure svg").count() == 2
    assert "dynagat predict --model" in view.locator("#use").inner_text()
    assert "homophily" in view.locator("#data").inner_text()
    body = view.locator("body").bounding_box()
    assert body["width"] <= 1280


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone(compared, look_at, scheme):
    view = look_at(compared[0] / "index.html", width=390, height=800, scheme=scheme)
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    words = "getComputedStyle(document.querySelector('figure svg text')).fill"
    assert view.evaluate(words) == view.evaluate("getComputedStyle(document.body).color")


def test_the_same_command_repeats_no_run(compared, tables):
    folder, done = compared
    again = run("compare", *words_for(tables, "--target", "shelf"), *QUICK, cwd=folder.parent)
    assert "6 of 6 runs are already in comparison/records.sqlite" in again.stderr
    assert again.stdout == done.stdout


def test_a_comparison_of_other_tables_is_refused_and_changes_nothing(compared, tables):
    folder = compared[0]
    before = (folder / "graph" / "arrays.json").read_bytes()
    words = words_for(tables, "--target", "shelf", "--ignore", "age")
    refused = run("compare", *words, *QUICK, cwd=folder.parent, code=2)
    assert refused.stderr == (
        "dynagat: comparison holds a comparison of another graph; name another folder with --out "
        "(folder), or remove this one\n"
    )
    assert (folder / "graph" / "arrays.json").read_bytes() == before
    assert not list(folder.glob("graph.new*"))


def test_predict_gives_the_id_and_probabilities_of_every_node(compared, tables, tmp_path):
    model = compared[0] / "model"
    run("predict", "--model", model, *words_for(tables, "--out", "out/p.parquet"), cwd=tmp_path)
    table = pd.read_parquet(tmp_path / "out" / "p.parquet")
    assert list(table["name"]) == [f"reader {n}" for n in range(120)]
    assert set(table["shelf"]) <= {"maps", "poetry"}
    likely = table[["probability of maps", "probability of poetry"]].sum(axis=1)
    np.testing.assert_allclose(likely, 1)
    run("predict", "--model", model, *words_for(tables, "--out", "p.csv"), cwd=tmp_path)
    pd.testing.assert_series_equal(pd.read_csv(tmp_path / "p.csv")["shelf"],
                                   table["shelf"].astype("str"), check_dtype=False)  # fmt: skip


def test_predict_takes_a_graph_that_has_grown(compared, tables, tmp_path):
    """New nodes, a town that was never seen, no target, columns in another order."""
    nodes = pd.read_csv(tables / "nodes.csv").drop(columns=["shelf"])
    new = pd.DataFrame({"name": ["newcomer"], "age": [33], "town": ["Oslo"], "visits": [0.5]})
    grown = pd.concat([nodes, new])[["visits", "town", "age", "name"]]
    edges = pd.read_csv(tables / "edges.csv")
    edges = pd.concat([edges, pd.DataFrame({"from": ["newcomer"], "to": ["reader 3"]})])
    grown.to_parquet(tmp_path / "nodes.parquet")
    edges.to_csv(tmp_path / "edges.csv", index=False)
    model = dynagat.load_model(compared[0] / "model")
    after = model.predict(edges=tmp_path / "edges.csv", nodes=tmp_path / "nodes.parquet")
    assert len(after) == 121
    assert list(after.id)[-1] == "newcomer"
    before = model.predict(edges=tables / "edges.csv", nodes=tables / "nodes.csv")
    graph = pd.read_csv(tables / "edges.csv")
    near = {"reader 3"}
    for _ in range(2):  # in GCN, a degree also affects neighbours of neighbours
        ends = graph[graph["from"].isin(near) | graph["to"].isin(near)]
        near |= {*ends["from"], *ends["to"]}
    far = [n for n in range(120) if f"reader {n}" not in near]
    np.testing.assert_allclose(after.probability[far], before.probability[far], rtol=1e-4)


@pytest.mark.parametrize(("target", "metric"), [("visits", "R²"), ("shelf", "ROC-AUC")])
def test_the_kind_of_target_decides_the_metric(tables, tmp_path, target, metric):
    done = run("compare", *words_for(tables, "--target", target), *QUICK[:-4], "--seeds", "0",
               "--mechanism", "gcn", cwd=tmp_path)  # fmt: skip
    assert metric in done.stdout.splitlines()[0]


def test_json_is_for_machines(tables, tmp_path):
    done = run("compare", *words_for(tables, "--target", "shelf"), *QUICK[:-4], "--seeds", "0",
               "--mechanism", "gcn", "--json", cwd=tmp_path)  # fmt: skip
    assert json.loads(done.stdout)["task"]["classes"] == ["maps", "poetry"]


def test_a_stored_graph_is_compared_by_its_name(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    words = words_for(tables, "--target", "shelf", "--name", "readers")
    run("data", "import", *words, cwd=tmp_path)
    quick = [*QUICK[:-4], "--seeds", "0", "--mechanism", "gat"]
    assert "Use GAT" in run("compare", "readers", *quick, cwd=tmp_path).stdout
    words = ["predict", "readers", "--model", "comparison/model", "--out", "p.parquet"]
    run(*words, cwd=tmp_path)
    assert len(pd.read_parquet(tmp_path / "p.parquet")) == 120


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare"], "compare takes the name of a graph, or --edges and --nodes"),
        (["compare", "nothing"], "there is no"),
        (["compare", "--edges", "EDGES", "--nodes", "NODES"], "--target is missing"),
        (["compare", "--edges", "EDGES", "--target", "shelf"], "--nodes is missing"),
        (["compare", "--edges", "EDGES", "--nodes", "NODES", "--target", "shelf", "--mechanism",
          "mlp"], "mechanism must be one of gcn, gat, gatv2, dpgat, but is 'mlp'"),
        (["compare", "--edges", "EDGES", "--nodes", "NODES", "--target", "wage"], "wage"),
        (["compare", "--edges", "EDGES", "--nodes", "NODES", "--target", "shelf", "--seeds", "x"],
         "seeds must be numbers and ranges"),
        (["compare", "--edges", "EDGES", "--nodes", "NODES", "--target", "shelf", "--task",
          "regression"], "column 'shelf' must hold numbers"),
        (["predict", "--model", "none", "--edges", "EDGES", "--nodes", "NODES", "--out", "p.csv"],
         "none is no folder of arrays"),
        (["predict", "--model", "MODEL", "--edges", "EDGES", "--out", "p.csv"],
         "takes a graph, or the tables of edges and nodes"),
        (["predict", "--model", "MODEL", "--edges", "EDGES", "--nodes", "NODES", "--out", "p.txt"],
         "must go to .parquet or .csv, but p.txt is neither"),
        (["predict", "--model", "MODEL", "--edges", "EDGES", "--nodes", "EDGES", "--out", "p.csv"],
         "has no column"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(words, message, tables, compared, tmp_path):
    names = {"EDGES": tables / "edges.csv", "NODES": tables / "nodes.csv",
             "MODEL": compared[0] / "model"}  # fmt: skip
    done = run(*[names.get(word, word) for word in words], cwd=tmp_path, code=2)
    assert re.search(re.escape(message), done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*"))


def test_a_run_of_a_comparison_can_be_inspected(compared, tmp_path):
    store = compared[0] / "records.sqlite"
    words = ["inspect", "own-graph", "--store", store, "--mechanism", "gatv2", "--seed", "1"]
    done = run(*words, cwd=tmp_path)
    assert "layers.0.conv" in done.stdout
    assert (tmp_path / "inspect.html").is_file()


def test_a_column_with_only_unknown_categories_is_refused(compared, tables, tmp_path):
    """Some may be new; if all are, it is not the column of the training data."""
    nodes = pd.read_csv(tables / "nodes.csv")
    nodes["town"] = nodes["town"].map({"Ulm": 7, "Bern": 8})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    words = ["--model", compared[0] / "model", "--edges", tables / "edges.csv"]
    done = run("predict", *words, "--nodes", "nodes.csv", "--out", "p.csv", cwd=tmp_path, code=2)
    assert "column 'town' must hold categories such as 'Bern', but none" in done.stderr
    nodes["town"] = None  # all are missing
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    run("predict", *words, "--nodes", "nodes.csv", "--out", "p.csv", cwd=tmp_path)


def test_columns_of_ids_may_have_other_names_than_in_training(compared, tables, tmp_path):
    nodes, edges = pd.read_csv(tables / "nodes.csv"), pd.read_csv(tables / "edges.csv")
    nodes.rename(columns={"name": "who"}).to_csv(tmp_path / "n.csv", index=False)
    edges.rename(columns={"from": "a", "to": "b"}).to_csv(tmp_path / "e.csv", index=False)
    words = ["predict", "--model", compared[0] / "model", "--edges", "e.csv", "--nodes", "n.csv"]
    words += ["--out", "p.csv"]
    assert "has no column 'from'" in run(*words, cwd=tmp_path, code=2).stderr
    run(*words, "--key", "a", "--query", "b", "--id", "who", cwd=tmp_path)
    assert len(pd.read_csv(tmp_path / "p.csv")) == 120
