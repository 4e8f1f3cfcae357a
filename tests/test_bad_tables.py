"""The error for a bad table is one line, with the file, line, column and value."""

import gzip
import os
import resource
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet
import pytest

from dynagat.data import TableError, read_tables
from tests.tables import EDGES, NODES, write


def error_of(folder, edges=EDGES, nodes=NODES, **options) -> str:
    """The error message, without the name of the folder; nothing may be stored."""
    options = {"target": "label", "folder": folder / "store" / "g"} | options
    with pytest.raises((TableError, ValueError)) as caught:
        read_tables(*write(folder, edges, nodes), **options)
    if (folder / "store").exists():
        assert list((folder / "store").iterdir()) == []
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}{os.sep}", "")


def with_column(name, *values):
    """The nodes' table with one more column, and as many rows as there are values."""
    rows = NODES.splitlines()
    kept = [rows[0] + f",{name}"]
    for n, value in enumerate(values):
        label, part = "xy"[n % 2], "train" if n < 2 else ("valid", "test")[n % 2]
        kept.append(f"{'abcd'[n] if n < 4 else n},{n},red,{label},{part},{value}")
    return "\n".join(kept) + "\n"


EDGE_ERRORS = {
    "": "e.csv is empty; it must have a header and rows",
    "\n\n": "e.csv is empty; it must have a header and rows",
    "source,target\n": "e.csv has a header, but no rows",
    "source,target": "e.csv has a header, but no rows",
    "source target\na b\n": "e.csv must have two columns or more, separated by comma, semicolon, "
    "tab or |, but has 1: 'source target'",
    "0,1\n1,2\n": "e.csv, line 1: must be a header with the names of the columns, but is '0,1'",
    "u,u\na,b\n": "e.csv, line 1: two columns are named 'u'",
    "u,,v\na,b,c\n": "e.csv, line 1: column 2 has no name",
    "u,v;w\na,b;c\n": "e.csv, line 1: the separator is ambiguous: comma and semicolon both "
    "split 'u,v;w\\n' into 2 columns; put quotes around names that contain one of them",
    "u,v\na,b\nb\n": "e.csv, line 3: 'b' has 1 field, but the header has 2",
    "u,v\na,b\nb,c,d\n": "e.csv, line 3: 'b,c,d' has 3 fields, but the header has 2",
    'u,v,w\na,b,"1\n2"\n\nb,c\n': "e.csv, line 5: 'b,c' has 2 fields, but the header has 3",
    'u,v\na,b\nb,"c\nc,d\n': "e.csv, line 3: a quote is opened and never closed",
    b"u,v\na,b\nb,\xe9\n": "e.csv, line 3: contains byte 0xe9, which is not UTF-8; "
    "save the file as UTF-8",
    b"u,v\na,b\nb,c\0\n": "e.csv, line 3: contains a NUL byte; it is not a text file",
    "u,v\na,b\n".encode("utf-16"): "e.csv is UTF-16; save it as UTF-8",
    b"PK\x03\x04": "e.csv is a zip or spreadsheet file; save the table as CSV",
    'u,v,w\na,b,"x\ny"\r\nb,zoe,\n': "e.csv, line 4: column 'v' holds 'zoe', "
    "which is not an id in the table of nodes",
    "u,v\na,b\nb,\n": "e.csv, line 3: column 'v' is empty, but must hold the id of a node",
    "u,v\nzoe,b\nb,max\n": "e.csv, line 2: column 'u' holds 'zoe', which is not an id in "
    "the table of nodes",
}


@pytest.mark.parametrize("text", EDGE_ERRORS)
def test_a_bad_table_of_edges(tmp_path, text):
    assert error_of(tmp_path, edges=text) == EDGE_ERRORS[text]


