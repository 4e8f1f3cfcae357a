"""Links for training, validation and test: laws of the split, and what is refused."""

import re

import numpy as np
import pandas as pd
import pytest

from dynagat.data import GraphData, TableError, open_graph, read_links, split_links
from dynagat.data.assumptions import assumptions
from dynagat.data.link_split import all_links, check_links, codes_of
from dynagat.data.store import EDGE, NODE, SPLITS, Edges, Nodes


def rows(count=400, nodes=50, seed=0):
    return np.random.default_rng(seed).integers(0, nodes, (count, 2))


def graph_of(pairs, num_nodes=50):
    pairs = np.asarray(pairs, np.int32)
    edges = Edges(pairs[:, 0].copy(), pairs[:, 1].copy())
    return GraphData("made", {NODE: Nodes(num_nodes)}, {EDGE: edges})


def table_of(folder, pairs, **columns):
    path = folder / "edges.csv"
    ends = {"from": [f"n{a}" for a, _ in pairs], "to": [f"n{b}" for _, b in pairs]}
    pd.DataFrame(ends | columns).to_csv(path, index=False)
    return path


def codes(data):
    return {name: codes_of(pairs, data.num_nodes) for name, pairs in data.split.items()}


@pytest.mark.parametrize("by_time", [False, True])
def test_each_link_is_in_one_part_and_no_negative_is_a_link(by_time):
    pairs = rows()
    time = np.random.default_rng(1).random(len(pairs)) if by_time else None
    data = split_links(graph_of(pairs), time=time)
    every = {tuple(sorted(pair)) for pair in pairs.tolist() if pair[0] != pair[1]}
    parts = codes(data)
    links = np.concatenate([parts[f"{part}/edge"] for part in SPLITS])
    assert len(links) == len(set(links.tolist())) == len(every)
    negatives = np.concatenate([parts["valid/edge_neg"], parts["test/edge_neg"]])
    assert len(set(negatives.tolist()) | set(links.tolist())) == len(negatives) + len(links)
    for part in ("valid", "test"):
        assert len(parts[f"{part}/edge"]) == len(parts[f"{part}/edge_neg"])
    check_links(data)


def test_messages_are_the_training_links_in_both_directions():
    data = split_links(graph_of(rows()))
    edges, train = data.sole_edges, data.split["train/edge"].tolist()
    messages = set(zip(edges.key_index.tolist(), edges.query_index.tolist(), strict=True))
    assert messages == {(a, b) for a, b in train} | {(b, a) for a, b in train}
    assert data.num_edges == 2 * len(train)


def test_the_split_has_its_shares_and_depends_on_the_seed_alone():
    first, again, other = (split_links(graph_of(rows()), seed=seed) for seed in (3, 3, 4))
    for name, pairs in first.split.items():
        np.testing.assert_array_equal(pairs, again.split[name])
        assert not np.array_equal(pairs, other.split[name])
    total = first.about["links"]["links"]
    sizes = [len(first.split[f"{part}/edge"]) / total for part in SPLITS]
    np.testing.assert_allclose(sizes, (0.8, 0.1, 0.1), atol=1 / total)


def test_repeated_rows_and_self_pairs_are_counted():
    pairs = [*((n, n + 1) for n in range(40)), (1, 0), (0, 1), (7, 7)]
    counts = split_links(graph_of(pairs)).about["links"]
    assert (counts["rows"], counts["links"]) == (43, 40)
    assert (counts["repeated"], counts["self_pairs"]) == (2, 1)


def test_by_time_later_links_are_in_later_parts_and_a_link_is_as_old_as_its_first_row():
    pairs = [*((n, n + 1) for n in range(40)), (1, 0)]
    data = split_links(graph_of(pairs), time=np.array([*range(40), 100]))
    first = {part: data.split[f"{part}/edge"][:, 0] for part in SPLITS}
    assert first["train"].tolist() == list(range(32))
    assert first["valid"].tolist() == [32, 33, 34, 35]
    assert first["test"].tolist() == [36, 37, 38, 39]


