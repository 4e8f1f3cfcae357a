"""The store keeps every record that was added; its errors are one sentence each."""

import json
import math
import os
import random
import signal
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dynagat.experiment import Record, Store, key_of
from dynagat.experiment.store import VERSION, StoreError

forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
not_windows = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def make_record(seed: int, benchmark: str = "lookup", **changes) -> Record:
    settings = {"data": {"k": 4}, "network": {"heads": 1, "loops": []}, "revision": 1}
    record = Record(
        key=key_of(benchmark, "gatv2", seed, settings),
        benchmark=benchmark,
        mechanism="gatv2",
        heads=1,
        seed=seed,
        fidelity="corrected",
        settings=settings,
        metrics={"test_accuracy": 1 / 3, "valid_accuracy": 0.5},
        history=[{"round": 1, "loss": 0.1}, {"round": 2, "loss": 1e-17}],
        ended="budget",
        converged=False,
        seconds=0.25,
        peak_memory_bytes=2**33,
        versions={"torch": "2"},
        commit="unknown",
        created="2026-01-01T00:00:00+00:00",
        exhibits={"attention": [[0.5, 0.5]]},
    )
    return replace(record, **changes)


def texts(records: list[Record]) -> list[str]:
    return [record.to_json() for record in records]


def is_sentence(error: pytest.ExceptionInfo) -> bool:
    """One line that names the store."""
    message = str(error.value)
    return message.startswith("store ") and "\n" not in message


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "some" / "records.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


# Adding and reading


def test_records_are_read_in_the_order_in_which_they_were_added(store, path) -> None:
    added = [make_record(seed) for seed in (3, 1, 2)]
    assert [store.add(record) for record in added] == [True] * 3
    assert texts(store.records()) == texts(added)
    assert store.keys() == {record.key for record in added}
    with Store(path, must_exist=True) as again:
        assert texts(again.records()) == texts(added)


def test_a_record_is_found_by_its_key(store) -> None:
    store.add(make_record(0))
    store.add(make_record(1))
    record = store.get(make_record(1).key)
    assert record is not None
    assert record.to_json() == make_record(1).to_json()
    assert record.setting("k") == 4
    assert store.get("0" * 32) is None


def test_the_first_record_of_a_run_is_kept(store) -> None:
    assert store.add(make_record(0, seconds=1.0))
    assert not store.add(make_record(0, seconds=2.0))
    assert [record.seconds for record in store.records()] == [1.0]


def test_records_can_be_read_by_benchmark(store) -> None:
    for number, name in enumerate(["a", "b", "c", "a"]):
        store.add(make_record(number, name))
    assert [record.seed for record in store.records(["a"])] == [0, 3]
    assert [record.seed for record in store.records(["c", "a"])] == [0, 2, 3]
    assert store.records(["nothing"]) == []
    assert len(store.records()) == 4


@pytest.mark.parametrize("statement", ["UPDATE record SET line = ''", "DELETE FROM record"])
def test_records_cant_be_changed_or_deleted(store, path, statement) -> None:
    store.add(make_record(0))
    with closing(sqlite3.connect(path)) as other:
        with pytest.raises(sqlite3.IntegrityError, match="records never"):
            other.execute(statement)
        other.rollback()
    assert texts(store.records()) == [make_record(0).to_json()]


# JSON lines


def test_a_record_is_restored_from_its_line_with_every_field(store) -> None:
    record = make_record(5)
    again = Record.from_json(record.to_json())
    assert vars(again) == vars(record)
    assert "\n" not in record.to_json()
    assert json.loads(record.to_json())["peak_memory_bytes"] == 2**33


