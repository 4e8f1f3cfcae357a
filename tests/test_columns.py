"""Columns become features by an encoding fitted to training rows, applied to any table."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynagat.data import Columns, TableError, read_tables
from dynagat.data.tables.fitting import MIN_WORDS
from tests.tables import EDGES, write


def features(folder, name, values, training=None, **options) -> np.ndarray:
    """The features of a column; by default every second row is for training."""
    data = read(folder, {name: values}, training, **options)
    return data.x


def read(folder, columns, training=None, **options):
    count = len(next(iter(columns.values())))
    training = range(0, count, 2) if training is None else training
    rows = [",".join(["id", *columns, "y", "split"])]
    for n in range(count):
        part = "train" if n in training else ("valid", "test")[n % 2]
        rows.append(",".join([f"n{n}", *(str(c[n]) for c in columns.values()), f"{n}.5", part]))
    paths = write(folder, "u,v\nn0,n1\n", "\n".join(rows))
    return read_tables(*paths, target="y", **options)


numbers = st.lists(
    st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from(["", "NA"])), min_size=8, max_size=30
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(values=numbers)
def test_numbers_have_mean_zero_and_deviation_one_in_training_rows(tmp_path, values):
    values = [*values, 0.25, 0.25, 0.75, 0.75]  # so that some training rows differ
    known = np.array([isinstance(value, (int, float)) for value in values])
    x = features(tmp_path, "h", values)
    training = x[::2][known[::2], 0].astype(np.float64)
    assert abs(training.mean()) < 1e-4
    assert abs(training.std() - 1) < 1e-4
    assert (x[~known, 0] == 0).all()
    if not known[::2].all():
        assert np.array_equal(x[:, 1], ~known)
    else:
        assert x.shape[1] == 1


def test_only_training_rows_determine_the_encoding(tmp_path):
    one = features(tmp_path, "h", [1, 2, 3, 4, 5, 6])
    other = features(tmp_path, "h", [1, 200, 3, 400, 5, 600])
    assert np.array_equal(one[::2], other[::2])


def test_zeros_and_ones_stay_as_they_are(tmp_path):
    assert features(tmp_path, "h", [0, 1, 1, 0, "", 1]).tolist() == [
        [0, 0], [1, 0], [1, 0], [0, 0], [0, 1], [1, 0]
    ]  # fmt: skip
    assert features(tmp_path, "h", ["true", "False", "FALSE", "true"]).tolist() == [
        [1], [0], [0], [1]
    ]  # fmt: skip


def test_word_counts_are_all_divided_by_the_same_number(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.random((40, MIN_WORDS)) * (rng.random((40, MIN_WORDS)) < 0.2)
    words[::2, 0] = 0  # a word that no training row has
    words[1, 0] = 0.5
    data = read(tmp_path, {f"w{n}": words[:, n].tolist() for n in range(MIN_WORDS)})
    present = words[::2][words[::2] > 0]
    scale = np.sqrt(np.square(present).mean())
    np.testing.assert_allclose(data.x, words / scale, rtol=1e-6)
    few = read(tmp_path, {f"w{n}": words[:, n].tolist() for n in range(1, MIN_WORDS)})
    np.testing.assert_allclose(few.x[::2].mean(0), 0, atol=1e-6)


def test_categories_are_those_of_training_rows(tmp_path):
    data = read(tmp_path, {"c": ["red", "pink", "blue", "red", "", "", " red ", "none"]})
    assert Columns.from_dict(data.about["columns"]).features == [
        "c = blue", "c = red", "c is missing"
    ]  # fmt: skip
    assert data.x.tolist() == [
        [0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 1]
    ]  # fmt: skip


def test_dates_are_days(tmp_path):
    values = ["2020-01-01", "2020-01-02T12:00", "2020-01-03 00:00:00", "2020-01-02T02:00:00+02:00"]
    x = features(tmp_path, "day", values)
    np.testing.assert_allclose(x[:, 0], [-1, 0.5, 1, 0], atol=1e-6)


def test_constant_and_empty_columns_are_left_out(tmp_path):
    columns = {"h": [1, 2, 3, 4], "same": [7, 8, 7, 9], "none": ["", "NA", "nan", "null"]}
    columns |= {"word": ["a", "b", "a", "c"], "later": ["", 1, "", 2]}
    encoding = read(tmp_path, columns).about["columns"]
    assert [each["name"] for each in encoding["columns"]] == ["h"]
    assert encoding["left_out"] == {
        "none": "empty", "same": "constant", "word": "constant", "later": "empty"
    }  # fmt: skip


def test_a_stored_encoding_gives_the_same_features(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"h": rng.normal(size=30).tolist(), "flag": rng.integers(0, 2, 30).tolist()}
    columns |= {"c": [("red", "blue", "")[n % 3] for n in range(30)]}
    columns |= {"day": [f"2020-02-{n % 28 + 1:02d}" for n in range(30)]}
    columns |= {"gap": [n / 3 if n % 4 else "" for n in range(30)], "ok": ["true", "false"] * 15}
    data = read(tmp_path, columns)
    encoding = json.loads(json.dumps(data.about["columns"]))
    again = Columns.from_dict(encoding)
    assert again.to_dict() == encoding
    applied = read_tables(tmp_path / "e.csv", tmp_path / "n.csv", target=None, columns=again)
    assert np.array_equal(applied.x, data.x)
    assert "y" not in applied.nodes["node"].arrays
    assert not applied.split
    assert not applied.task
    assert data.x.shape[1] == len(again.features) == 9


def test_an_encoding_is_applied_to_a_table_with_other_rows_and_columns(tmp_path):
    data = read(tmp_path, {"h": [0, 1, 4, 3], "c": ["red", "blue", "blue", "red"]})
    columns = Columns.from_dict(data.about["columns"])
    nodes = "comment,c,id,h\nhello there,green,z,2\nbye,blue,y,\n"
    grown = read_tables(
        *write(tmp_path, "u,v\nz,y\n", nodes), target=None, id="id", columns=columns
    )
    assert grown.x.tolist() == [[0, 0, 0], [0, 1, 0]]
    write(tmp_path, EDGES, "id,h\nz,2\n")
    with pytest.raises(TableError, match=r"n\.csv has no column 'c', which the table used for"):
        read_tables(tmp_path / "e.csv", tmp_path / "n.csv", target=None, columns=columns)
    write(tmp_path, EDGES, "id,h,c\nz,2,red\ny,tall,red\n")
    with pytest.raises(TableError, match=r"line 3: column 'h' must hold numbers, but holds 'tall'"):
        read_tables(tmp_path / "e.csv", tmp_path / "n.csv", target=None, columns=columns)


def test_an_encoding_takes_an_arrow_table(tmp_path):
    data = read(tmp_path, {"h": [0, 1, 4, 3], "c": ["red", "blue", "blue", "red"]})
    columns = Columns.from_dict(data.about["columns"])
    table = pa.table({"c": ["red", "blue"], "h": pa.array([2, None], pa.int8())})
    assert columns.encode(table).tolist() == [[0, 0, 1], [0, 1, 0]]
    with pytest.raises(TableError, match=r"row 2: column 'h' must hold finite numbers"):
        columns.encode(pa.table({"c": ["red", "blue"], "h": [2.0, float("inf")]}))


def test_columns_can_be_ignored(tmp_path):
    columns = {"h": [0, 1, 4, 3], "note": [f"note {n}" for n in range(4)]}
    assert read(tmp_path, columns, ignore=["note"]).x.shape == (4, 1)


def test_too_many_categories_are_an_error(tmp_path):
    """Numbers and text are mixed, so that the categories are only counted in the training rows."""
    values = [n if n % 2 else f"k{n % 8}" for n in range(1000)]
    with pytest.raises(TableError, match="column 'c' holds free text such as"):
        features(tmp_path, "c", values, training=range(1000))


def nodes_with(name, values):
    rows = [f"n{n},{n % 3},{'xy'[n % 2]},{value}" for n, value in enumerate(values)]
    return "\n".join([f"code,size,label,{name}", *rows, ""])


PARTS = ["train", "train", "Train", "val", "test", ""] * 10


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "set",
            PARTS,
            r"column 'set' looks like a split, .*: name it as split \(--split set\), or",
        ),
        ("is_test", [0, 1] * 30, "column 'is_test' is named like a part of a split"),
        ("Unnamed: 0", range(60), r"column 'Unnamed: 0' numbers the rows, .* \(--id Unnamed: 0\)"),
        ("user_id", [7 * n % 60 for n in range(60)], "column 'user_id' looks like an id"),
    ],
)
def test_a_column_that_looks_like_a_split_or_an_id_is_refused(tmp_path, name, values, message):
    paths = write(tmp_path, "a,b\nn1,n2\n", nodes_with(name, values))
    with pytest.raises(TableError, match=message):
        read_tables(*paths, target="label")
    assert "size" in read_tables(*paths, target="label", ignore=[name]).about["columns"][
        "columns"][0]["name"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("set", ["train"] * 30 + ["plane"] * 30),
        ("age", [n // 2 for n in range(60)]),
        ("user_id", [n % 20 for n in range(60)]),
        ("weight", [0.5 + n for n in range(60)]),
    ],
)
def test_other_columns_become_features(tmp_path, name, values):
    paths = write(tmp_path, "a,b\nn1,n2\n", nodes_with(name, values))
    columns = read_tables(*paths, target="label").about["columns"]["columns"]
    assert [column["name"] for column in columns] == ["size", name]