def test_links_of_the_same_time_stay_together():
    time = np.repeat([2001, 2002, 2003, 2004], [25, 5, 4, 6])
    data = split_links(graph_of([(n, n + 1) for n in range(40)]), time=time)
    for part, years in {"train": {2001, 2002}, "valid": {2003}, "test": {2004}}.items():
        assert set(time[data.split[f"{part}/edge"][:, 0]]) == years


def test_negatives_of_a_large_graph_are_different_pairs_that_are_no_links():
    data = split_links(graph_of(rows(30_000, 3_000), 3_000), shares=(0.2, 0.4, 0.4))
    negatives = np.concatenate([data.split["valid/edge_neg"], data.split["test/edge_neg"]])
    drawn = codes_of(negatives, 3_000)
    assert len(np.unique(drawn)) == len(drawn)
    assert not np.isin(drawn, all_links(data)).any()
    assert (negatives[:, 0] < negatives[:, 1]).all()


def test_a_table_is_read_with_its_ids_and_stored_as_it_is(tmp_path):
    data = read_links(table_of(tmp_path, rows()))
    assert list(data.nodes[NODE].arrays["id"][:3]) == ["n0", "n1", "n10"]
    stored = data.save(tmp_path / "graph")
    assert stored.split.keys() == data.split.keys()
    check_links(open_graph(tmp_path / "graph"))


def test_a_table_of_nodes_gives_features_and_nodes_without_links(tmp_path):
    nodes = tmp_path / "nodes.csv"
    pd.DataFrame({"id": [f"n{n}" for n in range(60)], "size": range(60, 0, -1)}).to_csv(
        nodes, index=False
    )
    data = read_links(table_of(tmp_path, rows()), nodes, ignore=[])
    assert data.x.shape == (60, 1)
    assert "Features: 'size' (--ignore leaves a column out)." in assumptions(data)


def test_dates_are_times(tmp_path):
    days = pd.date_range("2020-01-01", periods=40).strftime("%Y-%m-%d")
    path = table_of(tmp_path, [(n, n + 1) for n in range(40)], day=list(days))
    ids = list(read_links(path, time="day").nodes[NODE].arrays["id"])
    latest = read_links(path, time="day").split["test/edge"]
    assert {ids[node] for node in latest.flat} == {f"n{n}" for n in range(36, 41)}


def test_what_was_assumed_is_said(tmp_path):
    pairs = [*((n, n + 1) for n in range(40)), (1, 0), (7, 7)]
    text = " ".join(assumptions(read_links(table_of(tmp_path, pairs, year=range(42)), time="year")))
    assert "Columns 'from' and 'to' hold the two nodes of a link." in text
    assert "1 of 42 rows repeat a link, and 1 that pair a node with itself are left out" in text
    assert "Split by 'year': the latest 4 and 4 links" in text
    assert "8 nodes have links in valid or test, but none in train" in text


def test_the_first_self_pair_and_the_first_node_without_training_links_are_named(tmp_path):
    parts = ["", "train", "train", "train", "valid", "test", "test"]
    pairs = [(5, 5), (0, 1), (7, 7), (1, 2), (0, 2), (8, 2), (9, 1)]
    path = table_of(tmp_path, pairs, split=parts)
    text = " ".join(assumptions(read_links(path)))
    assert f"1 that pair a node with itself are left out (the first: {path}, line 4: 'n7')" in text
    assert f"but none in train (the first: {path}, line 7: 'n8'): no neighbour" in text
    plain = split_links(graph_of([(n, n + 1) for n in range(40)])).about["links"]
    assert plain["first_self_pair"] == ""
    repeated = split_links(graph_of([*((n, n + 1) for n in range(40)), (3, 3)])).about["links"]
    assert repeated["first_self_pair"] == "graph made, edge 40: '3'"


def test_an_empty_cell_of_the_split_leaves_a_row_out(tmp_path):
    parts = ["train"] * 6 + ["valid", "test", ""]
    path = table_of(tmp_path, [(n, n + 1) for n in range(9)], split=parts)
    assert read_links(path).about["links"]["links"] == 8


