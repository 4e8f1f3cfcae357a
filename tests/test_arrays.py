"""A folder of arrays is written whole or not at all, and read by many processes at once."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dynagat import files
from dynagat.data import arrays as folders
from dynagat.data.arrays import FolderError, check_folder, read_folder, write_folder
from dynagat.data.texts import Texts

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "float32", "float64", ">i4", ">f8"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), SHAPES))
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=5)
NAMES = st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}", fullmatch=True)
JSON = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4) | st.booleans())


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(folders, "RETRIES", 3)


def write(path, arrays=None, *, about=None, replace=False):
    with write_folder(path, "test", replace=replace) as writer:
        for name, array in (arrays or {"a": np.arange(5), "b/c": np.ones((3, 2))}).items():
            writer.add(name, array)
        writer.about = about or {}
    return path


def names_next_to(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_numpy_reads_the_files_too(tmp_path):
    folder = write(tmp_path / "f")
    assert np.load(folder / "a.npy").tolist() == [0, 1, 2, 3, 4]
    assert np.load(folder / "b" / "c.npy").shape == (3, 2)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(NAMES, ARRAYS | TEXTS.map(Texts.of), max_size=4), JSON)
def test_arrays_are_read_with_the_type_and_shape_they_were_written_with(arrays, about):
    with tempfile.TemporaryDirectory() as parent:
        write(Path(parent, "deep", "folder"), arrays or {"none": np.empty(0)}, about=about)
        found, metadata = read_folder(Path(parent, "deep", "folder"), "test")
        assert metadata == about
        for name, array in arrays.items():
            if isinstance(array, Texts):
                assert list(found[name]) == list(array)
            else:
                assert found[name].dtype == array.dtype
                np.testing.assert_array_equal(found[name], array)
        del found


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 7), max_size=5), st.sampled_from(DTYPES), st.integers(0, 3))
def test_appended_blocks_of_rows_form_one_array(sizes, dtype, width):
    blocks = [np.arange(size * width).reshape(size, width).astype(dtype) for size in sizes]
    with tempfile.TemporaryDirectory() as parent:
        with write_folder(Path(parent, "f"), "test") as writer:
            growing = writer.grow("a", dtype, (width,))
            for block in blocks:
                growing.append(block)
        found, _ = read_folder(Path(parent, "f"), "test")
        expected = np.concatenate([np.empty((0, width), dtype), *blocks]).astype(dtype)
        np.testing.assert_array_equal(found["a"], expected)
        del found


def test_an_array_may_be_filled_in_place(tmp_path):
    with write_folder(tmp_path / "f", "test") as writer:
        writer.make("a", np.int64, (4, 2))[1:3] = 7
        writer.make("empty", np.int64, (0, 2))
    found, _ = read_folder(tmp_path / "f", "test")
    assert found["a"].sum() == 28
    assert found["empty"].shape == (0, 2)


def test_changes_by_a_reader_stay_in_its_process(tmp_path):
    write(tmp_path / "f")
    found, _ = read_folder(tmp_path / "f", "test")
    found["a"][:] = -1
    again, _ = read_folder(tmp_path / "f", "test", verify=True)
    assert again["a"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/out", "a"])
def test_an_array_stays_in_its_folder_and_keeps_its_name(tmp_path, name):
    with write_folder(tmp_path / "f", "test") as writer:
        writer.add("a", np.arange(2))
        with pytest.raises(ValueError, match="not a valid name for a new array"):
            writer.add(name, np.arange(2))
    folders.remove_folder(tmp_path / "f")
    assert names_next_to(tmp_path / "f") == []


def test_only_numbers_are_written(tmp_path):
    with (
        pytest.raises(ValueError, match="a must hold numbers or booleans, but holds object"),
        write_folder(tmp_path / "f", "test") as writer,
    ):
        writer.add("a", np.array([object()]))


def test_a_file_truncated_anywhere_is_an_error(tmp_path):
    folder = write(tmp_path / "f", about={"name": "é"})
    for path in [*folder.rglob("*.npy"), folder / folders.LIST]:
        whole = path.read_bytes()
        for length in range(0, len(whole), 7):
            path.write_bytes(whole[:length])
            with pytest.raises(FolderError, match=f"{path.name} was"):
                read_folder(folder, "test")
        path.write_bytes(whole)
    read_folder(folder, "test")


def test_one_altered_byte_anywhere_is_an_error(tmp_path):
    folder = write(tmp_path / "f", {"a": np.arange(3)}, about={"name": "graph", "n": 12})
    for path in [folder / "a.npy", folder / folders.LIST]:
        whole = path.read_bytes()
        for at in range(len(whole)):
            flipped = whole[at] ^ (1, 2, 128)[at % 3]
            path.write_bytes(whole[:at] + bytes([flipped]) + whole[at + 1 :])
            with pytest.raises(FolderError, match=f"{path.name}.* was|must be a"):
                read_folder(folder, "test", verify=True)
        path.write_bytes(whole)
    read_folder(folder, "test", verify=True)


def test_an_altered_header_is_an_error_even_without_checksums(tmp_path):
    folder = write(tmp_path / "f", {"a": np.arange(3)})
    path = folder / "a.npy"
    whole = path.read_bytes()
    for at in range(128):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(FolderError, match=r"a\.npy was altered"):
            read_folder(folder, "test", verify=False)


def test_a_missing_file_is_named(tmp_path):
    folder = write(tmp_path / "f")
    (folder / "b" / "c.npy").unlink()
    with pytest.raises(FolderError, match=r"was altered: b/c\.npy is missing"):
        read_folder(folder, "test")


def test_a_path_out_of_the_folder_is_refused(tmp_path):
    np.save(tmp_path / "secret.npy", np.arange(5))
    folder = write(tmp_path / "f", {"a": np.arange(5)})
    listing = json.loads((folder / folders.LIST).read_text())
    listing["arrays"]["../secret.npy"] = listing["arrays"].pop("a.npy")
    listing["sha256"] = folders._list_sum(listing)
    (folder / folders.LIST).write_text(json.dumps(listing))
    with pytest.raises(FolderError, match=r"it names '\.\./secret\.npy'"):
        read_folder(folder, "test")


def test_another_kind_another_version_and_a_missing_folder_are_errors(tmp_path):
    folder = write(tmp_path / "f")
    with pytest.raises(FolderError, match="must be a graph folder, but is a test folder"):
        read_folder(folder, "graph")
    listing = json.loads((folder / folders.LIST).read_text()) | {"version": 99}
    listing["sha256"] = folders._list_sum(listing)
    (folder / folders.LIST).write_text(json.dumps(listing))
    with pytest.raises(FolderError, match="has format version 99, but this dynagat reads versi"):
        read_folder(folder, "test")
    with pytest.raises(FolderError, match=r"has no arrays\.json"):
        read_folder(tmp_path / "nothing", "test")


def test_two_folders_swap_names_in_one_step(tmp_path):
    one, other = write(tmp_path / "one", {"a": np.arange(1)}), write(tmp_path / "other")
    assert files.exchange(one, other)
    assert len(read_folder(other, "test")[0]["a"]) == 1
    assert not files.exchange(one, tmp_path / "nothing")


def test_only_a_folder_of_arrays_may_be_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderError, match="exists already and is not a test folder"):
        write(tmp_path / "mine", replace=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    write(tmp_path / "f")
    with pytest.raises(FolderError, match="exists already"):
        write(tmp_path / "f")
    write(tmp_path / "f", {"a": np.arange(2)}, replace=True)
    assert len(read_folder(tmp_path / "f", "test")[0]["a"]) == 2
    assert names_next_to(tmp_path / "f") == ["f", "mine"]


def test_only_a_folder_of_arrays_can_be_removed(tmp_path):
    write(tmp_path / "f")
    kept, _ = read_folder(tmp_path / "f", "test")
    folders.remove_folder(tmp_path / "f")
    assert names_next_to(tmp_path / "f") == []
    assert kept["a"].sum() == 10
    with pytest.raises(FolderError, match="is no folder of arrays"):
        folders.remove_folder(tmp_path)


def test_a_failure_leaves_nothing(tmp_path):
    def fail():
        with write_folder(tmp_path / "f", "test") as writer:
            writer.add("a", np.arange(1000))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names_next_to(tmp_path / "f") == []


def run(script, *words, **more):
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def test_a_full_disk_leaves_nothing_and_the_error_names_the_folder(tmp_path):
    script = """
    import resource, signal, sys
    import numpy as np
    from dynagat.data.arrays import write_folder
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    for method in ("add", "make"):
        try:
            with write_folder(sys.argv[1], "test") as writer:
                if method == "add":
                    writer.add("a", np.zeros(1 << 20))
                else:
                    writer.make("a", np.float64, (1 << 20,))[:] = 1
        except OSError as error:
            print(method, error.filename, error.strerror)
    """
    done = run(script, tmp_path / "f")
    message = f"{tmp_path / 'f'} File too large"
    assert done.stdout == f"add {message}\nmake {message}\n", done.stderr
    assert names_next_to(tmp_path / "f") == []


def test_no_space_at_the_end_of_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "flush", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "f")
    assert caught.value.filename == str(tmp_path / "f")
    assert names_next_to(tmp_path / "f") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_named(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError) as caught:
        write(tmp_path / "f")
    tmp_path.chmod(0o755)
    assert str(tmp_path) in str(caught.value.filename)


def test_a_file_where_a_folder_should_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write(tmp_path / "file" / "f")


def test_the_folder_of_a_killed_writer_is_invisible_and_the_next_writer_removes_it(tmp_path):
    script = """
    import os, signal, sys
    import numpy as np
    from dynagat.data.arrays import write_folder
    with write_folder(sys.argv[1], "test") as writer:
        writer.add("a", np.zeros(1000))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run(script, tmp_path / "f").returncode == -signal.SIGKILL
    (remains,) = names_next_to(tmp_path / "f")
    assert remains.startswith(".f.")
    with pytest.raises(FolderError):
        read_folder(tmp_path / "f", "test")
    write(tmp_path / "f")
    assert names_next_to(tmp_path / "f") == ["f"]


