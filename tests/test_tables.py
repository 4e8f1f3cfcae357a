"""Tables become the graph they list, whatever they are written in and wherever it goes."""

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagat.data
from dynagat.data import TableError, read_tables, write_tables
from dynagat.data.assumptions import assumptions
from dynagat.data.store import EDGE, Edges, GraphData, Nodes, flat, open_graph
from dynagat.data.tables import table_file
from dynagat.data.texts import Texts
from tests.tables import EDGES, NODES, pairs, write


def same(one: GraphData, other: GraphData) -> bool:
    left, right = flat(one), flat(other)
    assert left.keys() == right.keys()
    return all(list(left[n]) == list(right[n]) if isinstance(left[n], Texts)
               else np.array_equal(left[n], right[n], equal_nan=True) for n in left)  # fmt: skip


def test_two_tables_become_a_graph(tmp_path):
    data = read_tables(*write(tmp_path), target="label")
    assert list(data.nodes["node"].arrays["id"]) == ["a", "b", "c", "d"]
    assert pairs(data) == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "c")]
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.task == {
        "kind": "classification", "node_type": "node", "target": "label", "classes": ["x", "y"]
    }  # fmt: skip
    assert {name: index.tolist() for name, index in data.split.items()} == {
        "train": [0, 1], "valid": [2], "test": [3]
    }  # fmt: skip
    assert data.x.tolist() == [[-1, 0, 1], [1, 1, 0], [3, 0, 1], [5, 0, 0]]
    assert data.x.dtype == np.float32
    assert data.sole_edges.key_index.dtype == np.int32
    assert data.name == "n"


def test_counts_of_what_was_read_are_stored(tmp_path):
    edges = "source,target\na,b\nb,a\na,b\nc,c\n"
    tables = read_tables(*write(tmp_path, edges), target="label").about["tables"]
    expected = {"lines": 4, "loops": 1, "repeated": 1, "both_ways": 1, "edges": 3}
    expected |= {"id": "id", "key": "source", "query": "target", "split": "split"}
    expected |= {"unlabelled": 0, "directed": False}
    assert expected.items() <= tables.items()


def test_an_edge_of_a_directed_graph_goes_from_key_to_query(tmp_path):
    edges = "weight,from,to\n1.5,a,b\n2,a,b\n-1,c,c\n"
    paths = write(tmp_path, edges)
    data = read_tables(*paths, target="label", directed=True, edge_columns=["weight"])
    assert data.sole_edges.key_index.tolist() == [0, 0, 2]
    assert data.sole_edges.query_index.tolist() == [1, 1, 2]
    assert data.sole_edges.arrays["attr"].tolist() == [[1.5], [2.0], [-1.0]]
    assert data.about["tables"]["repeated"] == 1
    stored = read_tables(*paths, target="label", directed=True, edge_columns=["weight"],
                         folder=tmp_path / "g")  # fmt: skip
    assert same(data, stored)


@pytest.mark.parametrize("ends", ["src,dst", "From,To", "key,query", "u,v", "one,two"])
def test_common_column_names_are_recognised(tmp_path, ends):
    key, query = ends.split(",")
    edges = f"note,{query},{key}\n-,b,a\n" if key != "one" else f"{ends},note\na,b,-\n"
    nodes = NODES.replace("id,age", "Node_ID,age")
    data = read_tables(*write(tmp_path, edges, nodes), target="label", directed=True)
    assert pairs(data) == [("a", "b")]


def test_columns_can_be_named(tmp_path):
    nodes = "part,what,extra,who\ntrain,1,9,a\ntrain,0,8,b\nval,1,7,c\n,0,6,d\n"
    data = read_tables(*write(tmp_path, EDGES, nodes), target="what", id="who", split="part",
                       key="target", query="source", directed=True)  # fmt: skip
    assert pairs(data) == [("b", "a"), ("c", "b"), ("d", "c")]
    assert data.task["classes"] == ["0", "1"]
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [2, 1, 0]


def test_nodes_in_no_part_of_the_split_are_counted(tmp_path):
    nodes = "id,x,y,split\na,1,u,train\nb,2,v,train\nc,3,u,\nd,4,,\ne,5,v,test\n"
    data = read_tables(*write(tmp_path, "source,target\na,b\n", nodes), target="y")
    sentence = "Column 'split' holds the split; 1 row with a target is in no part."
    assert sentence in assumptions(data)


