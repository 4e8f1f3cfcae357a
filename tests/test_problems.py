"""Targets and splits that can't be learnt from are refused; the message names the cause."""

from dataclasses import replace

import numpy as np
import pytest

from dynagat.data.catalog import load
from dynagat.data.problems import check_split
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes

SPLIT = {"train": np.array([0, 1, 2]), "valid": np.array([3, 4]), "test": np.array([5, 6])}
Y = np.array([0, 1, 2, 0, 1, 2, 0, 1, -1, -1])


def problem(y=Y, kind="classification", name="toy", **parts):
    nothing = np.empty(0, np.int32)
    nodes, edges = Nodes(len(y), {"y": y}), Edges(nothing, nothing)
    about = {"task": {"kind": kind, "node_type": NODE, "classes": ["red", "green", "blue"]}}
    return GraphData(name, {NODE: nodes}, {EDGE: edges}, {**SPLIT, **parts}, about)


def changed(**labels):
    """Y with other labels, such as node3=1."""
    y = Y.copy()
    for name, label in labels.items():
        y[int(name.removeprefix("node"))] = label
    return y


def test_a_valid_problem_passes():
    check_split(problem())
    check_split(problem(np.linspace(0, 1, 10), "regression"))
    check_split(problem(np.ones((10, 3)), "multilabel"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"test": np.array([5, 4])}, "node 4 is in valid and in test$"),
        ({"test": np.array([6, 4, 3])}, "node 4 is in valid and in test, and 1 more are$"),
        ({"test": np.array([1, 4, 0, 2])}, "node 1 is in train and in test, and 2 more are$"),
        ({"test": np.array([5, 10])}, "test has 10, but nodes are 0 to 9$"),
        ({"valid": np.array([-1])}, "valid has -1, but nodes are 0 to 9$"),
        ({"valid": np.array([3, 3])}, "valid holds a node twice$"),
    ],
)
def test_an_invalid_split_is_refused(parts, message):
    for kind in ("classification", "multilabel"):
        with pytest.raises(ValueError, match=f"the split of toy: {message}"):
            check_split(problem(kind=kind, **parts))


@pytest.mark.parametrize("part", SPLIT)
def test_unknown_targets_in_a_part_are_refused(part):
    message = (
        f"{part} of toy must hold nodes with known targets, but 2 of 2 have none, such as node 9"
    )
    rest = {"train": np.array([9, 8])} if part == "train" else {part: np.array([9, 8])}
    with pytest.raises(ValueError, match=message):
        check_split(problem(**rest))
    with pytest.raises(ValueError, match=message):
        check_split(problem(np.where(Y < 0, np.nan, Y), "regression", **rest))


def test_a_class_without_training_nodes_is_refused():
    message = r"class of toy must have training nodes, but 'green' \(1 nodes\) is in valid and test"
    with pytest.raises(ValueError, match=message):
        check_split(problem(changed(node1=0)))
    message = r"but 'green' \(1 nodes\), 'blue' \(1 nodes\) are in valid and test only"
    with pytest.raises(ValueError, match=message):
        check_split(problem(train=np.array([0])))


def test_a_class_outside_the_split_needs_no_training_nodes():
    check_split(problem(changed(node1=0, node4=0)))  # node 7 is green, but in no part


def test_the_published_splits_of_ogb_are_accepted():
    check_split(problem(changed(node1=0), name="ogbn-products"))
    with pytest.raises(ValueError, match="node 0 is in train and in test"):
        check_split(problem(name="ogbn-products", test=np.array([0])))


def test_a_class_without_a_name_is_refused():
    with pytest.raises(ValueError, match="y of toy holds class 7, but it has 3 classes"):
        check_split(problem(changed(node5=7)))


def test_splits_of_links_are_not_checked():
    data = problem(kind="links")
    check_split(replace(data, split={"train/edge": np.array([[0, 1]])}))


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["pubmed", "cora", "citeseer", "amazon-photo", "amazon-computers", "ogbn-arxiv"]
)
def test_the_real_datasets_pass(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    check_split(replace(load(name), name="no published name"))