def test_exported_records_are_imported_once(store, tmp_path) -> None:
    lines = texts([make_record(seed) for seed in range(4)])
    assert store.import_lines([*lines[:2], "", "  \n"], "some.jsonl") == 2
    assert store.import_lines(lines, "more.jsonl") == 2
    assert texts(store.records()) == lines


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_an_infinite_metric_is_read_as_nan(store, odd) -> None:
    metrics = {"test_accuracy": odd, "valid_accuracy": 0.5}
    history = [{"round": 1, "loss": 0.1, "valid": 0.5}, {"round": 2, "loss": odd, "valid": odd}]
    record = make_record(0, metrics=metrics, history=history, ended="diverged")
    assert "NaN" not in record.to_json()
    assert "Infinity" not in record.to_json()
    store.import_lines([record.to_json()], "some.jsonl")
    [read] = store.records()
    assert math.isnan(read.metrics["test_accuracy"])
    assert read.metrics["valid_accuracy"] == 0.5
    assert read.history[0] == history[0]
    assert math.isnan(read.history[1]["loss"])
    assert math.isnan(read.history[1]["valid"])
    assert read.to_json() == record.to_json()


def altered(**changes) -> str:
    return json.dumps(json.loads(make_record(9).to_json()) | changes)


def lacking(name: str) -> str:
    whole = json.loads(make_record(9).to_json())
    del whole[name]
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'seed': 1}", "a record must be one line of JSON, but "),
        ('{"seed": 1', "a record must be one line of JSON, but "),
        ("[1, 2]", "a record must be a JSON object, but is a list"),
        (lacking("metrics"), r"must have the fields of this version, but it lacks \['metrics'\]"),
        (altered(colour=1), r"must have the fields of this version, but it has \['colour'\]"),
        (altered(seed=8), "the key [0-9a-f]{32} does not fit the record's settings"),
        (altered(mechanism="gat"), "the key [0-9a-f]{32} does not fit the record's settings"),
        (altered(settings={"data": {"k": 5}}), "the key [0-9a-f]{32} does not fit"),
        (altered(metrics=3), "metrics"),
        (altered(history=3), "history"),
        (altered(history=[3]), "history"),
        (altered(settings=None), "settings"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_and_nothing_is_added(store, line, message) -> None:
    store.add(make_record(0))
    lines = [make_record(1).to_json(), "", line, make_record(2).to_json()]
    with pytest.raises(StoreError, match=rf"^some\.jsonl, line 3: .*{message}"):
        store.import_lines(lines, "some.jsonl")
    assert texts(store.records()) == [make_record(0).to_json()]


def test_a_line_without_exhibits_is_a_record(store) -> None:
    assert Record.from_json(lacking("exhibits")).exhibits == {}


# Files that are not stores


def test_a_store_that_must_exist_is_not_created(path) -> None:
    with pytest.raises(StoreError, match="does not exist; `dynagat run` creates it") as error:
        Store(path, must_exist=True)
    assert is_sentence(error)
    assert not path.parent.exists()


@pytest.mark.parametrize("text", ["hello", "not a database, but notes of some kind\n" * 100])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, text) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text(text)
    with pytest.raises(StoreError, match="is not a database of dynagat") as error:
        Store(notes)
    assert is_sentence(error)
    assert notes.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("mark", [0, 12345])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path, mark) -> None:
    theirs = tmp_path / "theirs.db"
    with closing(sqlite3.connect(theirs)) as other:
        other.execute(f"PRAGMA application_id = {mark}")
        other.execute("CREATE TABLE song (name TEXT)")
    before = theirs.read_bytes()
    with pytest.raises(StoreError, match="is a database of another program") as error:
        Store(theirs)
    assert is_sentence(error)
    assert theirs.read_bytes() == before


def test_a_store_of_another_version_is_refused_and_left_alone(store, path) -> None:
    store.add(make_record(0))
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(StoreError, match=f"version {VERSION + 1}, but this .* {VERSION}") as error:
        Store(path)
    assert is_sentence(error)
    assert len(store.records()) == 1


def test_a_folder_is_refused(tmp_path) -> None:
    with pytest.raises(StoreError, match="is a folder, not a file") as error:
        Store(tmp_path)
    assert is_sentence(error)


