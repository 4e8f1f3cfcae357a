"""What the node benchmarks refuse is told in one sentence; what is asked for is what runs."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from bench.synthetic_ogb import make_ogb

from dynagat.analysis.attentive import look
from dynagat.benchmarks import BENCHMARKS, EDGE_NOISE, OGBN_ARXIV, PUBMED
from dynagat.benchmarks.edge_noise import RATIOS
from dynagat.benchmarks.nodes import NodeData
from dynagat.cli.benchmarks import _jobs, variants
from dynagat.data.store import EDGE, NODE, Edges, Nodes, store_folder
from tests.node_graphs import tiny, without_features
from tests.test_cli import (
    dynagat,
    one_thread,  # noqa: F401  (a fixture)
)

QUICK = ["--mechanism", "gatv2", "--seeds", "0"]


@pytest.fixture(scope="module", autouse=True)
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNAGAT_CACHE", str(folder / "cache"))
        patch.delenv("DYNAGAT_DATA", raising=False)
        for data in odd_graphs():
            data.save()
        yield folder


def odd_graphs():
    yield tiny("mine")
    yield tiny("made-up", made=True)
    yield without_features(replace(tiny("ogbn-arxiv"), name="ogbn-arxiv"))
    good = tiny("overlap")
    yield replace(good, split={**good.split, "test": np.array([3, 70])})
    good = tiny("no-training")
    yield replace(good, split={**good.split, "train": np.array([0, 1, 3])})
    good = tiny("no-valid")
    yield replace(good, split={name: each for name, each in good.split.items() if name != "valid"})
    good = tiny("unknown")
    y = np.where(np.arange(90) == 2, -1, good.y)
    yield replace(good, nodes={NODE: Nodes(90, {"x": good.x, "y": y})})
    yield replace(tiny("targetless"), about={})
    key, query = np.nonzero(~np.eye(90, dtype=bool))
    yield replace(tiny("dense"), edges={EDGE: Edges(key, query)})


def on(name: str, *texts: str) -> list[str]:
    words = ["edge-noise", "--set", f"dataset={name}"]
    for text in (*texts, "max_rounds=1", "dim=8", "heads=2"):
        words += ["--set", text]
    return words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pubmed"], "pubmed is not here; `dynagat data get pubmed` downloads it; or put"),
        (["ogbn-products"], "ogbn-products is not here; `dynagat data get ogbn-products`"),
        (on("cora"), "cora is not here; `dynagat data get cora` downloads it"),
        (on("atlantis"), "there is no graph 'atlantis' in the store or the catalogue; known: "),
        (["ogbn-arxiv"], "ogbn-arxiv is here without its features; `dynagat data get ogbn-arxiv` "
         "has them, or --set features=structure computes others from the graph"),
        (on("overlap"), "the split of overlap: node 3 is in train and in test"),
        (on("no-training"), "every class of no-training must have training nodes, but 'c' (20"),
        (on("no-valid"), "graph no-valid has no nodes for valid in its split"),
        (on("unknown"), "train of unknown must hold nodes with known targets, but 1 of 30"),
        (on("targetless"), "graph targetless must have a target for its nodes, but has None"),
        (on("mine", "noise=1.5"), "noise must lie in [0, 1], but is 1.5"),
        (on("mine", "noise=-0.1"), "noise must lie in [0, 1], but is -0.1"),
        (on("mine", "noise=nan"), "data.noise must be a number, but is 'nan'"),
        (on("dense", "noise=0.5"), "noise of ratio 0.5 on dense is 2002 new pairs of nodes, but "
         "only 0 pairs are free"),
        (on("made-up"), "graph made-up is made up, and tells nothing but time: ask with made=true"),
        (on("mine", "made=true"), "graph mine is real, but made=true asks for made-up data"),
        (on("mine", "features=words"), "data.features must be one of own, structure, but is"),
        (on("mine", "relation=cites"), "mine has no edges node-cites-node; it has node-to-node"),
        (on("mine", "last_heads=2"), "heads must divide the width 3 of a layer, but are 2"),
        (["ogbn-arxiv", "--heads", "3"], "heads must divide dim=256, but is 3"),
        (["pubmed", "--heads", "0"], "heads must divide dim=0, but is 0"),
        (["pubmed", "--set", "layers=-1"], "layers must be at least 0, but is -1"),
        (["pubmed", "--set", "dropout=1"], "dropout must lie in [0, 1), but is 1.0"),
        (["ogbn-mag", "--set", "layers=3"], "neighbours must be a number for each of 3 layers, but "
         "is 10,10"),
        (["ogbn-mag", "--set", "roots=5"], "roots must be 0 where neighbours are 10,10, but is 5"),
        (["ogbn-arxiv", "--set", "steps=0"], "steps is too small: 0"),
        (["ogbn-products", "--set", "max_rounds=3"], "silent_rounds must be below 3 rounds, but"),
        (["ogbn-proteins", "--set", "features=structure"], "features must be own where they are "
         "those of edges, but are structure"),
        (["ogbn-proteins", "--set", "dataset=mine"], "the edges of mine must have features, but"),
        (["pubmed", "--mechanism", "bert"], "pubmed has no mechanism 'bert'; it has gat, gatv2,"),
        ([*on("mine", "source=pyg"), "--mechanism", "dpgat"], "source=pyg has layers for gat, "
         "gatv2, gin, sage, not for 'dpgat'"),
        (on("mine", "source=dgl"), "network.source must be one of dynagat, pyg, but is 'dgl'"),
        (on("mine", "roots=1", "walk_length=1", "steps=40"), "roots=1 are too few: a step's"),
        (on("mine", "neighbours=0,3"), "num_neighbors must be above 0, or -1 for all, but has 0"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, words, sentence) -> None:
    quick = [] if "--mechanism" in words else QUICK[:2]
    done = dynagat("run", *words, *quick, *QUICK[2:], cwd=tmp_path, code=2)
    assert sentence in " ".join(done.stderr.split())
    assert done.stderr.count("dynagat: ") == 1
    assert done.stdout == ""


# What runs


def records(*words, cwd) -> list[dict]:
    done = dynagat("run", *words, "--seeds", "0", "--json", cwd=cwd)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_any_stored_graph_can_get_noise(tmp_path) -> None:
    short = ["edge-noise", "--set", "dataset=mine", "--set", "max_rounds=1", "--set", "dim=8"]
    found = records(*short, "--set", "noise=0,0.5", "--inspect", cwd=tmp_path)
    told = [(each["mechanism"], each["settings"]["data"]["noise"]) for each in found]
    assert told == [(name, noise) for name in EDGE_NOISE.mechanisms for noise in (0.0, 0.5)]
    for each in found:
        if each["mechanism"] == "gcn":  # and is a record nevertheless
            assert "no attention layer" in each["microscope"]["refused"]
            continue
        heads = [head for layer in each["microscope"]["layers"] for head in layer["heads"]]
        has_noise = each["settings"]["data"]["noise"] > 0
        assert all((head["noise"]["uniform"] > 0) == has_noise for head in heads)


@pytest.mark.parametrize(("how", "has"), [("whole", "ranking"), ("glance", "queries")])
def test_the_microscope_can_be_chosen(tmp_path, how, has) -> None:
    asked = "--mechanism", "gatv2", "--inspect", "--microscope", how
    [found] = records(*on("mine", "noise=0"), *asked, cwd=tmp_path)
    layer = found["microscope"]["layers"][0]
    assert has in layer
    assert ("ranking" in layer) == (how == "whole")


def test_without_a_microscope_runs_are_not_looked_at(tmp_path) -> None:
    asked = "--mechanism", "gatv2", "--inspect", "--microscope", "none"
    [found] = records(*on("mine", "noise=0"), *asked, cwd=tmp_path)
    assert found["microscope"] is None


def heads_of(benchmark, *texts, published=False, heads=None, mechanisms=None):
    jobs = _jobs(benchmark, list(texts), published, mechanisms, heads, ["0"], False, look)
    found = [(job.mechanism, job.benchmark.network.heads) for job in jobs]
    return list(dict.fromkeys(found))


def test_as_published_edge_noise_has_the_heads_of_the_papers_code() -> None:
    """D17"""
    assert heads_of(EDGE_NOISE) == [("gat", 8), ("gatv2", 8), ("dpgat", 8), ("gcn", 8)]
    theirs = [("gat", 8), ("gatv2", 1), ("dpgat", 1), ("gcn", 8)]
    assert heads_of(EDGE_NOISE, published=True) == theirs
    on_mag = heads_of(EDGE_NOISE, "dataset=ogbn-mag", published=True)
    assert on_mag == [("gat", 1), ("gatv2", 1), ("dpgat", 1), ("gcn", 8)]
    assert heads_of(EDGE_NOISE, published=True, heads=["4"])[1] == ("gatv2", 4)


def test_heads_that_are_set_or_tuned_are_those_that_run() -> None:
    assert heads_of(PUBMED, "heads=4", mechanisms=["gat"]) == [("gat", 4)]
    assert heads_of(PUBMED, "network.heads=4,2", mechanisms=["gat"]) == [("gat", 4), ("gat", 2)]
    tuned = replace(PUBMED, tuned={"gat": {"heads": 4, "hidden": 32}})
    assert heads_of(tuned, mechanisms=["gat", "gatv2"]) == [("gat", 4), ("gatv2", 8)]
    assert heads_of(tuned, mechanisms=["gat"], heads=["1"]) == [("gat", 1)]


def test_a_setting_has_the_last_word_over_tuned_published_and_smoke() -> None:
    tuned = replace(PUBMED, tuned={"gat": {"hidden": 32, "dropout": 0.4}})
    [found] = variants(tuned, "gat", ["dropout=0.8", "max_rounds=7"], False, True)
    assert (found.network.hidden, found.network.dropout) == (32, 0.8)
    assert found.schedule.max_rounds == 7
    [found] = variants(OGBN_ARXIV, "gat", ["gain=1.5"], True, False)
    assert (found.network.gain, found.network.share_query) == (1.5, False)


# list


def test_list_is_quick_and_whole_when_nothing_is_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "none"))
    started = time.perf_counter()
    shown = " ".join(dynagat("list", cwd=tmp_path).stdout.split())
    assert time.perf_counter() - started < 5
    for name in BENCHMARKS:
        assert name.split("-")[0] in shown
    assert "dynagat data get" in shown
    assert not (tmp_path / "none").exists()


def test_list_reads_no_files_that_were_not_stored_yet(tmp_path, monkeypatch) -> None:
    """Those of products are two gigabytes; and a list makes nothing."""
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DYNAGAT_DATA", str(tmp_path / "data"))
    make_ogb("ogbn-products", tmp_path / "data" / "ogbn-products", nodes=470)
    assert NodeData("ogbn-products").missing() is None
    assert not store_folder().exists()


def test_what_is_missing_of_an_odd_store_is_told_and_stops_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    without_features(tiny("ogbn-arxiv")).save()
    assert "features=structure" in NodeData("ogbn-arxiv").missing()
    assert NodeData("ogbn-arxiv", features="structure").missing() is None
    two = {"a": Nodes(2), "b": Nodes(3)}
    replace(tiny("cora"), nodes=two, edges={}, split={}, about={}).save()
    assert "cora has nodes of several types: a, b" in NodeData("cora").missing()
    replace(tiny("citeseer"), about={"task": {"node_type": "paper"}}).save()
    assert "citeseer is here without its features" in NodeData("citeseer").missing()
    broken = tiny("pubmed").save().folder
    next(broken.glob("*.json")).write_text("{")
    assert str(broken) in NodeData("pubmed").missing()
    assert "dictionary-lookup" in dynagat("list", cwd=tmp_path).stdout


def test_edge_noise_goes_through_the_figure_unless_a_noise_is_set():
    asked = [], False, ["gat"], None, ["0"], False, None
    every = _jobs(EDGE_NOISE, *asked)
    assert [job.benchmark.data.noise for job in every] == list(RATIOS)
    one = _jobs(EDGE_NOISE, ["noise=0.3"], *asked[1:])
    assert [job.benchmark.data.noise for job in one] == [0.3]