BAD = {
    "a test link is a training link": (
        {"pairs": [(0, 1), (1, 2), (2, 3), (1, 0)], "split": ["train", "train", "valid", "test"]},
        r"line 5: this link is in test, but also in train \(.*line 2\)",
    ),
    "a part is empty": (
        {"pairs": [(0, 1), (1, 2), (2, 3)], "split": ["train", "train", "test"]},
        "the split must have links in valid, but has none",
    ),
    "another word is in the split": (
        {"pairs": [(0, 1), (1, 2)], "split": ["train", "tset"]},
        "line 3: column 'split' must hold train, valid or test, but holds 'tset'",
    ),
    "too few links": (
        {"pairs": [(0, 1), (1, 2), (2, 0)]},
        "3 links are too few to split: none would be left for test",
    ),
    "only self-pairs": (
        {"pairs": [(0, 0), (1, 1)]},
        "0 links are too few to split: none would be left for train",
    ),
    "all nodes are linked": (
        {"pairs": [(a, b) for a in range(6) for b in range(a)]},
        "3 pairs that are not links are needed for valid and test, but only 0 pairs are not linked",
    ),
    "too few times": (
        {"pairs": [(n, n + 1) for n in range(20)], "year": [1, 2] * 10, "time": "year"},
        "must begin at 3 or more different times to be split by time, but begin at 2",
    ),
    "no time": (
        {"pairs": [(n, n + 1) for n in range(20)], "year": [*range(19), ""], "time": "year"},
        "line 21: column 'year' is empty, but must hold a number or a date",
    ),
    "a time that is none": (
        {"pairs": [(n, n + 1) for n in range(20)], "year": [*range(19), "late"], "time": "year"},
        "line 21: column 'year' must hold numbers, but holds 'late'",
    ),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=list(BAD))
def test_bad_tables_are_refused_in_one_sentence(given, message, tmp_path):
    given = dict(given)
    time = given.pop("time", None)
    path = table_of(tmp_path, given.pop("pairs"), **given)
    with pytest.raises(TableError, match=message) as caught:
        read_links(path, time=time)
    assert str(caught.value).startswith(str(path))


def test_an_empty_id_is_named_with_its_line(tmp_path):
    (tmp_path / "edges.csv").write_text("from,to\na,b\nb,\n")
    with pytest.raises(TableError, match="line 3: column 'to' is empty"):
        read_links(tmp_path / "edges.csv")


def test_time_and_split_exclude_each_other(tmp_path):
    path = table_of(tmp_path, rows(), year=1, part="train")
    with pytest.raises(ValueError, match="by time 'year' or by column 'part', not by both"):
        read_links(path, time="year", split="part")


def moved(data, name, pair):
    """The graph with one more pair in a part of its split."""
    split = {**data.split, name: np.concatenate([data.split[name], [pair]])}
    return GraphData(data.name, data.nodes, data.edges, split, data.about)


@pytest.mark.parametrize(
    ("name", "of", "message"),
    [
        ("test/edge", "train/edge", "which is a link of the messages, too"),
        ("test/edge", "valid/edge", "which is a link of valid/edge, too"),
        ("valid/edge_neg", "test/edge", "which is a link of test/edge"),
        ("test/edge_neg", "train/edge", "which is a link of"),
    ],
)
def test_leaks_in_a_split_that_was_given_are_named(name, of, message):
    data = split_links(graph_of(rows()))
    pair = data.split[of][0][::-1]
    place = f"{name}[{len(data.split[name])}] is the pair {pair[0]}, {pair[1]}, {message}"
    with pytest.raises(ValueError, match=re.escape(place)):
        check_links(moved(data, name, pair))


def test_self_pairs_in_a_split_that_was_given_are_named():
    data = split_links(graph_of(rows()))
    with pytest.raises(ValueError, match=r"the pair 5, 5, which is a node and itself"):
        check_links(moved(data, "valid/edge", (5, 5)))