def test_an_empty_file_becomes_a_store(tmp_path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with Store(empty) as store:
        assert store.add(make_record(0))


def test_a_damaged_store_is_refused(store, path) -> None:
    for seed in range(50):
        store.add(make_record(seed))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError) as error, Store(path) as damaged:
        damaged.records()
    assert is_sentence(error)


def test_a_closed_store_cant_be_read(path) -> None:
    with Store(path) as store:
        pass
    with pytest.raises(StoreError, match="closed") as error:
        store.keys()
    assert is_sentence(error)


# Places that can't be written


@contextmanager
def without_privileges():
    """As another user than root, who may read and write every file."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked():
    """A folder whose permissions a test may remove."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "locked"
        folder.mkdir()
        os.chmod(name, 0o755)
        yield folder
        folder.chmod(stat.S_IRWXU)


def test_a_path_below_a_file_is_refused(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"can't be opened: (Not a|File ex)") as error:
        Store(tmp_path / "file" / "records.sqlite")
    assert is_sentence(error)


def test_a_name_that_is_too_long_is_refused(tmp_path) -> None:
    with pytest.raises(StoreError, match="can't be opened: File name too long") as error:
        Store(tmp_path / ("a" * 300))
    assert is_sentence(error)


def test_a_new_store_in_a_read_only_folder_is_refused(locked) -> None:
    locked.chmod(0o555)
    with without_privileges(), pytest.raises(StoreError, match="can't be written") as error:
        Store(locked / "records.sqlite")
    assert is_sentence(error)


def test_a_new_folder_in_a_read_only_folder_is_refused(locked) -> None:
    locked.chmod(0o555)
    with without_privileges(), pytest.raises(StoreError, match="Permission denied") as error:
        Store(locked / "new" / "records.sqlite")
    assert is_sentence(error)


def test_a_folder_that_may_not_be_read_is_refused(locked) -> None:
    locked.chmod(0)
    for must_exist in (False, True):
        with without_privileges(), pytest.raises(StoreError, match="Permission denied") as error:
            Store(locked / "records.sqlite", must_exist=must_exist)
        assert is_sentence(error)


def test_adding_to_a_read_only_store_is_refused_and_loses_nothing(locked) -> None:
    path = locked / "records.sqlite"
    with Store(path) as store:
        store.add(make_record(0))
    path.chmod(0o444)
    locked.chmod(0o555)
    with without_privileges(), pytest.raises(StoreError) as error, Store(path) as store:
        store.add(make_record(1))
    assert is_sentence(error)
    locked.chmod(0o755)
    path.chmod(0o644)
    with Store(path) as store:
        assert texts(store.records()) == [make_record(0).to_json()]


# A full disk


def fill(store: Store) -> list[Record]:
    """Add records until the store can't grow, as on a full disk; returns those it has then."""
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages + 4}")
    records = [make_record(seed) for seed in range(1000)]
    news = (store.add(record) for record in records)
    with pytest.raises(StoreError, match="the disk is full; its records are safe") as error:
        assert all(news)
    assert is_sentence(error)
    added = records[: len(store.keys())]
    assert added
    return added


def test_a_full_disk_is_reported_and_loses_nothing(store, path) -> None:
    added = fill(store)
    assert texts(store.records()) == texts(added)
    store.close()
    with Store(path) as again:  # on a disk with space again
        assert texts(again.records()) == texts(added)
        assert again.add(make_record(len(added)))


def test_an_import_onto_a_full_disk_adds_nothing(store) -> None:
    added = fill(store)
    lines = texts([make_record(seed) for seed in range(5000, 5100)])
    with pytest.raises(StoreError, match="the disk is full"):
        store.import_lines(lines, "some.jsonl")
    assert texts(store.records()) == texts(added)
    store._database.execute("PRAGMA max_page_count = 100000")
    assert store.import_lines(lines, "some.jsonl") == 100


# Several processes


