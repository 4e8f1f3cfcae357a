"""dynagat data: list, get, import, describe and remove graphs; errors are one line."""

import json

import numpy as np
import pytest
from bench.synthetic_ogb import make_ogb
from typer.testing import CliRunner

from dynagat.cli import app
from dynagat.data.arrays import LIST
from dynagat.data.store import open_graph, store_folder, stored_names


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DYNAGAT_DATA", raising=False)


def data(*words, code=0):
    """The standard output of the command, or the one line of its error."""
    done = CliRunner().invoke(app, ["data", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    if code:
        (line,) = done.stderr.splitlines()
        return line
    return done.stdout


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "mine.npz"
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    np.savez(path, x=np.eye(3), edge_index=edges, y=np.array([0, 1, 1]), train=np.array([0]))
    return path


def test_an_npz_is_imported_listed_described_and_removed(npz):
    assert "mine: 3 nodes, 6 edges; stored in" in data("import", "--npz", npz)
    rows = [json.loads(line) for line in data("list", "--json").splitlines()]
    (mine,) = [row for row in rows if row["name"] == "mine"]
    assert mine == {"name": "mine", "what": "your own", "nodes": 3, "edges": 6, "where": "stored"}
    assert "homophily" in data("describe", "mine")
    assert json.loads(data("describe", "mine", "--json"))["nodes"][0]["count"] == 3
    assert json.loads(data("describe", store_folder() / "mine", "--json"))["name"] == "mine"
    assert data("remove", "mine") == "removed mine\n"
    assert stored_names() == []


def test_an_import_says_what_it_assumes_and_the_description_repeats_it(npz, tmp_path):
    def notes(*words):
        done = CliRunner().invoke(app, ["data", "import", *map(str, words)])
        assert done.exit_code == 0, done.output
        return done.stderr.splitlines()

    both = "Each edge is used in both directions (--directed keeps its direction)."
    assert notes("--npz", npz) == [both]
    assert both in data("describe", "mine")
    directed = "Edges are directed: the node in column attends to that in row."
    assert notes("--npz", npz, "--directed", "--name", "other") == [directed]
    assert json.loads(data("describe", "other", "--json"))["edges"][0]["count"] == 3
    rows = "".join(f"n{n},{n % 3},1,{'yes' if n % 2 else 'no'}\n" for n in range(9))
    (tmp_path / "n.csv").write_text("code,size,same,label\n" + rows)
    (tmp_path / "e.csv").write_text("a,b\nn1,n2\n")
    words = ["--edges", tmp_path / "e.csv", "--nodes", tmp_path / "n.csv", "--target", "label"]
    assert notes(*words) == [
        "Column 'code' holds the ids of the nodes.",
        "Target: 'label', for classification (--task sets another).",
        "Features: 'size', 'same' (--ignore leaves a column out).",
        "Split: 60/20/20 % at random, with seed 0 (--split names a column).",
        both,
    ]


def test_the_catalogue_is_listed_with_how_to_get_it():
    printed = data("list")
    for words in ("ogbn-products", "123,718,280", "dynagat data get"):
        assert words in printed


def test_a_graph_is_replaced_only_with_the_option(npz):
    data("import", "--npz", npz, "--name", "g")
    assert "exists already" in data("import", "--npz", npz, "--name", "g", code=2)
    data("import", "--npz", npz, "--name", "g", "--replace")


def test_an_ogb_folder_is_imported(tmp_path):
    folder = make_ogb("ogbl-ddi", tmp_path / "ddi", nodes=20)
    data("import", "--ogb", folder, "--name", "small")
    assert "OGB, ogbl-ddi" in data("describe", "small")
    assert '"small"' in data("list", "--json")


def test_tables_are_read_with_the_given_options(tmp_path):
    (tmp_path / "e.csv").write_text("a,b,w\nu,v,1\nv,w,2\n")
    rows = [f"{name},{n},x,{'yes' if n % 2 else 'no'}" for n, name in enumerate("uvwxyz")]
    (tmp_path / "n.csv").write_text("\n".join(["code,size,note,label", *rows, ""]))
    words = ["--edges", tmp_path / "e.csv", "--nodes", tmp_path / "n.csv", "--target", "label"]
    words += ["--ignore", "note", "--shares", "0.5", "0.25", "0.25", "--id", "code"]
    assert "e: 6 nodes, 4 edges" in data("import", *words)
    words += ["--directed", "--edge-column", "w", "--key", "b", "--query", "a"]
    assert "mine: 6 nodes, 2 edges" in data("import", *words, "--name", "mine")
    found = open_graph("mine")
    assert found.sole_edges.key_index.tolist() == [1, 2]
    assert found.sole_edges.arrays["attr"].tolist() == [[1], [2]]
    assert found.about["task"]["classes"] == ["no", "yes"]
    assert [each["name"] for each in found.about["columns"]["columns"]] == ["size"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import"], "but got none of them"),
        (["import", "--ogb", "b", "--directed"], "--directed is for --edges and --npz"),
        (["import", "--npz", "a", "--ogb", "b"], "but got --npz and --ogb"),
        (["import", "--edges", "e.csv"], "--nodes is missing"),
        (["import", "--npz", "nowhere.npz"], "nowhere.npz: No such file"),
        (["import", "--planetoid", "nowhere"], "nowhere must hold the ind.*.graph file of one"),
        (["import", "--ogb", "nowhere"], "nowhere must be named after the OGB dataset"),
        (["import", "--ogb", "nowhere/arxiv"], "is not a folder of OGB's files"),
        (["describe", "nope"], "there is no stored graph 'nope'"),
        (["describe", "ogbn-mag"], "ogbn-mag is not here; `dynagat data get ogbn-mag`"),
        (["remove", "nope"], "there is no stored graph 'nope'"),
        (["remove", ".."], "there is no stored graph '..'"),
        (["get", "nope"], "the catalogue has no 'nope'; it has pubmed"),
    ],
)
def test_an_error_is_one_line_and_nothing_is_stored(words, message):
    assert message in data(*words, code=2)
    assert stored_names() == []


def test_an_altered_graph_is_reported_by_describe_and_list(npz):
    data("import", "--npz", npz)
    path = next((store_folder() / "mine").rglob("x.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert "x.npy was altered: its checksum differs" in data("describe", "mine", code=2)
    (store_folder() / "mine" / LIST).write_text("{")
    assert "was cut short or altered" in data("list", "--json")
    data("remove", "mine")