NODE_ERRORS = {
    "": "n.csv is empty; it must have a header and rows",
    "id,age,label\n": "n.csv has a header, but no rows",
    NODES + "a,1,red,x,train\n": "n.csv, line 6: column 'id' must hold each id once, but 'a' is in "
    "line 2 as well",
    NODES + ",1,red,x,train\n": "n.csv, line 6: column 'id' is empty, but must hold the id of the "
    "node",
    NODES + "e,1,red,x,trian\n": "n.csv, line 6: column 'split' must hold train, valid or test, "
    "but holds 'trian'",
    NODES + "e,1,red,z,test\n": "n.csv, line 6: column 'label' holds the label 'z', "
    "which no training row has; add a training row with it, or leave this cell empty",
    NODES.replace("train", "test"): "n.csv: column 'split' must hold train for at least one row "
    "with a target, but does not",
    NODES.replace(",y,", ",x,"): "n.csv: column 'label' holds 'x' in every row, "
    "so there is nothing to learn",
    NODES.replace(",y,", ",NA,").replace(
        ",x,", ",,"
    ): "n.csv: column 'label' is empty in every row",
    NODES.replace("label", "labels"): "n.csv has no column 'label'; it has 'id', 'age', 'colour', "
    "'labels', 'split'",
    with_column("h", 1, 2, "abc", 4): "n.csv, line 4: column 'h' must hold numbers, "
    "as in 3 other lines, but holds 'abc'",
    with_column("h", 1, 2, "inf", 4): "n.csv, line 4: column 'h' must hold finite numbers, "
    "but holds 'inf'",
    with_column("h", 1, 2, 3, "1e400"): "n.csv, line 5: column 'h' must hold finite numbers, "
    "but holds '1e400'",
    with_column("h", "2020-01-02", "2020-01-03", "2020-13-01", "2020-01-04"): "n.csv, line 4: "
    "column 'h' must hold dates, but holds '2020-13-01'",
    with_column("h", "2020-01-02", "2020-01-03", 7, ""): "n.csv, line 4: column 'h' must hold "
    "dates, as in 2 other lines, but holds '7'",
    with_column("h", *[f"text {n}" for n in range(30)]): "n.csv, line 2: column 'h' holds free "
    "text such as 'text 0', which can't be used as a feature; leave it out with ignore "
    "(--ignore h)",
    with_column("h", *[f"text {n % 201}" for n in range(900)]): "n.csv, line 2: column 'h' holds "
    "free text such as 'text 0', which can't be used as a feature; leave it out with ignore "
    "(--ignore h)",
    with_column("h", 0, 1, 0, "1e39"): "n.csv, line 5: column 'h' must hold numbers that fit into "
    "float32, but holds '1e39'",
    with_column("h", 1e308, -1e308, 0, 0): "n.csv: column 'h' holds numbers from -1e+308 to "
    "1e+308, which is too large a range to standardise; scale or ignore it (--ignore h)",
}


@pytest.mark.parametrize("text", NODE_ERRORS)
def test_a_bad_table_of_nodes(tmp_path, text):
    assert error_of(tmp_path, nodes=text) == NODE_ERRORS[text]


TARGET_ERRORS = {
    (("a", "b", "c", "d"), "regression"): "n.csv, line 2: column 't' must hold numbers, "
    "but holds 'a'",
    ((1, 2, 3, "d"), "auto"): "n.csv, line 5: column 't' must hold numbers, but holds 'd'; "
    "for text classes, set task to classification",
    ((1.5, 2, 3, "1e39"), "auto"): "n.csv, line 5: column 't' must hold numbers below 1e38, "
    "but holds '1e39'",
    ((1.5, 1.5, "1.50", 1.5), "auto"): "n.csv: column 't' holds '1.5' in every row, "
    "so there is nothing to learn",
    (("p;q", "p", "p|q", "r"), "multilabel"): "n.csv, line 5: column 't' holds the label 'r', "
    "which no training row has; add a training row with it, or leave this cell empty",
    (("p;q", "q|p", "p;q", ""), "multilabel"): "n.csv: column 't' holds 'p;q' in every row, "
    "so there is nothing to learn",
}


@pytest.mark.parametrize(("values", "task"), TARGET_ERRORS)
def test_a_bad_target(tmp_path, values, task):
    message = error_of(tmp_path, nodes=with_column("t", *values), target="t", task=task)
    assert message == TARGET_ERRORS[values, task]


def test_bad_labels_of_several_columns(tmp_path):
    def nodes(*bits):
        text = with_column("one", 0, 1, 0, 1).splitlines()
        return "\n".join([text[0] + ",two", *[f"{row},{bit}" for row, bit in
                                              zip(text[1:], bits, strict=True)]])  # fmt: skip

    targets = {"target": ["one", "two"]}
    assert error_of(tmp_path, nodes=nodes(1, 0, 2, 0), **targets) == (
        "n.csv, line 4: column 'two' must hold 0 or 1, as one of several targets, but holds '2'"
    )
    assert error_of(tmp_path, nodes=nodes(0, 0, 1, 0), **targets) == (
        "n.csv, line 4: column 'two' holds 1, which no training row has; add a training row with "
        "it, or leave this cell empty"
    )
    assert error_of(tmp_path, nodes=nodes(1, 1, 1, ""), **targets) == (
        "n.csv: column 'two' holds '1' in every row, so there is nothing to learn"
    )
    assert error_of(tmp_path, nodes=nodes(1, 1, 1, ""), task="regression", **targets) == (
        "task 'regression' needs one target column, but 2 are given"
    )