def fork(work) -> tuple[int, int]:
    """A process that runs work(report), and the pipe of the lines that it reports."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    status = 1
    try:
        os.close(reader)
        work(lambda line: os.write(writer, f"{line}\n".encode()))
        status = 0
    finally:
        os._exit(status)


def read_all(reader: int) -> list[str]:
    with os.fdopen(reader) as lines:
        return lines.read().splitlines()


def add_for_ever(path: Path, first: int, report) -> None:
    with Store(path) as store:
        for seed in range(first, first + 100_000):
            record = make_record(seed)
            store.add(record)
            report(record.key)


@not_windows
@forks
def test_a_kill_at_any_moment_loses_no_record_that_was_added(path) -> None:
    draw, reported = random.Random(0), []
    for number in range(300):
        if number >= 30 and len(reported) > 30:
            break  # on a busy machine, some processes are killed before they add a record
        process, reader = fork(
            lambda report, first=number * 10**6: add_for_ever(path, first, report)
        )
        time.sleep(draw.uniform(0, 0.05))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        reported += read_all(reader)
        with Store(path) as store:
            check = store._database.execute("PRAGMA integrity_check").fetchall()
            assert check == [("ok",)]
            assert set(reported) <= store.keys()
            extra = len(store.keys()) - len(reported)
            assert extra <= number + 1  # for each process, one that was added but not yet reported
    assert len(reported) > 30
    with Store(path) as store:
        assert len(store.records()) == len(store.keys())
        assert store.add(make_record(10**9))


@not_windows
@forks
def test_another_process_reads_whole_records_while_one_writes(path) -> None:
    def write(report) -> None:
        with Store(path) as store:
            report("open")
            for seed in range(150):
                store.add(make_record(seed))

    process, reader = fork(write)
    assert os.read(reader, 5) == b"open\n"
    seen = [0]
    with Store(path, must_exist=True) as store:
        while not os.waitpid(process, os.WNOHANG)[0]:
            seeds = [record.seed for record in store.records()]
            assert seeds == list(range(len(seeds)))
            assert len(seeds) >= seen[-1]
            seen.append(len(seeds))
        assert len(store.records()) == 150
    os.close(reader)
    assert len(set(seen)) > 2  # records were read while others were added


def test_an_open_reader_does_not_block_the_writer(store, path) -> None:
    store.add(make_record(0))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM record").fetchone() == (1,)
        assert store.add(make_record(1))
        assert reader.execute("SELECT count(*) FROM record").fetchone() == (1,)


@not_windows
@forks
def test_processes_can_create_the_same_store_at_once(tmp_path) -> None:
    for attempt in range(5):
        path, gate = tmp_path / f"{attempt}.sqlite", time.time() + 0.05

        def add_one(report, seed, path=path, gate=gate) -> None:
            time.sleep(max(0.0, gate - time.time()))
            with Store(path) as store:
                store.add(make_record(seed))
                report(seed)

        started = [fork(lambda report, seed=seed: add_one(report, seed)) for seed in range(6)]
        reported = [read_all(reader) for _, reader in started]
        for process, _ in started:
            os.waitpid(process, 0)
        assert reported == [[str(seed)] for seed in range(6)]
        with Store(path) as store:
            assert {record.seed for record in store.records()} == set(range(6))


# Weights


def test_weights_are_stored_with_the_record(store, path) -> None:
    record = make_record(0, weights=b"\x00numbers")
    assert store.add(record)
    assert store.weights(record.key) == b"\x00numbers"
    assert store.get(record.key).weights is None
    assert store.weights(make_record(1).key) is None
    assert not store.add(replace(record, weights=b"others"))
    assert store.weights(record.key) == b"\x00numbers"


def test_an_older_store_without_weights_can_store_them(store, path) -> None:
    assert store.weights(make_record(0).key) is None
    store.add(make_record(0))
    store.add(make_record(1, weights=b"new"))
    assert store.weights(make_record(1).key) == b"new"
    assert store.weights(make_record(0).key) is None
