"""The node benchmarks explain what they refuse, and run what the command line requests."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from bench.synthetic_ogb import make_ogb

from dynagat.benchmarks import BENCHMARKS, EDGE_NOISE, OGBN_ARXIV, PUBMED
from dynagat.benchmarks.edge_noise.benchmark import RATIOS
from dynagat.benchmarks.node_data import NodeData, scaled, with_random_split
from dynagat.benchmarks.pubmed import CORA
from dynagat.data.store import EDGE, NODE, SPLITS, Edges, Nodes, store_folder
from dynagat.experiment import Request, jobs_of
from dynagat.experiment.jobs import variants
from dynagat.experiment.settings import as_stored
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
    ("words", "message"),
    [
        (["pubmed"], "pubmed is not here; `dynagat data get pubmed` downloads it; or put"),
        (["ogbn-products"], "ogbn-products is not here; `dynagat data get ogbn-products`"),
        (on("cora"), "cora is not here; `dynagat data get cora` downloads it"),
        (on("atlantis"), "there is no graph 'atlantis' in the store or the catalogue; known: "),
        (["ogbn-arxiv"], "ogbn-arxiv is here without its features; `dynagat data get ogbn-arxiv` "
         "gets them, or --set features=structure computes others from the graph"),
        (on("overlap"), "the split of overlap: node 3 is in train and in test"),
        (on("no-training"), "every class of no-training must have training nodes, but 'c' (20"),
        (on("no-valid"), "graph no-valid has no nodes for valid in its split"),
        (on("unknown"), "train of unknown must hold nodes with known targets, but 1 of 30"),
        (on("targetless"), "graph targetless must have a target for its nodes, but has None"),
        (on("mine", "noise=1.5"), "noise must lie in [0, 1], but is 1.5"),
        (on("mine", "noise=-0.1"), "noise must lie in [0, 1], but is -0.1"),
        (on("mine", "noise=nan"), "data.noise must be a number, but is 'nan'"),
        (on("dense", "noise=0.5"), "noise of ratio 0.5 on dense needs 2002 new pairs of nodes, but "
         "only 0 pairs are free"),
        (on("mine", "made=true"), "there is no setting 'made'; there are data.dataset, "),
        (on("mine", "features=words"), "data.features must be one of own, structure, noisy-"),
        (on("mine", "relation=cites"), "mine has no edges node-cites-node; it has node-to-node"),
        (on("mine", "last_heads=2"), "heads must divide the width 3 of a layer, but are 2"),
        (["ogbn-arxiv", "--heads", "3"], "heads must divide dim=256, but is 3"),
        (["pubmed", "--heads", "0"], "heads must divide dim=0, but is 0"),
        (["pubmed", "--set", "layers=-1"], "layers must be at least 0, but is -1"),
        (["pubmed", "--set", "dropout=1"], "dropout must lie in [0, 1), but is 1.0"),
        (["ogbn-mag", "--set", "layers=3"], "neighbours must hold a number for each of 3 layers, "
         "but is 10,10"),
        (["ogbn-mag", "--set", "roots=5"], "roots must be 0 where neighbours are 10,10, but is 5"),
        (["ogbn-arxiv", "--set", "steps=0"], "steps is too small: 0"),
        (["ogbn-products", "--set", "max_rounds=3"], "silent_rounds must be below max_rounds=3,"),
        (["ogbn-proteins", "--set", "features=structure"], "features must be own, as they are "
         "computed from edges, but are structure"),
        (["ogbn-proteins", "--set", "dataset=mine"], "the edges of mine must have features, but"),
        (["pubmed", "--mechanism", "bert"], "pubmed has no mechanism 'bert'; it has gat, gatv2,"),
        ([*on("mine", "source=pyg"), "--mechanism", "dpgat"], "source=pyg has layers for gat, "
         "gatv2, gin, sage, not for 'dpgat'"),
        (on("mine", "source=dgl"), "network.source must be one of dynagat, pyg, but is 'dgl'"),
        (on("mine", "roots=1", "walk_length=1", "steps=40"), "roots=1 is too small: a step's"),
        (on("mine", "neighbours=0,3"), "num_neighbors must be above 0, or -1 for all, but has 0"),
    ],
)  # fmt: skip
def test_bad_input_gives_one_message_and_exit_code_2(tmp_path, words, message) -> None:
    quick = [] if "--mechanism" in words else QUICK[:2]
    done = dynagat("run", *words, *quick, *QUICK[2:], cwd=tmp_path, code=2)
    assert message in " ".join(done.stderr.split())
    assert done.stderr.count("dynagat: ") == 1
    assert done.stdout == ""


# Requested runs


def records(*words, cwd) -> list[dict]:
    done = dynagat("run", *words, "--seeds", "0", "--json", cwd=cwd)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_edge_noise_runs_on_any_stored_graph(tmp_path) -> None:
    short = ["edge-noise", "--set", "dataset=mine", "--set", "max_rounds=1", "--set", "dim=8"]
    runs = records(*short, "--set", "noise=0,0.5", "--inspect", cwd=tmp_path)
    pairs = [(each["mechanism"], each["settings"]["data"]["noise"]) for each in runs]
    assert pairs == [(name, noise) for name in EDGE_NOISE.mechanisms for noise in (0.0, 0.5)]
    for each in runs:
        if each["mechanism"] == "gcn":  # has no attention, but has a record
            assert "no attention layer" in each["microscope"]["refused"]
            continue
        heads = [head for layer in each["microscope"]["layers"] for head in layer["heads"]]
        has_noise = each["settings"]["data"]["noise"] > 0
        assert all((head["noise"]["uniform"] > 0) == has_noise for head in heads)


@pytest.mark.parametrize(("how", "has"), [("whole", "one_ranking"), ("glance", "queries")])
def test_the_microscope_can_be_chosen(tmp_path, how, has) -> None:
    options = "--mechanism", "gatv2", "--inspect", "--microscope", how
    [record] = records(*on("mine", "noise=0"), *options, cwd=tmp_path)
    layer = record["microscope"]["layers"][0]
    assert has in layer
    assert ("one_ranking" in layer) == (how == "whole")


def test_without_a_microscope_runs_are_not_analysed(tmp_path) -> None:
    options = "--mechanism", "gatv2", "--inspect", "--microscope", "none"
    [record] = records(*on("mine", "noise=0"), *options, cwd=tmp_path)
    assert record["microscope"] is None


def heads_of(benchmark, *settings, **options):
    """(mechanism, heads) of the jobs of a request."""
    jobs = jobs_of(benchmark, Request(settings, seeds=(0,), **options))
    pairs = [(job.mechanism, job.benchmark.network.heads) for job in jobs]
    return list(dict.fromkeys(pairs))


def test_as_published_edge_noise_has_the_heads_of_the_released_code() -> None:
    """D17"""
    assert heads_of(EDGE_NOISE) == [("gat", 8), ("gatv2", 8), ("dpgat", 8), ("gcn", 8)]
    published = [("gat", 8), ("gatv2", 1), ("dpgat", 1), ("gcn", 8)]
    assert heads_of(EDGE_NOISE, as_published=True) == published
    on_mag = heads_of(EDGE_NOISE, "dataset=ogbn-mag", as_published=True)
    assert on_mag == [("gat", 1), ("gatv2", 1), ("dpgat", 1), ("gcn", 8)]
    assert heads_of(EDGE_NOISE, as_published=True, heads=(4,))[1] == ("gatv2", 4)


def test_heads_that_are_set_or_tuned_are_those_that_run() -> None:
    assert heads_of(PUBMED, "heads=4", mechanisms=("gat",)) == [("gat", 4)]
    assert heads_of(PUBMED, "network.heads=4,2", mechanisms=("gat",)) == [("gat", 4), ("gat", 2)]
    tuned = replace(CORA, tuned={"gat": {"heads": 4, "hidden": 32}})
    assert heads_of(tuned, mechanisms=("gat", "gatv2")) == [("gat", 4), ("gatv2", 8)]
    assert heads_of(tuned, mechanisms=("gat",), heads=(1,)) == [("gat", 1)]


def test_settings_of_the_request_override_tuned_published_and_smoke_settings() -> None:
    tuned = replace(PUBMED, tuned={"gat": {"hidden": 32, "dropout": 0.4}})
    [variant] = variants(tuned, "gat", Request(("dropout=0.8", "max_rounds=7"), smoke=True))
    assert (variant.network.hidden, variant.network.dropout) == (32, 0.8)
    assert variant.schedule.max_rounds == 7
    [variant] = variants(OGBN_ARXIV, "gat", Request(("gain=1.5",), as_published=True))
    assert (variant.network.gain, variant.network.share_query) == (1.5, False)


# dynagat list


def test_list_is_quick_and_complete_without_any_data(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "none"))
    started = time.perf_counter()
    shown = " ".join(dynagat("list", cwd=tmp_path).stdout.split())
    assert time.perf_counter() - started < 5
    for name in BENCHMARKS:
        assert name.split("-")[0] in shown
    assert "dynagat data get" in shown
    assert not (tmp_path / "none").exists()


def test_list_reads_no_files_that_are_not_stored_yet(tmp_path, monkeypatch) -> None:
    """Those of ogbn-products have two gigabytes; and listing writes nothing."""
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DYNAGAT_DATA", str(tmp_path / "data"))
    make_ogb("ogbn-products", tmp_path / "data" / "ogbn-products", nodes=470)
    assert NodeData("ogbn-products").missing() is None
    assert not store_folder().exists()


def test_the_list_explains_incomplete_and_broken_graphs(tmp_path, monkeypatch) -> None:
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


def test_edge_noise_runs_all_ratios_of_the_figure_unless_noise_is_set():
    every = jobs_of(EDGE_NOISE, Request(mechanisms=("gat",), seeds=(0,)))
    assert [job.benchmark.data.noise for job in every] == list(RATIOS)
    one = jobs_of(EDGE_NOISE, Request(("noise=0.3",), mechanisms=("gat",), seeds=(0,)))
    assert [job.benchmark.data.noise for job in one] == [0.3]


def test_a_graph_that_is_neither_stored_nor_in_the_catalogue_is_missing() -> None:
    message = "there is no graph 'atlantis'; `dynagat data list` has the names"
    assert NodeData("atlantis").missing() == message


def test_features_are_scaled_by_rows_or_by_columns() -> None:
    x = np.array([[1, 3, 5], [0, 0, 5], [2, -6, 5]], np.float32)
    rows, columns = scaled(x, "rows"), scaled(x, "columns")
    assert np.abs(rows).sum(1) == pytest.approx([1, 1, 1])
    assert rows[0] == pytest.approx([1 / 9, 3 / 9, 5 / 9])
    assert columns.mean(0) == pytest.approx([0, 0, 0], abs=1e-6)
    assert columns.std(0) == pytest.approx([1, 1, 0], abs=1e-6)  # a constant column is 0
    assert scaled(x, "none") is x


def test_a_random_split_differs_by_seed_and_holds_every_labelled_node_once() -> None:
    data = tiny("tiny", nodes=100)
    first, again, other = (with_random_split(data, seed).split for seed in (0, 0, 1))
    assert [len(first[part]) for part in SPLITS] == [60, 20, 20]
    assert np.array_equal(np.sort(np.concatenate(list(first.values()))), np.arange(100))
    assert all(np.array_equal(first[part], again[part]) for part in SPLITS)
    assert not np.array_equal(first["test"], other["test"])
    classes = np.asarray(data.y)
    assert set(classes[first["train"]]) == set(classes)


def test_old_records_of_node_data_keep_their_keys() -> None:
    assert not {"scaling", "split"} & as_stored(NodeData()).keys()
    assert as_stored(NodeData(scaling="rows", split="random"))["split"] == "random"
