"""The task is inferred from the target; random splits are stratified and train every class."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynagat.data import read_tables
from tests.tables import write

quick = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(folder, values, header="y", **options):
    rows = [f"id,h,{header}", *(f"n{n},{n}.5,{value}" for n, value in enumerate(values))]
    options = {"target": "y"} | options
    return read_tables(*write(folder, "u,v\nn0,n1\n", "\n".join(rows)), **options)


def test_the_task_is_inferred_from_the_target(tmp_path):
    for values, kind, classes in [
        (["b", "a"] * 5, "classification", ["a", "b"]),
        ([10, 9] * 5, "classification", ["9", "10"]),
        (["1.0", "1", "-2"] * 4, "classification", ["-2", "1"]),
        ([*range(50), *range(50)], "classification", [str(n) for n in range(50)]),
        (range(51), "regression", None),
        ([0.5, 1, 2] * 4, "regression", None),
    ]:
        data = read(tmp_path, values)
        assert (data.task["kind"], data.task.get("classes")) == (kind, classes)
    whole = read(tmp_path, [1, 2] * 5, task="regression")
    assert whole.y.tolist() == [1, 2] * 5
    assert whole.y.dtype == np.float64  # so that large numbers stay distinct
    named = read(tmp_path, [0.5, 1] * 5, task="classification")
    assert named.task["classes"] == ["0.5", "1"]
    assert named.y.dtype == np.int64


def test_a_node_without_a_target_is_in_no_part(tmp_path):
    for values, unknown in [(["a", "b", "", "NA"] * 5, -1), ([0.5, 1.5, "nan", ""] * 5, None)]:
        data = read(tmp_path, values)
        known = np.isin(np.arange(20) % 4, [0, 1])
        parts = np.concatenate(list(data.split.values()))
        assert sorted(parts.tolist()) == np.flatnonzero(known).tolist()
        missing = data.y == unknown if unknown is not None else np.isnan(data.y)
        assert np.array_equal(missing, ~known)
        assert data.about["tables"]["unlabelled"] == 10


def test_several_labels_per_node(tmp_path):
    values = ["p;q", "q", ";", "", "p | r"] * 4
    data = read(tmp_path, values, task="multilabel")
    assert data.task["classes"] == ["p", "q", "r"]
    nan = float("nan")
    expected = [[1, 1, 0], [0, 1, 0], [0, 0, 0], [nan] * 3, [1, 0, 1]] * 4
    assert np.array_equal(data.y, np.array(expected, np.float32), equal_nan=True)
    assert (data.y[data.split["train"]] == 1).any(0).all()
    columns = read(tmp_path, ["1,0", "0,true", "1,1", ",", "False,"] * 4, "y,z", target=["y", "z"])
    assert columns.task["kind"] == "multilabel"
    assert columns.task["classes"] == columns.task["target"] == ["y", "z"]
    expected = [[1, 0], [0, 1], [1, 1], [nan, nan], [0, nan]] * 4
    assert np.array_equal(columns.y, np.array(expected, np.float32), equal_nan=True)
    assert columns.about["tables"]["unlabelled"] == 4


@quick
@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_a_random_split_is_stratified_by_class(tmp_path, sizes, seed):
    values = [f"c{c}" for c, size in enumerate([20, *sizes]) for _ in range(size)]
    data = read(tmp_path, values, seed=seed)
    parts = [data.split[part] for part in ("train", "valid", "test")]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(values)))
    assert all((np.diff(part) > 0).all() for part in parts)
    counts = np.array([np.bincount(data.y[part], minlength=len(sizes) + 1) for part in parts])
    shares = np.outer([0.6, 0.2, 0.2], counts.sum(0))
    assert (np.abs(counts - shares) <= 1).all()
    assert (counts[0] > 0).all()


def test_a_random_split_depends_on_its_seed(tmp_path):
    splits = [read(tmp_path, ["a", "b"] * 40, seed=seed).split["train"] for seed in (0, 0, 1)]
    assert np.array_equal(splits[0], splits[1])
    assert not np.array_equal(splits[0], splits[2])
    few = read(tmp_path, ["a", "b"] * 40, shares=(0.1, 0.1, 0.8))
    assert [len(few.split[part]) for part in ("train", "valid", "test")] == [8, 8, 64]


def test_a_rare_label_has_a_training_row(tmp_path):
    for seed in range(5):
        values = ["p", "q"] * 20 + ["rare"]
        data = read(tmp_path, values, task="multilabel", seed=seed)
        assert (data.y[data.split["train"], 2] == 1).any()


def test_the_column_named_split_is_used_unless_ignored(tmp_path):
    values = [f"{'ab'[n % 2]},{('Train', 'training', 'val', 'TEST', '')[n % 5]}" for n in range(20)]
    data = read(tmp_path, values, "y,Split")
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [8, 4, 4]
    ignored = read(tmp_path, values, "y,Split", ignore=["Split"])
    assert [len(ignored.split[part]) for part in ("train", "valid", "test")] == [12, 4, 4]


def test_a_table_without_a_target_is_a_graph_without_a_task(tmp_path):
    data = read(tmp_path, [1, 2, 3], target=None, ignore=["y"])
    assert (data.task, data.split) == ({}, {})
    assert data.x.shape == (3, 1)


@pytest.mark.parametrize("task", ["classification", "auto"])
def test_a_mix_of_numbers_and_names_needs_the_task_to_be_set(tmp_path, task):
    values = [1, 2, 1, 2, "many", "many", 1, 2, "many"] * 3
    if task == "classification":
        assert read(tmp_path, values, task=task).task["classes"] == ["1", "2", "many"]
    else:
        with pytest.raises(
            ValueError, match=r"line 6: column 'y' must hold numbers, but holds 'many'; for text"
        ):
            read(tmp_path, values, task=task)