def test_what_killed_writers_left_is_removed_whatever_the_clock_says(tmp_path):
    """The clock was set back: the abandoned paths are of tomorrow. Files of others stay."""
    abandoned = [tmp_path / f".f[1].{name}{files.TEMPORARY}" for name in ("one", "two")]
    abandoned[0].mkdir()
    abandoned[1].write_text("half")
    for path in abandoned:
        os.utime(path, (time.time() + 86_400,) * 2)
    others = [".f.backup", ".f[1].settings"]
    for name in others:
        (tmp_path / name).mkdir()
    files.write_text(tmp_path / "f[1]", "whole")
    assert names_next_to(tmp_path / "f[1]") == [*others, "f[1]"]


def test_a_temporary_path_in_use_is_left_alone(tmp_path):
    with files.new_folder(tmp_path / "f"):
        (inner,) = names_next_to(tmp_path / "f")
        with pytest.raises(OSError, match="directory"):  # there is a folder of this name by then
            files.write_through(tmp_path / "f", lambda path: (tmp_path / "f").mkdir())
        (tmp_path / "f").rmdir()
        assert names_next_to(tmp_path / "f") == [inner]
    assert names_next_to(tmp_path / "f") == ["f"]


def test_links_are_followed_and_only_a_link_itself_is_removed(tmp_path):
    real, link, text = tmp_path / "real", tmp_path / "link", tmp_path / "text"
    link.symlink_to(real)  # to nothing yet
    write(link)
    assert real.is_dir()
    write(link, {"a": np.arange(9)}, replace=True)
    assert len(read_folder(real, "test")[0]["a"]) == 9
    text.symlink_to(tmp_path / "page.html")
    files.write_text(text, "hello")
    assert (tmp_path / "page.html").read_text() == "hello"
    folders.remove_folder(link)
    assert names_next_to(link) == ["page.html", "real", "text"]