def test_too_few_rows_to_split(tmp_path):
    nodes = "id,x,label\na,1,p\nb,2,q\nc,3,p\nd,4,\n"
    message = "n.csv: 3 labelled rows are too few to split: none would be left for "
    assert error_of(tmp_path, nodes=nodes).startswith(message)


OPTION_ERRORS = [
    ({"target": "lable"}, "n.csv has no column 'lable'; it has 'id', 'age', 'colour', 'label', 's"),
    ({"id": "who"}, "n.csv has no column 'who'; it has"),
    ({"split": "part"}, "n.csv has no column 'part'; it has"),
    ({"ignore": ["part"]}, "n.csv has no column 'part'; it has"),
    ({"key": "a", "query": "target"}, "e.csv has no column 'a'; it has 'source', 'target'"),
    ({"key": "source"}, "key and query must be given together, but are 'source' and None"),
    ({"key": "source", "query": "source"}, "key and query must be different columns, but both are"),
    ({"edge_columns": ["w"]}, "edge_columns needs directed=True"),
    ({"edge_columns": ["w"], "directed": True}, "e.csv has no column 'w'; it has"),
    ({"target": "id"}, "column 'id' can be only one of id, target and split"),
    ({"task": "guess"}, "task must be one of auto, classification, multilabel, regression, but is"),
    ({"shares": (0.5, 0.5)}, "shares must be three positive numbers that sum to 1, but are "),
]


@pytest.mark.parametrize(("options", "message"), OPTION_ERRORS)
def test_a_bad_option(tmp_path, options, message):
    assert error_of(tmp_path, **options).startswith(message)


def test_bad_attributes_of_edges(tmp_path):
    options = {"directed": True, "edge_columns": ["w"]}
    assert error_of(tmp_path, edges="u,v,w\na,b,1\nb,c,heavy\n", **options) == (
        "e.csv, line 3: column 'w' must hold numbers, but holds 'heavy'"
    )
    assert error_of(tmp_path, edges="u,v,w\na,b,1\nb,c,\n", **options) == (
        "e.csv, line 3: column 'w' is empty, but must hold a number"
    )


def test_a_path_that_is_not_a_file(tmp_path):
    edges, nodes = write(tmp_path)
    for path, message in [
        (tmp_path, "must be a CSV or Parquet file, but is a folder"),
        (tmp_path / "none.csv", "can't be read: No such file or directory"),
    ]:
        with pytest.raises(TableError, match=f"{path} {message}"):
            read_tables(edges, path, target="label")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TableError, match="pipe must be a regular file, since it is read more"):
        read_tables(pipe, nodes, target="label")