def test_a_stored_graph_is_the_same_as_one_in_memory(tmp_path):
    paths = write(tmp_path)
    data = read_tables(*paths, target="label", name="g")
    stored = read_tables(*paths, target="label", folder=tmp_path / "store" / "g")
    assert stored.folder == tmp_path / "store" / "g"
    assert same(data, stored)
    assert (data.name, data.about) == (stored.name, stored.about)
    again = NODES.replace("a,1", "a,2")
    write(tmp_path, EDGES, again)
    read_tables(*paths, target="label", folder=stored.folder, replace=True)
    assert not same(data, open_graph(stored.folder))


def test_csv_variants_give_the_same_graph(tmp_path):
    plain = read_tables(*write(tmp_path), target="label")
    for form in (
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace(",", "|"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
    ):
        assert same(plain, read_tables(*write(tmp_path, form(EDGES), form(NODES)), target="label"))
    packed = [tmp_path / "e.csv.gz", tmp_path / "n.csv.gz"]
    for path, text in zip(packed, (EDGES, NODES), strict=True):
        path.write_bytes(gzip.compress(text.encode()))
    assert same(plain, read_tables(*packed, target="label"))


def test_a_table_may_have_very_many_columns(tmp_path):
    """Split at the wrong separator, a field is longer than Python's csv module allows."""
    names = [f"feature_number_{n}" for n in range(8000)]
    header = "\t".join(["id", "y", *names])
    assert len(header) > 1 << 17
    rows = ["\t".join([f"n{n}", "pq"[n % 2], *["01"[n % 3 > 0]] * 8000]) for n in range(10)]
    nodes = "\n".join([header, *rows])
    assert read_tables(*write(tmp_path, "u,v\nn0,n1\n", nodes), target="y").x.shape == (10, 8000)


def test_integer_ids_match_between_csv_and_parquet(tmp_path):
    edges, nodes = write(tmp_path, "u,v\n1,2\n", "id,x,y\n1,0,a\n2,5,b\n3,7,a\n4,1,b\n5,3,a\n")
    plain = read_tables(edges, nodes, target="y")
    assert plain.nodes["node"].arrays["id"].tolist() == [1, 2, 3, 4, 5]
    for kind in (pa.int16(), pa.uint64(), pa.float64(), pa.string(), pa.large_string()):
        ends = {end: pa.array([value]).cast(kind) for end, value in (("u", 1), ("v", 2))}
        pa.parquet.write_table(pa.table(ends), tmp_path / "e.parquet")
        assert same(plain, read_tables(tmp_path / "e.parquet", nodes, target="y"))


@pytest.mark.parametrize("kind", ["int32", "uint8", "float64", "str"])
def test_key_and_query_columns_may_differ_in_type(tmp_path, kind):
    ends = pd.DataFrame({"a": [1, 2], "b": pd.Series([2, 3]).astype(kind)})
    ends.to_parquet(tmp_path / "e.parquet")
    (tmp_path / "n.csv").write_text("id,x\n1,4\n2,5\n3,6\n")
    data = read_tables(tmp_path / "e.parquet", tmp_path / "n.csv", target=None, directed=True)
    assert data.sole_edges.query_index.tolist() == [1, 2]


def test_ids_are_text(tmp_path):
    nodes = "id,x,y,split\n01,1,a,train\n1,2,b,train\nNA,3,a,test\n 1,4,b,valid\n-0,5,a,test\n"
    data = read_tables(*write(tmp_path, "u,v\n01,NA\n1, 1\n-0,1\n", nodes), target="y",
                       directed=True)  # fmt: skip
    assert pairs(data) == [("-0", "1"), ("01", "NA"), ("1", " 1")]


names = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=6),
    min_size=2, max_size=8, unique=True,
)  # fmt: skip


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names=names, draw=st.data())
def test_unusual_ids_are_read_as_written(tmp_path, names, draw):
    index = st.integers(0, len(names) - 1)
    ends = draw.draw(st.lists(st.tuples(index, index), min_size=1, max_size=12))
    edges = pa.table({"u": [names[a] for a, _ in ends], "v": [names[b] for _, b in ends]})
    columns = {"id": names, "x": [*range(len(names))], "y": [n / 3 for n in range(len(names))]}
    parts = ["train", "valid", *["test"] * (len(names) - 2)]
    nodes = pa.table({**columns, "split": parts})
    pa.parquet.write_table(edges, tmp_path / "e.parquet")
    pa.parquet.write_table(nodes, tmp_path / "n.parquet")
    pa.csv.write_csv(edges, tmp_path / "e.csv")
    pa.csv.write_csv(nodes, tmp_path / "n.csv")
    options = {"target": "y", "task": "regression", "directed": True, "ignore": []}
    columns = {
        "columns": dynagat.data.Columns((dynagat.data.tables.columns.Column("x", "number"),))
    }
    one = read_tables(tmp_path / "e.csv", tmp_path / "n.csv", **options, **columns)
    other = read_tables(tmp_path / "e.parquet", tmp_path / "n.parquet", **options, **columns)
    assert same(one, other)
    assert [str(each) for each in one.nodes["node"].arrays["id"]] == names
    assert [*zip(one.sole_edges.key_index.tolist(), one.sole_edges.query_index.tolist(),
                 strict=True)] == ends  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ends=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_an_undirected_graph_has_each_edge_both_ways_once(tmp_path, ends):
    edges = "u,v\n" + "".join(f"{'abcd'[a]},{'abcd'[b]}\n" for a, b in ends)
    data = read_tables(*write(tmp_path, edges), target="label")
    expected = {("abcd"[a], "abcd"[b]) for pair in ends for a, b in (pair, pair[::-1])}
    assert pairs(data) == sorted(expected)
    counts = data.about["tables"]
    assert counts["repeated"] == len(ends) - len(set(ends))
    assert counts["loops"] == sum(a == b for a, b in ends)
    assert counts["both_ways"] == sum(a < b and (b, a) in ends for a, b in set(ends))
    listed = read_tables(*write(tmp_path, edges), target="label", directed=True)
    both = listed.symmetric().sole_edges
    assert np.array_equal(both.key_index, data.sole_edges.key_index)
    assert np.array_equal(both.query_index, data.sole_edges.query_index)