def forge(folder, **changed):
    """Change arrays.json, with a checksum that fits."""
    listing = json.loads((folder / folders.LIST).read_text())
    (entry,) = listing["arrays"].values()
    entry |= changed
    listing["sha256"] = folders._list_sum(listing)
    (folder / folders.LIST).write_text(json.dumps(listing))


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": [2**40]},
        {"shape": [2**32, 2**32]},
        {"shape": [-1, -5]},
        {"shape": ["5"]},
        {"shape": 5},
        {"dtype": "|O8"},
        {"dtype": "nothing"},
        {"dtype": ["<i8"]},
        {"dtype": "<i8,<i8"},
        {"dtype": "<i3"},
        {"bytes": "232"},
        {"bytes": 2**60},
        {"sha256": None},
    ],
)
def test_a_forged_list_of_arrays_is_refused(tmp_path, changed):
    folder = write(tmp_path / "f", {"a": np.arange(5)})
    forge(folder, **changed)
    for verify in (True, False):
        with pytest.raises(FolderError, match=r"was (cut short or )?altered"):
            read_folder(folder, "test", verify=verify)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "\xff", '{"kind": 1e999', "null", "[]", '{"a": 1}']
)
def test_a_list_that_is_no_list_of_arrays_is_refused(tmp_path, text):
    folder = write(tmp_path / "f")
    (folder / folders.LIST).write_text(text, encoding="latin1")
    with pytest.raises(FolderError, match=r"arrays\.json was cut short or altered"):
        read_folder(folder, "test")


def _race(path, number, gate, results):
    gate.wait()
    try:
        with write_folder(path, "test") as writer:
            writer.add("a", np.full(20_000, number))
        results.put((number, "won"))
    except FolderError as error:
        results.put((number, str(error)))