def test_a_compressed_file_that_was_cut_short(tmp_path):
    packed = gzip.compress(NODES.encode() * 50)
    for cut in (len(packed) // 2, 15):
        message = error_of(tmp_path, nodes=packed[:cut])
        assert message == "n.csv was cut short or altered: it can't be decompressed"


def test_bad_parquet(tmp_path):
    def error_of_table(table, cut=None):
        pa.parquet.write_table(table, tmp_path / "n.parquet")
        whole = (tmp_path / "n.parquet").read_bytes()
        (tmp_path / "n.parquet").write_bytes(whole[:cut])
        with pytest.raises(TableError) as caught:
            read_tables(write(tmp_path)[0], tmp_path / "n.parquet", target="label")
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(f"{tmp_path}{os.sep}", "")

    columns = {"id": ["a", "b", "c", "d"], "label": ["x", "y", "x", "y"]}
    columns |= {"split": ["train", "train", "valid", "test"], "age": [1.0, 2.0, 3.0, 4.0]}
    table = pa.table(columns)
    assert error_of_table(table, -20).startswith(
        "n.parquet was cut short or altered: it is not a comp"
    )
    assert error_of_table(table, 3).startswith(
        "n.parquet is not a Parquet file: it starts with b'PAR'"
    )
    lists = table.append_column("l", pa.array([[1], [2], [3], [4]]))
    assert error_of_table(lists).startswith("n.parquet: column 'l' must hold numbers, text, boo")
    infinite = table.append_column("h", pa.array([1, 2, float("inf"), None]))
    assert error_of_table(infinite) == (
        "n.parquet, row 3: column 'h' must hold finite numbers, but holds 'inf'"
    )
    twice = pa.table({**columns, "id": ["a", "b", "a", "d"]})
    assert error_of_table(twice) == (
        "n.parquet, row 3: column 'id' must hold each id once, but 'a' is in row 1 as well"
    )
    nameless = pa.table({**columns, "id": [1.0, 2.0, None, float("nan")]})
    assert error_of_table(nameless) == (
        "n.parquet, row 3: column 'id' is empty, but must hold the id of the node"
    )
    damaged = bytearray((tmp_path / "n.parquet").read_bytes())
    damaged[4:60] = bytes(56)
    (tmp_path / "n.parquet").write_bytes(damaged)
    with pytest.raises(TableError, match=r"n\.parquet was cut short or altered"):
        read_tables(write(tmp_path)[0], tmp_path / "n.parquet", target="label")


@pytest.mark.parametrize("last", ["7,nobody", "7", "7,\udce9", '7,"8'])
def test_a_bad_last_line_of_a_huge_file_is_found_quickly_and_in_little_memory(tmp_path, last):
    lines, nodes = 400_000, "id,x,y\n" + "".join(f"{n},{n % 5},{n % 2}\n" for n in range(1000))
    edges = "u,v\n" + "".join(f"{n % 1000},{n * 7 % 1000}\n" for n in range(lines))
    text = (edges + last + "\n").encode(errors="surrogateescape")
    paths = write(tmp_path, text, nodes)
    begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TableError, match=f"e.csv, line {lines + 2}:"):
        read_tables(*paths, target="y")
    assert time.process_time() - begin < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_quote_that_stays_open_too_long_is_an_error(tmp_path):
    edges = 'u,v\na,b\nb,"c\n' + "a,b\n" * 500_000
    assert error_of(tmp_path, edges=edges) == (
        "e.csv, line 3: a field has more than 131,072 characters; is a quote left open?"
    )
    header = "u," + "v" * 200_000 + "\na,b\n"
    assert error_of(tmp_path, edges=header).startswith(
        "e.csv, line 1: a field has more than 131,072"
    )


@pytest.mark.parametrize("start", ["", "id,age\n", NODES])
def test_a_line_without_end_is_an_error_and_not_read_whole(tmp_path, monkeypatch, start):
    """As in a file that is compressed to a thousandth of its size."""
    monkeypatch.setattr("dynagat.data.tables.csv_lines.MAX_LINE", 1 << 20)
    line = start.count("\n") + 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert error_of(tmp_path, nodes=gzip.compress(start.encode() + b"9" * (1 << 26), 1)) == (
        f"n.csv, line {line}: has more than 1,048,576 characters; is it a table of text, with a "
        "line per row?"
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_million_columns_are_an_error(tmp_path):
    nodes = ",".join(f"c{n}" for n in range(1_000_000)) + "\n"
    message = "n.csv, line 1: 1,000,000 columns are too many; at most 100,000"
    assert error_of(tmp_path, nodes=nodes) == message


def test_edges_without_a_header_are_an_error(tmp_path):
    assert error_of(tmp_path, edges="a,b\nb,c\n") == (
        "e.csv, line 1: must be a header with the names of the columns, but holds the ids of two "
        "nodes, 'a' and 'b'"
    )


def test_a_full_disk_leaves_nothing(tmp_path):
    """A limit on the size of files stands in for it."""
    nodes = "id,x,y\n" + "".join(f"{n},{n % 7},{n % 2}\n" for n in range(60_000))
    paths = write(tmp_path, "u,v\n0,1\n", nodes)
    script = """
import resource, signal, sys
from dynagat.data import read_tables
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    read_tables(sys.argv[1], sys.argv[2], target="y", folder=sys.argv[3])
except OSError as error:
    print(error)
"""
    command = [sys.executable, "-c", script, *map(str, paths), str(tmp_path / "store" / "g")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[Errno 27] File too large: '{tmp_path}/store/g'"
    assert list((tmp_path / "store").iterdir()) == []
