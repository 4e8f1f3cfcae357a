"""Your own links: compare, score pairs, suggest new neighbours."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dynagat
from dynagat.cli import app

QUICK = ["max_rounds=6", "dim=16", "heads=2"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of links within two communities, and a comparison on it."""
    path = tmp_path_factory.mktemp("links")
    rng = np.random.default_rng(0)
    pairs = np.array([(a, b) for a in range(40) for b in range(a) if a // 20 == b // 20])
    pairs = pairs[rng.random(len(pairs)) < 0.5]
    table = pd.DataFrame({"from": [f"r{a}" for a in pairs[:, 0]],
                          "to": [f"r{b}" for b in pairs[:, 1]]})  # fmt: skip
    table.to_csv(path / "edges.csv", index=False)
    sets = [text for each in QUICK for text in ("--set", each)]
    result = call("compare", "--task", "link", "--edges", path / "edges.csv", "--mechanism",
                  "gcn,gatv2", "--seeds", "0", "--out", path / "out", "--json", *sets)  # fmt: skip
    assert result.exit_code == 0, result.output
    (path / "result.json").write_text(result.stdout)
    return path


def test_compare_names_the_baselines_beside_the_mechanisms(folder):
    result = json.loads((folder / "result.json").read_text())
    names = [each["name"] for each in result["baselines"]]
    assert names == ["common neighbours", "Adamic-Adar", "preferential attachment"]
    assert result["score"] == "average_precision"
    assert {each["mechanism"] for each in result["mechanisms"]} == {"gcn", "gatv2"}
    common = result["baselines"][0]["scores"]["test"]["0"]
    assert common > 0.8
    assert (folder / "out/index.html").exists()


def test_pairs_of_a_file_get_scores(folder):
    (folder / "pairs.csv").write_text("from,to\nr1,r2\nr1,r30\n")
    result = call("predict", "--model", folder / "out/model", "--links", folder / "pairs.csv",
                  "--out", folder / "scores.csv")  # fmt: skip
    assert result.exit_code == 0, result.output
    table = pd.read_csv(folder / "scores.csv")
    assert list(table.columns) == ["from", "to", "score", "linked"]
    assert table["score"].between(0, 1).all()
    assert table["score"][0] > table["score"][1]


def test_suggestions_are_new_and_the_best_first(folder):
    model = dynagat.load_model(folder / "out/model")
    table = model.suggest("r3", top=10).to_pandas()
    edges = pd.read_csv(folder / "edges.csv")
    near = {*edges[edges["from"] == "r3"]["to"], *edges[edges["to"] == "r3"]["from"]}
    assert not set(table["to"]) & (near | {"r3"})
    assert table["score"].is_monotonic_decreasing
    assert len(table) == 10
    result = call("predict", "--model", folder / "out/model", "--suggest", "r3", "--json")
    assert [each["to"] for each in json.loads(result.stdout)] == list(table["to"])


def test_a_saved_model_gives_the_same_scores(folder, tmp_path):
    model = dynagat.load_model(folder / "out/model")
    model.save(tmp_path / "copy")
    again = dynagat.load_model(tmp_path / "copy")
    pairs = [("r0", "r1"), ("r0", "r25")]
    np.testing.assert_array_equal(model.score(pairs).score, again.score(pairs).score)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from,to\nr1,r2\nr1,nobody\n",
            "line 3: column 'to' holds 'nobody', which is not in the graph of the model",
        ),
        ("from,to\nr1,r1\n", "line 2: the pair holds 'r1' twice, which is no link"),
        ("a,b\nr1,r2\n", "has no column 'from'"),
    ],
)
def test_bad_pairs_are_refused_with_their_line(text, message, folder):
    (folder / "bad.csv").write_text(text)
    result = call("predict", "--model", folder / "out/model", "--links", folder / "bad.csv")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("r1", "nobody")], "holds 'nobody', which is not in the graph of the model"),
        ([("r1", "r1")], "twice, which is no link"),
        ([("r1", "r2", "r3")], r"pairs\[0\] must hold two ids, but holds 3"),
        ([], "must hold at least one pair"),
    ],
)
def test_bad_pairs_are_refused_in_python(pairs, message, folder):
    with pytest.raises(ValueError, match=message):
        dynagat.load_model(folder / "out/model").score(pairs)


def test_a_model_of_links_says_which_options_it_takes(folder):
    result = call("predict", "--model", folder / "out/model")
    assert result.exit_code == 2
    assert "predicts links and takes --links or --suggest" in " ".join(result.stderr.split())


def test_an_unknown_node_has_no_suggestions(folder):
    with pytest.raises(ValueError, match="node 'nobody' is not in the graph"):
        dynagat.load_model(folder / "out/model").suggest("nobody")


def test_features_of_nodes_are_used(folder):
    nodes = folder / "nodes.csv"
    size = [n // 20 + 0.1 * (n % 3) for n in range(40)]
    pd.DataFrame({"id": [f"r{n}" for n in range(40)], "size": size}).to_csv(nodes, index=False)
    links = dynagat.data.read_links(folder / "edges.csv", nodes)
    result = dynagat.compare(links, mechanisms=["gcn"], seeds=[0], settings=QUICK)
    assert result.best.in_dim == 1
    assert len(result.best.suggest("r0", top=3)) == 3


def test_a_split_that_leaks_is_not_compared_on(folder):
    links = dynagat.data.read_links(folder / "edges.csv")
    links.split["test/edge_neg"][0] = links.split["train/edge"][0]
    with pytest.raises(ValueError, match=r"test/edge_neg\[0\] is the pair"):
        dynagat.compare(links, mechanisms=["gcn"], seeds=[0], settings=QUICK)


def test_negatives_of_each_link_are_refused(folder):
    """The layout of ogbl-citation2, whose links are ranked among their own negatives."""
    links = dynagat.data.read_links(folder / "edges.csv")
    ends = {f"{part}/{name}_node": links.split[f"{part}/edge"][:, end]
            for part in ("train", "valid", "test")
            for end, name in enumerate(("source", "target"))}  # fmt: skip
    negatives = {f"{part}/target_node_neg": np.stack([links.split[f"{part}/edge_neg"][:, 1]] * 2, 1)
                 for part in ("valid", "test")}  # fmt: skip
    ranked = replace(links, split=ends | negatives)
    with pytest.raises(ValueError, match=r"must have train/edge .* but has test/source_node"):
        dynagat.compare(ranked, mechanisms=["gcn"], seeds=[0])
    assert len(dynagat.data.split_links(ranked).split["test/edge"])  # what the message says to do


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--smiles", "s"], "--smiles is for --graphs, not for --task link"),
        (["--graphs", "molecules.csv"], "--task link takes --edges, or the name of a graph"),
    ],
)
def test_options_of_molecules_are_refused_for_links(tmp_path, words, message):
    done = call("compare", "--task", "link", "--edges", tmp_path / "edges.csv", *words)
    assert done.exit_code == 2
    assert message in done.stderr