def test_of_several_writers_of_one_name_one_wins_and_the_others_get_an_error(tmp_path):
    context = multiprocessing.get_context("fork")
    for turn in range(5):
        path, gate, results = tmp_path / f"f{turn}", context.Barrier(4), context.Queue()
        racers = [context.Process(target=_race, args=(path, n, gate, results)) for n in range(4)]
        for racer in racers:
            racer.start()
        outcomes = dict(results.get(timeout=30) for _ in racers)
        for racer in racers:
            racer.join()
        (winner,) = [number for number, outcome in outcomes.items() if outcome == "won"]
        assert all("exists already" in outcomes[n] for n in outcomes if n != winner)
        assert set(read_folder(path, "test", verify=True)[0]["a"].tolist()) == {winner}
    assert names_next_to(path) == [f"f{turn}" for turn in range(5)]


def _replace_again_and_again(path, stop):
    number = 0
    while not stop.is_set():
        number += 1
        write(path, {"a": np.full(3000, number), "b": np.full(3000, number)}, replace=True)


@pytest.mark.parametrize("at_once", [True, False])
def test_readers_of_a_replaced_folder_see_the_old_or_the_new_one(tmp_path, monkeypatch, at_once):
    """With and without support for swapping two folders in one step."""
    monkeypatch.setattr(folders, "RETRIES", 200)
    if not at_once:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    write(tmp_path / "f", {"a": np.full(3000, 0), "b": np.full(3000, 0)})
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    writer = context.Process(target=_replace_again_and_again, args=(tmp_path / "f", stop))
    writer.start()
    seen = set()
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            found, _ = read_folder(tmp_path / "f", "test")
            values = {*found["a"].tolist(), *found["b"].tolist()}
            assert len(values) == 1
            seen |= values
    finally:
        stop.set()
        writer.join()
    assert len(seen) > 3


def _sum_of(path):
    return int(read_folder(path, "test", verify=True)[0]["a"].sum())


def test_many_processes_read_at_once(tmp_path):
    write(tmp_path / "f", {"a": np.arange(100_000)})
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert set(pool.map(_sum_of, [tmp_path / "f"] * 16)) == {sum(range(100_000))}


def test_a_folder_larger_than_memory_is_read_in_part(tmp_path):
    """Twice as large as the memory of the machine; the file is sparse and takes no disk space."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    folder = write(tmp_path / "f", {"a": np.arange(5)})
    shape, dtype = (2 * memory // 8,), np.dtype(np.int64)
    header = folders._header(dtype, shape)
    with open(folder / "a.npy", "wb") as file:
        file.write(header)
        file.truncate(len(header) + 8 * shape[0])
        file.seek(-8, os.SEEK_END)
        file.write((17).to_bytes(8, "little"))
    listing = json.loads((folder / folders.LIST).read_text())
    listing["arrays"]["a.npy"] |= {"shape": shape, "bytes": len(header) + 8 * shape[0]}
    listing = json.loads(json.dumps(listing))
    listing["sha256"] = folders._list_sum(listing)
    (folder / folders.LIST).write_text(json.dumps(listing))
    found, _ = read_folder(folder, "test")
    found["a"][1000] = 3
    assert found["a"][[0, 1000, -1]].tolist() == [0, 3, 17]


def test_an_array_larger_than_the_memory_limit_can_be_appended(tmp_path):
    script = """
    import resource, sys
    import numpy as np
    from dynagat.data.arrays import write_folder
    has = next(line for line in open("/proc/self/status") if line.startswith("VmData"))
    allowed = int(has.split()[1]) * 1024 + (50 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    try:
        np.ones(200 << 20, np.uint8)
        sys.exit("the limit does not hold")
    except MemoryError:
        pass
    with write_folder(sys.argv[1], "test") as writer:
        growing = writer.grow("a", np.uint8)
        for block in range(200):
            growing.append(np.full(1 << 20, block, np.uint8))
    """
    done = run(script, tmp_path / "f")
    assert done.returncode == 0, done.stderr
    found, _ = read_folder(tmp_path / "f", "test")
    assert found["a"][:: 1 << 20].tolist() == list(range(200))


def test_the_fingerprint_depends_on_the_content_and_not_on_the_path(tmp_path):
    same = [write(tmp_path / name, about={"n": 1}) for name in ("a", "b")]
    other = write(tmp_path / "c", about={"n": 2})
    assert folders.fingerprint(same[0]) == folders.fingerprint(same[1])
    assert folders.fingerprint(same[0]) != folders.fingerprint(other)


def test_a_folder_can_be_checked_on_demand(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "VERIFIED_BYTES", 0)
    folder = write(tmp_path / "f", {"a": np.arange(5)})
    path = folder / "a.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    read_folder(folder, "test")  # checksums of large folders are not verified by default
    with pytest.raises(FolderError, match="its checksum differs"):
        check_folder(folder, "test")