def test_the_block_size_does_not_change_the_graph(tmp_path, monkeypatch):
    rng, names = np.random.default_rng(0), [f"n{n}" for n in range(300)]
    nodes = "id,x,c,y\n" + "".join(
        f'"{name}",{rng.integers(9)},{"rgb"[n % 3]},{"pq"[n % 2]}\n' for n, name in enumerate(names)
    )
    edges = "u,v\n" + "".join(f"n{a},n{b}\n" for a, b in rng.integers(0, 300, (900, 2)))
    paths = write(tmp_path, edges, nodes)
    whole = read_tables(*paths, target="y")
    monkeypatch.setattr("dynagat.data.tables.table_file.BLOCK_BYTES", 64)
    monkeypatch.setattr("dynagat.data.tables.table_file.COLUMN_BYTES", 64)
    monkeypatch.setattr("dynagat.data.tables.edge_list.ROWS", 16)
    assert same(whole, read_tables(*paths, target="y"))
    paths[0].write_text(edges + "n0,nobody\n")
    with pytest.raises(TableError, match=r"e\.csv, line 902: column 'v' holds 'nobody'"):
        read_tables(*paths, target="y")


def test_a_failed_import_leaves_nothing(tmp_path):
    paths = write(tmp_path, EDGES + "a,nobody\n")
    with pytest.raises(TableError, match="line 5"):
        read_tables(*paths, target="label", folder=tmp_path / "store" / "g")
    assert list((tmp_path / "store").iterdir()) == []


def test_a_killed_import_leaves_no_graph(tmp_path):
    """It leaves only a temporary folder, which the next import removes."""
    nodes = "id,x,y\n" + "".join(f"{n},{n % 7},{n % 2}\n" for n in range(200_000))
    edges = "u,v\n" + "".join(f"{n},{n + 1}\n" for n in range(199_999))
    paths = write(tmp_path, edges, nodes)
    store = tmp_path / "store"
    script = "import sys\nfrom dynagat.data import read_tables\n"
    script += "read_tables(sys.argv[1], sys.argv[2], target='y', folder=sys.argv[3])"
    child = subprocess.Popen([sys.executable, "-c", script, *map(str, paths), str(store / "g")])
    while child.poll() is None and not list(store.glob(".g.*/nodes/node/x.npy")):
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not (store / "g").exists()
    read_tables(*paths, target="y", folder=store / "g")
    assert [path.name for path in store.iterdir()] == ["g"]


def test_write_tables_and_read_tables_are_inverse(tmp_path):
    x = np.array([[0, 1], [1, 1], [1, 0], [0, 0], [1, 1]], np.float32)
    y = np.array([0, 1, -1, 0, 1])
    split = {"train": np.array([0, 1]), "valid": np.array([3]), "test": np.array([4])}
    edges = Edges(np.array([0, 1, 2, 4], np.int32), np.array([1, 2, 0, 4], np.int32))
    about = {"task": {"kind": "classification", "node_type": "node", "target": "label",
                      "classes": ["no", "yes"]}}  # fmt: skip
    nodes = Nodes(5, {"x": x, "y": y, "id": Texts.of("abcde")})
    data = GraphData("g", {"node": nodes}, {EDGE: edges}, split, about)
    for form in ("csv", "parquet"):
        paths = tmp_path / f"e.{form}", tmp_path / f"n.{form}"
        write_tables(data, *paths)
        read = read_tables(*paths, target="label", directed=True)
        assert same(data, read)
        assert read.task == data.task


def test_importing_data_is_cheap():
    script = "import sys, dynagat; dynagat.data; assert 'pyarrow' not in sys.modules; "
    script += "dynagat.data.read_tables; assert 'pyarrow' in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="no attribute 'read_table'"):
        _ = dynagat.data.read_table


@pytest.mark.data
@pytest.mark.skipif(
    "DYNAGAT_DATA" not in os.environ and "CI" not in os.environ, reason="needs DYNAGAT_DATA"
)
def test_amazon_photo_survives_writing_and_reading_csv(tmp_path):
    path = Path(os.environ["DYNAGAT_DATA"]) / "amazon" / "amazon_electronics_photo.npz"
    with np.load(path, allow_pickle=False) as raw:
        count, width = raw["attr_shape"]
        x = np.zeros((count, width), np.float32)
        rows = np.repeat(np.arange(count), np.diff(raw["attr_indptr"]))
        x[rows, raw["attr_indices"]] = raw["attr_data"]
        query = np.repeat(np.arange(count), np.diff(raw["adj_indptr"])).astype(np.int32)
        edges = Edges(raw["adj_indices"].astype(np.int32), query)
        y = raw["labels"].astype(np.int64)
    classes = [str(each) for each in range(y.max() + 1)]
    about = {"task": {"kind": "classification", "node_type": "node", "classes": classes}}
    nodes = Nodes(count, {"x": x, "y": y, "id": np.arange(count)})
    data = GraphData("photo", {"node": nodes}, {EDGE: edges}, {}, about)
    paths = tmp_path / "e.csv", tmp_path / "n.csv"
    write_tables(data, *paths)
    read = read_tables(*paths, target="label")
    assert np.array_equal(read.x, x)
    assert np.array_equal(read.y, y)
    both = data.symmetric().sole_edges
    assert np.array_equal(read.sole_edges.key_index, both.key_index)
    assert np.array_equal(read.sole_edges.query_index, both.query_index)
    shares = [len(read.split[part]) / count for part in ("train", "valid", "test")]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.001)


def test_nodes_without_feature_columns_have_no_x(tmp_path):
    (tmp_path / "n.csv").write_text("id,label,split\na,x,train\nb,y,train\nc,x,test\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\n")
    for folder in (None, tmp_path / "graph"):
        data = read_tables(tmp_path / "e.csv", tmp_path / "n.csv", target="label", folder=folder)
        assert set(data.nodes["node"].arrays) == {"id", "y"}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_arrow_reads_ahead_without_calling_python(tmp_path, monkeypatch, packed):
    """A process that ends while a thread of Arrow's calls Python would be aborted."""
    path, read, sources = tmp_path / "edges.csv", table_file.arrow_csv.open_csv, []
    path.write_bytes(gzip.compress(b"a,b\n1,2\n") if packed else b"a,b\n1,2\n")

    def open_csv(file, *options):
        sources.append(file)
        return read(file, *options)

    monkeypatch.setattr(table_file.arrow_csv, "open_csv", open_csv)
    ((first, block),) = table_file.TableFile.open(path).blocks(["b"])
    assert (first, block.to_pydict()) == (0, {"b": ["2"]})
    (source,) = sources
    assert isinstance(source, pa.NativeFile)
    assert not isinstance(source, pa.PythonFile)
